"""What every engine promises.

A step is one call of an engine.
It is atomic: it happens whole or not at all, and no other step sees half of it.
Every step is given the time; an engine never looks at a clock.
Before it does anything else, a step lets everything happen that was due by then (promotions, expiries, lost reservations), in the order in which it was due.

A step takes effect in the engine at once, but it may be lost until it is durable.
So nobody outside may learn of it before `settled()` has returned: the server awaits it before each answer, refusals and empty answers included.

The jobs that a step returns are the engine's own records: read them before the next await, and never change them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from msgspec import Raw, Struct

from headgate.core.bounds import Load, Strategy
from headgate.core.gates import GateState, Override
from headgate.core.job import Job
from headgate.core.limits import Use
from headgate.core.pools import Pool
from headgate.core.queues import QueueConfig, Resolved
from headgate.core.replays import ReplayRule
from headgate.core.retry import Failure, RetryPolicy
from headgate.core.tenants import TenantLimits
from headgate.core.unique import UniquePolicy

TOLD_QUEUES = 4
"""When a key closes, it is told of so many queues that jobs wait there; of more only as these have none left."""

# What is asked


class Draft(Struct):
    """A job that wants in, already validated, and the uniqueness it asks for."""

    job: Job
    unique: UniquePolicy | None = None
    named: bool = True
    """The producer chose the id, so it may exist; false spares the look-up for a fresh one."""
    uses: Sequence[Use] = ()
    """The keys that the job passes, and what its producer says of them; only an accepted job registers it."""


class Fetch(Struct):
    """Which jobs somebody would take. Where the server knows the pool, its settings take the place of queues, strategy and weights."""

    queues: Sequence[str]
    count: int = 1
    worker: str = ""
    visibility_ms: int = 0
    """Asked for by this fetch; 0 leaves it to the job, its queue, the server."""
    pool: str = ""
    """"" is what the worker registered with, else `default`."""
    tenant: str = ""
    """Only its jobs; "" is everybody's."""
    strategy: str = ""
    """"" is strict: in the order given."""
    weights: Sequence[int] = ()
    """One for each queue where the strategy is weighted."""
    micros: int = 0
    """How far into its millisecond the fetch comes: gates reckon in microseconds."""


class Ack(Struct):
    job_id: str
    worker: str = ""
    claim: int = 0
    """The reservation that is answered; 0 where the client does not know it."""
    result: bytes | None = None


class Fail(Struct):
    job_id: str
    failure: Failure
    worker: str = ""
    claim: int = 0
    uniform: float = 0.5
    """The random number that the retry delay may use, in [0, 1)."""
    hold_until: int = 0
    """The handler was told to come back no earlier: until then the job's key is held. 0 says nothing."""
    hold_key: str = ""
    """Which of the job's keys, by the name under which it is kept; "" is the first."""


class Extend(Struct):
    job_id: str
    claim: int = 0


class Report(Struct):
    """What a worker says of itself when it registers or beats; None leaves what is known."""

    worker: str
    state: str | None = None
    hostname: str | None = None
    pid: int | None = None
    queues: Sequence[str] | None = None
    concurrency: int | None = None
    labels: Raw | None = None
    version: str | None = None
    pool: str | None = None
    started_at: int | None = None


class Replay(Struct):
    """Changes to a job that is retried by hand; None leaves what it has."""

    queue: str | None = None
    fixed: bytes | None = None
    retry: RetryPolicy | None = None
    max_attempts: int | None = None
    by: str = ""
    """Who wants it, for the job's history."""
    reason: str = ""


class Query(Struct):
    """Which jobs: every member given must hold."""

    queue: str | None = None
    """With `dead`, also those that came from this queue."""
    states: Sequence[str] = ()
    type: str | None = None
    """Exact, or a prefix that ends in `*`."""
    priority: int | None = None
    created_from: int | None = None
    created_until: int | None = None
    enqueued_from: int | None = None
    enqueued_until: int | None = None
    worker: str | None = None
    error_type: str | None = None
    """Of the newest entry in the job's error history."""
    meta: dict[str, Any] | None = None
    """Members that the job's meta must have, with these values."""
    dead: bool = False
    """Only dead letters."""
    ids: Sequence[str] | None = None
    key: str | None = None
    """One of the keys that the job passes."""
    tenant: str | None = None
    """`_default` is everybody who names none."""
    parent: str | None = None
    """What jobs name as their `parent_id`; so with `root` and `workflow`."""
    root: str | None = None
    workflow: str | None = None


