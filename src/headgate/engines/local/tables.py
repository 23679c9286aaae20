"""What the engine holds in memory, and the few ways of changing it that keep it whole.

Every change of a job goes through here: its place in line, its state and the counts, its timer, its record in the journal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator
from typing import Any, Protocol

import msgspec

from headgate.core import queues as rules
from headgate.core.gates import Limits
from headgate.core.job import Job, copy_of
from headgate.core.limits import queue_key
from headgate.core.queues import EMPTY, SYSTEM, QueueConfig, Resolved
from headgate.core.states import ACTIVE, AVAILABLE, RETRYABLE, SCHEDULED, TERMINAL
from headgate.core.times import DAY_MS
from headgate.engines.contract import QUEUE_OPENED, Maintenance
from headgate.engines.local.events import EventLog
from headgate.engines.local.keys import Keys
from headgate.engines.local.queue import Queue, size_of
from headgate.engines.local.rows import Record, changed, job_of, stored
from headgate.engines.local.timers import Timers

QUEUE = "queue"
TODAY = "today"
POLICY = "policy"


NO_LIMITS = Limits()
FEW_QUEUES = 1_000
"""Below so many nobody looks for those that are not needed any more."""


def _nobody() -> None:
    return


class Log(Protocol):
    """Where records go; the journal is one."""

    now_ms: int

    @property
    def number(self) -> int: ...

    def write(self, record: Record) -> None: ...

    def row(self, job_id: str) -> Record | None: ...

    def rows(self, sql: str, values: tuple[Any, ...]) -> list[Record]: ...


class Tables:
    __slots__ = (
        "_finished",
        "_last_record",
        "crowded_at",
        "ended",
        "events",
        "fair_pools",
        "freed",
        "held",
        "in_pools",
        "jobs",
        "keep_finished",
        "keys",
        "log",
        "maintenance",
        "next_seq",
        "now",
        "on_touched",
        "policy",
        "queues",
        "resolved_policy",
        "strict",
        "timers",
        "touched",
        "unique",
        "watched",
    )

    def __init__(self, log: Log, events: EventLog, *, keep_finished: bool) -> None:
        self.log = log
        self.events = events
        self.keep_finished = keep_finished
        """Without a file, finished jobs stay in memory."""
        self.strict = False
        """Whether queues have to be created by request."""
        self.now = 0
        self.next_seq = 1
        self.jobs: dict[str, Job] = {}
        """All that have not ended, and those that ended but are not folded yet."""
        self.queues: dict[str, Queue] = {}
        self.crowded_at = FEW_QUEUES
        """With more queues than that it is time to look for those that nobody needs."""
        self.policy: QueueConfig = EMPTY
        self.resolved_policy: Resolved = SYSTEM
        self.ended: dict[Queue, None] = {}
        """Queues with jobs that ended since the last batch."""
        self.held: dict[str, dict[str, Job]] = {}
        """Worker -> the jobs that it holds."""
        self.unique: dict[str, list[Job]] = {}
        """Fingerprint -> the jobs in memory that have it, oldest first."""
        self.in_pools: dict[str, int] = {}
        """Pool -> how many active jobs its workers have."""
        self.fair_pools: set[str] = set()
        """Queues that some pool serves by the turns of tenants."""
        self.timers = Timers()
        self.keys = Keys(self)
        self.maintenance: Maintenance | None = None
        self.freed: list[Job] = []
        """Jobs that ended a reservation, as long as somebody waits for the room of their worker or pool."""
        self.watched = False
        """Whether anybody does."""
        self.on_touched: Callable[[], None] = _nobody
        """Called when there is something to look at that was not there before."""
        self.touched: dict[Queue, None] = {}
        """Queues that somebody follows, and in which something changed that is not looked at yet."""
        self._finished: deque[tuple[int, Job]] = deque()
        self._last_record: dict[str, int] = {}
        """Batch of the newest record of each finished job in memory."""

    # queues

    def queue(self, name: str) -> Queue:
        """The queue, known or not."""
        found = self.queues.get(name)
        if found is None:
            found = self.queues[name] = Queue(name, self.keys)
            self.resolve(found)
            if len(self.queues) > self.crowded_at:
                self.on_touched()
        return found

    def open_queue(self, name: str) -> Queue:
        """The queue; it exists from now on."""
        queue = self.queue(name)
        if not queue.exists:
            queue.exists = True
            queue.created_at = queue.updated_at = self.now
            self.resolve(queue)
            self.save_queue(queue)
            self.events.whisper(QUEUE_OPENED, self.now, name)
        return queue

    def save_queue(self, queue: Queue) -> None:
        self.set_thing(QUEUE, queue.name, queue.stored() if queue.exists else None)

    def set_thing(self, kind: str, key: str, value: bytes | None) -> None:
        self.log.write(("", kind, key, value))

    def resolve(self, queue: Queue) -> None:
        """Put its settings together anew, and let its limits hold."""
        queue.resolved = rules.resolve(self.policy, queue.config, queue.name)
        queue.bounded = queue.resolved.bounds.bounded
        queue.fair = queue.resolved.fairness.enabled or queue.name in self.fair_pools
        name = queue_key(queue.name)
        if queue.exists and queue.resolved.limits != NO_LIMITS:
            active = (
                job
                for held in self.held.values()
                for job in held.values()
                if job.queue == queue.name
            )
            queue.gate = self.keys.limit(name, queue.resolved.limits, active, queue)
        elif queue.gate is not None:
            queue.gate = None
            self.keys.unlimit(name)
        queue.refollow()
        self.touch(queue)

    @property
    def is_unsettled(self) -> bool:
        """Whether something changed that those who follow it do not know yet."""
        return bool(self.touched or self.freed or self.keys.swung)

    def touch(self, queue: Queue) -> None:
        """Something changed that who follows this queue wants to know."""
        if queue.followed:
            if not self.touched:
                self.on_touched()
            self.touched[queue] = None

    def forget_queues(self, needed: Container[Queue]) -> None:
        """Let go of queues that do not exist and of which nobody knows anything; no step may be going on."""
        for name, queue in list(self.queues.items()):
            if not queue.is_forgettable or queue in needed or queue in self.touched:
                continue
            queue.close_lanes()
            del self.queues[name]
            self.ended.pop(queue, None)
        self.crowded_at = 2 * len(self.queues) + FEW_QUEUES

    def existing(self) -> Iterator[Queue]:
        return (queue for queue in self.queues.values() if queue.exists)

    def write_changes(self, write: Callable[[tuple[Any, ...]], None]) -> None:
        """Record how many jobs ended today, once for each queue; the batch is about to be closed."""
        for queue in self.ended:
            write(("", TODAY, queue.name, msgspec.msgpack.encode(queue.recent.today)))
        self.ended.clear()

    def restore_today(self, name: str, packed: bytes) -> None:
        """What ended in this queue, if it was today."""
        known = msgspec.msgpack.decode(packed, type=tuple[int, int, int])
        if known[0] == self.now // DAY_MS:
            self.queue(name).recent.today = known
        else:
            self.set_thing(TODAY, name, None)

    # one job

    def find(self, job_id: str) -> Job | None:
        """The job, wherever it is kept; one that is read from the file is a copy."""
        job = self.jobs.get(job_id)
        if job is None and not self.keep_finished:
            row = self.log.row(job_id)
            if row is not None and (job_id not in self._last_record):
                job = job_of(row)
        return job

    def number(self, job: Job) -> None:
        """Put the job behind everybody else, also behind those to whom something happens in the same instant."""
        if job.alarm:
            self.timers.disarm(job)
        job.seq = self.next_seq
        self.next_seq += 1

    def accept(self, job: Job) -> None:
        """A new job; its state is set."""
        self.jobs[job.id] = job
        if job.unique is not None:
            self.unique.setdefault(job.unique, []).append(job)
        queue = self.queues[job.queue]
        queue.counts[job.state] += 1
        if job.tenant:
            queue.count_tenant(job.tenant, job.state, 1)
        queue.bytes += size_of(job)

    def save_new(self, job: Job) -> None:
        self.log.write(stored(job, ""))

    def save(self, job: Job, was: str) -> None:
        """Record a change; `was` is the state in which it was recorded last."""
        self.log.write(changed(job, was))
        if job.finished_at:
            if job.id not in self.jobs:
                # Read from the file, which does not know the change before it is folded.
                self._bring_back(job)
            self._remember_finished(job)

    def save_whole(self, job: Job, was: str) -> None:
        """Record a live job whose lasting members changed."""
        self.log.write(stored(job, was))

    def _bring_back(self, job: Job) -> None:
        self.jobs[job.id] = job
        if job.unique is not None:
            self.unique.setdefault(job.unique, []).append(job)

    def save_revived(self, job: Job, was: str, old_queue: str) -> None:
        """Record a job that had ended and lives again, perhaps elsewhere and with other contents."""
        if job.queue == old_queue:
            self.log.write(stored(job, was))
        else:
            # Counts of finished jobs follow the records, so it leaves the old queue by a record of its own.
            self.log.write((job.id, was, old_queue))
            self.log.write(stored(job, ""))

    def set_state(self, job: Job, state: str) -> None:
        queue = self.queues[job.queue]
        was = job.state
        counts = queue.counts
        counts[state] += 1
        counts[was] -= 1
        if job.tenant:
            queue.count_tenant(job.tenant, state, 1)
            queue.count_tenant(job.tenant, was, -1)
        if was == SCHEDULED and job.more is not None and job.more.postponed_by:
            self._no_longer_postponed(job)
        job.state = state
        if state in TERMINAL:
            # It does not live any more: it takes no room and names no keys.
            queue.bytes -= size_of(job)
            if job.keys:
                self.keys.unuse(job)
        if queue.followed:
            self.touch(queue)

    def transfer(self, job: Job, queue: Queue, state: str) -> None:
        """Let a job be counted in another queue, or anew in the same one, alive in this state."""
        old, was = self.queue(job.queue), job.state
        lives = was not in TERMINAL
        if not lives and job.keys:
            self.keys.use_again(job)
        queue.count(job, state, 1)
        queue.bytes += size_of(job)
        old.count(job, was, -1)
        if lives:
            old.bytes -= size_of(job)
            if was == SCHEDULED and state != SCHEDULED and job.rare().postponed_by:
                self._no_longer_postponed(job)
        job.queue, job.state = queue.name, state
        self.touch(old)
        self.touch(queue)

    def postponed(self, job: Job, key: str) -> None:
        """The job waits for its key as a scheduled one."""
        job.rare().postponed_by = key
        self.keys.named(key).postponed += 1

    def _no_longer_postponed(self, job: Job) -> None:
        more = job.rare()
        self.keys.known[more.postponed_by].postponed -= 1
        more.postponed_by = ""

    def line_up(self, job: Job) -> None:
        """Let an available job stand in its line."""
        queue = self.queues[job.queue]
        queue.line_up(job)
        if job.expires_at:
            self.arm(job, job.expires_at)
        if queue.followed:
            self.touch(queue)

    def step_out(self, job: Job) -> None:
        """Let an available job leave its line."""
        queue = self.queues[job.queue]
        queue.step_out(job)
        self.touch(queue)

    def expect(self, job: Job) -> None:
        """The job has a time at which it becomes available."""
        queue = self.queues[job.queue]
        counts = queue.counts
        queue.dues.add(job, self.jobs, counts[SCHEDULED] + counts[RETRYABLE])

    def arm(self, job: Job, at: int) -> None:
        self.timers.arm(job, max(at, self.now))

    def hold(self, job: Job) -> None:
        held = self.held.get(job.worker)
        if held is None:
            held = self.held[job.worker] = {}
        held[job.id] = job
        self.in_pools[job.pool] = self.in_pools.get(job.pool, 0) + 1

    def release(self, job: Job) -> None:
        """The reservation is over: worker, pool and gates are free of it."""
        held = self.held[job.worker]
        del held[job.id]
        if not held:
            del self.held[job.worker]
        queue = self.queues[job.queue]
        left = self.in_pools[job.pool] - 1
        if left:
            self.in_pools[job.pool] = left
        else:
            del self.in_pools[job.pool]
        if job.keys or job.tenant or queue.gate is not None:
            self.keys.release(job)
        if self.watched:
            if not self.freed:
                self.on_touched()
            self.freed.append(job)
        if queue.followed:
            self.touch(queue)

    def renewed(self, job: Job) -> Job:
        """A fresh record in the place of one that may have left traces in a line."""
        self.timers.disarm(job)
        fresh = copy_of(job)
        job.lane = None
        if self.jobs.get(job.id) is job:
            self.jobs[job.id] = fresh
            if job.unique is not None:
                twins = self.unique[job.unique]
                twins[twins.index(job)] = fresh
        else:
            self.jobs[job.id] = fresh
            if job.unique is not None:
                self.unique.setdefault(job.unique, []).append(fresh)
        return fresh

    def forget(self, job: Job) -> None:
        """Delete a job that has ended."""
        self.queue(job.queue).counts[job.state] -= 1
        self.log.write((job.id, job.state, job.queue))
        if not self.keep_finished:
            # Until the record is folded the file still shows the job.
            self._last_record[job.id] = self.log.number
            self._finished.append((self.log.number, job))
        self._drop(job)

    def _drop(self, job: Job) -> None:
        if self.jobs.get(job.id) is not job:
            return
        del self.jobs[job.id]
        if job.unique is not None:
            twins = self.unique[job.unique]
            twins.remove(job)
            if not twins:
                del self.unique[job.unique]

    # folding

    def _remember_finished(self, job: Job) -> None:
        if not self.keep_finished:
            number = self.log.number
            self._last_record[job.id] = number
            self._finished.append((number, job))

    def folded(self, number: int) -> None:
        """Records up to this batch are in the file's tables: what has ended need not stay in memory."""
        finished = self._finished
        last = self._last_record
        while finished and finished[0][0] <= number:
            at, job = finished.popleft()
            if last.get(job.id) != at:
                continue
            del last[job.id]
            if job.state in TERMINAL:
                self._drop(job)

    # restoring

    def restore(self, job: Job) -> None:
        """A live job, read from the file in the order of the lines."""
        queue = self.open_queue(job.queue)
        self.accept(job)
        if job.seq >= self.next_seq:
            self.next_seq = job.seq + 1
        if job.keys:
            self.keys.use(job)
        if job.state == AVAILABLE:
            queue.groups.gather()
            queue.line_up(job)
        elif job.state == ACTIVE:
            self.hold(job)
        elif job.state in (SCHEDULED, RETRYABLE):
            self.expect(job)
        if job.state == SCHEDULED and job.more is not None and job.more.postponed_by:
            self.keys.named(job.more.postponed_by).postponed += 1

    def restored(self) -> None:
        """These were all."""
        for queue in self.queues.values():
            queue.groups.gathered()

    def check(self) -> None:
        """Raise AssertionError where memory contradicts itself; for tests, it looks at everything."""
        counted: dict[tuple[str, str], int] = {}
        for job in self.jobs.values():
            counted[job.queue, job.state] = counted.get((job.queue, job.state), 0) + 1
            queue = self.queues[job.queue]
            in_line = job.lane is not None
            assert in_line == (job.state == AVAILABLE), f"{job.id} is {job.state}, line {in_line}"
            assert not in_line or job.lane.tenant == job.tenant, f"{job.id} in a wrong line"
            holding = self.held.get(job.worker, {}).get(job.id) is job
            assert holding == (job.state == ACTIVE), f"{job.id} is {job.state}, held {holding}"
            assert job.unique is None or job in self.unique[job.unique], f"{job.id} not unique"
        for name, queue in self.queues.items():
            for state, count in queue.counts.items():
                here = counted.get((name, state), 0)
                same = here <= count if state in TERMINAL else here == count
                assert same, f"{name} counts {count} {state}, has {here}"
            queue.check()
        for fingerprint, twins in self.unique.items():
            for job in twins:
                assert self.jobs.get(job.id) is job, f"{job.id} is gone but unique {fingerprint}"
        for worker, held in self.held.items():
            assert held, f"{worker} holds nothing"
            for job in held.values():
                assert (job.worker, job.state) == (worker, "active"), f"{job.id}: not {worker}'s"
