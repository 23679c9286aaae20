"""The virtual-time harness: a minute of traffic under real rules, in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from msgspec import Struct

from headgate import ids
from headgate.client.amounts import Duration, Instant, at_ms, ms_of
from headgate.client.chain import Chain
from headgate.client.core import Core
from headgate.client.draft import Draft
from headgate.client.draft import Enqueued as Accepted
from headgate.client.errors import ValidationError
from headgate.client.jobs import AsyncJob, Job
from headgate.client.options import check, envelope
from headgate.client.pressure.waits import Waits
from headgate.client.sides import AsyncSide, SyncSide, verb
from headgate.client.tasks import AsyncTask, Call, Task
from headgate.client.values import builtins
from headgate.testing.clock import START_MS, VirtualClock
from headgate.testing.enqueued import AnyTask, What, type_of
from headgate.testing.floor import Fleet
from headgate.testing.memory import Memory, shared
from headgate.testing.performing import attempted, judged, perform
from headgate.testing.recording import RecordingEnqueue
from headgate.testing.stage import App
from headgate.testing.starts import How, Start, Starts
from headgate.worker.outcome import Ack, Nack, stopped, timeout_s, unknown

Length: TypeAlias = Duration | Callable[..., Duration]
"""How long a run takes, or what says so, given the arguments."""


class _Planned(Struct):
    length: Length = 0
    runs: bool = True
    result: Any = None
    error: BaseException | None = None


class _Harness(Starts, Memory):
    """Applications, the real engine in memory, workers and a clock that only moves in `run_for`."""

    def __init__(self, *apps: App, start: Instant | None = None, seed: int = 0) -> None:
        super().__init__(*apps)
        self._start_us = (START_MS if start is None else at_ms(start, "start")) * 1000
        self.seed = seed
        self.starts = []
        self._latest: dict[str, Start] = {}
        self._planned: dict[str, _Planned] = {}
        self._spent_us = 0
        self._runs = False
        self._crew = Fleet("harness", 10)

    def _clock(self) -> VirtualClock:
        return VirtualClock(self._start_us)

    def _begin(self) -> None:
        super()._begin()
        self.time.on_sleep = self._pass
        self._floor.fleets = [self._crew]
        core = Core(self._server, clock=self.time, waits=Waits(tries=1), timeout_s=30.0)
        self._own = RecordingEnqueue(core, Chain(), self._note)

    def _core(self) -> Core:
        return self._own.core

    @property
    def now(self) -> datetime:
        """The virtual time."""
        return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=self.time.now_us())

    # work

    @verb
    async def enqueue(self, what: What, /, *args: Any, **kwargs: Any) -> Any:
        """Enqueue one job now: of a handler with its arguments, or of a type with arguments and options."""
        if isinstance(what, Task | AsyncTask):
            (done,) = await self._send(what, [what.call(*args, **kwargs)])
            return done
        check(kwargs)
        now_ms = self.time.now_ms()
        body = envelope(what, builtins(list(args), "args"), {}, kwargs, now_ms)
        body.setdefault("id", ids.uuid7(now_ms))
        accepted = await self._own.one(Draft(body))
        assert accepted is not None
        return self._handle(accepted)

    @verb
    async def enqueue_many(
        self, what: What, calls: Iterable[Call[Any] | tuple[Any, ...]], /, **options: Any
    ) -> list[Any]:
        """Enqueue many jobs now: calls or tuples of arguments; a type takes options too."""
        if isinstance(what, Task | AsyncTask):
            if options:
                raise TypeError("a task has its options with task.options(...)")
            packed = [one if isinstance(one, Call) else what.call(*one) for one in calls]
            return await self._send(what, packed)
        check(options)
        now_ms = self.time.now_ms()
        drafts = []
        for call in calls:
            args = call.args if isinstance(call, Call) else call
            body = envelope(what, builtins(list(args), "args"), {}, options, now_ms)
            drafts.append(Draft({"id": ids.uuid7(now_ms), **body}))
        return [self._handle(one) for one in await self._own.many(drafts) if one is not None]

    async def _send(self, task: AnyTask, calls: Iterable[Call[Any]]) -> list[Any]:
        parts = task._parts  # noqa: SLF001 - a task has no other way to its application
        self._attach(parts)
        drafts = [task._draft(call.args) for call in calls]  # noqa: SLF001
        done = await parts.enqueue.many(drafts)
        self._floor.changed()
        return [task._handle(one) for one in done if one is not None]  # noqa: SLF001

    def _handle(self, done: Accepted) -> Any:
        raise NotImplementedError

    # how work goes

    def takes(self, what: What, length: Length) -> None:
        """Let every run of such a job take so long, in virtual time; a function gets the job's arguments. Without it a run takes no time."""
        self._planned_for(what).length = length

    def stub(
        self,
        what: What,
        result: Any = None,
        *,
        error: BaseException | None = None,
        takes: Length = 0,
    ) -> None:
        """Do not call the handler: give this result, or fail with this error."""
        planned = self._planned_for(what)
        planned.runs, planned.result, planned.error = False, result, error
        planned.length = takes

    def spend(self, length: Duration) -> None:
        """Inside of a handler: let the run take so much longer, in virtual time."""
        self._spent_us += ms_of(length, "length") * 1000

    def _planned_for(self, what: What) -> _Planned:
        return self._planned.setdefault(type_of(what) or "", _Planned())

    # workers

    def workers(
        self,
        name: str,
        count: int,
        *,
        queues: Iterable[str] = (),
        pool: str | None = None,
    ) -> None:
        """More workers, besides those of `run_for`, from now on; 0 of them are none again."""
        fleet = next((one for one in self._floor.fleets if one.name == name), None)
        if fleet is None:
            fleet = Fleet(name, count)
            self._floor.fleets.append(fleet)
        fleet.slots = _number(count)
        fleet.queues = list(queues)
        fleet.pool = pool or ""

    @verb
    async def run_for(
        self,
        length: Duration,
        *,
        workers: int | None = None,
        queues: Iterable[str] | None = None,
        pool: str | None = None,
    ) -> None:
        """Let so much time pass, with so many workers: all that happens before its end happens.

        What would happen at the end itself, such as the opening of a window of just that length, is left to the next run. Workers, their queues and their pool stay what they were where they are not given; at first there are 10, who serve all queues that were declared or used, in that order.
        """
        if workers is not None:
            self._crew.slots = _number(workers)
        if queues is not None:
            self._crew.queues = list(queues)
        if pool is not None:
            self._crew.pool = pool
        await self._pass(ms_of(length, "length") * 1000)

    def crash(self) -> int:
        """All workers die at once: their jobs are lost when their leases end. How many those were."""
        lost = self._floor.crash()
        for one in lost:
            self._latest[one.record["id"]].how = "lost"
        return len(lost)

    async def _pass(self, us: int) -> None:
        if self._runs:
            raise RuntimeError("a handler cannot let time pass; spend() makes its own run longer")
        self._runs = True
        try:
            await self._floor.run_until(self.time.now_us() + us)
        finally:
            self._runs = False

    async def _perform(self, record: dict[str, Any]) -> tuple[int, Ack | Nack]:
        job_type, job_id = record["type"], record["id"]
        planned = self._planned.get(job_type) or _Planned()
        declared = self._declared(job_type)
        self._begun(record)
        if declared is None and planned.runs:
            return 0, unknown(record)
        self._spent_us = _length_us(planned.length, record["args"])

        async def call() -> Any:
            if planned.error is not None:
                raise planned.error
            if declared is None or not planned.runs:
                return planned.result
            return await perform(self._core(), declared, record)

        ended = await attempted(call, self._faults.next(job_type))
        length_us, limit_us = self._spent_us, round(timeout_s(record) * 1_000_000)
        if limit_us and length_us > limit_us:
            late = stopped(record, "timeout")
            assert isinstance(late, Nack)
            return limit_us, late
        deferrals = self._ran.get(job_id, []).count("deferred")
        ends_ms = (self.time.now_us() + length_us) // 1000
        return length_us, judged(record, ended, ends_ms, deferrals=deferrals)

    def _begun(self, record: dict[str, Any]) -> None:
        limits = record.get("rate_limit") or []
        start = Start(
            self.time.elapsed_s(),
            record["id"],
            record["type"],
            record.get("queue", "default"),
            str((record.get("meta") or {}).get("tenant_id") or ""),
            tuple(one["key"] for one in (limits if isinstance(limits, list) else [limits])),
            int(record.get("attempt", 1)),
        )
        self.starts.append(start)
        self._latest[start.job_id] = start

    def _ended(self, job_id: str, outcome: Ack | Nack) -> None:
        super()._ended(job_id, outcome)
        start = self._latest.get(job_id)
        if start is not None:
            how: How = "completed" if isinstance(outcome, Ack) else "failed"
            start.how = "deferred" if isinstance(outcome, Nack) and outcome.requeue else how

    @verb
    async def counts(self, queue: str | None = None) -> dict[str, int]:
        """How many jobs are in each state now, of one queue or of all."""
        found: dict[str, int] = {}
        for view in await self._server.views():
            if queue in {None, view.name}:
                for state, jobs in view.counts.items():
                    found[state] = found.get(state, 0) + jobs
        return found


class Harness(_Harness, SyncSide):
    """The harness, for tests that block."""

    lends = True

    @property
    def aio(self) -> AsyncHarness:
        """The same for tests that await; coroutines run on their loop."""
        return shared(self, AsyncHarness)

    def _handle(self, done: Accepted) -> Job[Any]:
        return Job(self._core(), done)


class AsyncHarness(_Harness, AsyncSide):
    """The harness, for tests that await."""

    def _handle(self, done: Accepted) -> AsyncJob[Any]:
        return AsyncJob(self._core(), done)


def _number(count: int) -> int:
    if count < 0:
        raise ValidationError(f"workers must be 0 or more, not {count}")
    return count


def _length_us(length: Length, args: list[Any]) -> int:
    if callable(length):
        length = length(*args)
    return ms_of(length, "takes") * 1000
