"""The semantics of a job server, slow and obvious: one list of jobs, and every question a scan.

Nothing here is clever on purpose: engines are right when they agree with this.
What it borrows from the product are the questions and the decision about one failed attempt, which has tables of its own to be tested by.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headgate.core.retry import Discard, Failure, Requeue, RetryAt, RetryPolicy, decide, error_type
from headgate.engines.contract import Ack, Draft, Extend, Fail, Fetch, Replay

TERMINAL = ("completed", "cancelled", "discarded")
SERVER_VISIBILITY_MS = 30_000
SILENCE_MS = 30_000
"""A worker that registered or beat and then is silent for so long is dead."""


class ErrorEntry(NamedTuple):
    attempt: int
    code: str
    type: str
    at: int


@dataclass
class Entry:
    """A job, with a field for everything that can be observed or decides something."""

    id: str
    type: str
    queue: str
    priority: int
    created_at: int
    max_attempts: int
    timeout_ms: int
    visibility_ms: int
    expires_at: int
    give_up_at: int
    stall_ms: int
    retry: RetryPolicy
    unique: str | None
    state: str
    due_at: int = 0
    seq: int = 0
    attempt: int = 0
    claim: int = 0
    entered_at: int = 0
    """When it came into its state: nothing can befall it there any earlier."""
    enqueued_at: int = 0
    started_at: int = 0
    heard_at: int = 0
    visible_until: int = 0
    lease_ms: int = 0
    finished_at: int = 0
    worker: str = ""
    result: bytes | None = None
    dead: bool = False
    reason: str = ""
    cancelled_while_active: bool = False
    errors: list[ErrorEntry] = field(default_factory=list)


class Said(NamedTuple):
    """An outcome: its name, the job that it is about, and the rest of what it says."""

    kind: str
    job_id: str
    rest: tuple[Any, ...] = ()


class Happening(NamedTuple):
    at: int
    seq: int
    turn: int
    """Which of two things comes first that befall one job in the same instant."""
    act: Callable[[int], None]


class Event(NamedTuple):
    kind: str
    at: int
    subject: str


@dataclass
class State:
    jobs: list[Entry] = field(default_factory=list)
    """In the order of their acceptance."""
    last_seq: int = 0
    now: int = 0
    queues: list[str] = field(default_factory=list)
    paused: set[str] = field(default_factory=set)
    draining: set[str] = field(default_factory=set)
    beats: dict[str, int] = field(default_factory=dict)
    """When each worker was last heard of; only those that registered or beat."""
    events: list[Event] = field(default_factory=list)


class Model:
    def __init__(self) -> None:
        self.state = State()

    # what time brings

    def catch_up(self, now: int) -> None:
        """Let everything happen that is due by now, one thing after the other."""
        while True:
            due = [h for h in self._happenings() if h.at <= now]
            if not due:
                break
            first = min(due, key=lambda h: h[:3])
            first.act(first.at)
        self.state.now = max(now, self.state.now)

    def _happenings(self) -> Iterator[Happening]:
        for worker, beat in self.state.beats.items():
            yield Happening(beat + SILENCE_MS, 0, 0, self._death_of(worker))
        for job in self.state.jobs:
            for turn, (at, act) in enumerate(self._befalls(job)):
                yield Happening(max(at, job.entered_at), job.seq, turn, act)

    def _befalls(self, job: Entry) -> Iterator[tuple[int, Callable[[int], None]]]:
        """What will befall a job if nobody touches it; of equal instants the first one counts."""
        if job.state in ("available", "scheduled", "pending") and job.expires_at:
            yield job.expires_at, lambda at: self._expire(job, at)
        if job.state in ("available", "scheduled", "retryable") and job.give_up_at:
            yield job.give_up_at, lambda at: self._give_up(job, at)
        if job.state in ("scheduled", "retryable"):
            yield job.due_at, lambda at: self._promote(job, at)
        if job.state == "active":
            yield job.started_at + job.timeout_ms, lambda at: self._time_out(job, "timeout", at)
            yield job.visible_until, lambda at: self._lose(job, "visibility_timeout", at)
            if job.stall_ms:
                heard = max(job.started_at, job.heard_at)
                yield heard + job.stall_ms, lambda at: self._time_out(job, "stalled", at)

    def _promote(self, job: Entry, at: int) -> None:
        if job.state == "scheduled":
            self._enqueue(job, at)
        else:
            self._stand_last(job, at)

    def _expire(self, job: Entry, at: int) -> None:
        job.errors.append(ErrorEntry(job.attempt, "expired", "expired", at))
        self._tell("job.expired", at, job.id)
        self._discard(job, "expired", at)

    def _give_up(self, job: Entry, at: int) -> None:
        job.errors.append(ErrorEntry(job.attempt, "total_timeout", "total_timeout", at))
        self._discard(job, "total_timeout", at)

    def _lose(self, job: Entry, why: str, at: int) -> None:
        """A reservation is lost: straight back to its old place while it has attempts left."""
        job.errors.append(ErrorEntry(job.attempt, why, why, at))
        self._tell("job.failed", at, job.id)
        if job.attempt < max(1, job.max_attempts):
            self._change(job, "available", at)
        else:
            dead = job.retry.on_exhaustion == "dead_letter"
            self._discard(job, "attempts_exhausted", at, dead=dead)

    def _time_out(self, job: Entry, why: str, at: int) -> None:
        self._fail(job, Failure(code=why, message="", type=why), 0.5, at)

    def _death_of(self, worker: str) -> Callable[[int], None]:
        return lambda at: self._bury(worker, at)

    def _bury(self, worker: str, at: int) -> None:
        del self.state.beats[worker]
        for job in sorted(self.held_by(worker), key=lambda job: job.seq):
            self._lose(job, "worker_death", at)

    # the parts of a change

    def _change(self, job: Entry, state: str, at: int) -> None:
        job.state = state
        job.entered_at = at
        if state in TERMINAL:
            job.finished_at = at

    def _stand_last(self, job: Entry, at: int) -> None:
        """Become available behind everybody of the same priority."""
        self._number(job)
        self._change(job, "available", at)

    def _enqueue(self, job: Entry, at: int) -> None:
        self._stand_last(job, at)
        job.enqueued_at = at
        self._tell("job.enqueued", at, job.id)

    def _number(self, job: Entry) -> None:
        self.state.last_seq += 1
        job.seq = self.state.last_seq

    def _discard(self, job: Entry, reason: str, at: int, *, dead: bool = False) -> None:
        self._change(job, "discarded", at)
        job.reason = reason
        job.dead = dead
        self._tell("job.discarded", at, job.id)

    def _fail(self, job: Entry, failure: Failure, uniform: float, at: int) -> None:
        give_up_at = job.give_up_at or None
        policy = job.retry
        decision = decide(policy, failure, job.attempt, at, uniform, give_up_at, job.timeout_ms)
        if isinstance(decision, Requeue):
            job.attempt -= 1
            self._change(job, "available", at)
            return
        job.errors.append(ErrorEntry(job.attempt, failure.code, error_type(failure), at))
        self._tell("job.failed", at, job.id)
        if isinstance(decision, RetryAt):
            self._change(job, "retryable", at)
            job.due_at = decision.at
            self._tell("job.retrying", at, job.id)
        else:
            assert isinstance(decision, Discard)
            self._discard(job, decision.reason, at, dead=decision.dead_letter)

    def _cancel(self, job: Entry, at: int) -> None:
        job.cancelled_while_active = job.state == "active"
        self._change(job, "cancelled", at)
        self._tell("job.cancelled", at, job.id)

    def _tell(self, kind: str, at: int, subject: str) -> None:
        self.state.events.append(Event(kind, at, subject))

    # looking

    def find(self, job_id: str) -> Entry | None:
        return next((job for job in self.state.jobs if job.id == job_id), None)

    def held_by(self, worker: str) -> list[Entry]:
        return [j for j in self.state.jobs if j.state == "active" and j.worker == worker]

    def line(self, queue: str) -> list[Entry]:
        """The available jobs of a queue in the order in which they will be fetched."""
        waiting = [j for j in self.state.jobs if j.queue == queue and j.state == "available"]
        return sorted(waiting, key=lambda job: (-job.priority, job.seq))

    def fetchable(self, queues: Sequence[str]) -> list[Entry]:
        return [job for q in queues if q not in self.state.paused for job in self.line(q)]

    def counts(self, queue: str) -> dict[str, int]:
        states = [job.state for job in self.state.jobs if job.queue == queue]
        return {state: states.count(state) for state in states}

    # enqueue

    def push(self, drafts: Sequence[Draft], now: int, *, whole: bool = True) -> list[Said]:
        self.catch_up(now)
        before = copy.deepcopy(self.state)
        said = [self._push(draft, now) for draft in drafts]
        if whole and any(self._refused(outcome) for outcome in said):
            self.state = before
            return [Said("Held", "") if outcome.kind == "Pushed" else outcome for outcome in said]
        return said

    @staticmethod
    def _refused(said: Said) -> bool:
        ignored = said.kind == "Duplicate" and said.rest[1]
        return said.kind != "Pushed" and not ignored

    def _push(self, draft: Draft, now: int) -> Said:
        given = draft.job
        if given.queue in self.state.draining:
            return Said("Draining", "", (given.queue,))
        if self.find(given.id):
            return Said("IdTaken", given.id)
        twin = self._twin(draft, now)
        policy = draft.unique
        replaced = ""
        due_at = given.due_at
        state = given.state
        if twin and policy:
            if policy.on_conflict in ("reject", "ignore"):
                ignore = policy.on_conflict == "ignore"
                return Said("Duplicate", twin.id, (given.unique, ignore))
            if policy.on_conflict == "replace_except_schedule" and twin.state == "scheduled":
                state, due_at = "scheduled", twin.due_at
            replaced = twin.id
            if twin.state not in TERMINAL:
                self._cancel(twin, now)
        more = given.more
        job = Entry(
            id=given.id,
            type=given.type,
            queue=given.queue,
            priority=given.priority,
            created_at=given.created_at,
            max_attempts=given.max_attempts,
            timeout_ms=given.timeout_ms,
            visibility_ms=given.visibility_ms,
            expires_at=given.expires_at,
            give_up_at=more.give_up_at if more else 0,
            stall_ms=more.stall_ms if more else 0,
            retry=given.retry,
            unique=given.unique,
            state=state,
            due_at=due_at,
        )
        self.state.jobs.append(job)
        self._open_queue(job.queue)
        if state == "available":
            self._enqueue(job, now)
        else:
            self._number(job)
            self._change(job, state, now)
            if state == "scheduled":
                self._tell("job.scheduled", now, job.id)
        return Said("Pushed", job.id, (replaced,))

    def _twin(self, draft: Draft, now: int) -> Entry | None:
        """The job that stands in the way of this one, if it wants to be unique."""
        policy = draft.unique
        if policy is None:
            return None
        for job in self.state.jobs:
            if job.unique != draft.job.unique or job.state not in policy.states:
                continue
            if policy.period_ms is None or now < job.created_at + policy.period_ms:
                return job
        return None

    def _open_queue(self, queue: str) -> None:
        if queue not in self.state.queues:
            self.state.queues.append(queue)

    # reservations

    def fetch(self, fetch: Fetch, now: int) -> list[Entry]:
        self.catch_up(now)
        taken = self.fetchable(fetch.queues)[: fetch.count]
        for job in taken:
            job.attempt += 1
            job.claim += 1
            job.started_at = now
            job.worker = fetch.worker
            job.lease_ms = fetch.visibility_ms or job.visibility_ms or SERVER_VISIBILITY_MS
            job.visible_until = now + job.lease_ms
            self._change(job, "active", now)
            self._tell("job.started", now, job.id)
        return taken

    def _answered(self, job_id: str, worker: str, claim: int) -> Entry | Said:
        """The job whose holder speaks, or why it may not."""
        job = self.find(job_id)
        if job is None:
            return Said("Missing", job_id)
        if job.state != "active":
            return Said("WrongState", job_id, (job.state,))
        if (worker and worker != job.worker) or (claim and claim != job.claim):
            return Said("NotHolder", job_id, (job.worker, job.claim))
        return job

    def ack(self, acks: Sequence[Ack], now: int) -> list[Said]:
        self.catch_up(now)
        return [self._ack(ack, now) for ack in acks]

    def _ack(self, ack: Ack, now: int) -> Said:
        job = self._answered(ack.job_id, ack.worker, ack.claim)
        if isinstance(job, Said):
            return job
        self._change(job, "completed", now)
        job.result = ack.result
        self._tell("job.completed", now, job.id)
        return Said("Done", job.id, (job.state,))

    def fail(self, fails: Sequence[Fail], now: int) -> list[Said]:
        self.catch_up(now)
        return [self._nack(fail, now) for fail in fails]

    def _nack(self, fail: Fail, now: int) -> Said:
        job = self._answered(fail.job_id, fail.worker, fail.claim)
        if isinstance(job, Said):
            return job
        self._fail(job, fail.failure, fail.uniform, now)
        return Said("Done", job.id, (job.state,))

    def extend(
        self, worker: str, jobs: Sequence[Extend], visibility_ms: int, now: int
    ) -> list[Said]:
        self.catch_up(now)
        return [self._extend(worker, one, visibility_ms, now) for one in jobs]

    def _extend(self, worker: str, one: Extend, visibility_ms: int, now: int) -> Said:
        job = self._answered(one.job_id, worker, one.claim)
        if isinstance(job, Said):
            return job
        job.visible_until = now + (visibility_ms or job.lease_ms)
        job.heard_at = now
        return Said("Done", job.id, (job.state,))

    # workers

    def beat(
        self, worker: str, job_ids: Sequence[str], visibility_ms: int, now: int
    ) -> tuple[list[str], list[str]]:
        """Which of the jobs are extended, and which are not to be run any more."""
        self.catch_up(now)
        self.state.beats[worker] = now
        extended = []
        cancelled = []
        for job_id in job_ids:
            if self._extend(worker, Extend(job_id), visibility_ms, now).kind == "Done":
                extended.append(job_id)
            job = self.find(job_id)
            if job and job.state == "cancelled" and job.cancelled_while_active:
                cancelled.append(job_id)
        return extended, cancelled

    # single jobs, by hand

    def cancel(self, job_id: str, now: int) -> Said:
        self.catch_up(now)
        job = self.find(job_id)
        if job is None:
            return Said("Missing", job_id)
        if job.state in TERMINAL:
            return Said("WrongState", job_id, (job.state,))
        self._cancel(job, now)
        return Said("Done", job_id, (job.state,))

    def activate(self, job_id: str, now: int) -> Said:
        self.catch_up(now)
        job = self.find(job_id)
        if job is None:
            return Said("Missing", job_id)
        if job.state != "pending":
            return Said("WrongState", job_id, (job.state,))
        self._enqueue(job, now)
        return Said("Done", job_id, (job.state,))

    def reprioritize(self, job_id: str, priority: int, now: int) -> Said:
        self.catch_up(now)
        job = self.find(job_id)
        if job is None:
            return Said("Missing", job_id)
        if job.state not in ("available", "scheduled", "pending"):
            return Said("WrongState", job_id, (job.state,))
        job.priority = priority
        self._tell("priority.changed", now, job.id)
        return Said("Done", job_id, (job.state,))

    def retry(self, job_id: str, changes: Replay, now: int) -> Said:
        self.catch_up(now)
        job = self.find(job_id)
        if job is None:
            return Said("Missing", job_id)
        if job.state not in ("discarded", "retryable"):
            return Said("WrongState", job_id, (job.state,))
        if job.state == "discarded":
            job.attempt = 0
            job.dead = False
            job.reason = ""
        if changes.queue is not None:
            job.queue = changes.queue
            self._open_queue(job.queue)
        if changes.max_attempts is not None:
            job.max_attempts = changes.max_attempts
        job.finished_at = 0
        self._enqueue(job, now)
        return Said("Done", job_id, (job.state,))

    def delete(self, job_id: str, now: int) -> Said:
        self.catch_up(now)
        job = self.find(job_id)
        if job is None:
            return Said("Missing", job_id)
        if job.state not in TERMINAL:
            return Said("WrongState", job_id, (job.state,))
        self.state.jobs.remove(job)
        return Said("Done", job_id, (job.state,))

    # queues

    def pause(self, queue: str, now: int) -> None:
        self.catch_up(now)
        self._open_queue(queue)
        self.state.paused.add(queue)
        self._tell("queue.paused", now, queue)

    def resume(self, queue: str, now: int) -> None:
        self.catch_up(now)
        self._open_queue(queue)
        self.state.paused.discard(queue)
        self._tell("queue.resumed", now, queue)

    # the process

    def restart(self, now: int) -> None:
        """Only what is not worth keeping is gone: who is alive, and what was told."""
        self.state.beats = {}
        self.state.events = []
