"""The worker's turns: answers go out, signs of life go with them, new jobs come in.

An answer stays here until the server has taken it or said that it wants none. While a job runs or its answer waits, the job is renewed.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final

from msgspec import Struct

from headgate import ids
from headgate.client.core import Core, worth_repeating
from headgate.client.declared import Register
from headgate.client.errors import AuthenticationError, OjsError
from headgate.core.times import SECOND_MS, duration_ms
from headgate.worker.link import Link, Traded, Turn
from headgate.worker.outcome import Ack, Nack, Nothing, Outcome, claim_of, too_large, unknown
from headgate.worker.run import Run, Runs

MOST_ANSWERS: Final = 500
MOST_ANSWER_BYTES: Final = 1 << 20
"""In one turn: servers bound what one request may hold."""
MOST_FETCHED: Final = 500
REMEMBERED: Final = 10_000
_BURST_WAIT_S: Final = 0.1
_RENEWALS: Final = 3
"""How often a reservation is renewed while it lasts."""
_log = logging.getLogger("headgate.worker")


class Pace(Struct, frozen=True):
    """How often things happen, in seconds."""

    heartbeat_s: float = 5.0
    wait_s: float = 2.0
    """How long a fetch waits at the server."""
    poll_s: float = 1.0
    """Between fetches that did not wait and found nothing."""
    burst: bool = False
    """The worker ends when there is nothing left to do, so it does not wait for more when nothing runs."""


class Counts(Struct):
    """What a worker has done so far."""

    started: int = 0
    completed: int = 0
    failed: int = 0
    deferred: int = 0
    dropped: int = 0
    """Jobs that were cancelled, or lost to another worker, while they ran."""


class Loop:
    """One worker's turns, from the first fetch to the last answer."""

    def __init__(
        self,
        core: Core,
        link: Link,
        runs: Runs,
        register: Register,
        concurrency: int,
        pace: Pace,
        introduce: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """`introduce` is called when a server answers again, because it may be a new one."""
        self.state = "running"
        self.counts = Counts()
        self.told = "running"
        """What the server wants the worker to be."""
        self.told_something = asyncio.Event()
        self.idle = asyncio.Event()
        """Set when a fetch that asked for all it may found nothing while nothing ran."""
        self._core = core
        self._link = link
        self._runs = runs
        self._register = register
        self._concurrency = concurrency
        self._pace = pace
        self._introduce = introduce
        self._running: dict[str, Run] = {}
        self._outbox: deque[Ack | Nack] = deque()
        self._parked: dict[str, tuple[asyncio.TimerHandle, Nack]] = {}
        self._deferrals: OrderedDict[str, int] = OrderedDict()
        self._delays_here = False
        """The server does not know delays of jobs that are given back, so they are waited for here."""
        self._waiting: asyncio.Task[None] | None = None
        self._asked = 0
        """Places that a fetch which waits may fill."""
        self._shortest_s = math.inf
        self._failures = 0
        self._fetch_at_s = 0.0
        self._beat_at_s = 0.0
        self._wake = asyncio.Event()
        self._ending = False

    @property
    def busy(self) -> int:
        """Jobs that run or wait to be answered for."""
        return len(self._running) + len(self._outbox) + len(self._parked)

    def active(self) -> list[str]:
        return list(self._running)

    def wake(self) -> None:
        self._wake.set()

    def set_state(self, state: str) -> None:
        """running, quiet or terminate; the server hears of it at once."""
        if state != self.state:
            self.state = state
            self._beat_at_s = 0.0
            self.wake()

    async def pump(self) -> None:
        """Take turns until `finish` was called and everything is answered."""
        while not (self._ending and not self.busy and self._waiting is None):
            turn = self._turn()
            if turn is None:
                self._fetch_in_background()
                await self._sleep()
            else:
                await self._take(turn)

    def finish(self) -> None:
        """End when all that runs has ended and is answered for."""
        self._ending = True
        self.give_back_parked()
        self.wake()

    async def close(self) -> None:
        """Drop what is still on its way; whatever the server gives out with it, it takes back when the worker leaves."""
        if self._waiting is not None:
            self._waiting.cancel()
            with suppress(asyncio.CancelledError):
                await self._waiting

    def interrupt_all(self, why: str) -> None:
        for run in list(self._running.values()):
            run.interrupt(why)

    def give_back_parked(self) -> None:
        for timer, nack in self._parked.values():
            timer.cancel()
            self._outbox.append(nack)
        self._parked.clear()
        self.wake()

    # turns

    def _turn(self) -> Turn | None:
        """What there is to say; None when there is nothing."""
        now_s = self._core.clock.elapsed_s()
        beat = now_s >= self._beat_at_s
        if not beat and not self._outbox:
            return None
        answers = self._answers()
        turn = Turn(
            acks=[one for one in answers if isinstance(one, Ack)],
            nacks=[one for one in answers if isinstance(one, Nack)],
            beat=beat,
            fetch=self._free() if now_s >= self._fetch_at_s else 0,
            state=self.state,
        )
        if beat:
            self._beat_at_s = now_s + self._interval_s()
            turn.extend = self._held(answers)
        return turn

    def _interval_s(self) -> float:
        """Between heartbeats: short enough for the shortest reservation that is held."""
        if not self.busy:
            self._shortest_s = math.inf
        return min(self._pace.heartbeat_s, self._shortest_s)

    def _answers(self) -> list[Ack | Nack]:
        found: list[Ack | Nack] = []
        size = 0
        while self._outbox and len(found) < MOST_ANSWERS and size < MOST_ANSWER_BYTES:
            one = self._outbox.popleft()
            size += len(one.result or b"") if isinstance(one, Ack) else 1_000
            found.append(one)
        return found

    def _held(self, leaving: Sequence[Ack | Nack]) -> list[tuple[str, int]]:
        """Jobs to be renewed: all that are not answered for in this very turn."""
        gone = {one.job_id for one in leaving}
        running = [(one.context.id, claim_of(one.job)) for one in self._running.values()]
        kept = [(one.job_id, one.claim) for one in self._outbox]
        parked = [(one.job_id, one.claim) for _, one in self._parked.values()]
        return [one for one in (*running, *kept, *parked) if one[0] not in gone]

    def _free(self) -> int:
        if self.state != "running" or self._ending:
            return 0
        free = self._concurrency - len(self._running) - self._asked
        return max(0, min(MOST_FETCHED, free))

    async def _take(self, turn: Turn) -> None:
        try:
            traded = await self._link.trade(turn)
        except OjsError as error:
            self._outbox.extendleft(reversed([*turn.acks, *turn.nacks]))
            if turn.beat:
                self._beat_at_s = 0.0
            await self._back_off(error)
            return
        await self._answered()
        self._hear(turn, traded)
        self._accept(turn, traded.jobs)

    async def _answered(self) -> None:
        failures, self._failures = self._failures, 0
        if failures:
            _log.info("the server answers again")
            await self._introduce()

    async def _back_off(self, error: OjsError) -> None:
        self._failures += 1
        told = _log.warning if worth_repeating(error) else _log.error
        told("the server did not answer a worker's turn (%s): %s", type(error).__name__, error)
        if isinstance(error, AuthenticationError):
            await self._core.clock.sleep(self._core.waits.cap_s)
        else:
            await self._core.clock.sleep(
                error.retry_after_s or self._core.waits.failed(self._failures, ids.uniform())
            )

    async def _sleep(self) -> None:
        """Until there is something to say, or a heartbeat is due."""
        now_s = self._core.clock.elapsed_s()
        until_s = self._beat_at_s
        if self._waiting is None and self._free() and self._fetch_at_s > now_s:
            until_s = min(until_s, self._fetch_at_s)
        self._wake.clear()
        if self._outbox or until_s <= now_s:
            return
        timer = asyncio.get_running_loop().call_later(until_s - now_s, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    def _fetch_in_background(self) -> None:
        """Let one request wait for jobs while this loop goes on."""
        free = self._free()
        if not free or self._waiting is not None:
            return
        if self._core.clock.elapsed_s() < self._fetch_at_s:
            return
        self._asked = free
        self._waiting = asyncio.get_running_loop().create_task(self._fetch(free))

    async def _fetch(self, count: int) -> None:
        wait_s = self._pace.wait_s
        if self._pace.burst:
            wait_s = min(wait_s, _BURST_WAIT_S) if self.busy else 0.0
        turn = Turn(fetch=count, wait_ms=round(wait_s * 1000), state=self.state)
        begun_s = self._core.clock.elapsed_s()
        try:
            traded = await self._link.trade(turn)
        except OjsError as error:
            await self._back_off(error)
        else:
            await self._answered()
            self._asked = 0
            self._hear(turn, traded)
            took_s = self._core.clock.elapsed_s() - begun_s
            if not traded.jobs and took_s < min(wait_s, self._pace.poll_s) / 2:
                self._fetch_at_s = self._core.clock.elapsed_s() + self._pace.poll_s
            self._accept(turn, traded.jobs)
        finally:
            self._asked = 0
            self._waiting = None
            self.wake()

    # what the server said

    def _hear(self, turn: Turn, traded: Traded) -> None:
        for ack, error in zip(turn.acks, traded.acks, strict=True):
            self._settle(ack, error)
        for nack, error in zip(turn.nacks, traded.nacks, strict=True):
            self._settle(nack, error)
        if False in traded.delayed:
            self._delays_here = True
        for job_id in traded.cancelled:
            if (run := self._running.get(job_id)) is not None:
                run.interrupt("cancelled")
            self._unpark(job_id)
        for job_id in traded.lost:
            if (run := self._running.get(job_id)) is not None:
                _log.warning("job %s was lost to another worker and is interrupted", job_id)
                run.interrupt("lost")
            self._unpark(job_id)
        if traded.state and traded.state != self.told:
            self.told = traded.state
            self.told_something.set()

    def _settle(self, answer: Ack | Nack, error: OjsError | None) -> None:
        """One answer was taken, or refused, or not heard."""
        if error is None:
            return
        if worth_repeating(error):
            self._outbox.append(answer)
        elif error.status == 413 and isinstance(answer, Ack):
            self._outbox.append(too_large(answer, error.message))
        elif error.status in {404, 409}:
            # It was answered before and the confirmation got lost, or somebody else has the job.
            _log.info("the answer for job %s came too late: %s", answer.job_id, error)
        elif isinstance(answer, Nack) and len(answer.error) > 2:
            plain = {"code": answer.error["code"], "message": str(answer.error["message"])[:200]}
            _log.error("job %s: its error was refused (%s) and is shortened", answer.job_id, error)
            self._outbox.append(Nack(answer.job_id, answer.claim, plain, answer.requeue))
        else:
            _log.error("job %s: its answer was refused: %s", answer.job_id, error)

    def _accept(self, turn: Turn, jobs: Sequence[dict[str, Any]]) -> None:
        for job in jobs:
            self._start(job)
        all_ = min(self._concurrency, MOST_FETCHED)
        idle = turn.fetch >= all_ and not jobs and not self.busy
        if idle and not self._asked:
            self.idle.set()

    def _start(self, job: dict[str, Any]) -> None:
        job_id = job["id"]
        declared = self._register.get(job["type"])
        if job_id in self._running:
            # It was lost here, comes back, and the old run has not noticed yet.
            old = self._running.pop(job_id)
            old.interrupt("lost")
        if declared is None:
            _log.error("no handler for %s, job %s", job["type"], job_id)
            self._put(unknown(job))
            return
        if self.state == "terminate" or self._ending:
            self._put(_unstarted(job))
            return
        self.counts.started += 1
        renew_s = _reservation_s(job) / _RENEWALS
        if 0 < renew_s < self._shortest_s:
            self._shortest_s = renew_s
            self._beat_at_s = min(self._beat_at_s, self._core.clock.elapsed_s() + renew_s)
        deferrals = int(job.get("deferrals") or self._deferrals.get(job_id, 0))
        self._running[job_id] = Run(self._runs, declared, job, deferrals, self._ended)

    # how runs end

    def _ended(self, run: Run, outcome: Outcome) -> None:
        job_id = run.context.id
        if self._running.get(job_id) is run:
            del self._running[job_id]
        elif not isinstance(outcome, Nothing):
            # An older run of a job that was fetched again: only the newer one counts.
            outcome = Nothing(job_id)
        counts = self.counts
        match outcome:
            case Ack():
                counts.completed += 1
                self._deferrals.pop(job_id, None)
            case Nack(requeue=True):
                counts.deferred += 1
                self._remember(job_id)
            case Nack():
                counts.failed += 1
                self._deferrals.pop(job_id, None)
            case Nothing():
                counts.dropped += 1
        if not isinstance(outcome, Nothing):
            self._put(outcome)
        self.wake()

    def _put(self, outcome: Ack | Nack) -> None:
        """Answer now; or later, where a job that is given back shall wait and the server knows no delay."""
        if (
            isinstance(outcome, Nack)
            and outcome.requeue
            and outcome.after_ms
            and self._delays_here
            and not self._ending
        ):
            timer = asyncio.get_running_loop().call_later(
                outcome.after_ms / 1000, self._unpark, outcome.job_id, outcome
            )
            self._parked[outcome.job_id] = (timer, outcome)
        else:
            self._outbox.append(outcome)
        self.wake()

    def _unpark(self, job_id: str, answer: Nack | None = None) -> None:
        parked = self._parked.pop(job_id, None)
        if parked is not None:
            parked[0].cancel()
            if answer is not None:
                self._outbox.append(answer)
                self.wake()

    def _remember(self, job_id: str) -> None:
        self._deferrals[job_id] = self._deferrals.get(job_id, 0) + 1
        self._deferrals.move_to_end(job_id)
        while len(self._deferrals) > REMEMBERED:
            self._deferrals.popitem(last=False)


def _unstarted(job: dict[str, Any]) -> Nack:
    error = {
        "code": "shutdown",
        "type": "shutdown",
        "message": "the worker ends",
        "retryable": True,
    }
    return Nack(job["id"], claim_of(job), error, requeue=True)


def _reservation_s(job: dict[str, Any]) -> float:
    """How long the job's own reservations last; 0 when it leaves that to queue and server."""
    if job.get("visibility_timeout_ms"):
        return float(job["visibility_timeout_ms"]) / SECOND_MS
    given = job.get("visibility_timeout")
    if isinstance(given, str):
        return duration_ms(given) / SECOND_MS
    return float(given or 0)
