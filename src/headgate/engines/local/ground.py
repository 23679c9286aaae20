"""What all steps of the local engine stand on: its parts, its time, and what follows from a step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import apsw

from headgate.core.errors import BackendUnavailable
from headgate.core.states import (
    AVAILABLE,
)
from headgate.engines.local.admission import Admission
from headgate.engines.local.dispatch import Dispatch
from headgate.engines.local.events import EventLog
from headgate.engines.local.explain import Explainer
from headgate.engines.local.journal import Journal
from headgate.engines.local.kept import Kept
from headgate.engines.local.life import Life
from headgate.engines.local.pools import Pools
from headgate.engines.local.queue import Queue
from headgate.engines.local.replays import Replays
from headgate.engines.local.retention import Retention
from headgate.engines.local.tables import Tables
from headgate.engines.local.tasks import Tasks
from headgate.engines.local.tenantry import Tenantry
from headgate.engines.local.timers import NEVER, Alarm
from headgate.engines.local.upkeep import Upkeep
from headgate.engines.local.waiting import Waiters
from headgate.engines.local.workers import Workers

T = TypeVar("T")

MOST_DUE = 1_000
"""How many due things one step handles before its own; the rest follow in the next ones."""


class Ground:
    """The parts are made anew whenever memory is built."""

    life: Life
    replays: Replays
    answers: dict[str, int]
    """Scope and key of each kept answer, and when it ends."""
    kept: Kept
    _admission: Admission
    _dispatch: Dispatch
    _events: EventLog
    _explainer: Explainer
    _journal: Journal
    _pools: Pools
    _retention: Retention
    _tables: Tables
    _tasks: Tasks
    _tenantry: Tenantry
    _upkeep: Upkeep
    _waiters: Waiters
    _workers: Workers

    _closing = False
    _down: Exception | None = None
    _settling: asyncio.Handle | None = None
    _sooner: Callable[[], None] | None = None

    # time

    @property
    def now_ms(self) -> int:
        """The latest instant that a step was given."""
        return self._tables.now

    @property
    def available(self) -> int:
        """How many jobs could be fetched if nothing were in their way."""
        found = 0
        for queue in self._tables.queues.values():
            found += queue.counts[AVAILABLE]
        return found

    def next_due(self) -> int:
        if self._down is not None:
            return NEVER
        tables = self._tables
        return min(tables.timers.next_at, -(-tables.keys.next_us // 1000))

    def on_sooner(self, call: Callable[[], None]) -> None:
        self._sooner = self._tables.timers.on_sooner = self._tables.keys.on_sooner = call

    async def tick(self, now_ms: int) -> None:
        if self._down is None:
            self._begin(now_ms)
            self._settle_events()

    def _begin(self, now_ms: int, micros: int = 0) -> int:
        """Every step starts here: what was due by now has happened. Gives the time that counts."""
        if self._down is not None:
            raise self._unavailable()
        tables = self._tables
        if tables.is_unsettled:
            self._settle()
        now = tables.now
        if now_ms > now:
            tables.now = self._journal.now_ms = now = now_ms
        keys = tables.keys
        now_us = now * 1000 + micros if now_ms == now else now * 1000
        if now_us > keys.now_us:
            keys.now_us = now_us
        else:
            now_us = keys.now_us
        if tables.timers.next_at <= now or keys.next_us <= now_us:
            self._catch_up(now_us)
        return now

    def _catch_up(self, now_us: int) -> None:
        """Let happen what is due, one thing after the other, each at its own instant."""
        tables = self._tables
        keys, due, now = tables.keys, tables.timers.due, tables.now
        left = MOST_DUE
        while left > 0:
            left -= 1
            gate_us = keys.next_us
            # What follows from it may be due by now as well, but not before it.
            until = now if gate_us > now_us else min(now, (gate_us - 1) // 1000)
            found = due(until)
            if found is not None:
                entry, at = found
                tables.now = at
                keys.now_us = at * 1000
                if isinstance(entry, Alarm):
                    left -= entry.weight - 1
                    entry.ring(at)
                elif tables.jobs.get(entry.id) is entry:
                    self.life.befall(entry, at)
            elif gate_us <= now_us:
                tables.now = -(-gate_us // 1000)
                keys.now_us = gate_us
                keys.look()
            else:
                break
            self._settle()
        tables.now = now
        keys.now_us = now_us

    def _settle_soon(self) -> None:
        """What this step changed is looked at when it is over, also if nobody waits for its answer."""
        if self._settling is None:
            loop = asyncio.get_running_loop()
            self._settling = loop.call_soon(self._settle_now)

    def _settle_now(self) -> None:
        self._settling = None
        if self._down is None:
            self._settle()
            tables = self._tables
            if len(tables.queues) > tables.crowded_at:
                tables.forget_queues(self._pools.keeping())

    def _settle(self) -> None:
        """Let everybody who follows a queue, a pool or a worker know what changed there."""
        tables = self._tables
        if tables.freed:
            freed, tables.freed = tables.freed, []
            pools = dict.fromkeys(job.pool for job in freed)
            workers = dict.fromkeys(job.worker for job in freed)
            self._waiters.tell_freed(pools, workers)
        keys = tables.keys
        while tables.touched or keys.swung:
            at = tables.now
            opened = keys.settle(at) if keys.swung else ()
            queues = list(tables.touched)
            tables.touched.clear()
            for queue in queues:
                self._admission.watch(queue, at)
                if queue.line:
                    self._admission.look(queue)
                if queue.draining and not queue.live:
                    self._delete_queue(queue, at)
            for queue in queues:
                self._pools.look(queue, at)
                self._waiters.tell(queue)
            for key in opened:
                self._waiters.tell_opened(key)

    async def ask(self, question: Callable[[apsw.Connection], T]) -> T:
        """Read the file, after everything so far has reached its tables."""
        if self._down is not None:
            raise self._unavailable()
        return await self._journal.ask(question)

    def _settle_events(self) -> None:
        """Some events have no record; they are durable when all before them is."""
        if self._journal.idle:
            self._events.settle(self._events.number)

    def _unavailable(self) -> BackendUnavailable:
        return BackendUnavailable(f"the store cannot be used: {self._down}")

    async def settled(self) -> None:
        """Return when all that was observed so far is durable."""
        raise NotImplementedError

    def _delete_queue(self, queue: Queue, now: int) -> None:
        """Forget a queue whose last job has ended."""
        raise NotImplementedError
