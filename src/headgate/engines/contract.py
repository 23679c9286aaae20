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
from typing import Any, NamedTuple, Protocol

from msgspec import Raw, Struct

from headgate.core.job import Job
from headgate.core.queues import QueueConfig, Resolved
from headgate.core.retry import Failure, RetryPolicy
from headgate.core.unique import UniquePolicy

# What is asked


class Draft(Struct):
    """A job that wants in, already validated, and the uniqueness it asks for."""

    job: Job
    unique: UniquePolicy | None = None
    named: bool = True
    """The producer chose the id, so it may exist; false spares the look-up for a fresh one."""


class Fetch(Struct):
    queues: Sequence[str]
    count: int = 1
    worker: str = ""
    visibility_ms: int = 0
    """Asked for by this fetch; 0 leaves it to the job, its queue, the server."""


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


class Query(Struct):
    """Which jobs: every member given must hold."""

    queue: str | None = None
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


# What comes of it


class Pushed(Struct):
    job: Job
    replaced: str = ""


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


class Held(Struct):
    """Nothing wrong with this one, but another of its batch was refused."""


PushOutcome = Pushed | Duplicate | IdTaken | Draining | Unwanted | Held


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


Outcome = Done | Missing | WrongState | NotHolder


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
    created_at: int
    updated_at: int
    config: QueueConfig
    resolved: Resolved
    counts: dict[str, int]
    """Jobs per state, terminal ones included."""
    rates: Rates
    oldest_available_at: int = 0
    paused_at: int = 0


class Task(Struct):
    """A command that touches many jobs, carried out in slices and resumed after a restart."""

    id: str
    kind: str
    """cancel, retry, delete, discard, move"""
    query: Query
    target: str = ""
    matched: int = 0
    done: int = 0
    skipped: int = 0
    finished: bool = False


class Slice(Struct):
    jobs: list[Job]
    total: int


class Checkpoint(Struct):
    sequence: int
    saved_at: int
    state: bytes
    """JSON."""


class DeadLetterStats(Struct):
    total: int
    by_queue: dict[str, int]
    by_error_type: dict[str, int]
    oldest_at: int = 0
    newest_at: int = 0


class Event(NamedTuple):
    """Something that happened. Numbers only grow, over restarts too.

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
        self, drafts: Sequence[Draft], now_ms: int, *, whole: bool = True
    ) -> list[PushOutcome]:
        """One outcome per draft. When `whole`, one refusal refuses all (a Duplicate to be ignored is none)."""

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
        """By hand: a discarded job starts over with attempt 0, a retryable one is due at once."""

    async def delete(self, job_id: str, now_ms: int) -> Outcome:
        """Forget a job that has ended."""

    # looking

    async def find(self, job_id: str, now_ms: int) -> Job | None: ...

    async def find_all(self, query: Query, page: Page, now_ms: int) -> Slice: ...

    async def dead_letter_stats(self, now_ms: int) -> DeadLetterStats: ...

    async def events(self, after: int, limit: int, interest: Interest, now_ms: int) -> EventPage:
        """Durable events with numbers above `after`, oldest first, as far back as they are kept."""

    def subscribe(self, interest: Interest) -> Subscription: ...

    def listen(self, call: Callable[[Event], None]) -> None:
        """Have `call` called with every event at the moment it happens, durable or not: for metrics."""

    # many jobs at once

    async def start_task(self, task: Task, now_ms: int) -> Task:
        """Carry out a command on all jobs that match.

        Up to 1,000 of them are done when this returns (`finished`); more are done in slices, over restarts too.
        """

    async def tasks(self, now_ms: int) -> list[Task]:
        """Those that are not finished, and the last finished ones."""

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

    async def remove_queue(self, name: str, now_ms: int) -> int | None:
        """Forget an empty queue: the number of its non-terminal jobs, 0 when it is gone; None when nobody knows it."""

    async def history(
        self, queue: str | None, step_ms: int, since: int, until: int, now_ms: int
    ) -> list[Point]: ...

    # everything

    async def reset(self, now_ms: int) -> None:
        """Forget everything."""