class Page(Struct):
    limit: int = 50
    offset: int = 0
    sort: str = "created_at"
    """created_at, enqueued_at, started_at, finished_at or priority; equal ones by their sequence."""
    newest_first: bool = False
    """The largest value first."""


class Interest(Struct):
    """Which events: every member given must hold."""

    job_id: str = ""
    queues: Sequence[str] = ()
    job_types: Sequence[str] = ()
    kinds: Sequence[str] = ()
    """Event types: exact, `job.*`, or `*`."""
    tenant: str = ""
    """Only what is told of this tenant."""


# What comes of it


class Pushed(Struct):
    job: Job
    replaced: str = ""
    load: Load | None = None
    """How full its queue is now, where producers are to be warned."""


class Duplicate(Struct):
    """An equal job exists; `ignore` says that its producer wants that one instead."""

    job: Job
    unique_key: str
    ignore: bool


class IdTaken(Struct):
    job_id: str


class Draining(Struct):
    queue: str


class Unwanted(Struct):
    """The queue does not exist and this server creates none by itself."""

    queue: str


class Full(Struct):
    """The queue takes no more now, or never so many at once."""

    queue: str
    load: Load
    strategy: Strategy
    never: bool
    """Waiting is no use: the push is larger than an empty queue."""
    retry_after_s: int
    """When there should be room, going by what has left the queue lately."""

    @property
    def may_wait(self) -> bool:
        """Whether it is of use to stand in line."""
        return self.strategy == "block" and not self.never


class TenantFull(Struct):
    """The tenant has used up one of its limits."""

    tenant: str
    limit: str
    """The limit's name, such as `max_queue_depth`."""
    current: int
    maximum: int
    retry_after_s: int
    never: bool = False
    """Trying again is no use: the push is more than the limit allows at all."""


class Held(Struct):
    """Nothing wrong with this one, but another of its batch was refused."""


PushOutcome = Pushed | Duplicate | IdTaken | Draining | Unwanted | Full | TenantFull | Held


class Done(Struct):
    """The step was carried out; this is the job now."""

    job: Job
    previous_state: str = ""


class Missing(Struct):
    job_id: str


class WrongState(Struct):
    """The job is in a state that does not allow the step."""

    job: Job


class NotHolder(Struct):
    """Somebody else holds the reservation, or it is another one by now."""

    job: Job
    held_by: str
    claim: int


Outcome = Done | Missing | WrongState | NotHolder | Unwanted | Draining


class Beat(Struct):
    state: str
    extended: list[str]
    cancelled: list[str]


class WorkerView(Struct):
    id: str
    state: str
    directive: str
    started_at: int
    last_heartbeat_at: int
    stale: bool
    active_jobs: list[str]
    hostname: str = ""
    pid: int = 0
    queues: Sequence[str] = ()
    concurrency: int = 0
    labels: Raw | None = None
    version: str = ""
    pool: str = "default"


def _no_latencies() -> tuple[float, float, float]:
    return (0.0, 0.0, 0.0)


class Rates(Struct):
    """What happened in a queue lately."""

    started_last_minute: int = 0
    completed_last_minute: int = 0
    failed_last_minute: int = 0
    completed_last_hour: int = 0
    failed_last_hour: int = 0
    completed_today: int = 0
    failed_today: int = 0
    avg_duration_ms: float = 0.0
    avg_wait_ms: float = 0.0
    latencies: Callable[[], tuple[float, float, float]] = _no_latencies
    """p50, p95 and p99 of the time from start to end of recent jobs, in ms; reckoned when asked for."""


class QueueView(Struct):
    name: str
    state: str
    """active, paused or draining"""
    created_at: int
    updated_at: int
    config: QueueConfig
    resolved: Resolved
    counts: dict[str, int]
    """Jobs per state, terminal ones included."""
    rates: Rates
    oldest_available_at: int = 0
    paused_at: int = 0
    oldest_runnable_at: int = 0
    """Since when the oldest of those jobs waits that nothing but a free worker keeps from running."""
    load: Load | None = None
    """Of its tightest bound; None when it has none."""
    bytes: int = 0
    """Of all jobs that have not ended."""
    parked: int = 0
    """Producers that wait for room."""
    limits: GateState | None = None
    """How far its own limits are used up; None when it has none."""


