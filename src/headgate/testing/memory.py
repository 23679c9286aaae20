"""The modes that need no server: `fake` and `inline`."""

from __future__ import annotations

from typing import Any, TypeVar

from headgate import clock, ids
from headgate.client.amounts import Duration, Instant, at_ms, ms_of
from headgate.client.clock import Clock
from headgate.client.core import Core
from headgate.client.draft import Draft, Enqueued
from headgate.client.enqueue import Enqueue
from headgate.client.errors import ValidationError
from headgate.client.pressure.waits import Waits
from headgate.client.sides import AsyncSide, SyncSide, verb
from headgate.client.transport.contract import Transport
from headgate.testing.clock import VirtualClock
from headgate.testing.enqueued import AnyTask
from headgate.testing.floor import Fleet, Floor
from headgate.testing.hands import Hands, Running
from headgate.testing.local import LocalServer
from headgate.testing.performing import Raised, attempted, judged, perform
from headgate.testing.recording import InlineEnqueue
from headgate.testing.stage import Stage
from headgate.worker.outcome import Ack, Nack, unknown

T = TypeVar("T")


class Memory(Stage):
    """An application with a server of its own, in memory, which is gone at the end."""

    seed = 0

    def _begin(self) -> None:
        self.time = self._clock()
        self._server = LocalServer(self.time, self.seed)
        self._hands = Hands(self._server, self._perform, self._ended, self._queues)
        self._floor: Floor[Running] = Floor(self.time, self._hands)
        self._hands.floor = self._floor

    def _end(self) -> None:
        self._server.end()

    def _clock(self) -> VirtualClock:
        return VirtualClock(clock.wall_ms() * 1000, clock.elapsed_s)

    def _transport(self, core: Core) -> tuple[Transport, Clock, Waits]:
        return self._server, self.time, Waits(tries=1)

    async def _perform(self, record: dict[str, Any]) -> tuple[int, Ack | Nack]:
        """Run the handler of a job that was fetched: how long it takes, in µs, and how it ends."""
        job_type = record["type"]
        declared = self._declared(job_type)
        if declared is None:
            return 0, unknown(record)

        async def call() -> Any:
            return await perform(self._core(), declared, record)

        ended = await attempted(call, self._faults.next(job_type))
        deferred = self._ran.get(record["id"], []).count("deferred")
        return 0, judged(record, ended, self.time.now_ms(), deferrals=deferred)

    def _queues(self) -> list[str]:
        """What a worker of these applications serves, then where else they enqueued."""
        declared = [name for parts, _ in self._sides for name in parts.register.queues()]
        seen = [one.queue for one in self._enqueued.values()]
        return list(dict.fromkeys([*declared, *seen]))

    async def _one(self, draft: Draft, enqueue: Enqueue) -> tuple[Enqueued, dict[str, Any] | None]:
        """Enqueue a job and fetch that very one, where it can run at once."""

        async def both() -> tuple[Enqueued, dict[str, Any] | None]:
            (done,) = await Enqueue._send(enqueue, [draft], batch=False)  # noqa: SLF001 - as its subclass would
            if done.deduplicated or done.record.get("state") != "available":
                return done, None
            fleet = Fleet("inline", 1, [draft.queue])
            for record in await self._hands.fetch(fleet, 1):
                if record["id"] == draft.id:
                    return done, record
                raise RuntimeError(f"{record['id']} stood before {draft.id} in {draft.queue}")
            raise RuntimeError(f"{draft.queue} does not give its job away, so it cannot run inline")

        return await self._server.here(both())

    @verb
    async def freeze_time(self, at: Instant | None = None) -> None:
        """Let the time stand still, now or at a later instant."""
        self.time.freeze()
        if at is not None:
            until_us = at_ms(at, "at") * 1000
            if until_us < self.time.now_us():
                raise ValidationError("time does not go back: freeze it at a later instant")
            await self._wait_until(until_us)

    @verb
    async def advance_time(self, by: Duration) -> None:
        """Let so much time pass: what is scheduled becomes available, what has expired is gone. Nothing is started."""
        await self._wait_until(self.time.now_us() + ms_of(by, "by") * 1000)

    async def _wait_until(self, at_us: int) -> None:
        fleets, self._floor.fleets = self._floor.fleets, []
        try:
            await self._floor.run_until(at_us)
            await self._server.tick()
        finally:
            self._floor.fleets = fleets

    @verb
    async def clear(self) -> None:
        """Forget all jobs, what was enqueued and planned failures."""
        self._enqueued.clear()
        self._ran.clear()
        self._faults.clear()
        self._floor.crash()
        await self._server.here(self._server.engine.reset(self.time.now_ms()))

    clear_all = clear


