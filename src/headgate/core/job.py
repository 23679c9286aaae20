"""The job record: what a job is once it has been accepted.

A job has two halves.
`fixed` holds the members that its producer sent, already encoded as JSON, because nothing that happens later changes them; they are copied from the request to every answer without being decoded again.
The other fields are what the server decides: state, place in line, times.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct

from headgate.core.retry import DEFAULT, RetryPolicy
from headgate.core.states import AVAILABLE

MAX_ERRORS = 25
WAS_SCHEDULED = -1
"""No instant: says of a job how it came in, where that costs nothing to be kept."""


class Step(Struct, array_like=True):
    """Something that happened to a job and that nothing else would tell; see `core/trail.py`."""

    event: str
    was: str
    state: str
    at: int
    began: int = 0
    """Where it ended an attempt: when that had begun."""
    attempt: int = 0
    worker: str = ""
    by: str = ""
    reason: str = ""
    times: int = 1


class More(Struct, omit_defaults=True, eq=False):
    """What only some jobs have; most never need one."""

    errors: list[Raw] = []
    reason: str = ""
    """Why a discarded job ended: failure, expired, overflow, queue_deleted, ..."""
    retry_delay_ms: int = -1
    deferrals: int = 0
    """How often its handlers put it off without being charged an attempt."""
    activated_at: int = 0
    cancelled_while_active: bool = False
    progress: float | None = None
    progress_data: bytes | None = None
    """JSON. Raw cannot be optional in what is decoded."""
    progress_message: str | None = None
    progress_at: int = 0
    checkpoint_sequence: int = 0
    """Of the saved checkpoint, which is kept beside the job; 0 when there is none."""
    lease_ms: int = 0
    """How long the current reservation lasts, where its fetch asked for something else than the job."""
    give_up_at: int = 0
    """Total timeout as an instant; 0 means none."""
    expires_as: str = ""
    """What its expiry is called where that is not `expired`: `enqueue_ttl_expired`."""
    stall_ms: int = 0
    """Heartbeat timeout asked for by the job; 0 means none."""
    heard_at: int = 0
    re_enqueued_at: int = 0
    trace_id: str = ""
    """From the producer's meta: events carry it."""
    postponed_by: str = ""
    """The key that put the job off, while it waits for it as a scheduled one."""
    origin: str = ""
    """Of a dead letter that stands in a queue of its own: the queue that it came from."""
    buried_at: int = 0
    buried_for: str = ""
    """The reason of its discard."""
    buried_attempts: int = 0
    result_ttl_ms: int = -1
    """How long the result is kept after the end, where the job says so; -1 leaves it to retention."""
    back_at: int = 0
    """When it became available again: after the delay of a retry, or by losing its worker."""
    trail: list[Step] = []
    """What happened to it, as far as nothing else would tell."""
    trail_lost: int = 0
    """How many steps were too old to be kept."""
    forgotten_at: int = 0
    """When somebody deleted its history last."""
    first_enqueued_at: int = 0
    """Of a job that was enqueued once more; -1 where that was the first time."""
    was_scheduled: bool = False
    """It came in as a scheduled one."""
    replays: int = 0
    """How often a rule let it start over."""


class Job(Struct, gc=False, eq=False):
    """One job. Times are milliseconds since the epoch; 0 means not set."""

    id: str
    type: str
    queue: str
    priority: int
    fixed: bytes
    created_at: int
    max_attempts: int = 3
    timeout_ms: int = 1_800_000
    visibility_ms: int = 0
    expires_at: int = 0
    retry: RetryPolicy = DEFAULT
    unique: str | None = None
    tenant: str = ""
    keys: tuple[tuple[str, str], ...] = ()
    """The keys that it passes, by the names under which they are kept, each with what happens when it is closed."""
    state: str = AVAILABLE
    seq: int = 0
    """Place in line: smaller is older. Kept by requeue, renewed by retry."""
    attempt: int = 0
    claim: int = 0
    """Number of reservations so far: names the current one, never repeats."""
    enqueued_at: int = 0
    due_at: int = 0
    """When a scheduled or retryable job becomes available; WAS_SCHEDULED as long as one that was scheduled at first needs no other."""
    started_at: int = 0
    visible_until: int = 0
    finished_at: int = 0
    worker: str = ""
    pool: str = ""
    """Of the worker that fetched it last."""
    result: bytes | None = None
    dead: bool = False
    """Listed as a dead letter."""
    more: More | None = None
    alarm: int = 0
    """The instant at which a timer looks at it; 0 when none will."""
    lane: Any = None
    """The line it stands in, while it stands in one."""

    def rare(self) -> More:
        """The record of rare members, made when first needed."""
        if self.more is None:
            self.more = More(errors=[])
        return self.more


def copy_of(job: Job) -> Job:
    """A new record for the same job, for changes that must not reach old places in line."""
    fresh = Job(*[getattr(job, name) for name in Job.__struct_fields__])
    fresh.alarm = 0
    fresh.lane = None
    return fresh