class Task(Struct):
    """A command that touches many jobs, carried out in slices and resumed after a restart."""

    id: str
    kind: str
    """cancel, retry, delete, purge; of a queue that is deleted: discard, move; of a rule: replay"""
    query: Query
    target: str = ""
    matched: int = 0
    done: int = 0
    skipped: int = 0
    finished: bool = False


class RuleSet(Struct):
    """A replay rule was set."""

    created: bool
    """There was none of this name before."""
    task: Task
    """The look at everything that lies there already; `done` counts what started over at once."""


class Slice(Struct):
    jobs: list[Job]
    total: int


class Checkpoint(Struct):
    sequence: int
    saved_at: int
    state: bytes
    """JSON."""


class KeyView(Struct):
    """A key: its limits, and how far they are used up."""

    key: str
    state: GateState
    waiting: int
    """Available jobs of it beyond those that it would let start now."""


class KeyJobs(Struct):
    """The live jobs of a key as if it were the only one, oldest first; one page of them."""

    allowed: list[Job]
    """Those that run, then those that the key would let start now."""
    rate_limited: list[Job]
    """Those that wait for it."""
    allowed_total: int
    rate_limited_total: int


class PoolView(Struct):
    pool: Pool
    active_workers: int
    active_jobs: int


class Dispatches(Struct):
    """What a queue got of all dispatches lately."""

    queue: str
    last_minute: int
    avg_wait_ms: float
    active_jobs: int


class TenantView(Struct):
    id: str
    limits: TenantLimits
    known_at: int
    """When its limits were first set; 0 when it is only known by its jobs."""
    counts: dict[str, int]
    """Its live jobs per state."""


class Maintenance(Struct, frozen=True):
    """No job is given out and none becomes due, until somebody ends it."""

    reason: str
    enabled_at: int
    estimated_end: int = 0
    """When whoever began it means to end it, which does not end it; 0 when nothing was said."""


class Quota(Struct):
    """How far a tenant's enqueues are used up."""

    limit: int
    remaining: int
    resets_at: int
    """When all of them are free again if no more come; at the earliest now."""


class Barrier(Struct):
    """Something that keeps a job from running now."""

    kind: str
    """maintenance; hold, concurrency, rate or throttle of a key, a queue or a tenant; paused, pool, isolated, no_consumers, scheduled, retry, pending, priority"""
    scope: str
    """What it belongs to: key, queue, tenant, pool, job, server"""
    name: str
    limit: int = 0
    current: int = 0
    holders: Sequence[str] = ()
    """The first few of the jobs that hold a slot, longest first."""
    opens_at: int = 0
    """When it is over if nothing else happens; 0 when nobody knows."""
    reason: str = ""


class Explanation(Struct):
    """Why a job stands where it stands."""

    job: Job
    place: int
    """How many would be taken before it if nothing were in the way; -1 where it stands in no line. Counted up to 10,000."""
    barriers: list[Barrier]
    consumers: int
    """Fetches that wait for its queue and workers that say that they serve it."""


class Why(Struct):
    """Why a fetch found nothing."""

    next_at: int
    """The earliest instant at which something is known to open or to be due; 0 when none is known."""
    reasons: dict[str, str]
    """Queue -> empty, unknown, paused, limited, blocked, isolated, pool_full, worker_full, worker_resting"""


class Left(Struct):
    """A queue that is deleted, or will be when its active jobs have ended."""

    state: str
    """deleted or draining"""
    affected: int
    """Jobs that waited, with which something was done."""


class NotEmpty(Struct):
    """The queue has unfinished jobs, and nothing was said of what becomes of them."""

    unfinished: int


class DeadLetterStats(Struct):
    total: int
    by_queue: dict[str, int]
    by_error_type: dict[str, int]
    oldest_at: int = 0
    newest_at: int = 0
    kept_ms: int = 0
    """How long, and how many of, those are kept that stand in no queue of their own."""
    most: int = 0
    next_prune_at: int = 0
    """When the engine next looks for what is kept no longer; now while it does."""


