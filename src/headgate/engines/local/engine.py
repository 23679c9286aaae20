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
from typing import Any, TypeVar

import apsw
import msgspec
from msgspec import Raw, Struct

from headgate.core import queues as rules
from headgate.core.errors import BackendUnavailable
from headgate.core.job import Job
from headgate.core.queues import DEFAULT_POLICY, DEFAULT_QUEUE, QueueConfig, Resolved
from headgate.core.states import (
    ACTIVE,
    AVAILABLE,
    CANCELLED,
    DISCARDED,
    PENDING,
    RETRYABLE,
    SCHEDULED,
    STATES,
    TERMINAL,
)
from headgate.engines.contract import (
    Ack,
    Beat,
    Checkpoint,
    DeadLetterStats,
    Done,
    Draft,
    Duplicate,
    Event,
    EventPage,
    Extend,
    Fail,
    Fetch,
    Held,
    IdTaken,
    Interest,
    Missing,
    NotHolder,
    Outcome,
    Page,
    Point,
    Pushed,
    PushOutcome,
    Query,
    QueueView,
    Replay,
    Report,
    Slice,
    Task,
    Unwanted,
    WorkerView,
    WrongState,
)
from headgate.engines.local import queries
from headgate.engines.local.events import EventLog, Follower
from headgate.engines.local.journal import Journal
from headgate.engines.local.kept import Kept
from headgate.engines.local.life import CHECKPOINT, Life
from headgate.engines.local.queue import Queue
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
from headgate.engines.local.timers import NEVER, Alarm
from headgate.engines.local.waiting import Waiting, pass_on
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
        self._waiters: dict[Waiting, None] = {}
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
        connection, recovered, loaded = await asyncio.to_thread(self._load)
        self.recovered = recovered
        events = self._events
        events.start_above(max(now_ms, recovered.last_ms + 1) << 10)
        self._journal = Journal(
            self._path,
            connection,
            durability=self._durability,
            last_event=lambda: events.number,
            on_committed=self._committed,
            on_folded=self._folded,
            on_failure=self._failed,
            elapsed_s=self._elapsed_s,
            at_fault_point=self._at_fault_point,
        )
        tables = Tables(self._journal, events, keep_finished=self._in_memory)
        self._tables = tables
        self.kept = Kept(self._journal, in_memory=self._in_memory)
        self.life = Life(tables, self.kept)
        self._workers = Workers(self.life, self._heartbeat_timeout_ms, self._rest)
        self._tasks = Tasks(self)
        self.answers: dict[str, int] = loaded.answers
        self._retention = Retention(self)
        tables.timers.on_sooner = self._sooner
        # What came due while nothing ran is still due at its own instant, so that its order is kept.
        tables.now = recovered.last_ms
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
        for name, packed in loaded.queues.items():
            queue = tables.queue(name)
            queue.restore(packed)
            tables.resolve(queue)
        for name, state, jobs in loaded.counts:
            tables.queue(name).counts[state] = jobs
        self._workers.directives.update(loaded.directives)
        for packed in loaded.tasks:
            self._tasks.restore(packed)
        for job in loaded.jobs:
            tables.restore(job)
            self.life.befall(job, 0)
        loaded.jobs.clear()
        # A full collection over all live jobs is a long pause, and they are not garbage.
        gc.freeze()

    # durability

    async def settled(self) -> None:
        if self._down is not None:
            raise self._unavailable()
        if not self._journal.idle:
            await self._journal.settled()
        self._settle_events()

    def _settle_events(self) -> None:
        """Some events have no record; they are durable when all before them is."""
        if self._journal.idle:
            self._events.settle(self._events.number)

    def _unavailable(self) -> BackendUnavailable:
        return BackendUnavailable(f"the store cannot be used: {self._down}")

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
        for waiter in list(self._waiters):
            waiter.end()
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
        for waiter in list(self._waiters):
            waiter.end()
        await self._journal.close()
        if self._lock is not None:
            self._lock.release()

    # time

    @property
    def now_ms(self) -> int:
        """The latest instant that a step was given."""
        return self._tables.now

    def next_due(self) -> int:
        return self._tables.timers.next_at if self._down is None else NEVER

    def on_sooner(self, call: Callable[[], None]) -> None:
        self._sooner = self._tables.timers.on_sooner = call

    async def tick(self, now_ms: int) -> None:
        if self._down is None:
            self._begin(now_ms)
            self._settle_events()

    def _begin(self, now_ms: int) -> int:
        """Every step starts here: what was due by now has happened. Gives the time that counts."""
        if self._down is not None:
            raise self._unavailable()
        tables = self._tables
        if now_ms > tables.now:
            tables.now = self._journal.now_ms = now_ms
        if tables.timers.next_at <= tables.now:
            self._catch_up()
        return tables.now

    def _catch_up(self) -> None:
        tables = self._tables
        due = tables.timers.due
        now = tables.now
        jobs = tables.jobs
        for _ in range(MOST_DUE):
            found = due(now)
            if found is None:
                break
            entry, at = found
            # What follows from it may be due by now as well, but not before it.
            tables.now = at
            if isinstance(entry, Alarm):
                entry.ring(at)
            elif jobs.get(entry.id) is entry:
                self.life.befall(entry, at)
        tables.now = now

    async def ask(self, question: Callable[[apsw.Connection], T]) -> T:
        """Read the file, after everything so far has reached its tables."""
        if self._down is not None:
            raise self._unavailable()
        return await self._journal.ask(question)

    # enqueue

    async def push(
        self, drafts: Sequence[Draft], now_ms: int, *, whole: bool = True
    ) -> list[PushOutcome]:
        now = self._begin(now_ms)
        if whole and len(drafts) > 1:
            refused = self._rehearse(drafts, now)
            if refused is not None:
                return refused
        return [self._push(draft, now) for draft in drafts]

    def _push(self, draft: Draft, now: int) -> PushOutcome:
        job = draft.job
        tables = self._tables
        if self._strict and not self._known(job.queue):
            return Unwanted(job.queue)
        if draft.named and tables.find(job.id) is not None:
            return IdTaken(job.id)
        replaced = ""
        policy = draft.unique
        if policy is not None:
            twin = self._twin(draft, now)
            if twin is not None:
                if policy.on_conflict in ("reject", "ignore"):
                    assert job.unique is not None
                    return Duplicate(twin, job.unique, policy.on_conflict == "ignore")
                if policy.on_conflict == "replace_except_schedule" and twin.state == SCHEDULED:
                    job.state = SCHEDULED
                    job.due_at = twin.due_at
                replaced = twin.id
                if twin.state not in TERMINAL:
                    self.life.cancel(twin, "system", f"replaced by {job.id}", now)
        self.life.accept(job, now)
        return Pushed(job, replaced)

    def _known(self, name: str) -> bool:
        queue = self._tables.queues.get(name)
        return queue is not None and queue.exists

    def _twin(self, draft: Draft, now: int) -> Job | None:
        """The job that stands in the way of this one."""
        for job in self._equals(draft):
            if self._in_the_way(draft, job, job.state, now):
                return job
        return None

    @staticmethod
    def _in_the_way(draft: Draft, job: Job, state: str, now: int) -> bool:
        policy = draft.unique
        return (
            policy is not None
            and state in policy.states
            and (policy.period_ms is None or now < job.created_at + policy.period_ms)
        )

    def _equals(self, draft: Draft) -> list[Job]:
        """All jobs with the same fingerprint, oldest first, as far as they could stand in the way."""
        fingerprint, policy = draft.job.unique, draft.unique
        if fingerprint is None or policy is None:
            return []
        tables = self._tables
        found = tables.unique.get(fingerprint, [])
        if policy.looks_at_finished and not self._in_memory:
            ids = self._journal.rows(
                "SELECT id FROM jobs WHERE unique_key = ? AND finished_at > 0", (fingerprint,)
            )
            folded = [tables.find(job_id) for (job_id,) in ids if job_id not in tables.jobs]
            found = found + [job for job in folded if job is not None]
        if len(found) > 1:
            found = sorted(found, key=_age)
        return found

    def _rehearse(self, drafts: Sequence[Draft], now: int) -> list[PushOutcome] | None:
        """What would be refused if the batch were pushed one by one; None when nothing is."""
        tables = self._tables
        taken: set[str] = set()
        accepted: dict[str, list[tuple[Draft, Job]]] = {}
        replaced: set[str] = set()
        outcomes: list[PushOutcome] = []
        refused = False
        for draft in drafts:
            job = draft.job
            outcome: PushOutcome = Held()
            if self._strict and not self._known(job.queue):
                outcome = Unwanted(job.queue)
            elif job.id in taken or (draft.named and tables.find(job.id) is not None):
                outcome = IdTaken(job.id)
            elif draft.unique is not None and job.unique is not None:
                before = self._equals(draft) + [j for _, j in accepted.get(job.unique, [])]
                twin = next(
                    (
                        other
                        for other in before
                        if self._in_the_way(
                            draft, other, CANCELLED if other.id in replaced else other.state, now
                        )
                    ),
                    None,
                )
                if twin is not None and draft.unique.on_conflict in ("reject", "ignore"):
                    outcome = Duplicate(twin, job.unique, draft.unique.on_conflict == "ignore")
                elif twin is not None and twin.state not in TERMINAL:
                    replaced.add(twin.id)
            if isinstance(outcome, Held):
                taken.add(job.id)
                if job.unique is not None:
                    accepted.setdefault(job.unique, []).append((draft, job))
            elif not (isinstance(outcome, Duplicate) and outcome.ignore):
                refused = True
            outcomes.append(outcome)
        return outcomes if refused else None

    # reservations

    async def fetch(self, fetch: Fetch, now_ms: int) -> list[Job]:
        now = self._begin(now_ms)
        worker = fetch.worker
        if not self._workers.at_work(worker):
            return []
        taken: list[Job] = []
        queues = self._tables.queues
        life = self.life
        left = fetch.count
        for name in fetch.queues:
            queue = queues.get(name)
            if queue is None or queue.paused:
                continue
            best = queue.group.best
            while left:
                lane = best()
                if lane is None:
                    break
                job = lane.take()
                assert job is not None
                if job.expires_at and job.expires_at <= now:
                    # Its alarm has not been heard yet among many.
                    life.expire(job, now)
                    continue
                life.start(job, worker, fetch.visibility_ms, now)
                taken.append(job)
                left -= 1
            if not left:
                break
        return taken

    def watch(self, fetch: Fetch) -> Waiting:
        queues: list[Queue] = []
        if self._down is None and self._workers.at_work(fetch.worker):
            queues = [self._tables.queue(name) for name in dict.fromkeys(fetch.queues)]
        waiter = _Registered(queues, fetch.worker, self._waiters)
        if self._closing or self._down is not None:
            waiter.end()
        return waiter

    def _rest(self, worker: str) -> None:
        """This worker gets no more jobs: it need not wait either."""
        for waiter in list(self._waiters):
            if waiter.worker == worker:
                waiter.end()

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
                self.life.fail(found, fail.failure, fail.uniform, now)
                found = Done(found, ACTIVE)
            outcomes.append(found)
        return outcomes

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
        if job.state not in (DISCARDED, RETRYABLE):
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
        if self._known(name):
            return False
        config = rules.merge(rules.EMPTY, changes)
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
            for queue in tables.queues.values():
                tables.resolve(queue)
            packed = msgspec.msgpack.encode(tables.policy)
            tables.set_thing(POLICY, DEFAULT_POLICY, packed)
        else:
            known = tables.queues.get(name)
            config = rules.merge(known.config if known is not None else rules.EMPTY, changes)
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
        self._events.add("queue.paused", now, name, queue=name, data={"paused_by": by})

    async def resume(self, name: str, by: str, now_ms: int) -> None:
        now = self._begin(now_ms)
        queue = self._tables.open_queue(name)
        if queue.paused:
            queue.paused = False
            queue.paused_at = 0
            queue.updated_at = now
            self._tables.save_queue(queue)
            pass_on(queue)
        self._events.add("queue.resumed", now, name, queue=name, data={"resumed_by": by})

    async def remove_queue(self, name: str, now_ms: int) -> int | None:
        now = self._begin(now_ms)
        queue = self._tables.queues.get(name)
        if queue is None or not queue.exists:
            return None
        if queue.live:
            return queue.live
        queue.exists = queue.paused = False
        queue.paused_at = 0
        queue.config = rules.EMPTY
        self._tables.resolve(queue)
        self._tables.save_queue(queue)
        self._events.add("queue.deleted", now, name, queue=name)
        if name == DEFAULT_QUEUE:
            self._tables.open_queue(name)
        return 0

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
        for waiter in list(self._waiters):
            waiter.end()
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
        for queue in self._tables.queues.values():
            told = any(waiter.is_woken for waiter in queue.waiting)
            idle = queue.paused or not queue.counts[AVAILABLE]
            assert not queue.waiting or told or idle, f"{queue.name}: a wake-up was lost"


class _Registered(Waiting):
    """A waiter that the engine knows, so that it can be told when nothing will come."""

    __slots__ = ("_all",)

    def __init__(self, queues: Sequence[Queue], worker: str, known: dict[Waiting, None]) -> None:
        super().__init__(queues, worker)
        self._all = known
        known[self] = None

    def close(self) -> None:
        self._all.pop(self, None)
        super().close()


class _Loaded:
    """What a file held when it was opened."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.jobs = queries.live_jobs(connection)
        self.queues: dict[str, bytes] = {}
        self.policy: bytes | None = None
        self.directives: dict[str, str] = {}
        self.tasks: list[bytes] = []
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
            elif kind == ANSWER:
                self.answers[key] = int.from_bytes(value, "big")


def _age(job: Job) -> tuple[int, int]:
    return job.created_at, job.claim
