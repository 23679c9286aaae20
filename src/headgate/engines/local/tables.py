"""What the engine holds in memory, and the few ways of changing it that keep it whole.

Every change of a job goes through here: its place in line, its state and the counts, its timer, its record in the journal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Protocol

from headgate.core import queues as rules
from headgate.core.job import Job, copy_of
from headgate.core.queues import EMPTY, SYSTEM, QueueConfig, Resolved
from headgate.core.states import ACTIVE, AVAILABLE, TERMINAL
from headgate.engines.local.events import EventLog
from headgate.engines.local.queue import Queue
from headgate.engines.local.rows import Record, changed, job_of, stored
from headgate.engines.local.timers import Timers
from headgate.engines.local.waiting import wake

QUEUE = "queue"
POLICY = "policy"


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
        "events",
        "held",
        "jobs",
        "keep_finished",
        "log",
        "next_seq",
        "now",
        "policy",
        "queues",
        "resolved_policy",
        "timers",
        "unique",
    )

    def __init__(self, log: Log, events: EventLog, *, keep_finished: bool) -> None:
        self.log = log
        self.events = events
        self.keep_finished = keep_finished
        """Without a file, finished jobs stay in memory."""
        self.now = 0
        self.next_seq = 1
        self.jobs: dict[str, Job] = {}
        """All that have not ended, and those that ended but are not folded yet."""
        self.queues: dict[str, Queue] = {}
        self.policy: QueueConfig = EMPTY
        self.resolved_policy: Resolved = SYSTEM
        self.held: dict[str, dict[str, Job]] = {}
        """Worker -> the jobs that it holds."""
        self.unique: dict[str, list[Job]] = {}
        """Fingerprint -> the jobs in memory that have it, oldest first."""
        self.timers = Timers()
        self._finished: deque[tuple[int, Job]] = deque()
        self._last_record: dict[str, int] = {}
        """Batch of the newest record of each finished job in memory."""

    # queues

    def queue(self, name: str) -> Queue:
        """The queue, known or not."""
        found = self.queues.get(name)
        if found is None:
            found = self.queues[name] = Queue(name)
            found.resolved = self.resolved_policy
        return found

    def open_queue(self, name: str) -> Queue:
        """The queue; it exists from now on."""
        queue = self.queue(name)
        if not queue.exists:
            queue.exists = True
            queue.created_at = queue.updated_at = self.now
            self.save_queue(queue)
        return queue

    def save_queue(self, queue: Queue) -> None:
        self.set_thing(QUEUE, queue.name, queue.stored() if queue.exists else None)

    def set_thing(self, kind: str, key: str, value: bytes | None) -> None:
        self.log.write(("", kind, key, value))

    def resolve(self, queue: Queue) -> None:
        queue.resolved = (
            rules.resolve(self.policy, queue.config)
            if queue.config != EMPTY
            else self.resolved_policy
        )

    def existing(self) -> Iterator[Queue]:
        return (queue for queue in self.queues.values() if queue.exists)

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
        """Put the job behind everybody else."""
        job.seq = self.next_seq
        self.next_seq += 1

    def accept(self, job: Job) -> None:
        """A new job; its state is set."""
        self.jobs[job.id] = job
        if job.unique is not None:
            self.unique.setdefault(job.unique, []).append(job)
        self.queues[job.queue].counts[job.state] += 1

    def save_new(self, job: Job) -> None:
        self.log.write(stored(job, ""))

    def save(self, job: Job, was: str) -> None:
        """Record a change; `was` is the state in which it was recorded last."""
        self.log.write(changed(job, was))
        if job.finished_at:
            self._remember_finished(job)

    def save_revived(self, job: Job, was: str, old_queue: str) -> None:
        """Record a job that had ended and lives again, perhaps elsewhere and with other contents."""
        if job.queue == old_queue:
            self.log.write(stored(job, was))
        else:
            # Counts of finished jobs follow the records, so it leaves the old queue by a record of its own.
            self.log.write((job.id, was, old_queue))
            self.log.write(stored(job, ""))

    def set_state(self, job: Job, state: str) -> None:
        counts = self.queues[job.queue].counts
        counts[job.state] -= 1
        counts[state] += 1
        job.state = state

    def line_up(self, job: Job) -> None:
        """Let an available job stand in its line, and tell somebody who waits for it."""
        queue = self.queues[job.queue]
        queue.line_of(job).add(job)
        if queue.waiting and not queue.paused:
            wake(queue)
        if job.expires_at:
            self.arm(job, job.expires_at)

    def step_out(self, job: Job) -> None:
        """Let an available job leave its line."""
        if job.lane is not None:
            job.lane.leave(job)

    def arm(self, job: Job, at: int) -> None:
        self.timers.arm(job, max(at, self.now))

    def hold(self, job: Job) -> None:
        held = self.held.get(job.worker)
        if held is None:
            held = self.held[job.worker] = {}
        held[job.id] = job

    def release(self, job: Job) -> None:
        held = self.held[job.worker]
        del held[job.id]
        if not held:
            del self.held[job.worker]

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
        if job.state == AVAILABLE:
            queue.line_of(job).add(job)
        elif job.state == ACTIVE:
            self.hold(job)

    def check(self) -> None:
        """Raise AssertionError where memory contradicts itself; for tests, it looks at everything."""
        counted: dict[tuple[str, str], int] = {}
        for job in self.jobs.values():
            counted[job.queue, job.state] = counted.get((job.queue, job.state), 0) + 1
            queue = self.queues[job.queue]
            in_line = job.lane is not None
            assert in_line == (job.state == AVAILABLE), f"{job.id} is {job.state}, line {in_line}"
            assert not in_line or job.lane is queue.line_of(job), f"{job.id} in a wrong line"
            holding = self.held.get(job.worker, {}).get(job.id) is job
            assert holding == (job.state == ACTIVE), f"{job.id} is {job.state}, held {holding}"
            assert job.unique is None or job in self.unique[job.unique], f"{job.id} not unique"
        for name, queue in self.queues.items():
            for state, count in queue.counts.items():
                here = counted.get((name, state), 0)
                same = here <= count if state in TERMINAL else here == count
                assert same, f"{name} counts {count} {state}, has {here}"
            size = queue.lane.size
            assert size == queue.counts[AVAILABLE], f"{name}: {size} in line"
        for fingerprint, twins in self.unique.items():
            for job in twins:
                assert self.jobs.get(job.id) is job, f"{job.id} is gone but unique {fingerprint}"
        for worker, held in self.held.items():
            assert held, f"{worker} holds nothing"
            for job in held.values():
                assert (job.worker, job.state) == (worker, "active"), f"{job.id}: not {worker}'s"
