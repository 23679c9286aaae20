"""What happens to one job after the other: what time brings, and the parts of every change."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headgate.core.replays import ReplayRule, stamped
from headgate.core.retry import Discard, Failure, Requeue, RetryAt, decide, error_type
from headgate.engines.contract import Replay
from tests.model.records import TERMINAL, Entry, ErrorEntry, Event, Happening, Past
from tests.model.settling import Settling

SYSTEM_VISIBILITY_S = 30
SILENCE_MS = 30_000
"""A worker that registered or beat and then is silent for so long is dead."""
ERRORS_KEPT = 25
LAST = 1 << 62
"""Dead letters start over after everything else that happens in the same instant."""


class Life(Settling):
    # what time brings

    def catch_up(self, now: int, micros: int = 0) -> int:
        """Let everything happen that is due by now, one thing after the other; gives the latest instant seen."""
        if now < self.state.now:
            # A clock that was set back does not bring back the time.
            now, micros = self.state.now, 0
        while True:
            due = [h for h in self._happenings() if h.at <= now]
            if not due:
                break
            first = min(due, key=lambda h: h[:3])
            self._move_to(first.at)
            # Keys that were not needed until then are gone before a job that starts over names them again.
            self.forget_keys()
            first.act(first.at)
            self.settle()
        self._move_to(now, micros)
        self.settle()
        return now

    def _move_to(self, at: int, micros: int = 0) -> None:
        self.state.now = max(self.state.now, at)
        self.state.now_us = max(self.state.now_us, at * 1000 + micros)

    def next_due(self) -> int | None:
        """The next thing that happens to a job or a worker."""
        return min((h.at for h in self._happenings() if h.turn >= 0), default=None)

    def _happenings(self) -> Iterator[Happening]:
        for at in self.gate_changes():
            yield Happening(at, 0, -1, lambda _: None)
        for name, worker in self.state.workers.items():
            yield Happening(worker.beat_at + SILENCE_MS, 0, 0, self._death_of(name))
        if self.state.members_until:
            yield Happening(self.state.members_until, 0, -1, self._forget_members)
        for job in self.state.jobs:
            rule = self.rule_for(job)
            rests = self.state.maintenance is not None
            if rule is not None and job.state != "active" and not rests:
                at = max(
                    self.dead_since(job) + rule.delay_ms, job.entered_at, self.state.rested_until
                )
                yield Happening(at, LAST + job.seq, 0, self._replay_of(job.id))
            befalls = sorted(enumerate(self._befalls(job)), key=lambda each: each[1][0])
            for turn, (_, (at, act)) in enumerate(befalls):
                yield Happening(max(at, job.entered_at), job.seq, turn, act)

    def _befalls(self, job: Entry) -> Iterator[tuple[int, Callable[[int], None]]]:
        """What will befall a job if nobody touches it; of equal instants the first one counts."""
        if job.state in ("available", "scheduled", "pending") and job.expires_at:
            yield job.expires_at, lambda at: self._expire(job, at)
        if job.state == "retryable" and job.give_up_at:
            yield job.give_up_at, lambda at: self._give_up(job, at)
        if job.state in ("scheduled", "retryable") and self.state.maintenance is None:
            yield job.due_at, lambda at: self._promote(job, at)
        if job.state == "active":
            yield job.started_at + job.timeout_ms, lambda at: self._time_out(job, "timeout", at)
            yield job.visible_until, lambda at: self._lose(job, "visibility_timeout", at)
            if job.stall_ms:
                heard = max(job.started_at, job.heard_at)
                yield heard + job.stall_ms, lambda at: self._time_out(job, "stalled", at)

    def let_go(self, at: int) -> None:
        """What came due in maintenance becomes available, in the order in which it was due."""
        waiting = [job for job in self.state.jobs if job.state in ("scheduled", "retryable")]
        for job in sorted(waiting, key=lambda job: (job.due_at, job.seq)):
            if job.due_at <= at and job.state in ("scheduled", "retryable"):
                self._promote(job, at)
                self.settle()

    def _promote(self, job: Entry, at: int) -> None:
        if job.state == "retryable":
            self._stand_last(job, at, "due")
        elif job.postponed_by:
            # It never left its place.
            self.change(job, "available", at, "due")
        else:
            self.enqueue(job, at, "due")

    def _expire(self, job: Entry, at: int) -> None:
        kind = job.expires_as or "expired"
        self.note(job, kind, kind, at)
        self.tell("job.expired", at, job)
        self.discard(job, kind, at, "expire")

    def _give_up(self, job: Entry, at: int) -> None:
        self.note(job, "total_timeout", "total_timeout", at)
        self.discard(job, "total_timeout", at, "total_timeout")

    def _lose(self, job: Entry, why: str, at: int) -> None:
        """A reservation is lost: straight back to its old place while it has attempts left."""
        self.note(job, why, why, at)
        self.tell("job.failed", at, job)
        event = "worker_death" if why == "worker_death" else "visibility_expiry"
        if job.attempt < job.max_attempts:
            self._go_back(job, at, event)
        else:
            dead = job.retry.on_exhaustion != "discard"
            self._exhaust(job, "attempts_exhausted", at, event, dead=dead)

    def _time_out(self, job: Entry, why: str, at: int) -> None:
        self.fail_attempt(job, Failure(code=why, message="", type=why), 0.5, at, "timeout")

    def _forget_members(self, _at: int) -> None:
        """Who was not heard of since the restart belongs nowhere any more."""
        self.state.members_until = 0
        for name in [name for name in self.state.members if name not in self.state.workers]:
            del self.state.members[name]

    def _death_of(self, worker: str) -> Callable[[int], None]:
        def bury(at: int) -> None:
            self.bury_worker(worker, at)

        return bury

    def bury_worker(self, worker: str, at: int) -> int:
        """The worker is gone, and its jobs go back; how many."""
        del self.state.workers[worker]
        self.state.members.pop(worker, None)
        self.state.directives.pop(worker, None)
        held = sorted(self.held_by(worker), key=lambda job: job.seq)
        for job in held:
            self._lose(job, "worker_death", at)
            self.follow_those_who_left()
        self.tell("worker.stopped", at, worker)
        return len(held)

    # dead letters that start over

    @staticmethod
    def dead_since(job: Entry) -> int:
        return job.buried_at if job.origin else job.finished_at

    def rule_for(self, job: Entry) -> ReplayRule | None:
        """The rule that lets this dead letter start over first, if there is one."""
        newest = job.errors[-1].type if job.errors else None
        rules = [
            rule
            for _, rule in sorted(self.state.rules.items())
            if job.dead
            and rule.enabled
            and job.replays < rule.max_replays
            and rule.queue in (None, job.origin or job.queue)
            and rule.type in (None, job.type)
            and rule.error_type in (None, newest)
        ]
        return min(rules, key=lambda rule: rule.delay_ms, default=None)

    def _replay_of(self, job_id: str) -> Callable[[int], None]:
        return lambda at: self.replay(job_id, at)

    def replay(self, job_id: str, at: int) -> None:
        job = self.find(job_id)
        assert job is not None
        rule = self.rule_for(job)
        assert rule is not None
        job.replays += 1
        self.state.events.append(Event("dead_letter.replayed", at, job.id, "available"))
        fixed = stamped(job.fixed, rule.name, job.replays, at)
        self.start_over(job, Replay(fixed=fixed, by="replay_rule", reason=rule.name), at)

    def start_over(self, job: Entry, changes: Replay, at: int) -> None:
        raise NotImplementedError

    # the parts of a change

    def change(
        self, job: Entry, state: str, at: int, event: str, by: str = "", reason: str = ""
    ) -> None:
        # A job came when it says that it came, though the clock may have been set back since.
        told_at = job.created_at if event == "push" else at
        past = Past(told_at, event, job.state, state, by=by, reason=reason)
        if job.state == "active":
            # Who ran it, and which attempt that was, is what its start said.
            past = past._replace(attempt=job.past[-1].attempt, worker=job.past[-1].worker)
        elif state == "active":
            past = past._replace(attempt=job.attempt, worker=job.worker)
        job.past.append(past)
        if job.state == "active":
            for gate in self.all_gates():
                gate.release(job.id, job.claim)
        job.state = state
        job.entered_at = at
        job.postponed_by = ""
        if state in TERMINAL:
            job.finished_at = at
            self.forget_keys()

    def _go_back(self, job: Entry, at: int, event: str) -> None:
        """From its worker to its old place."""
        job.worker = ""
        self.change(job, "available", at, event)

    def _stand_last(self, job: Entry, at: int, event: str, by: str = "", reason: str = "") -> None:
        """Become available behind everybody of the same priority."""
        self.number(job)
        self.change(job, "available", at, event, by, reason)

    def enqueue(self, job: Entry, at: int, event: str, by: str = "", reason: str = "") -> None:
        self._stand_last(job, at, event, by, reason)
        job.enqueued_at = at
        self.tell("job.enqueued", at, job)

    def number(self, job: Entry) -> None:
        self.state.last_seq += 1
        job.seq = self.state.last_seq

    def note(self, job: Entry, code: str, kind: str, at: int) -> None:
        job.errors = [*job.errors, ErrorEntry(job.attempt, code, kind, at)][-ERRORS_KEPT:]

    def discard(self, job: Entry, reason: str, at: int, event: str, *, dead: bool = False) -> None:
        self.change(job, "discarded", at, event, reason=reason)
        job.reason = reason
        job.dead = dead
        self.tell("job.discarded", at, job)
        if dead:
            self.tell("job.dead_lettered", at, job)

    def throw_out(self, job: Entry, why: str, at: int) -> None:
        """Discard a job that did nothing wrong."""
        self.note(job, why, why, at)
        self.discard(job, why, at, "drop" if why == "rate_limited" else why)

    def _exhaust(self, job: Entry, reason: str, at: int, event: str, *, dead: bool) -> None:
        """No attempt is left: into the dead letter queue of its queue, unless it is there already."""
        self.tell("job.retry_exhausted", at, job)
        target = self.settings(job.queue).dead_letter_queue
        if not target or job.origin:
            self.discard(job, reason, at, event, dead=dead and not job.origin)
            return
        # It is told as an end, but the job never stops to live and to name its keys.
        for kind in ("job.discarded", "job.dead_lettered"):
            self.state.events.append(Event(kind, at, job.id, "discarded"))
        job.dead = True
        job.origin = job.queue
        job.buried_at = at
        job.buried_for = reason
        job.buried_attempts = job.attempt
        job.queue = target
        self.open_queue(target, at)
        self._stand_last(job, at, "dead_letter", reason=reason)
        job.attempt = 0
        job.enqueued_at = at
        job.expires_at = 0
        job.worker = ""

    def _rest(self, job: Entry, until: RetryAt, at: int, event: str) -> None:
        job.worker = ""
        self.change(job, "retryable", at, event)
        job.due_at = until.at
        job.retry_delay_ms = until.delay_ms
        self.tell("job.retrying", at, job)

    def fail_attempt(
        self, job: Entry, failure: Failure, uniform: float, at: int, event: str = "fail"
    ) -> None:
        give_up_at = job.give_up_at or None
        policy = job.retry
        decision = decide(policy, failure, job.attempt, at, uniform, give_up_at, job.timeout_ms)
        if isinstance(decision, Requeue):
            job.attempt -= 1
            job.deferrals += failure.deferred
            if decision.later is None:
                self._go_back(job, at, "requeue")
            else:
                self._rest(job, decision.later, at, "requeue")
            return
        self.note(job, failure.code, error_type(failure), at)
        self.tell("job.failed", at, job)
        if isinstance(decision, RetryAt):
            self._rest(job, decision, at, event)
            return
        assert isinstance(decision, Discard)
        if decision.exhausted:
            self._exhaust(job, decision.reason, at, event, dead=decision.dead_letter)
        else:
            self.discard(job, decision.reason, at, event, dead=decision.dead_letter)

    def call_off(self, job: Entry, at: int, by: str, reason: str) -> None:
        job.cancelled_while_active = job.state == "active"
        job.dead = False
        self.change(job, "cancelled", at, "cancel", by, reason)
        self.tell("job.cancelled", at, job)
