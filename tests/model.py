"""The semantics of a job server, slow and obvious: one list of jobs, and every question a scan.

Nothing here is clever on purpose: engines are right when they agree with this.
What it borrows from the product are the words of the contract and the decision about one failed attempt, which has tables of its own to be tested by.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from headgate.core.retry import Discard, Failure, Requeue, RetryAt, RetryPolicy, decide, error_type
from headgate.engines.contract import Ack, Draft, Extend, Fail, Fetch, Page, Query, Replay, Task

TERMINAL = ("completed", "cancelled", "discarded")
SYSTEM_VISIBILITY_S = 30
SILENCE_MS = 30_000
"""A worker that registered or beat and then is silent for so long is dead."""
ERRORS_KEPT = 25


class ErrorEntry(NamedTuple):
    attempt: int
    code: str
    type: str
    at: int


class Progress(NamedTuple):
    part: float | None = None
    data: bytes | None = None
    message: str | None = None
    at: int = 0


class Saved(NamedTuple):
    """A checkpoint."""

    sequence: int
    at: int
    state: bytes


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
    expires_as: str
    give_up_at: int
    stall_ms: int
    retry: RetryPolicy
    unique: str | None
    tenant: str
    fixed: bytes
    state: str
    due_at: int
    seq: int = 0
    attempt: int = 0
    claim: int = 0
    entered_at: int = 0
    """When it came into its state: nothing can befall it there any earlier."""
    enqueued_at: int = 0
    started_at: int = 0
    heard_at: int = 0
    visible_until: int = 0
    asked_ms: int = 0
    """How long a reservation the fetch asked for; 0 when it asked for none."""
    finished_at: int = 0
    activated_at: int = 0
    re_enqueued_at: int = 0
    retry_delay_ms: int = -1
    worker: str = ""
    result: bytes | None = None
    dead: bool = False
    reason: str = ""
    cancelled_while_active: bool = False
    errors: list[ErrorEntry] = field(default_factory=list)
    progress: Progress = field(default_factory=Progress)
    checkpoint: Saved | None = None


@dataclass
class Worker:
    beat_at: int
    state: str = "running"

    @property
    def works(self) -> bool:
        return self.state in ("", "running", "active")


@dataclass
class Queue:
    created_at: int
    paused_at: int = 0
    config: dict[str, Any] = field(default_factory=dict)


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
    state: str = ""


@dataclass
class State:
    jobs: list[Entry] = field(default_factory=list)
    """In the order of their acceptance."""
    last_seq: int = 0
    now: int = 0
    queues: dict[str, Queue] = field(default_factory=lambda: {"default": Queue(0)})
    policy: dict[str, Any] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    workers: dict[str, Worker] = field(default_factory=dict)
    """Only those that registered or beat."""
    directives: dict[str, str] = field(default_factory=dict)
    answers: dict[tuple[str, str], tuple[bytes, int]] = field(default_factory=dict)
    """Kept for repeated requests: the answer, and until when."""
    events: list[Event] = field(default_factory=list)


class Model:
    def __init__(self) -> None:
        self.state = State()

    # what time brings

    def catch_up(self, now: int) -> int:
        """Let everything happen that is due by now, one thing after the other; gives the latest instant seen."""
        now = max(now, self.state.now)
        while True:
            due = [h for h in self._happenings() if h.at <= now]
            if not due:
                break
            first = min(due, key=lambda h: h[:3])
            first.act(first.at)
        self.state.now = now
        return now

    def next_due(self) -> int | None:
        return min((h.at for h in self._happenings()), default=None)

    def _happenings(self) -> Iterator[Happening]:
        for name, worker in self.state.workers.items():
            yield Happening(worker.beat_at + SILENCE_MS, 0, 0, self._death_of(name))
        for job in self.state.jobs:
            for turn, (at, act) in enumerate(self._befalls(job)):
                yield Happening(max(at, job.entered_at), job.seq, turn, act)

    def _befalls(self, job: Entry) -> Iterator[tuple[int, Callable[[int], None]]]:
        """What will befall a job if nobody touches it; of equal instants the first one counts."""
        if job.state in ("available", "scheduled", "pending") and job.expires_at:
            yield job.expires_at, lambda at: self._expire(job, at)
        if job.state == "retryable" and job.give_up_at:
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
        kind = job.expires_as or "expired"
        self._note(job, kind, kind, at)
        self._tell("job.expired", at, job)
        self._discard(job, kind, at)

    def _give_up(self, job: Entry, at: int) -> None:
        self._note(job, "total_timeout", "total_timeout", at)
        self._discard(job, "total_timeout", at)

    def _lose(self, job: Entry, why: str, at: int) -> None:
        """A reservation is lost: straight back to its old place while it has attempts left."""
        self._note(job, why, why, at)
        self._tell("job.failed", at, job)
        if job.attempt < job.max_attempts:
            self._go_back(job, at)
        else:
            dead = job.retry.on_exhaustion == "dead_letter"
            self._discard(job, "attempts_exhausted", at, dead=dead)

    def _time_out(self, job: Entry, why: str, at: int) -> None:
        self._fail(job, Failure(code=why, message="", type=why), 0.5, at)

    def _death_of(self, worker: str) -> Callable[[int], None]:
        def bury(at: int) -> None:
            self._bury(worker, at)

        return bury

    def _bury(self, worker: str, at: int) -> int:
        """The worker is gone, and its jobs go back; how many."""
        del self.state.workers[worker]
        self.state.directives.pop(worker, None)
        held = sorted(self.held_by(worker), key=lambda job: job.seq)
        for job in held:
            self._lose(job, "worker_death", at)
        self._tell("worker.stopped", at, worker)
        return len(held)

    # the parts of a change

    def _change(self, job: Entry, state: str, at: int) -> None:
        job.state = state
        job.entered_at = at
        if state in TERMINAL:
            job.finished_at = at

    def _go_back(self, job: Entry, at: int) -> None:
        """From its worker to its old place."""
        job.worker = ""
        self._change(job, "available", at)

    def _stand_last(self, job: Entry, at: int) -> None:
        """Become available behind everybody of the same priority."""
        self._number(job)
        self._change(job, "available", at)

    def _enqueue(self, job: Entry, at: int) -> None:
        self._stand_last(job, at)
        job.enqueued_at = at
        self._tell("job.enqueued", at, job)

    def _number(self, job: Entry) -> None:
        self.state.last_seq += 1
        job.seq = self.state.last_seq

    def _note(self, job: Entry, code: str, kind: str, at: int) -> None:
        job.errors = [*job.errors, ErrorEntry(job.attempt, code, kind, at)][-ERRORS_KEPT:]

    def _discard(self, job: Entry, reason: str, at: int, *, dead: bool = False) -> None:
        self._change(job, "discarded", at)
        job.reason = reason
        job.dead = dead
        self._tell("job.discarded", at, job)
        if dead:
            self._tell("job.dead_lettered", at, job)

    def _fail(self, job: Entry, failure: Failure, uniform: float, at: int) -> None:
        give_up_at = job.give_up_at or None
        policy = job.retry
        decision = decide(policy, failure, job.attempt, at, uniform, give_up_at, job.timeout_ms)
        if isinstance(decision, Requeue):
            job.attempt -= 1
            self._go_back(job, at)
            return
        self._note(job, failure.code, error_type(failure), at)
        self._tell("job.failed", at, job)
        if isinstance(decision, RetryAt):
            job.worker = ""
            self._change(job, "retryable", at)
            job.due_at = decision.at
            job.retry_delay_ms = decision.delay_ms
            self._tell("job.retrying", at, job)
        else:
            assert isinstance(decision, Discard)
            self._discard(job, decision.reason, at, dead=decision.dead_letter)

    def _cancel(self, job: Entry, at: int) -> None:
        job.cancelled_while_active = job.state == "active"
        self._change(job, "cancelled", at)
        self._tell("job.cancelled", at, job)

    def _tell(self, kind: str, at: int, about: Entry | str) -> None:
        if isinstance(about, Entry):
            self.state.events.append(Event(kind, at, about.id, about.state))
        else:
            self.state.events.append(Event(kind, at, about))

    # looking

    def find(self, job_id: str) -> Entry | None:
        return next((job for job in self.state.jobs if job.id == job_id), None)

    def held_by(self, worker: str) -> list[Entry]:
        return [j for j in self.state.jobs if j.state == "active" and j.worker == worker]

    def line(self, queue: str) -> list[Entry]:
        """The available jobs of a queue in the order in which they will be fetched."""
        waiting = [j for j in self.state.jobs if j.queue == queue and j.state == "available"]
        return sorted(waiting, key=lambda job: (-job.priority, job.seq))

    def fetchable(self, fetch: Fetch) -> list[Entry]:
        if not self.at_work(fetch.worker):
            return []
        open_queues = [q for q in dict.fromkeys(fetch.queues) if q not in self.state.paused]
        return [job for queue in open_queues for job in self.line(queue)]

    def counts(self, queue: str) -> dict[str, int]:
        states = [job.state for job in self.state.jobs if job.queue == queue]
        return {state: states.count(state) for state in states}

    def visibility_ms(self, queue: str) -> int:
        own = self.state.queues[queue].config if queue in self.state.queues else {}
        layers = {"visibility_timeout": SYSTEM_VISIBILITY_S} | self.state.policy | own
        return int(layers["visibility_timeout"]) * 1000

    def matching(self, query: Query) -> list[Entry]:
        return [job for job in self.state.jobs if matches(job, query)]

    def find_all(self, query: Query, page: Page) -> tuple[list[Entry], int]:
        """One page of what matches, and how many match in all."""
        found = sorted(
            self.matching(query),
            key=lambda job: (getattr(job, page.sort), job.seq),
            reverse=page.newest_first,
        )
        return found[page.offset : page.offset + page.limit], len(found)

    # enqueue

    def push(self, drafts: Sequence[Draft], now: int, *, whole: bool = True) -> list[Said]:
        now = self.catch_up(now)
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
        job = self._entry(draft)
        job.state, job.due_at = state, due_at
        self.state.jobs.append(job)
        self._open_queue(job.queue, now)
        if state == "available":
            self._enqueue(job, now)
        else:
            self._number(job)
            self._change(job, state, now)
            if state == "scheduled":
                self._tell("job.scheduled", now, job)
        return Said("Pushed", job.id, (replaced,))

    @staticmethod
    def _entry(draft: Draft) -> Entry:
        job = draft.job
        more = job.more
        return Entry(
            id=job.id,
            type=job.type,
            queue=job.queue,
            priority=job.priority,
            created_at=job.created_at,
            max_attempts=job.max_attempts,
            timeout_ms=job.timeout_ms,
            visibility_ms=job.visibility_ms,
            expires_at=job.expires_at,
            expires_as=more.expires_as if more else "",
            give_up_at=more.give_up_at if more else 0,
            stall_ms=more.stall_ms if more else 0,
            retry=job.retry,
            unique=job.unique,
            tenant=job.tenant,
            fixed=job.fixed,
            state=job.state,
            due_at=job.due_at,
        )

    def _twin(self, draft: Draft, now: int) -> Entry | None:
        """The job that stands in the way of this one, if it wants to be unique."""
        policy = draft.unique
        if policy is None:
            return None
        for job in sorted(self.state.jobs, key=lambda job: (job.created_at, job.claim)):
            if job.unique != draft.job.unique or job.state not in policy.states:
                continue
            if policy.period_ms is None or now < job.created_at + policy.period_ms:
                return job
        return None

    def _open_queue(self, name: str, now: int) -> Queue:
        return self.state.queues.setdefault(name, Queue(now))

    # reservations

    def fetch(self, fetch: Fetch, now: int) -> list[Entry]:
        now = self.catch_up(now)
        taken = self.fetchable(fetch)[: fetch.count]
        for job in taken:
            job.attempt += 1
            job.claim += 1
            job.started_at = now
            job.heard_at = 0
            job.progress = Progress()
            job.worker = fetch.worker
            job.asked_ms = fetch.visibility_ms
            job.visible_until = now + self._lease_ms(job)
            self._change(job, "active", now)
            self._tell("job.started", now, job)
        return taken

    def _lease_ms(self, job: Entry) -> int:
        return job.asked_ms or job.visibility_ms or self.visibility_ms(job.queue)

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
        now = self.catch_up(now)
        return [self._ack(ack, now) for ack in acks]

    def _ack(self, ack: Ack, now: int) -> Said:
        job = self._answered(ack.job_id, ack.worker, ack.claim)
        if isinstance(job, Said):
            return job
        self._change(job, "completed", now)
        job.result = ack.result
        if job.progress.at:
            job.progress = job.progress._replace(part=1.0)
        self._tell("job.completed", now, job)
        return Said("Done", job.id, (job.state,))

    def fail(self, fails: Sequence[Fail], now: int) -> list[Said]:
        now = self.catch_up(now)
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
        now = self.catch_up(now)
        return [self._extend(worker, one, visibility_ms, now) for one in jobs]

    def _extend(self, worker: str, one: Extend, visibility_ms: int, now: int) -> Said:
        job = self._answered(one.job_id, worker, one.claim)
        if isinstance(job, Said):
            return job
        self._renew(job, visibility_ms, now)
        return Said("Done", job.id, (job.state,))

    def _renew(self, job: Entry, visibility_ms: int, now: int) -> None:
        job.visible_until = now + (visibility_ms or self._lease_ms(job))
        job.heard_at = now
        self._tell("job.heartbeat", now, job)

    def progress(
        self, job_id: str, part: float | None, data: bytes | None, message: str | None, now: int
    ) -> Said:
        now = self.catch_up(now)
        job = self.find(job_id)
        if job is None:
            return Said("Missing", job_id)
        if job.state == "active":
            known = job.progress
            job.progress = Progress(
                max((p for p in (part, known.part) if p is not None), default=None),
                known.data if data is None else data,
                known.message if message is None else message,
                now,
            )
            self._renew(job, 0, now)
        return Said("Done", job_id, (job.state,))

    # checkpoints

    def save_checkpoint(self, job_id: str, state: bytes, now: int) -> Said:
        now = self.catch_up(now)
        job = self.find(job_id)
        if job is None:
            return Said("Missing", job_id)
        if job.state in TERMINAL:
            return Said("WrongState", job_id, (job.state,))
        sequence = job.checkpoint.sequence if job.checkpoint else 0
        job.checkpoint = Saved(sequence + 1, now, state)
        return Said("Done", job_id, (job.state,))

    def drop_checkpoint(self, job_id: str, now: int) -> Said:
        self.catch_up(now)
        job = self.find(job_id)
        if job is None:
            return Said("Missing", job_id)
        job.checkpoint = None
        return Said("Done", job_id, (job.state,))

    # workers

    def at_work(self, worker: str) -> bool:
        """Whether it may be given jobs; one that nobody knows may."""
        known = self.state.workers.get(worker)
        return worker not in self.state.directives and (known is None or known.works)

    def beat(
        self, worker: str, state: str | None, job_ids: Sequence[str], visibility_ms: int, now: int
    ) -> tuple[str, list[str], list[str]]:
        """What it is to become, which of the jobs are extended, and which are not to be run any more."""
        now = self.catch_up(now)
        known = self.state.workers.get(worker)
        if known is None:
            known = self.state.workers[worker] = Worker(now)
            self._tell("worker.started", now, worker)
        known.beat_at = now
        if state is not None and state != known.state:
            known.state = state
            if not known.works:
                self._tell("worker.quiet", now, worker)
        extended = []
        cancelled = []
        for job_id in job_ids:
            job = self.find(job_id)
            if job and job.state == "active" and job.worker == worker:
                self._renew(job, visibility_ms, now)
                extended.append(job_id)
            if job and job.state == "cancelled" and job.cancelled_while_active:
                cancelled.append(job_id)
        return self.state.directives.get(worker, "running"), extended, cancelled

    def direct(self, worker: str, state: str, now: int) -> bool:
        self.catch_up(now)
        if worker not in self.state.workers:
            return False
        if state == "running":
            self.state.directives.pop(worker, None)
        else:
            self.state.directives[worker] = state
        return True

    def forget_worker(self, worker: str, now: int) -> int | None:
        now = self.catch_up(now)
        return self._bury(worker, now) if worker in self.state.workers else None

    # single jobs, by hand

    def cancel(self, job_id: str, now: int) -> Said:
        return self._cancel_now(job_id, self.catch_up(now))

    def _cancel_now(self, job_id: str, now: int) -> Said:
        job = self.find(job_id)
        if job is None:
            return Said("Missing", job_id)
        if job.state in TERMINAL:
            return Said("WrongState", job_id, (job.state,))
        self._cancel(job, now)
        return Said("Done", job_id, (job.state,))

    def activate(self, job_id: str, now: int) -> Said:
        now = self.catch_up(now)
        job = self.find(job_id)
        if job is None:
            return Said("Missing", job_id)
        if job.state != "pending":
            return Said("WrongState", job_id, (job.state,))
        job.activated_at = now
        self._enqueue(job, now)
        return Said("Done", job_id, (job.state,))

    def reprioritize(self, job_id: str, priority: int, now: int) -> Said:
        now = self.catch_up(now)
        job = self.find(job_id)
        if job is None:
            return Said("Missing", job_id)
        if job.state not in ("available", "scheduled"):
            return Said("WrongState", job_id, (job.state,))
        job.priority = priority
        self._tell("priority.changed", now, job)
        return Said("Done", job_id, (job.state,))

    def retry(self, job_id: str, changes: Replay, now: int) -> Said:
        return self._retry_now(job_id, changes, self.catch_up(now))

    def _retry_now(self, job_id: str, changes: Replay, now: int) -> Said:
        job = self.find(job_id)
        if job is None:
            return Said("Missing", job_id)
        if job.state not in ("discarded", "retryable"):
            return Said("WrongState", job_id, (job.state,))
        if job.state == "discarded":
            job.attempt = 0
            job.dead = False
            job.reason = ""
            job.re_enqueued_at = now
        if changes.queue is not None:
            job.queue = changes.queue
        if changes.fixed is not None:
            job.fixed = changes.fixed
        if changes.retry is not None:
            job.retry = changes.retry
            job.max_attempts = changes.retry.max_attempts
        if changes.max_attempts is not None:
            job.retry = msgspec.structs.replace(job.retry, max_attempts=changes.max_attempts)
            job.max_attempts = changes.max_attempts
        job.worker = ""
        job.finished_at = 0
        self._open_queue(job.queue, now)
        self._enqueue(job, now)
        return Said("Done", job_id, (job.state,))

    def delete(self, job_id: str, now: int) -> Said:
        return self._delete_now(job_id, self.catch_up(now))

    def _delete_now(self, job_id: str, now: int) -> Said:
        job = self.find(job_id)
        if job is None:
            return Said("Missing", job_id)
        if job.state not in TERMINAL:
            return Said("WrongState", job_id, (job.state,))
        self.state.jobs.remove(job)
        return Said("Done", job_id, (job.state,))

    # many jobs at once

    def task(self, task: Task, now: int) -> tuple[int, int]:
        """Carry it out on all that match, in the order of their acceptance: how many were done, how many skipped."""
        now = self.catch_up(now)
        steps: dict[str, Callable[[str], Said]] = {
            "cancel": lambda job_id: self._cancel_now(job_id, now),
            "retry": lambda job_id: self._retry_now(job_id, Replay(), now),
            "delete": lambda job_id: self._delete_now(job_id, now),
        }
        said = [steps[task.kind](job.id) for job in self.matching(task.query)]
        done = sum(outcome.kind == "Done" for outcome in said)
        return done, len(said) - done

    # answers kept for repeated requests

    def remember(self, scope: str, key: str, value: bytes, until: int, now: int) -> None:
        self.catch_up(now)
        self.state.answers[scope, key] = value, until

    def recall(self, scope: str, key: str, now: int) -> bytes | None:
        now = self.catch_up(now)
        value, until = self.state.answers.get((scope, key), (None, 0))
        return value if now < until else None

    # queues

    def create_queue(self, name: str, changes: Mapping[str, Any], now: int) -> bool:
        now = self.catch_up(now)
        if name in self.state.queues:
            return False
        self._merge(self._open_queue(name, now).config, changes)
        self._tell("queue.created", now, name)
        return True

    def configure(self, name: str, changes: Mapping[str, Any], now: int) -> None:
        now = self.catch_up(now)
        policy = name == "_default"
        self._merge(self.state.policy if policy else self._open_queue(name, now).config, changes)

    @staticmethod
    def _merge(config: dict[str, Any], changes: Mapping[str, Any]) -> None:
        for name, value in changes.items():
            config.pop(name, None)
            if value is not None:
                config[name] = value

    def pause(self, name: str, now: int) -> None:
        now = self.catch_up(now)
        queue = self._open_queue(name, now)
        if name not in self.state.paused:
            queue.paused_at = now
            self.state.paused.add(name)
        self._tell("queue.paused", now, name)

    def resume(self, name: str, now: int) -> None:
        now = self.catch_up(now)
        self._open_queue(name, now).paused_at = 0
        self.state.paused.discard(name)
        self._tell("queue.resumed", now, name)

    def remove_queue(self, name: str, now: int) -> int | None:
        """Forget a queue without unfinished jobs, and all that was said of it; what has ended is kept."""
        now = self.catch_up(now)
        if name not in self.state.queues:
            return None
        live = [j for j in self.state.jobs if j.queue == name and j.state not in TERMINAL]
        if not live:
            del self.state.queues[name]
            self.state.paused.discard(name)
            self._tell("queue.deleted", now, name)
            self._open_queue("default", now)
        return len(live)

    # the process

    def restart(self) -> None:
        """Only what is not worth keeping is gone: who is alive, and what was told."""
        self.state.workers = {}
        self.state.events = []


def matches(job: Entry, query: Query) -> bool:
    """Whether the job is one of those that the query asks for."""

    def within(value: int, start: int | None, end: int | None) -> bool:
        """From the first instant to before the second; what has not happened lies in no span."""
        if start is None and end is None:
            return True
        return value > 0 and (start is None or start <= value) and (end is None or value < end)

    wanted_type = query.type if query.type is not None else "*"
    fits = job.type == wanted_type
    if wanted_type.endswith("*"):
        fits = job.type.startswith(wanted_type[:-1])
    newest = job.errors[-1].type if job.errors else None
    meta = msgspec.json.decode(b"{" + job.fixed + b"}").get("meta", {})
    return (
        fits
        and (query.queue is None or job.queue == query.queue)
        and (not query.states or job.state in query.states)
        and (query.priority is None or job.priority == query.priority)
        and within(job.created_at, query.created_from, query.created_until)
        and within(job.enqueued_at, query.enqueued_from, query.enqueued_until)
        and (query.worker is None or job.worker == query.worker)
        and (query.error_type is None or newest == query.error_type)
        and (query.meta is None or all(meta.get(n, ...) == v for n, v in query.meta.items()))
        and (not query.dead or job.dead)
        and (query.ids is None or job.id in query.ids)
    )
