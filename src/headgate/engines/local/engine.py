"""The local engine: one process owns the state.

Memory decides and the journal remembers.
A step changes memory at once and adds records to the open batch; `settled` returns when the newest batch that was observed is on disk.
When a commit fails, memory is ahead of the disk: everything is thrown away and built anew from the file, and until that works every step is refused.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable
from typing import Any, TypeVar

import apsw
import msgspec
from msgspec import Struct

from headgate.core import queues as rules
from headgate.core.queues import DEFAULT_QUEUE, QueueConfig
from headgate.core.states import (
    STATES,
)
from headgate.core.tenants import Standing
from headgate.engines.local import queries
from headgate.engines.local.admission import Admission, Twins
from headgate.engines.local.dispatch import SHARE, Dispatch
from headgate.engines.local.events import EventLog
from headgate.engines.local.explain import Explainer
from headgate.engines.local.flow_steps import FlowSteps
from headgate.engines.local.journal import Journal, Unwritten
from headgate.engines.local.kept import Kept
from headgate.engines.local.keys import GATE
from headgate.engines.local.life import Life
from headgate.engines.local.pools import POOL, TURN, Pools
from headgate.engines.local.queue_steps import QueueSteps
from headgate.engines.local.replays import REPLAY_RULE, Replays
from headgate.engines.local.retention import ANSWER, Retention
from headgate.engines.local.store import (
    Lock,
    explained,
    fold_left_over,
    open_store,
    wipe,
    write_time,
)
from headgate.engines.local.tables import POLICY, QUEUE, TODAY, Tables
from headgate.engines.local.tasks import TASK, Tasks
from headgate.engines.local.tenantry import TENANT, Tenantry
from headgate.engines.local.upkeep import MAINTENANCE, Upkeep
from headgate.engines.local.waiting import Waiters
from headgate.engines.local.worker_steps import WorkerSteps
from headgate.engines.local.workers import DIRECTIVE, MEMBER, Workers

T = TypeVar("T")
log = logging.getLogger("headgate.engine")

REOPEN_S = 0.5
FREEZE_FROM = 10_000
"""Fewer jobs are no long pause, and what else is alive might become garbage that is then never found."""


class Recovered(Struct):
    """What was found at start."""

    live: int
    """Jobs that have not ended."""
    records: int
    """Changes that the last process had not folded."""
    last_ms: int
    """The latest instant that the file knows."""


class LocalEngine(WorkerSteps, FlowSteps, QueueSteps):
    """See the contract; made by `open`."""

    def __init__(
        self,
        path: str,
        *,
        durability: str,
        strict_queues: bool,
        heartbeat_timeout_ms: int,
        events_kept: int,
        lists: bool,
        elapsed_s: Callable[[], float],
        at_fault_point: Callable[[str], None] | None,
        lock: Lock | None,
    ) -> None:
        self._path = path
        self._durability = durability
        self._strict = strict_queues
        self._heartbeat_timeout_ms = heartbeat_timeout_ms
        self._lists = lists
        self._elapsed_s = elapsed_s
        self._at_fault_point = at_fault_point
        self._lock = lock
        self._in_memory = path == ":memory:"
        self._down: Exception | None = None
        self._closing = False
        self._events = EventLog(events_kept)
        self._repair: asyncio.Task[None] | None = None
        self._sooner: Callable[[], None] | None = None
        self._settling: asyncio.Handle | None = None
        self.recovered = Recovered(0, 0, 0)

    @classmethod
    async def open(
        cls,
        path: str,
        *,
        durability: str = "full",
        now_ms: int,
        strict_queues: bool = False,
        heartbeat_timeout_ms: int = 30_000,
        events_kept: int = 100_000,
        lists: bool = True,
        elapsed_s: Callable[[], float],
        at_fault_point: Callable[[str], None] | None = None,
    ) -> LocalEngine:
        """Open the file, or make it, and rebuild memory from it.

        In memory, lists and counts by query can be done without (`lists`): then nothing is written for them.
        Raises StoreUnusable, whose message is one line for the person who starts the server.
        """
        lock = None
        if path != ":memory:":
            lock = Lock(path, durability)
            lock.take()
        engine = cls(
            path,
            durability=durability,
            strict_queues=strict_queues,
            heartbeat_timeout_ms=heartbeat_timeout_ms,
            events_kept=events_kept,
            lists=lists or path != ":memory:",
            elapsed_s=elapsed_s,
            at_fault_point=at_fault_point,
            lock=lock,
        )
        try:
            await engine._build(now_ms)
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        return engine

    # building memory

    async def _build(self, now_ms: int) -> None:
        # Nothing that is made here is garbage, and to look for it again and again takes longer than all the rest.
        collecting = gc.isenabled()
        gc.disable()
        try:
            await self._build_whole(now_ms)
        finally:
            if collecting:
                gc.enable()

    async def _build_whole(self, now_ms: int) -> None:
        connection, recovered, loaded = await asyncio.to_thread(self._load)
        self.recovered = recovered
        events = self._events
        events.start_above(max(now_ms, recovered.last_ms + 1) << 10)
        self._journal = (Journal if self._lists else Unwritten)(
            self._path,
            connection,
            durability=self._durability,
            last_event=lambda: events.number,
            before_commit=self._complete_batch,
            on_committed=self._committed,
            on_folded=self._folded,
            on_failure=self._failed,
            on_durable=None if self._lock is None else self._lock.promise,
            elapsed_s=self._elapsed_s,
            at_fault_point=self._at_fault_point,
        )
        tables = Tables(self._journal, events, keep_finished=self._in_memory)
        tables.on_touched = self._settle_soon
        tables.strict = self._strict
        self._tables = tables
        self.kept = Kept(self._journal, in_memory=self._in_memory)
        self.life = Life(tables, self.kept)
        self._workers = Workers(self.life, self._heartbeat_timeout_ms, self._rest, self._place)
        self._pools = Pools(tables)
        self._tenantry = Tenantry(tables)
        self._upkeep = Upkeep(self.life)
        self._dispatch = Dispatch(
            self.life, self._workers, self._pools, self._tenantry, self._settle
        )
        self._waiters = Waiters(self._dispatch)
        twins = Twins(self.life)
        self._admission = Admission(self.life, twins, self._tenantry, strict=self._strict)
        self._explainer = Explainer(self.life, self._pools, self._workers)
        self.replays = Replays(self.life)
        self._tasks = Tasks(self)
        self.answers: dict[str, int] = loaded.answers
        self._retention = Retention(self)
        tables.timers.on_sooner = tables.keys.on_sooner = self._sooner
        # What came due while nothing ran is still due at its own instant, so that its order is kept.
        tables.now = recovered.last_ms
        tables.keys.now_us = tables.now * 1000
        self._restore(loaded)
        tables.now = self._journal.now_ms = max(now_ms, recovered.last_ms)
        for name, packed in loaded.today.items():
            tables.restore_today(name, packed)
        tables.open_queue(DEFAULT_QUEUE)
        self._workers.remember_pools(loaded.members, tables.now)
        self._tasks.resume()
        self._retention.look_at(tables.now)

    def _load(self) -> tuple[apsw.Connection, Recovered, _Loaded]:
        """Off the event loop: everything that is read from the file at start."""
        promised_ms = 0 if self._lock is None else self._lock.promised_ms
        connection = open_store(self._path, self._durability, promised_ms)
        try:
            with explained(self._path):
                records, last_ms = fold_left_over(connection)
                loaded = _Loaded(connection)
                write_time(connection, last_ms)
        except BaseException:
            connection.close()
            raise
        return connection, Recovered(len(loaded.jobs), records, last_ms), loaded

    def _restore(self, loaded: _Loaded) -> None:
        tables = self._tables
        if loaded.policy is not None:
            tables.policy = msgspec.msgpack.decode(loaded.policy, type=QueueConfig)
            tables.resolved_policy = rules.resolve(tables.policy, rules.EMPTY)
        if loaded.maintenance is not None:
            self._upkeep.restore(loaded.maintenance)
        for name, packed in loaded.gates.items():
            tables.keys.restore(name, packed)
        loaded.gates.clear()
        for name, packed in loaded.tenants.items():
            self._tenantry.restore(name, packed)
        for name, packed in loaded.queues.items():
            queue = tables.queue(name)
            queue.restore(packed)
            tables.resolve(queue)
        for place, packed in loaded.shares.items():
            name, priority, tenant = place.split("\n", 2)
            standing = msgspec.msgpack.decode(packed, type=Standing)
            tables.queue(name).shares.restore(int(priority), tenant, standing)
        for name, state, jobs in loaded.counts:
            tables.queue(name).counts[state] = jobs
        self._workers.directives.update(loaded.directives)
        for packed in loaded.tasks:
            self._tasks.restore(packed)
        for packed in loaded.replay_rules:
            self.replays.restore(packed)
        for job in loaded.jobs:
            tables.restore(job)
            self.life.rearm(job)
            if job.dead:
                self.replays.consider(job)
        tables.restored()
        for job in loaded.dead:
            self.replays.consider(job)
        loaded.jobs.clear()
        tables.keys.wake_up()
        self._pools.restore(loaded.pools, loaded.turns, tables.now)
        if self.recovered.live > FREEZE_FROM:
            # A full collection over all live jobs is a long pause, and they are not garbage.
            gc.freeze()

    # durability

    async def settled(self) -> None:
        if self._down is not None:
            raise self._unavailable()
        if self._tables.is_unsettled:
            self._settle()
        if not self._journal.idle:
            await self._journal.settled()
        self._settle_events()

    def _complete_batch(self) -> None:
        """The batch is about to be closed: what starts have changed goes into it."""
        if not self._in_memory:
            write = self._journal.add
            self._tables.keys.write_changes(write)
            self._tables.write_changes(write)
            self._pools.write_changes(write)

    def _committed(self, last_event: int) -> None:
        self._events.settle(last_event)
        self._settle_events()

    def _folded(self, number: int) -> None:
        self._tables.folded(number)
        self.kept.folded(number)

    def _failed(self, error: Exception) -> None:
        """A commit failed: memory holds what the disk does not."""
        log.error("the store failed: %s", error)
        self._down = error
        self._events.forget_unsettled()
        self._end_waiting()
        if not self._closing:
            self._repair = asyncio.get_running_loop().create_task(self._reopen())

    async def _reopen(self) -> None:
        """Try until a probe write succeeds, then build memory anew, once."""
        self._tasks.clear()
        await self._retention.stop()
        await self._journal.abandon()
        now = self._tables.now
        while not self._closing:
            try:
                await self._build(now)
            except Exception as error:  # noqa: BLE001 - whatever it is, the next try may succeed
                self._down = error
                await asyncio.sleep(REOPEN_S)
            else:
                log.warning("the store works again: %d live jobs", self.recovered.live)
                self._down = None
                if self._sooner is not None:
                    self._sooner()
                return

    async def health(self) -> dict[str, Any]:
        return {
            "type": "memory" if self._in_memory else "sqlite",
            "status": "ok" if self._down is None else "unhealthy",
            "latency_ms": round(self._journal.latency_s * 1000, 3),
        }

    async def close(self) -> None:
        self._closing = True
        if self._repair is not None and not self._repair.done():
            self._repair.cancel()
            await asyncio.gather(self._repair, return_exceptions=True)
        await self._tasks.stop()
        await self._retention.stop()
        self._end_waiting()
        await self._journal.close()
        if self._lock is not None:
            self._lock.release(clean=self._down is None)

    def _end_waiting(self) -> None:
        """Nobody gets anything any more, neither work nor room."""
        for worker in list(self._waiters.all):
            worker.end()
        for producer in list(self._admission.parked):
            producer.end()

    # everything

    async def reset(self, now_ms: int) -> None:
        self._begin(now_ms)
        self._tasks.clear()
        await self._retention.stop()
        self._end_waiting()
        await self._journal.abandon()
        if not self._in_memory:
            if self._lock is not None:
                self._lock.forget()
            await asyncio.to_thread(wipe, self._path)
        self._events.clear()
        listeners = self._events.listeners
        await self._build(now_ms)
        self._events.listeners = listeners
        if self._sooner is not None:
            self._sooner()

    def check(self) -> None:
        """Raise AssertionError where memory contradicts itself; for tests."""
        self._tables.check()
        could = self._dispatch.could
        for waiter in self._waiters.all:
            told = any(other.is_woken for queue in waiter.queues for other in queue.waiting)
            fits = any(could(waiter.fetch, queue) for queue in waiter.queues)
            assert told or not fits, f"{waiter.fetch}: a wake-up was lost"


class _Loaded:
    """What a file held when it was opened."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.jobs = queries.live_jobs(connection)
        self.queues: dict[str, bytes] = {}
        self.policy: bytes | None = None
        self.maintenance: bytes | None = None
        self.directives: dict[str, str] = {}
        self.tasks: list[bytes] = []
        self.gates: dict[str, bytes] = {}
        self.tenants: dict[str, bytes] = {}
        self.today: dict[str, bytes] = {}
        self.shares: dict[str, bytes] = {}
        self.turns: dict[str, bytes] = {}
        self.pools: list[bytes] = []
        self.members: dict[str, str] = {}
        self.answers: dict[str, int] = {}
        self.replay_rules: list[bytes] = []
        self.counts = [
            (str(queue), str(state), int(jobs))
            for queue, state, jobs in connection.execute("SELECT queue, state, jobs FROM counts")
            if state in STATES
        ]
        plain = {
            QUEUE: self.queues,
            GATE: self.gates,
            TENANT: self.tenants,
            SHARE: self.shares,
            TURN: self.turns,
            TODAY: self.today,
        }
        for kind, key, value in connection.execute(
            "SELECT kind, key, CASE kind WHEN 'answer' THEN substr(value, 1, 8) ELSE value END "
            "FROM things WHERE kind <> 'checkpoint'"
        ):
            if kind in plain:
                plain[kind][key] = value
            elif kind == POLICY:
                self.policy = value
            elif kind == MAINTENANCE:
                self.maintenance = value
            elif kind == DIRECTIVE:
                self.directives[key] = value.decode()
            elif kind == TASK:
                self.tasks.append(value)
            elif kind == MEMBER:
                self.members[key] = value.decode()
            elif kind == POOL:
                self.pools.append(value)
            elif kind == REPLAY_RULE:
                self.replay_rules.append(value)
            elif kind == ANSWER:
                self.answers[key] = int.from_bytes(value, "big")
        self.dead = queries.ended_dead(connection) if self.replay_rules else []
        """Dead letters that have ended, where rules may let them start over."""