class _Fake(Memory):
    @verb
    async def drain(
        self,
        queue: str | None = None,
        *,
        max_jobs: int | None = None,
        timeout: float = 30.0,
        with_scheduled: bool = False,
    ) -> int:
        """Run what can run now, one job after the other, until nothing is left; how many runs that were.

        Failures are answered as a worker answers them, so a job may be retried later. With `with_scheduled` the time moves on to whatever comes next, until all jobs have ended. Real seconds are bounded by `timeout`.
        """
        fleet = Fleet("drain", 1, [queue] if queue else ())
        self._floor.fleets = [fleet]
        until_s = clock.elapsed_s() + timeout
        before = self._floor.started
        try:
            while True:
                left = None if max_jobs is None else max_jobs - (self._floor.started - before)
                await self._floor.run_now(left)
                done = self._floor.started - before
                if done == max_jobs or not with_scheduled or not await self._unfinished(queue):
                    return done
                if clock.elapsed_s() >= until_s:
                    raise TimeoutError(f"jobs are left after {timeout:g} s of draining")
                next_us = self._floor.next_us()
                if next_us is None:
                    return done
                self.time.move_to(max(next_us, self.time.now_us()))
        finally:
            self._floor.fleets = []

    async def _unfinished(self, queue: str | None) -> bool:
        """Whether some job may still run by itself."""
        found = await self._server.views()
        return any(
            one.counts[state]
            for one in found
            if queue in {None, one.name}
            for state in ("available", "scheduled", "retryable", "active")
        )

    @verb
    async def perform(self, task: AnyTask, *args: Any, **kwargs: Any) -> Any:
        """Enqueue and run one job now: its result. Raises what the handler raises."""
        parts = task._parts  # noqa: SLF001 - a task has no other way to its application
        self._attach(parts)
        packed = task._declared.signature.pack(args, kwargs)  # noqa: SLF001
        body = {"id": ids.uuid7(self.time.now_ms()), "type": task.type, "args": list(packed)}
        done = await self._inline(Draft(body), parts.enqueue)
        return done.record.get("result")

    async def _inline(self, draft: Draft, enqueue: Enqueue) -> Enqueued:
        """Enqueue a job, run it, answer for it; an error of its handler is raised when that is done."""
        sent = Draft({name: value for name, value in draft.body.items() if name not in _IGNORED})
        declared = self._declared(draft.type)
        if declared is None:
            (done,) = await Enqueue._send(enqueue, [draft], batch=False)  # noqa: SLF001 - as its subclass would
            if not done.deduplicated:
                self._note(draft.body)
            return done
        done, record = await self._one(sent, enqueue)
        if done.deduplicated:
            return done
        self._note(draft.body)
        if record is None:
            return done
        fetched = record

        async def call() -> Any:
            return await perform(self._core(), declared, fetched)

        ended = await attempted(call, self._faults.next(draft.type))
        outcome = judged(record, ended, self.time.now_ms())
        if isinstance(outcome, Nack):
            outcome = Nack(outcome.job_id, outcome.claim, {**outcome.error, "retryable": False})
        self._ended(draft.id, outcome)
        await self._hands.answer(Fleet("inline", 1, [draft.queue]), [outcome])
        if isinstance(ended, Raised):
            raise ended.error
        return Enqueued(await self._record(draft.id))


_IGNORED = frozenset({"scheduled_at", "rate_limit", "expires_at"})
"""What would keep a job from running now."""


class Fake(_Fake, SyncSide):
    """Nothing is run unless a test says so: jobs are enqueued into a server in memory."""

    lends = True

    @property
    def aio(self) -> AsyncFake:
        """The same for tests that await; coroutines run on their loop."""
        return shared(self, AsyncFake)


class AsyncFake(_Fake, AsyncSide):
    """As `Fake`, for tests that await."""


class _Inline(_Fake):
    def _enqueue(self, core: Core, own: Enqueue) -> Enqueue:
        async def run(draft: Draft) -> Enqueued:
            return await self._inline(draft, enqueue)

        enqueue = InlineEnqueue(core, own.middleware, self._note, run)
        return enqueue


class Inline(_Inline, SyncSide):
    """Every job is run where it is enqueued, before that returns."""

    lends = True

    @property
    def aio(self) -> AsyncInline:
        """The same for tests that await; coroutines run on their loop."""
        return shared(self, AsyncInline)


class AsyncInline(_Inline, AsyncSide):
    """As `Inline`, for tests that await."""


def shared(one: Stage, kind: type[T]) -> T:
    """The same object seen from the other side."""
    view = object.__new__(kind)
    view.__dict__ = one.__dict__
    return view