class Event(Struct, frozen=True, gc=False):
    """Something that happened. Numbers only grow, over restarts too.

    Many are kept and none refers to itself, so the search for garbage passes them by.
    Values in `data` are JSON values, `msgspec.Raw` for what is JSON already; names ending in `_at` or `until` are milliseconds, which the wire turns into instants.
    """

    number: int
    kind: str
    """Its OJS type, such as `job.completed`."""
    at_ms: int
    subject: str
    """What it is about: a job's id, a queue's or a worker's name."""
    job_type: str
    queue: str
    state: str
    """Of the job, when it had happened; "" where it is about none."""
    data: dict[str, Any] | None


class EventPage(Struct):
    events: list[Event]
    cursor: int
    has_more: bool


QUEUE_OPENED: Final = "queue_opened"
KEY_WAITED: Final = "key_waited"


class Point(Struct):
    """What happened in one interval."""

    at_ms: int
    """Its start."""
    enqueued: int = 0
    completed: int = 0
    failed: int = 0


class Subscription(Protocol):
    """Durable events as they come, in order."""

    async def next(self, timeout_s: float) -> list[Event]:
        """All that came since the last call, or wait for the first; none when the time is up.

        A reader that is more than 1,000 events behind loses the oldest and finds a `system.events_dropped` in their place.
        """

    def close(self) -> None: ...


class Watch(Protocol):
    """A place in the line of those who wait for work."""

    async def wait(self, timeout_s: float) -> bool:
        """Return when there may be work (true) or when the time is up (false)."""

    def close(self) -> None:
        """Leave the line; a wake-up that was not used passes on."""


class Place(Protocol):
    """A producer's place in the line before full queues."""

    async def wait(self, timeout_s: float) -> bool:
        """Return when it is its turn and there should be room (true) or when the time is up (false)."""

    def close(self) -> None:
        """Leave the line; the next one may come forward."""


