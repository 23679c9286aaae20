"""Steps with jobs: in, out to workers, to their end, and looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec import Raw

from headgate.core.job import Job
from headgate.core.replays import ReplayRule
from headgate.core.states import (
    ACTIVE,
    AVAILABLE,
    PENDING,
    SCHEDULED,
    TERMINAL,
)
from headgate.engines.contract import (
    Ack,
    Checkpoint,
    DeadLetterStats,
    Done,
    Draft,
    Event,
    EventPage,
    Explanation,
    Extend,
    Fail,
    Fetch,
    Full,
    Interest,
    Missing,
    NotHolder,
    Outcome,
    Page,
    Place,
    PushOutcome,
    Query,
    Replay,
    RuleSet,
    Slice,
    Task,
    Why,
    WrongState,
)
from headgate.engines.local import queries
from headgate.engines.local.events import Follower
from headgate.engines.local.explain import MOST_AHEAD
from headgate.engines.local.ground import Ground
from headgate.engines.local.life import CHECKPOINT
from headgate.engines.local.line import Waiter
from headgate.engines.local.retention import ANSWER, DEAD_KEPT, DEAD_KEPT_MS
from headgate.engines.local.waiting import Waiting


class JobSteps(Ground):
    """See the contract."""

    # enqueue

    async def push(
        self,
        drafts: Sequence[Draft],
        now_ms: int,
        *,
        whole: bool = True,
        place: Place | None = None,
        waits: bool = False,
    ) -> list[PushOutcome]:
        now = self._begin(now_ms)
        return self._admission.push(drafts, now, whole=whole, place=place, waits=waits)

    def park(self, drafts: Sequence[Draft]) -> Waiter | None:
        waiter = self._admission.park(drafts)
        if waiter is not None and (self._closing or self._down is not None):
            waiter.end()
        return waiter

    def turn_away(self, draft: Draft, full: Full, now_ms: int) -> None:
        now = self._begin(now_ms)
        self._admission.turn_away(draft.job.type, full, now)

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
        closed = self.life.closed_to(job, changes)
        if closed is not None:
            return closed
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

    async def forget_history(self, job_id: str, now_ms: int) -> Outcome:
        now = self._begin(now_ms)
        job = self._tables.find(job_id)
        if job is None:
            return Missing(job_id)
        if job.state not in TERMINAL:
            return WrongState(job)
        self.life.forget_history(job, now)
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

    async def dead_letter_stats(self, now_ms: int, tenant: str | None = None) -> DeadLetterStats:
        self._begin(now_ms)
        found = await self.ask(lambda c: queries.dead_letters(c, tenant))
        found.kept_ms, found.most = DEAD_KEPT_MS, DEAD_KEPT
        found.next_prune_at = self._retention.next_look
        return found

    async def events(self, after: int, limit: int, interest: Interest, now_ms: int) -> EventPage:
        self._begin(now_ms)
        await self.settled()
        return self._events.page(after, limit, interest)

    def subscribe(self, interest: Interest) -> Follower:
        return self._events.follow(interest)

    def listen(self, call: Callable[[Event], None]) -> None:
        self._events.listeners.append(call)

    # dead letters that start over

    async def replay_rules(self, now_ms: int) -> list[ReplayRule]:
        self._begin(now_ms)
        return [rule for _, rule in sorted(self.replays.rules.items())]

    async def set_replay_rule(self, rule: ReplayRule, task: str, now_ms: int) -> RuleSet:
        now = self._begin(now_ms)
        created = self.replays.set(rule, now)
        lying = Query(type=rule.type, error_type=rule.error_type, dead=True)
        return RuleSet(created, await self._tasks.start(Task(task, "replay", lying)))

    async def drop_replay_rule(self, name: str, now_ms: int) -> bool:
        self._begin(now_ms)
        return self.replays.drop(name)

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
