"""Every other step of the contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from headgate.core import queues as rules
from headgate.core.gates import Gate, Limits, Override
from headgate.core.limits import full_key, uses_from
from headgate.core.queues import DEFAULT_POLICY
from headgate.core.replays import ReplayRule
from headgate.core.tenants import TenantLimits
from headgate.engines.contract import (
    Ack,
    Extend,
    Fail,
    Maintenance,
    Page,
    Query,
    Replay,
    Report,
    Task,
)
from tests.model.dispatch import Dispatch
from tests.model.life import SILENCE_MS
from tests.model.matching import matches
from tests.model.records import Entry, Progress, Said, Saved, Tenant, Worker

T = TypeVar("T")

BULK = Replay(by="admin", reason="bulk")


class Model(Dispatch):
    """Slow and obvious: one list of jobs, and every question a scan."""

    # reservations

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
        return self._over([self._ack(ack, now) for ack in acks])

    def _ack(self, ack: Ack, now: int) -> Said:
        job = self._answered(ack.job_id, ack.worker, ack.claim)
        if isinstance(job, Said):
            return job
        self.change(job, "completed", now, "ack")
        job.result = ack.result
        job.dead = False
        if job.progress.at:
            job.progress = job.progress._replace(part=1.0)
        self.tell("job.completed", now, job)
        return self._done(job)

    def _done(self, job: Entry) -> Said:
        self.follow_those_who_left()
        return Said("Done", job.id, (job.state,))

    def _over(self, said: T) -> T:
        """The step is over, and this comes of it."""
        self.settle()
        return said

    def fail(self, fails: Sequence[Fail], now: int) -> list[Said]:
        now = self.catch_up(now)
        return self._over([self._nack(fail, now) for fail in fails])

    def _nack(self, fail: Fail, now: int) -> Said:
        job = self._answered(fail.job_id, fail.worker, fail.claim)
        if isinstance(job, Said):
            return job
        if fail.hold_until > now and job.keys:
            self._hold(job, fail, now)
        self.fail_attempt(job, fail.failure, fail.uniform, now)
        return self._done(job)

    def _hold(self, job: Entry, fail: Fail, now: int) -> None:
        """The handler was told to come back no earlier."""
        key = fail.hold_key or job.keys[0][0]
        if not job.has_key(key):
            return
        gate = self.state.gates[key]
        if gate.hold(fail.hold_until * 1000, fail.failure.message, self.state.now_us):
            self.tell("rate_limit.dynamic_adjusted", now, key, fail.hold_until)

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
        return self._done(job)

    def _renew(self, job: Entry, visibility_ms: int, now: int) -> None:
        job.visible_until = now + (visibility_ms or self.lease_ms(job))
        job.heard_at = now
        self.tell("job.heartbeat", now, job)

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
        return self._done(job)

    # checkpoints

    def save_checkpoint(self, job_id: str, state: bytes, now: int) -> Said:
        now = self.catch_up(now)
        job = self.find(job_id)
        if job is None:
            return Said("Missing", job_id)
        if not job.live:
            return Said("WrongState", job_id, (job.state,))
        sequence = job.checkpoint.sequence if job.checkpoint else 0
        job.checkpoint = Saved(sequence + 1, now, state)
        return self._done(job)

    def drop_checkpoint(self, job_id: str, now: int) -> Said:
        self.catch_up(now)
        job = self.find(job_id)
        if job is None:
            return Said("Missing", job_id)
        job.checkpoint = None
        return self._done(job)

    # workers

    def beat(
        self, report: Report, job_ids: Sequence[str], visibility_ms: int, now: int
    ) -> tuple[str, list[str], list[str]]:
        """What it is to become, which of the jobs are extended, and which are not to be run any more."""
        now = self.catch_up(now)
        worker = report.worker
        known = self.state.workers.get(worker)
        if known is None:
            known = self.state.workers[worker] = Worker(now)
            known.pool = self.state.members.get(worker, "default")
            self.tell("worker.started", now, worker)
        known.beat_at = now
        if report.pool is not None:
            known.pool = report.pool
        self.state.members[worker] = known.pool
        if report.concurrency is not None:
            known.concurrency = report.concurrency
        if report.state is not None and report.state != known.state:
            known.state = report.state
            if not known.works:
                self.tell("worker.quiet", now, worker)
        extended = []
        cancelled = []
        for job_id in job_ids:
            job = self.find(job_id)
            if job and job.state == "active" and job.worker == worker:
                self._renew(job, visibility_ms, now)
                extended.append(job_id)
            if job and job.state == "cancelled" and job.cancelled_while_active:
                cancelled.append(job_id)
        self.settle()
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
        return self._over(self.bury_worker(worker, now) if worker in self.state.workers else None)

    # single jobs, by hand

    def cancel(self, job_id: str, now: int) -> Said:
        return self._over(self._cancel_now(job_id, self.catch_up(now), "enough"))

    def _cancel_now(self, job_id: str, now: int, reason: str) -> Said:
        job = self.find(job_id)
        if job is None:
            return Said("Missing", job_id)
        if not job.live:
            return Said("WrongState", job_id, (job.state,))
        self.call_off(job, now, "admin", reason)
        return self._done(job)

    def activate(self, job_id: str, now: int) -> Said:
        now = self.catch_up(now)
        job = self.find(job_id)
        if job is None:
            return Said("Missing", job_id)
        if job.state != "pending":
            return Said("WrongState", job_id, (job.state,))
        job.activated_at = now
        self.enqueue(job, now, "activate")
        return self._over(self._done(job))

    def reprioritize(self, job_id: str, priority: int, now: int) -> Said:
        now = self.catch_up(now)
        job = self.find(job_id)
        if job is None:
            return Said("Missing", job_id)
        if job.state not in ("available", "scheduled"):
            return Said("WrongState", job_id, (job.state,))
        job.priority = priority
        self.tell("priority.changed", now, job)
        return self._over(self._done(job))

    def retry(self, job_id: str, changes: Replay, now: int) -> Said:
        return self._over(self._retry_now(job_id, changes, self.catch_up(now)))

    def _retry_now(self, job_id: str, changes: Replay, now: int) -> Said:
        job = self.find(job_id)
        if job is None:
            return Said("Missing", job_id)
        buried = bool(job.origin) and job.state == "available"
        if job.state not in ("discarded", "retryable") and not buried:
            return Said("WrongState", job_id, (job.state,))
        target = changes.queue or job.origin or job.queue
        if (
            target != job.queue
            and target in self.state.queues
            and self.state.queues[target].draining
        ):
            return Said("Draining", "", (target,))
        self.start_over(job, changes, now)
        return self._done(job)

    def start_over(self, job: Entry, changes: Replay, now: int) -> None:
        if not job.live:
            self._name_keys_again(job)
        if job.state == "discarded" or job.origin:
            job.attempt = 0
            job.deferrals = 0
            job.dead = False
            job.reason = ""
            job.re_enqueued_at = now
        target = changes.queue or job.origin or job.queue
        if job.origin:
            job.origin = job.buried_for = ""
            job.buried_at = job.buried_attempts = 0
        if target != job.queue:
            # Elsewhere it is a new one, and commands on many jobs come to it last.
            job.queue = target
            self.state.jobs.remove(job)
            self.state.jobs.append(job)
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
        self.open_queue(job.queue, now)
        self.enqueue(job, now, "retry", changes.by, changes.reason)

    def _name_keys_again(self, job: Entry) -> None:
        """Of a key about which nobody else says anything, the job says what it said before."""
        given = msgspec.json.decode(b"{" + job.fixed + b"}").get("rate_limit")
        said = {full_key(u.key, u.scope, job.tenant): u.change for u in uses_from(given, job.queue)}
        for key, _ in job.keys:
            named = any(other.has_key(key) for other in self.live())
            gate = self.state.gates.setdefault(key, Gate(key))
            if not named and gate.limits == Limits() and key in said:
                gate.register(said[key])

    def delete(self, job_id: str, now: int) -> Said:
        return self._over(self._delete_now(job_id, self.catch_up(now)))

    def _delete_now(self, job_id: str, now: int) -> Said:
        job = self.find(job_id)
        if job is None:
            return Said("Missing", job_id)
        if job.live:
            return Said("WrongState", job_id, (job.state,))
        self.state.jobs.remove(job)
        return self._done(job)

    def forget_history(self, job_id: str, now: int) -> Said:
        self.catch_up(now)
        job = self.find(job_id)
        if job is None:
            return Said("Missing", job_id)
        if job.live:
            return Said("WrongState", job_id, (job.state,))
        job.past = []
        job.errors = job.errors[-1:]
        return self._over(self._done(job))

    # many jobs at once

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

    def count_jobs(self, query: Query) -> dict[tuple[str, str], int]:
        places = [(job.queue, job.state) for job in self.matching(query)]
        return {place: places.count(place) for place in places}

    def task(self, task: Task, now: int) -> tuple[int, int]:
        """Carry it out on all that match, in the order of their acceptance: how many were done, how many skipped."""
        now = self.catch_up(now)
        steps: dict[str, Callable[[str], Said]] = {
            "cancel": lambda job_id: self._cancel_now(job_id, now, "bulk"),
            "retry": lambda job_id: self._retry_now(job_id, BULK, now),
            "delete": lambda job_id: self._delete_now(job_id, now),
        }
        if task.kind == "delete" and task.query.dead:
            steps["delete"] = lambda job_id: self._delete_dead(job_id, now)
        said = [steps[task.kind](job.id) for job in self.matching(task.query)]
        done = sum(outcome.kind == "Done" for outcome in said)
        return self._over((done, len(said) - done))

    def _delete_dead(self, job_id: str, now: int) -> Said:
        """Also one that waits in a queue for dead letters."""
        job = self.find(job_id)
        if job is not None and job.live and job.state != "active":
            self.call_off(job, now, "admin", "dead letter deleted")
        return self._delete_now(job_id, now)

    # dead letters that start over

    def set_replay_rule(self, rule: ReplayRule, now: int) -> tuple[bool, int, int]:
        """Whether it is new; how many dead letters it may be about, and how many start over at once."""
        now = self.catch_up(now)
        known = self.state.rules.get(rule.name)
        created_at = now if known is None else known.created_at
        rule = msgspec.structs.replace(rule, created_at=created_at, updated_at=now)
        self.state.rules[rule.name] = rule
        lying = self.matching(Query(type=rule.type, error_type=rule.error_type, dead=True))
        due = 0
        for job in lying:
            first = self.rule_for(job)
            if first is None or job.state == "active" or self.state.maintenance is not None:
                continue
            if self.dead_since(job) + first.delay_ms <= now:
                self.replay(job.id, now)
                self.follow_those_who_left()
                due += 1
        return self._over((known is None, len(lying), due))

    def drop_replay_rule(self, name: str, now: int) -> bool:
        self.catch_up(now)
        return self.state.rules.pop(name, None) is not None

    # answers kept for repeated requests

    def remember(self, scope: str, key: str, value: bytes, until: int, now: int) -> None:
        self.catch_up(now)
        self.state.answers[scope, key] = value, until

    def recall(self, scope: str, key: str, now: int) -> bytes | None:
        now = self.catch_up(now)
        value, until = self.state.answers.get((scope, key), (None, 0))
        return value if now < until else None

    # keys

    def override(self, key: str, override: Override, now: int) -> None:
        self.catch_up(now)
        self.state.gates.setdefault(key, Gate(key)).impose(override)
        self.settle()

    def lift(self, key: str, now: int) -> bool:
        self.catch_up(now)
        gate = self.state.gates.get(key)
        if gate is not None:
            gate.lift()
        self.settle()
        return gate is not None

    def key_jobs(self, key: str) -> tuple[list[Entry], list[Entry]]:
        """Those that run or that the key would let start now, and those that wait for it."""
        gate = self.state.gates[key]
        running = [job for job_id in gate.holders if (job := self.find(job_id)) is not None]
        waiting = [j for j in self.state.jobs if j.state == "available" and j.has_key(key)]
        waiting.sort(key=lambda job: job.seq)
        free = gate.permits(self.state.now_us)
        return running + waiting[:free], waiting[free:]

    # tenants

    def set_tenant(self, name: str, limits: TenantLimits, now: int) -> bool:
        now = self.catch_up(now)
        known = self.state.tenants.get(name)
        if known is None:
            self.state.tenants[name] = Tenant(limits, now)
        else:
            known.limits = limits
        self.settle()
        return known is None

    def forget_tenant(self, name: str, now: int) -> bool:
        self.catch_up(now)
        known = self.state.tenants.pop(name, None)
        self.settle()
        return known is not None

    def tenant_counts(self) -> dict[str, dict[str, int]]:
        """The live jobs per state of everybody who has limits or live jobs."""
        found: dict[str, dict[str, int]] = {name: {} for name in self.state.tenants}
        for job in self.live():
            if job.tenant:
                counts = found.setdefault(job.tenant, {})
                counts[job.state] = counts.get(job.state, 0) + 1
        return found

    # queues

    def create_queue(self, name: str, changes: Mapping[str, Any], now: int) -> bool:
        now = self.catch_up(now)
        if name in self.state.queues:
            return False
        self.open_queue(name, now).config = rules.merge(rules.EMPTY, changes, queue=name)
        self.tell("queue.created", now, name)
        self.settle()
        return True

    def configure(self, name: str, changes: Mapping[str, Any], now: int) -> None:
        now = self.catch_up(now)
        if name == DEFAULT_POLICY:
            self.state.policy = rules.merge(self.state.policy, changes)
        else:
            queue = self.open_queue(name, now)
            queue.config = rules.merge(queue.config, changes, queue=name)
        self.settle()

    def pause(self, name: str, now: int) -> None:
        now = self.catch_up(now)
        queue = self.open_queue(name, now)
        if not queue.paused:
            queue.paused_at = now
            queue.paused = True
        self.tell("queue.paused", now, name)
        self.settle()

    def resume(self, name: str, now: int) -> None:
        """The end of a pause, and of the way out."""
        now = self.catch_up(now)
        queue = self.open_queue(name, now)
        queue.paused_at = 0
        queue.paused = queue.draining = False
        queue.leaving = None
        self.tell("queue.resumed", now, name)
        self.settle()

    def drain(self, name: str, now: int) -> bool:
        self.catch_up(now)
        queue = self.state.queues.get(name)
        if queue is None:
            return False
        queue.draining = True
        self.settle()
        return True

    def remove_queue(self, name: str, strategy: str, target: str, now: int) -> Said | None:
        now = self.catch_up(now)
        queue = self.state.queues.get(name)
        if queue is None:
            return None
        live = [job for job in self.live() if job.queue == name]
        if strategy == "reject" and live:
            return Said("NotEmpty", "", (len(live),))
        waiting = self.waiting_in(name)
        for job in waiting:
            self.send_away(job, strategy, target)
        queue.draining = True
        queue.leaving = (strategy, target)
        self.settle()
        state = "draining" if self.state.queues.get(name) is queue else "deleted"
        return Said("Left", "", (state, len(waiting)))

    def send_away(self, job: Entry, strategy: str, target: str) -> None:
        if strategy == "move":
            job.queue = target
            self.open_queue(target, self.state.now)
        else:
            self.throw_out(job, "queue_deleted", self.state.now)

    # the process

    # maintenance

    def begin_maintenance(self, reason: str, estimated_end: int, now: int) -> Maintenance:
        now = self.catch_up(now)
        known = self.state.maintenance
        found = Maintenance(reason, known.enabled_at if known else now, estimated_end)
        self.state.maintenance = found
        self.tell("maintenance.started", now, "maintenance", reason)
        return self._over(found)

    def end_maintenance(self, now: int) -> bool:
        now = self.catch_up(now)
        if self.state.maintenance is None:
            return False
        self.state.maintenance = None
        self.tell("maintenance.ended", now, "maintenance")
        self.state.rested_until = now
        self.settle()
        self.let_go(now)
        self.catch_up(now)
        return True

    def restart(self, now: int) -> None:
        """Only what is not worth keeping is gone: who is alive, what was told, and how long each queue waited."""
        self.state.workers = {}
        self.state.members_until = max(now, self.state.now) + SILENCE_MS
        # Of whom something was told before is found out anew, and not told again.
        self.state.told.clear()
        self.tell_of_keys()
        self.state.events = []
        self.turns.clear()
        self.places.clear()
        for gate in self.all_gates():
            # Which of two began first within a millisecond, nobody remembers.
            known = gate.holders
            gate.holders = {job.id: known[job.id] for job in self.active() if job.id in known}
        for pool in self.pools.values():
            self.restore_turn(pool)
        # Nobody remembers which key was known longer.
        self.state.gates = dict(sorted(self.state.gates.items()))
        for queue in self.state.queues.values():
            queue.warned = queue.full = False
        self.settle()