class Engine(Protocol):
    """The state of the system and every way in which it can change."""

    # durability

    async def settled(self) -> None:
        """Return when all that was observed so far is durable; raise BackendUnavailable if it was lost."""

    async def health(self) -> dict[str, Any]:
        """`{type, status, ...}`; status is ok or unhealthy. Never raises."""

    async def close(self) -> None: ...

    # time

    def next_due(self) -> int:
        """The instant of the next thing that happens by itself; a very large number when nothing will."""

    def on_sooner(self, call: Callable[[], None]) -> None:
        """Have `call` called whenever `next_due` has become earlier."""

    async def tick(self, now_ms: int) -> None:
        """Let happen what is due."""

    # jobs, from enqueue to end

    async def push(
        self,
        drafts: Sequence[Draft],
        now_ms: int,
        *,
        whole: bool = True,
        place: Place | None = None,
        waits: bool = False,
    ) -> list[PushOutcome]:
        """One outcome per draft. When `whole`, one refusal refuses all (a Duplicate to be ignored is none).

        Where producers wait in line before a queue, all room is kept for them; `place` is that of this one.
        Who `waits` is not told of as refused by a full queue at which waiting is of use.
        """

    def park(self, drafts: Sequence[Draft]) -> Place | None:
        """Stand in line before the full queues of these drafts; None when too many do already."""

    def turn_away(self, draft: Draft, full: Full, now_ms: int) -> None:
        """Tell that this is refused now for want of room, after all."""

    async def fetch(self, fetch: Fetch, now_ms: int) -> list[Job]:
        """Claim jobs, queue after queue in the order given; none for a worker that is not running."""

    def watch(self, fetch: Fetch) -> Watch:
        """Stand in line for work; register first, then look with `fetch`, then wait."""

    async def ack(self, acks: Sequence[Ack], now_ms: int) -> list[Outcome]: ...

    async def fail(self, fails: Sequence[Fail], now_ms: int) -> list[Outcome]: ...

    async def extend(
        self, worker: str, jobs: Sequence[Extend], visibility_ms: int, now_ms: int
    ) -> list[Outcome]:
        """Renew reservations by `visibility_ms`, or by what each was made for when it is 0."""

    async def cancel(self, job_id: str, by: str, reason: str, now_ms: int) -> Outcome: ...

    async def activate(self, job_id: str, now_ms: int) -> Outcome: ...

    async def reprioritize(self, job_id: str, priority: int, now_ms: int) -> Outcome:
        """Done.previous_state is the previous priority as text."""

    async def progress(
        self,
        job_id: str,
        progress: float | None,
        data: Raw | None,
        message: str | None,
        now_ms: int,
    ) -> Outcome:
        """Kept only while the job is active, never decreasing within an attempt; renews the reservation.

        Done in every state: the caller answers with what the job says.
        """

    async def save_checkpoint(self, job_id: str, state: bytes, now_ms: int) -> Outcome:
        """WrongState when the job has ended."""

    async def checkpoint(self, job_id: str, now_ms: int) -> Checkpoint | None: ...

    async def drop_checkpoint(self, job_id: str, now_ms: int) -> Outcome: ...

    async def retry(self, job_id: str, changes: Replay, now_ms: int) -> Outcome:
        """By hand: a discarded job starts over with attempt 0, a retryable one is due at once.

        Unwanted where its queue would have to be created by that and may not, Draining where it was to go to one that takes no new jobs.
        """

    async def delete(self, job_id: str, now_ms: int) -> Outcome:
        """Forget a job that has ended."""

    async def forget_history(self, job_id: str, now_ms: int) -> Outcome:
        """Of a job that has ended, forget how it came to that: its trail, and all errors but the newest."""

    # looking

    async def find(self, job_id: str, now_ms: int) -> Job | None: ...

    async def explain(self, job_id: str, now_ms: int) -> Explanation | None: ...

    async def why(self, fetch: Fetch, now_ms: int) -> Why:
        """Why this fetch would find nothing now."""

    async def find_all(self, query: Query, page: Page, now_ms: int) -> Slice: ...

    async def dead_letter_stats(
        self, now_ms: int, tenant: str | None = None
    ) -> DeadLetterStats: ...

    async def events(self, after: int, limit: int, interest: Interest, now_ms: int) -> EventPage:
        """Durable events with numbers above `after`, oldest first, as far back as they are kept."""

    def subscribe(self, interest: Interest) -> Subscription: ...

    def listen(self, call: Callable[[Event], None]) -> None:
        """Have `call` called with every event at the moment it happens, durable or not: for metrics.

        It alone also hears QUEUE_OPENED when a queue comes into being, whoever or whatever created it, and KEY_WAITED when a job starts that a key had kept waiting: `key`, and `wait_ms` from when it was available to the key's last opening.
        """

    # many jobs at once

    async def start_task(self, task: Task, now_ms: int) -> Task:
        """Carry out a command on all jobs that match.

        Up to 1,000 of them are done when this returns (`finished`); more are done in slices, over restarts too.
        """

    async def tasks(self, now_ms: int) -> list[Task]:
        """Those that are not finished, and the last finished ones."""

    # dead letters that start over

    async def replay_rules(self, now_ms: int) -> list[ReplayRule]:
        """By name."""

    async def set_replay_rule(self, rule: ReplayRule, task: str, now_ms: int) -> RuleSet:
        """Create or replace.

        From now on each dead letter that nobody runs starts over when the rules say so, as by `retry`: what lies there already too, by a task of this id.
        """

    async def drop_replay_rule(self, name: str, now_ms: int) -> bool:
        """What it would have let start over stays; false when nobody knows it."""

    # answers kept for repeated requests

    async def recall(self, scope: str, key: str, now_ms: int) -> bytes | None: ...

    async def remember(
        self, scope: str, key: str, value: bytes, until_ms: int, now_ms: int
    ) -> None: ...

    # workers

    async def beat(
        self, report: Report, job_ids: Sequence[str], visibility_ms: int, now_ms: int
    ) -> Beat:
        """A sign of life, the first one registers; extends the jobs that the worker still holds."""

    async def worker(self, worker: str, now_ms: int) -> WorkerView | None: ...

    async def workers(self, now_ms: int) -> list[WorkerView]: ...

    async def direct(self, worker: str, state: str, now_ms: int) -> bool:
        """Tell a worker to become quiet or to terminate; false when nobody knows it."""

    async def forget_worker(self, worker: str, reason: str, now_ms: int) -> int | None:
        """Deregister: its jobs go back to their places. How many; None when nobody knows it."""

    # keys

    async def keys(self, limit: int, offset: int, now_ms: int) -> tuple[list[KeyView], int]:
        """One page of all keys, those known longest first, and how many there are."""

    async def key(self, key: str, now_ms: int) -> KeyView | None: ...

    async def override(self, key: str, override: Override, by: str, now_ms: int) -> None:
        """Put other limits upon a key for a time; it need not be known."""

    async def lift(self, key: str, by: str, now_ms: int) -> bool:
        """Take back override and hold; false when nobody knows the key."""

    async def key_jobs(
        self, key: str, limit: int, offset: int, now_ms: int, *, tenant: str = ""
    ) -> KeyJobs | None:
        """One page of the jobs of a key; only this tenant's where one is named."""

    # pools

    async def pools(self, now_ms: int) -> list[PoolView]:
        """By name."""

    async def set_pool(self, pool: Pool, now_ms: int) -> bool:
        """Create (true) or replace; turns begin anew where queues, strategy or weights are others."""

    async def drop_pool(self, name: str, now_ms: int) -> bool:
        """False when nobody knows it."""

    async def dispatches(self, now_ms: int) -> list[Dispatches]:
        """By queue."""

    # tenants

    async def tenants(self, now_ms: int) -> list[TenantView]:
        """Those with limits or live jobs, by name."""

    async def tenant(self, tenant: str, now_ms: int) -> TenantView | None: ...

    def quota(self, tenant: str, now_ms: int) -> Quota | None:
        """Of enqueues, where the tenant has a `max_enqueue_rate`."""

    async def set_tenant(self, tenant: str, limits: TenantLimits, now_ms: int) -> bool:
        """True when it had no limits before."""

    async def forget_tenant(self, tenant: str, now_ms: int) -> bool:
        """Its limits are gone, its jobs stay; false when it had none."""

    async def count_jobs(self, query: Query, now_ms: int) -> dict[tuple[str, str], int]:
        """(queue, state) -> how many jobs match."""

    # queues

    def settings(self, queue: str) -> Resolved:
        """What holds for a queue, whether it exists or not."""

    async def queues(self, now_ms: int) -> list[QueueView]:
        """By name."""

    async def queue(self, name: str, now_ms: int) -> QueueView | None: ...

    async def create_queue(self, name: str, changes: Mapping[str, Any], now_ms: int) -> bool:
        """False when it exists."""

    async def default_policy(self) -> QueueConfig: ...

    async def configure(self, name: str, changes: Mapping[str, Any], now_ms: int) -> None:
        """Merge (core.queues.merge) into the configuration, which creates the queue; `_default` is the policy."""

    async def pause(self, name: str, by: str, now_ms: int) -> None:
        """Creates the queue when nobody knows it."""

    async def resume(self, name: str, by: str, now_ms: int) -> None:
        """The end of a pause or of draining; creates the queue when nobody knows it."""

    async def drain(self, name: str, by: str, now_ms: int) -> bool:
        """Take no new jobs and be deleted when the last one has ended; false when nobody knows the queue."""

    async def remove_queue(
        self, name: str, strategy: str, target: str, task: str, now_ms: int
    ) -> Left | NotEmpty | None:
        """Delete a queue; `reject` only where it has no unfinished jobs. None when nobody knows it.

        `discard` ends its waiting jobs, `move` takes them to the target, which exists; `task` names the command where they are many.
        Active jobs end first: the queue drains until then, and what becomes of them goes the same way.
        """

    async def history(
        self, queue: str | None, step_ms: int, since: int, until: int, now_ms: int
    ) -> list[Point]: ...

    # everything

    @property
    def maintenance(self) -> Maintenance | None:
        """None while the server is not in maintenance."""

    async def begin_maintenance(
        self, reason: str, estimated_end: int, by: str, now_ms: int
    ) -> Maintenance:
        """Nothing is fetched, and nothing scheduled or retryable becomes available, over restarts too; everything else goes on.

        Where it has begun already it takes this reason and this end.
        """

    async def end_maintenance(self, by: str, now_ms: int) -> bool:
        """What came due meanwhile becomes available now, in the order in which it was due; false when there was none."""

    async def reset(self, now_ms: int) -> None:
        """Forget everything."""
