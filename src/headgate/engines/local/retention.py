"""Forgetting jobs that ended long ago, and answers that need not be repeated any more.

Jobs are forgotten by the same step as by hand, a few at a time, so counts and the journal stay right and nobody waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

import apsw

from headgate.core.errors import BackendUnavailable
from headgate.core.queues import Resolved
from headgate.core.states import ACTIVE, CANCELLED, COMPLETED, DISCARDED, TERMINAL
from headgate.core.times import DAY_MS
from headgate.engines.local import queries
from headgate.engines.local.kept import Kept
from headgate.engines.local.life import Life
from headgate.engines.local.timers import NEVER, Alarm

T = TypeVar("T")
log = logging.getLogger("headgate.retention")

ANSWER = "answer"
DEAD_KEPT_MS = 180 * DAY_MS
DEAD_KEPT = 10_000
AT_ONCE = 2_000
SLICE = 200
"""How many are forgotten before other steps get their turn."""
PAUSE_MS = 1_000


class Home(Protocol):
    """What retention needs of the engine."""

    life: Life
    kept: Kept
    answers: dict[str, int]
    """Scope and key of each kept answer, and when it ends."""

    @property
    def now_ms(self) -> int: ...

    async def ask(self, question: Callable[[apsw.Connection], T]) -> T: ...


class Retention:
    """Rings when the first job may be forgotten; with nothing to forget, once a day."""

    __slots__ = ("_again", "_alarm", "_home", "_running")

    def __init__(self, home: Home) -> None:
        self._home = home
        home.life.on_buried = self._buried
        self._alarm = Alarm(self._ring)
        self._running: asyncio.Task[None] | None = None
        self._again = False
        """It rang while it was at it: what it rang for may have come too late to be seen."""

    @property
    def next_look(self) -> int:
        """When it looks for something to forget; now while it does."""
        return self._alarm.alarm or self._home.now_ms

    def look_at(self, at_ms: int) -> None:
        self._home.life.tables.timers.arm(self._alarm, at_ms)

    def _buried(self, resolved: Resolved, at_ms: int) -> None:
        """There is one more dead letter in a queue of its own."""
        soon = PAUSE_MS if resolved.dead_letter_max_size else resolved.dead_letter_ttl_ms
        self.look_at(at_ms + soon)

    async def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    def _ring(self, at_ms: int) -> None:
        self._again = self._running is not None and not self._running.done()
        if not self._again:
            self._running = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            more = await self._forget_some()
            soonest = await self._next()
            now = self._home.now_ms
            soon = more or self._again
            self.look_at(now + PAUSE_MS if soon else max(soonest, now + PAUSE_MS))
        except BackendUnavailable:
            log.warning("retention waits for the store")

    async def _forget_some(self) -> bool:
        """Whether there may be more."""
        home = self._home
        now = home.now_ms
        limits = [(name, state, now - keep_ms) for name, state, keep_ms in self._keeping()]
        gone = await home.ask(lambda c: queries.outlived(c, limits, AT_ONCE))
        dead = await home.ask(
            lambda c: queries.outlived_dead(c, now - DEAD_KEPT_MS, DEAD_KEPT, AT_ONCE)
        )
        letters = await self._outlived_letters(now)
        leaving = gone + dead + letters
        for start in range(0, len(leaving), SLICE):
            for job_id in leaving[start : start + SLICE]:
                job = home.life.tables.find(job_id)
                if job is None:
                    continue
                if job.dead and job.state != ACTIVE:
                    home.life.prune(job, home.now_ms)
                elif job.state in TERMINAL:
                    home.life.forget(job)
            await asyncio.sleep(0)
        for name in [name for name, until in home.answers.items() if until <= now]:
            del home.answers[name]
            home.kept.set(ANSWER, name, None)
        return max(len(gone), len(dead), len(letters)) >= AT_ONCE

    async def _outlived_letters(self, now: int) -> list[str]:
        """Dead letters in queues of their own that are too old, or too many, for the queue that they came from."""
        tables = self._home.life.tables
        found: list[str] = []
        for origin in await self._home.ask(queries.origins):
            resolved = tables.queue(origin).resolved
            until, most = now - resolved.dead_letter_ttl_ms, resolved.dead_letter_max_size
            asked = partial(
                queries.outlived_letters, origin=origin, until=until, most=most, limit=AT_ONCE
            )
            found += await self._home.ask(asked)
        return found

    def _keeping(self) -> list[tuple[str, str, int]]:
        """Queue, state and how long its jobs are kept, where there are any."""
        found: list[tuple[str, str, int]] = []
        for queue in self._home.life.tables.queues.values():
            resolved = queue.resolved
            for state, keep_ms in (
                (COMPLETED, resolved.keep_completed_ms),
                (CANCELLED, resolved.keep_cancelled_ms),
                (DISCARDED, resolved.keep_discarded_ms),
            ):
                if queue.counts[state]:
                    found.append((queue.name, state, keep_ms))
        return found

    async def _next(self) -> int:
        """When the next job may be forgotten, at the latest in a day."""
        home = self._home
        keeping = self._keeping()
        letters_kept = {
            name: queue.resolved.dead_letter_ttl_ms
            for name, queue in home.life.tables.queues.items()
        }

        def first(connection: apsw.Connection) -> int:
            soonest = NEVER
            for name, state, keep_ms in keeping:
                ended = queries.first_end(connection, name, state)
                if ended:
                    soonest = min(soonest, ended + keep_ms)
            dead = queries.first_dead_end(connection)
            if dead:
                soonest = min(soonest, dead + DEAD_KEPT_MS)
            for origin, buried_at in queries.origins(connection).items():
                soonest = min(soonest, buried_at + letters_kept.get(origin, DAY_MS))
            return soonest

        now = home.now_ms
        # What ends from now on may be forgotten no earlier than the shortest time from now.
        return min(
            await home.ask(first), now + self._shortest(), now + DAY_MS, *home.answers.values()
        )

    def _shortest(self) -> int:
        """How long a finished job is kept at the least, in any queue that there is or may come."""
        tables = self._home.life.tables
        known = [queue.resolved for queue in tables.queues.values()]
        return min(
            min(each.keep_completed_ms, each.keep_cancelled_ms, each.keep_discarded_ms)
            for each in (*known, tables.resolved_policy)
        )
