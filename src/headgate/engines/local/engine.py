"""The local engine: one process owns the state.

Memory decides and the journal remembers.
A step changes memory at once and adds records to the open batch; `settled` returns when the newest batch that was observed is on disk.
When a commit fails, memory is ahead of the disk: everything is thrown away and built anew from the file, and until that works every step is refused.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

import apsw
import msgspec
from msgspec import Raw, Struct

from headgate.core import queues as rules
from headgate.core.errors import BackendUnavailable
from headgate.core.gates import Override
from headgate.core.job import Job
from headgate.core.pools import Pool
from headgate.core.queues import DEFAULT_POLICY, DEFAULT_QUEUE, QueueConfig, Resolved
from headgate.core.states import (
    ACTIVE,
    AVAILABLE,
    CANCELLED,
    PENDING,
    SCHEDULED,
    STATES,
    TERMINAL,
)
from headgate.core.tenants import Standing, TenantLimits
from headgate.engines.contract import (
    Ack,
    Beat,
    Checkpoint,
    DeadLetterStats,
    Dispatches,
    Done,
    Draft,
    Event,
    EventPage,
    Explanation,
    Extend,
    Fail,
    Fetch,
    Interest,
    KeyJobs,
    KeyView,
    Left,
    Missing,
    NotEmpty,
    NotHolder,
    Outcome,
    Page,
    Place,
    Point,
    PoolView,
    PushOutcome,
    Query,
    QueueView,
    Replay,
    Report,
    Slice,
    Task,
    TenantView,
    Why,
    WorkerView,
    WrongState,
)
from headgate.engines.local import queries
from headgate.engines.local.admission import Admission, Twins
from headgate.engines.local.dispatch import SHARE, Dispatch
from headgate.engines.local.events import EventLog, Follower
from headgate.engines.local.explain import MOST_AHEAD, Explainer
from headgate.engines.local.journal import Journal
from headgate.engines.local.kept import Kept
from headgate.engines.local.keys import GATE
from headgate.engines.local.life import CHECKPOINT, Life
from headgate.engines.local.line import Waiter
from headgate.engines.local.pools import POOL, TURN, Pools
from headgate.engines.local.queue import WAITING, Queue
from headgate.engines.local.retention import PAUSE_MS, Retention
from headgate.engines.local.store import (
    Lock,
    explained,
    fold_left_over,
    open_store,
    wipe,
    write_time,
)
from headgate.engines.local.tables import POLICY, QUEUE, Tables
from headgate.engines.local.tasks import TASK, Tasks
from headgate.engines.local.tenantry import TENANT, Tenantry
from headgate.engines.local.timers import NEVER, Alarm
from headgate.engines.local.waiting import Waiters, Waiting
from headgate.engines.local.workers import DIRECTIVE, Worker, Workers

T = TypeVar("T")
log = logging.getLogger("headgate.engine")

ANSWER = "answer"
MOST_DUE = 1_000
"""How many due things one step handles before its own; the rest follow in the next ones."""
REOPEN_S = 0.5


class Recovered(Struct):
    """What was found at start."""

    live: int
    """Jobs that have not ended."""
    records: int
    """Changes that the last process had not folded."""
    last_ms: int
    """The latest instant that the file knows."""


class LocalEngine:
    """See the contract; made by `open`."""

    def __init__(
        self,
        path: str,
        *,
        durability: str,
        strict_queues: bool,
        heartbeat_timeout_ms: int,
        events_kept: int,
        elapsed_s: Callable[[], float],
        at_fault_point: Callable[[str], None] | None,
        lock: Lock | None,
    ) -> None:
        self._path = path
        self._durability = durability
        self._strict = strict_queues
        self._heartbeat_timeout_ms = heartbeat_timeout_ms
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
        elapsed_s: Callable[[], float],
        at_fault_point: Callable[[str], None] | None = None,
    ) -> LocalEngine:
        """Open the file, or make it, and rebuild memory from it.

        Raises StoreUnusable, whose message is one line for the person who starts the server.
        """
        lock = None
        if path != ":memory:":
            lock = Lock(path)
            lock.take()
        engine = cls(
            path,
            durability=durability,
            strict_queues=strict_queues,
            heartbeat_timeout_ms=heartbeat_timeout_ms,
            events_kept=events_kept,
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
        self._journal = Journal(
            self._path,
            connection,
            durability=self._durability,
            last_event=lambda: events.number,
            before_commit=self._complete_batch,
            on_committed=self._committed,
            on_folded=self._folded,
            on_failure=self._failed,
            elapsed_s=self._elapsed_s,
            at_fault_point=self._at_fault_point,
        )
        tables = Tables(self._journal, events, keep_finished=self._in_memory)
        tables.on_touched = self._settle_soon
        self._tables = tables
        self.kept = Kept(self._journal, in_memory=self._in_memory)
        self.life = Life(tables, self.kept)
        self._workers = Workers(self.life, self._heartbeat_timeout_ms, self._rest, self._place)
        self._pools = Pools(tables)
        self._tenantry = Tenantry(tables)
        self._dispatch = Dispatch(
            self.life, self._workers, self._pools, self._tenantry, self._settle
        )
        self._waiters = Waiters(self._dispatch)
        twins = Twins(self.life)
        self._admission = Admission(self.life, twins, self._tenantry, strict=self._strict)
        self._explainer = Explainer(self.life, self._pools, self._workers)
        self._tasks = Tasks(self)
        self.answers: dict[str, int] = loaded.answers
        self._retention = Retention(self)
        tables.timers.on_sooner = tables.keys.on_sooner = self._sooner
        # What came due while nothing ran is still due at its own instant, so that its order is kept.
        tables.now = recovered.last_ms
        tables.keys.now_us = tables.now * 1000
        self._restore(loaded)
        tables.now = self._journal.now_ms = max(now_ms, recovered.last_ms)
        tables.open_queue(DEFAULT_QUEUE)
        self._tasks.resume()
        self._retention.look_at(tables.now)

    def _load(self) -> tuple[apsw.Connection, Recovered, _Loaded]:
        """Off the event loop: everything that is read from the file at start."""
        connection = open_store(self._path, self._durability)
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
        for name, packed in loaded.gates.items():
            tables.keys.restore(name, packed)
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
        for job in loaded.jobs:
            tables.restore(job)
            self.life.befall(job, 0)
        loaded.jobs.clear()
        tables.keys.wake_up()
        self._pools.restore(loaded.pools, loaded.turns, tables.now)
        # A full collection over all live jobs is a long pause, and they are not garbage.
        gc.freeze()

    # durability

    async def settled(self) -> None:
        if self._down is not None:
            raise self._unavailable()
        if self._tables.touched or self._tables.freed:
            self._settle()
        if not self._journal.idle:
            await self._journal.settled()
        self._settle_events()

    def _settle_events(self) -> None:
        """Some events have no record; they are durable when all before them is."""
        if self._journal.idle:
            self._events.settle(self._events.number)

    def _unavailable(self) -> BackendUnavailable:
        return BackendUnavailable(f"the store cannot be used: {self._down}")

    def _complete_batch(self) -> None:
        """The batch is about to be closed: what starts have changed goes into it."""
        if not self._in_memory:
            write = self._journal.add
            self._tables.keys.write_changes(write)
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
            self._lock.release()

    def _end_waiting(self) -> None:
        """Nobody gets anything any more, neither work nor room."""
        for worker in list(self._waiters.all):
            worker.end()
        for producer in list(self._admission.parked):
            producer.end()

    # time

    @property
    def now_ms(self) -> int:
        """The latest instant that a step was given."""
        return self._tables.now

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
        if tables.touched or tables.freed:
            self._settle()
        if now_ms > tables.now:
            tables.now = self._journal.now_ms = now_ms
        keys = tables.keys
        now_us = tables.now * 1000
        if now_ms == tables.now:
            now_us += micros
        keys.now_us = now_us = max(keys.now_us, now_us)
        if tables.timers.next_at <= tables.now or keys.next_us <= now_us:
            self._catch_up(now_us)
        return tables.now

    def _catch_up(self, now_us: int) -> None:
        """Let happen what is due, one thing after the other, each at its own instant."""
        tables = self._tables
        keys, due, now = tables.keys, tables.timers.due, tables.now
        for _ in range(MOST_DUE):
            gate_us = keys.next_us
            # What follows from it may be due by now as well, but not before it.
            until = now if gate_us > now_us else min(now, (gate_us - 1) // 1000)
            found = due(until)
            if found is not None:
                entry, at = found
                tables.now = at
                keys.now_us = at * 1000
                if isinstance(entry, Alarm):
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
        while tables.touched:
            at = tables.now
            queues = list(tables.touched)
            tables.touched.clear()
            for queue in queues:
                self._admission.watch(queue, at)
                if queue.line:
                    self._admission.look(queue)
                if queue.draining and not queue.live:
                    self._delete_queue(queue, at)
            if len(queues) > 1:
                turns = [(i, n) for n, queue in enumerate(queues) for _, i in queue.rotas]
                queues = [queues[n] for n in dict.fromkeys(n for _, n in sorted(turns))] + [
                    queue for queue in queues if not queue.rotas
                ]
            for queue in queues:
                self._pools.look(queue, at)
                self._waiters.tell(queue)

    async def ask(self, question: Callable[[apsw.Connection], T]) -> T:
        """Read the file, after everything so far has reached its tables."""
        if self._down is not None:
            raise self._unavailable()
        return await self._journal.ask(question)

    # enqueue

    async def push(
        self,
        drafts: Sequence[Draft],
        now_ms: int,
        *,
        whole: bool = True,
        place: Place | None = None,
    ) -> list[PushOutcome]:
        now = self._begin(now_ms)
        return self._admission.push(drafts, now, whole=whole, place=place)

    def park(self, drafts: Sequence[Draft]) -> Waiter | None:
        waiter = self._admission.park(drafts)
        if waiter is not None and (self._closing or self._down is not None):
            waiter.end()
        return waiter

    # reservations

    async def fetch(self, fetch: Fetch, now_ms: int) -> list[Job]:
        now = self._begin(now_ms, fetch.micros)
        return self._dispatch.fetch(fetch, now)

    async def why(self, fetch: Fetch, now_ms: int) -> Why:
        self._begin(now_ms, fetch.micros)
        return self._dispatch.why(fetch)

    def watch(self, fetch: Fetch) -> Waiting:
        waiter = self._waiters.add(fetch)
        resting = self._down is None and not self._workers.at_work(fetch.worker)
        self._tables.watched = True
        if self._closing or self._down is not None or resting:
            waiter.end()
        return waiter

    def _rest(self, worker: str) -> None:
        """This worker gets no more jobs: it need not wait either."""
        for waiter in self._waiters.of_worker(worker):
            waiter.end()

    def _place(self, worker: str) -> None:
        """The worker is in another pool or can carry more: it may be served from elsewhere."""
        for waiter in self._waiters.of_worker(worker):
            self._waiters.place(waiter)
        self._waiters.tell_freed((), (worker,))

    def _answered(self, job_id: str, worker: str, claim: int, now: int) -> Job | Outcome:
        """The job whose holder speaks, or why it may not."""
        job = self._tables.jobs.get(job_id)
        if job is None:
            job = self._tables.find(job_id)
            return Missing(job_id) if job is None else WrongState(job)
        if job.state == ACTIVE and self.life.overdue(job, now):
            # Its alarm has not been heard yet among many.
            self.life.befall(job, now)
        if job.state != ACTIVE:
            return WrongState(job)
        if (worker and worker != job.worker) or (claim and claim != job.claim):
            return NotHolder(job, job.worker, job.claim)
        return job

    async def ack(self, acks: Sequence[Ack], now_ms: int) -> list[Outcome]:
        now = self._begin(now_ms)
        outcomes: list[Outcome] = []
        for ack in acks:
            found = self._answered(ack.job_id, ack.worker, ack.claim, now)
            if isinstance(found, Job):
                self._count_done(found.worker)
                more = found.more
                keep = more is None or more.result_ttl_ms != 0
                self.life.complete(found, ack.result if keep else None, now)
                found = Done(found, ACTIVE)
            outcomes.append(found)
        return outcomes

    def _count_done(self, worker: str) -> None:
        known = self._workers.known.get(worker)
        if known is not None:
            known.done += 1

    async def fail(self, fails: Sequence[Fail], now_ms: int) -> list[Outcome]:
        now = self._begin(now_ms)
        outcomes: list[Outcome] = []
        for fail in fails:
            found = self._answered(fail.job_id, fail.worker, fail.claim, now)
            if isinstance(found, Job):
                if fail.hold_until > now and found.keys:
                    self._hold(found, fail, now)
                self.life.fail(found, fail.failure, fail.uniform, now)
                found = Done(found, ACTIVE)
            outcomes.append(found)
        return outcomes

    def _hold(self, job: Job, fail: Fail, now: int) -> None:
        """Something behind the job's key said when to come back."""
        name = fail.hold_key or job.keys[0][0]
        keys = self._tables.keys
        reason = fail.failure.message
        if name in dict(job.keys) and keys.hold(keys.named(name), fail.hold_until, reason):
            data = {"key": name, "until": fail.hold_until, "reason": reason}
            self._events.add(
                "rate_limit.dynamic_adjusted", now, name, job.type, job.queue, data=data
            )

    async def extend(
        self, worker: str, jobs: Sequence[Extend], visibility_ms: int, now_ms: int
    ) -> list[Outcome]:
        now = self._begin(now_ms)
        return [self._extend(worker, each, visibility_ms, now) for each in jobs]

    def _extend(self, worker: str, each: Extend, visibility_ms: int, now: int) -> Outcome:
        found = self._answered(each.job_id, worker, each.claim, now)
        if isinstance(found, Job):
            self.life.extend(found, visibility_ms, now)
            return Done(found, ACTIVE)
        return found

    # single jobs

    async def cancel(self, job_id: str, by: str, reason: str, now_ms: int) -> Outcome:
        now = self._begin(now_ms)
        job = self._tables.find(job_id)
        if job is None:
            return Missing(job_id)
        if job.state in TERMINAL:
            return WrongState(job)
        was = job.state
        self.life.cancel(job, by, reason, now)
        return Done(job, was)

    async def activate(self, job_id: str, now_ms: int) -> Outcome:
        now = self._begin(now_ms)
        job = self._tables.find(job_id)
        if job is None:
            return Missing(job_id)
        if job.state != PENDING:
            return WrongState(job)
        self.life.activate(job, now)
        return Done(job, PENDING)

    async def reprioritize(self, job_id: str, priority: int, now_ms: int) -> Outcome:
        now = self._begin(now_ms)
        job = self._tables.find(job_id)
        if job is None:
            return Missing(job_id)
        if job.state not in (AVAILABLE, SCHEDULED):
            return WrongState(job)
        before = job.priority
        return Done(self.life.reprioritize(job, priority, now), str(before))

    async def progress(
        self,
        job_id: str,
        progress: float | None,
        data: Raw | None,
        message: str | None,
        now_ms: int,
    ) -> Outcome:
        now = self._begin(now_ms)
        job = self._tables.find(job_id)
        if job is None:
            return Missing(job_id)
        if job.state == ACTIVE:
            self.life.progress(job, progress, data, message, now)
        return Done(job, job.state)

    async def save_checkpoint(self, job_id: str, state: bytes, now_ms: int) -> Outcome:
        now = self._begin(now_ms)
        job = self._tables.find(job_id)
        if job is None:
            return Missing(job_id)
        if job.state in TERMINAL:
            return WrongState(job)
        self.life.save_checkpoint(job, state, now)
        return Done(job, job.state)

    async def checkpoint(self, job_id: str, now_ms: int) -> Checkpoint | None:
        self._begin(now_ms)
        job = self._tables.find(job_id)
        if job is None or job.more is None or not job.more.checkpoint_sequence:
            return None
        packed = self.kept.get(CHECKPOINT, job_id)
        return None if packed is None else msgspec.msgpack.decode(packed, type=Checkpoint)

    async def drop_checkpoint(self, job_id: str, now_ms: int) -> Outcome:
        self._begin(now_ms)
        job = self._tables.find(job_id)
        if job is None:
            return Missing(job_id)
        if job.more is not None and job.more.checkpoint_sequence:
            self.life.drop_checkpoint(job)
        return Done(job, job.state)

    async def retry(self, job_id: str, changes: Replay, now_ms: int) -> Outcome:
        now = self._begin(now_ms)
        job = self._tables.find(job_id)
        if job is None:
            return Missing(job_id)
        if not self.life.can_start_over(job):
            return WrongState(job)
        was = job.state
        return Done(self.life.revive(job, changes, now), was)

    async def delete(self, job_id: str, now_ms: int) -> Outcome:
        self._begin(now_ms)
        job = self._tables.find(job_id)
        if job is None:
            return Missing(job_id)
        if job.state not in TERMINAL:
            return WrongState(job)
        self.life.forget(job)
        return Done(job, job.state)

    # looking

    async def find(self, job_id: str, now_ms: int) -> Job | None:
        self._begin(now_ms)
        return self._tables.find(job_id)

    async def explain(self, job_id: str, now_ms: int) -> Explanation | None:
        self._begin(now_ms)
        job = self._tables.find(job_id)
        if job is None:
            return None
        consumers = self._explainer.consumers(job.queue)
        barriers = self._explainer.barriers(job, consumers)
        ahead = -1
        if job.state == AVAILABLE:
            asked = job
            ahead = await self.ask(lambda c: queries.ahead_of(c, asked, MOST_AHEAD))
        return Explanation(job, ahead, barriers, consumers)

    async def find_all(self, query: Query, page: Page, now_ms: int) -> Slice:
        self._begin(now_ms)
        return await self.ask(lambda c: queries.listed(c, query, page))

    async def dead_letter_stats(self, now_ms: int) -> DeadLetterStats:
        self._begin(now_ms)
        return await self.ask(queries.dead_letters)

    async def events(self, after: int, limit: int, interest: Interest, now_ms: int) -> EventPage:
        self._begin(now_ms)
        await self.settled()
        return self._events.page(after, limit, interest)

    def subscribe(self, interest: Interest) -> Follower:
        return self._events.follow(interest)

    def listen(self, call: Callable[[Event], None]) -> None:
        self._events.listeners.append(call)

    # many jobs, and answers for repeated requests

    async def start_task(self, task: Task, now_ms: int) -> Task:
        self._begin(now_ms)
        return await self._tasks.start(task)

    async def tasks(self, now_ms: int) -> list[Task]:
        self._begin(now_ms)
        return self._tasks.listed()

    async def recall(self, scope: str, key: str, now_ms: int) -> bytes | None:
        now = self._begin(now_ms)
        name = f"{scope}\n{key}"
        if self.answers.get(name, 0) <= now:
            return None
        packed = self.kept.get(ANSWER, name)
        return packed[8:] if packed is not None else None

    async def remember(
        self, scope: str, key: str, value: bytes, until_ms: int, now_ms: int
    ) -> None:
        self._begin(now_ms)
        name = f"{scope}\n{key}"
        self.answers[name] = until_ms
        self.kept.set(ANSWER, name, until_ms.to_bytes(8, "big") + value)

    # workers

    async def beat(
        self, report: Report, job_ids: Sequence[str], visibility_ms: int, now_ms: int
    ) -> Beat:
        now = self._begin(now_ms)
        self._workers.beat(report, now)
        extended: list[str] = []
        cancelled: list[str] = []
        for job_id in job_ids:
            outcome = self._extend(report.worker, Extend(job_id), visibility_ms, now)
            match outcome:
                case Done():
                    extended.append(job_id)
                case WrongState(job):
                    more = job.more
                    if job.state == CANCELLED and more is not None and more.cancelled_while_active:
                        cancelled.append(job_id)
                case Missing() | NotHolder():
                    pass
        return Beat(self._workers.directive(report.worker), extended, cancelled)

    async def worker(self, worker: str, now_ms: int) -> WorkerView | None:
        now = self._begin(now_ms)
        known = self._workers.known.get(worker)
        return None if known is None else self._workers.view(known, now)

    async def workers(self, now_ms: int) -> list[WorkerView]:
        now = self._begin(now_ms)
        known: list[Worker] = sorted(self._workers.known.values(), key=lambda each: each.id)
        return [self._workers.view(each, now) for each in known]

    async def direct(self, worker: str, state: str, now_ms: int) -> bool:
        self._begin(now_ms)
        return self._workers.direct(worker, state)

    async def forget_worker(self, worker: str, reason: str, now_ms: int) -> int | None:
        now = self._begin(now_ms)
        return self._workers.forget(worker, reason, now)

    # keys

    async def keys(self, limit: int, offset: int, now_ms: int) -> tuple[list[KeyView], int]:
        self._begin(now_ms)
        known = self._tables.keys.known
        page = islice(known.values(), offset, offset + limit)
        return [self._explainer.key(key) for key in page], len(known)

    async def key(self, key: str, now_ms: int) -> KeyView | None:
        self._begin(now_ms)
        known = self._tables.keys.known.get(key)
        return None if known is None else self._explainer.key(known)

    async def override(self, key: str, override: Override, by: str, now_ms: int) -> None:
        now = self._begin(now_ms)
        self._tables.keys.override(key, override)
        self._tell_key("rate_limit.overridden", key, by, now)

    async def lift(self, key: str, by: str, now_ms: int) -> bool:
        now = self._begin(now_ms)
        if not self._tables.keys.lift(key):
            return False
        self._tell_key("rate_limit.lifted", key, by, now)
        return True

    def _tell_key(self, kind: str, key: str, by: str, now: int) -> None:
        self._events.add(kind, now, key, data={"key": key, "by": by})

    async def key_jobs(self, key: str, limit: int, offset: int, now_ms: int) -> KeyJobs | None:
        self._begin(now_ms)
        known = self._tables.keys.known.get(key)
        return None if known is None else self._explainer.key_jobs(known, limit, offset)

    # pools

    async def pools(self, now_ms: int) -> list[PoolView]:
        self._begin(now_ms)
        workers: dict[str, int] = {}
        for known in self._workers.known.values():
            workers[known.pool] = workers.get(known.pool, 0) + 1
        active = self._tables.in_pools
        return [
            PoolView(pool, workers.get(name, 0), active.get(name, 0))
            for name, pool in sorted(self._pools.known.items())
        ]

    async def set_pool(self, pool: Pool, now_ms: int) -> bool:
        now = self._begin(now_ms)
        new = self._pools.set(pool, now)
        self._place_all()
        return new

    async def drop_pool(self, name: str, now_ms: int) -> bool:
        now = self._begin(now_ms)
        known = self._pools.drop(name, now)
        self._place_all()
        return known

    def _place_all(self) -> None:
        """Pools have changed: everybody who waits is served from where they say now."""
        for waiter in list(self._waiters.all):
            self._waiters.place(waiter)
        for queue in self._tables.queues.values():
            self._tables.touch(queue)
        self._waiters.tell_freed(self._pools.known, ())

    async def dispatches(self, now_ms: int) -> list[Dispatches]:
        now = self._begin(now_ms)
        found = []
        for queue in sorted(self._tables.existing(), key=lambda queue: queue.name):
            rates = queue.recent.rates(now)
            found.append(
                Dispatches(
                    queue.name,
                    rates.started_last_minute,
                    rates.avg_wait_ms,
                    queue.counts[ACTIVE],
                )
            )
        return found

    # tenants

    async def tenants(self, now_ms: int) -> list[TenantView]:
        self._begin(now_ms)
        views = [self._tenantry.view(name) for name in self._tenantry.names()]
        return [view for view in views if view is not None]

    async def tenant(self, tenant: str, now_ms: int) -> TenantView | None:
        self._begin(now_ms)
        return self._tenantry.view(tenant)

    async def set_tenant(self, tenant: str, limits: TenantLimits, now_ms: int) -> bool:
        now = self._begin(now_ms)
        new = self._tenantry.set(tenant, limits, now)
        if new:
            self._events.add("tenant.created", now, tenant, data={"tenant_id": tenant})
        return new

    async def forget_tenant(self, tenant: str, now_ms: int) -> bool:
        self._begin(now_ms)
        return self._tenantry.forget(tenant)

    async def count_jobs(self, query: Query, now_ms: int) -> dict[tuple[str, str], int]:
        self._begin(now_ms)
        return await self.ask(lambda c: queries.counted(c, query))

    # queues

    def settings(self, queue: str) -> Resolved:
        found = self._tables.queues.get(queue)
        return self._tables.resolved_policy if found is None else found.resolved

    async def queues(self, now_ms: int) -> list[QueueView]:
        now = self._begin(now_ms)
        known = sorted(self._tables.existing(), key=lambda queue: queue.name)
        return [queue.view(now) for queue in known]

    async def queue(self, name: str, now_ms: int) -> QueueView | None:
        now = self._begin(now_ms)
        queue = self._tables.queues.get(name)
        return queue.view(now) if queue is not None and queue.exists else None

    async def create_queue(self, name: str, changes: Mapping[str, Any], now_ms: int) -> bool:
        now = self._begin(now_ms)
        known = self._tables.queues.get(name)
        if known is not None and known.exists:
            return False
        config = rules.merge(rules.EMPTY, changes, queue=name)
        queue = self._tables.open_queue(name)
        queue.config = config
        self._tables.resolve(queue)
        self._tables.save_queue(queue)
        self._events.add("queue.created", now, name, queue=name)
        return True

    async def default_policy(self) -> QueueConfig:
        return self._tables.policy

    async def configure(self, name: str, changes: Mapping[str, Any], now_ms: int) -> None:
        now = self._begin(now_ms)
        tables = self._tables
        if name == DEFAULT_POLICY:
            tables.policy = rules.merge(tables.policy, changes)
            tables.resolved_policy = rules.resolve(tables.policy, rules.EMPTY)
            for queue in list(tables.queues.values()):
                tables.resolve(queue)
            packed = msgspec.msgpack.encode(tables.policy)
            tables.set_thing(POLICY, DEFAULT_POLICY, packed)
        else:
            known = tables.queues.get(name)
            before = known.config if known is not None else rules.EMPTY
            config = rules.merge(before, changes, queue=name)
            queue = tables.open_queue(name)
            queue.config = config
            queue.updated_at = now
            tables.resolve(queue)
            tables.save_queue(queue)
        self._retention.look_at(now + PAUSE_MS)
        self._events.add("queue.config_updated", now, name, queue=name)

    async def pause(self, name: str, by: str, now_ms: int) -> None:
        now = self._begin(now_ms)
        queue = self._tables.open_queue(name)
        if not queue.paused:
            queue.paused = True
            queue.paused_at = queue.updated_at = now
            self._tables.save_queue(queue)
            self._tables.touch(queue)
        self._events.add("queue.paused", now, name, queue=name, data={"paused_by": by})

    async def resume(self, name: str, by: str, now_ms: int) -> None:
        now = self._begin(now_ms)
        queue = self._tables.open_queue(name)
        if queue.paused or queue.draining:
            queue.paused = queue.draining = False
            queue.paused_at = 0
            queue.leaving = queue.target = ""
            queue.updated_at = now
            self._tables.save_queue(queue)
            self._tables.touch(queue)
            queue.refollow()
        self._events.add("queue.resumed", now, name, queue=name, data={"resumed_by": by})

    async def drain(self, name: str, by: str, now_ms: int) -> bool:
        now = self._begin(now_ms)
        queue = self._tables.queues.get(name)
        if queue is None or not queue.exists:
            return False
        if not queue.draining:
            self._drain(queue, now)
            self._events.add("queue.draining", now, name, queue=name, data={"drained_by": by})
        return True

    def _drain(self, queue: Queue, now: int) -> None:
        queue.draining = queue.followed = True
        queue.updated_at = now
        self._tables.save_queue(queue)
        self._tables.touch(queue)

    async def remove_queue(
        self, name: str, strategy: str, target: str, task: str, now_ms: int
    ) -> Left | NotEmpty | None:
        now = self._begin(now_ms)
        queue = self._tables.queues.get(name)
        if queue is None or not queue.exists:
            return None
        live = queue.live
        if live and strategy == "reject":
            return NotEmpty(live)
        if not live:
            self._delete_queue(queue, now)
            return Left("deleted", 0)
        queue.leaving, queue.target = strategy, target
        self._drain(queue, now)
        waiting = sum(queue.counts[state] for state in WAITING)
        if waiting:
            query = Query(queue=name, states=WAITING)
            await self._tasks.start(Task(task, strategy, query, target))
        self._settle()
        return Left("deleted" if queue.leaving != strategy else "draining", waiting)

    def _delete_queue(self, queue: Queue, now: int) -> None:
        tables, name = self._tables, queue.name
        queue.exists = queue.paused = queue.draining = False
        queue.paused_at = 0
        queue.leaving = queue.target = ""
        queue.config = rules.EMPTY
        for priority, tenant in queue.shares.clear():
            tables.set_thing(SHARE, f"{name}\n{priority}\n{tenant}", None)
        tables.resolve(queue)
        tables.save_queue(queue)
        self._events.add("queue.deleted", now, name, queue=name)
        if name == DEFAULT_QUEUE:
            tables.open_queue(name)

    async def history(
        self, queue: str | None, step_ms: int, since: int, until: int, now_ms: int
    ) -> list[Point]:
        self._begin(now_ms)
        tables = self._tables
        chosen = tables.existing() if queue is None else [tables.queue(queue)]
        points: dict[int, Point] = {}
        for each in chosen:
            for point in each.recent.points(since, until):
                at = point.at_ms - point.at_ms % step_ms
                total = points.setdefault(at, Point(at))
                total.enqueued += point.enqueued
                total.completed += point.completed
                total.failed += point.failed
        return [points[at] for at in sorted(points)]

    # everything

    async def reset(self, now_ms: int) -> None:
        self._begin(now_ms)
        self._tasks.clear()
        await self._retention.stop()
        self._end_waiting()
        await self._journal.abandon()
        if not self._in_memory:
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
        self.directives: dict[str, str] = {}
        self.tasks: list[bytes] = []
        self.gates: dict[str, bytes] = {}
        self.tenants: dict[str, bytes] = {}
        self.shares: dict[str, bytes] = {}
        self.turns: dict[str, bytes] = {}
        self.pools: list[bytes] = []
        self.answers: dict[str, int] = {}
        self.counts = [
            (str(queue), str(state), int(jobs))
            for queue, state, jobs in connection.execute("SELECT queue, state, jobs FROM counts")
            if state in STATES
        ]
        for kind, key, value in connection.execute(
            "SELECT kind, key, CASE kind WHEN 'answer' THEN substr(value, 1, 8) ELSE value END "
            "FROM things WHERE kind <> 'checkpoint'"
        ):
            if kind == QUEUE:
                self.queues[key] = value
            elif kind == POLICY:
                self.policy = value
            elif kind == DIRECTIVE:
                self.directives[key] = value.decode()
            elif kind == TASK:
                self.tasks.append(value)
            elif kind == GATE:
                self.gates[key] = value
            elif kind == TENANT:
                self.tenants[key] = value
            elif kind == SHARE:
                self.shares[key] = value
            elif kind == TURN:
                self.turns[key] = value
            elif kind == POOL:
                self.pools.append(value)
            elif kind == ANSWER:
                self.answers[key] = int.from_bytes(value, "big")
