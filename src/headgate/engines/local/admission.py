"""PUSH: what other jobs have to say about a new one.

In this order: is there such a queue and does it take jobs, is the id free, is there an equal job, has the tenant used up its limits, is there room.
All of it is one step, so what was found to be so is still so when the jobs enter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

from headgate.core.bounds import Bounds, Depth, DropOldest, Load, decide, loads, tightest, warns
from headgate.core.bounds import Full as Over
from headgate.core.envelope import unscheduled
from headgate.core.job import Job
from headgate.core.states import ACTIVE, CANCELLED, SCHEDULED, TERMINAL
from headgate.engines.contract import (
    Draft,
    Draining,
    Duplicate,
    Full,
    Held,
    IdTaken,
    Place,
    Pushed,
    PushOutcome,
    TenantFull,
    Unwanted,
)
from headgate.engines.local.keys import Key
from headgate.engines.local.life import Life
from headgate.engines.local.line import Waiter
from headgate.engines.local.queue import Queue, size_of
from headgate.engines.local.tenantry import MOST_WAIT_S, SOON_S, Tenantry

MOST_PARKED: Final = 1_000


class Plan:
    """What has to go so that the jobs can enter."""

    __slots__ = ("drops", "refused", "warnings")

    def __init__(self) -> None:
        self.refused: tuple[int, PushOutcome] | None = None
        """The first draft that is in the way of all, and why."""
        self.drops: list[tuple[Queue, int]] = []
        self.warnings: dict[str, Load] = {}


class Admission:
    __slots__ = ("_life", "_strict", "_tables", "_tenantry", "_twins", "parked")

    def __init__(self, life: Life, twins: Twins, tenantry: Tenantry, *, strict: bool) -> None:
        self._life = life
        self._tables = life.tables
        self._twins = twins
        self._tenantry = tenantry
        self._strict = strict
        self.parked: dict[Waiter, None] = {}

    def push(
        self,
        drafts: Sequence[Draft],
        now: int,
        *,
        whole: bool,
        place: Place | None,
        waits: bool,
    ) -> list[PushOutcome]:
        waiter = place if isinstance(place, Waiter) else None
        if len(drafts) == 1:
            return [self._push(drafts[0], now, waiter, waits=waits)]
        if not whole:
            return [self._push(draft, now, None, waits=waits) for draft in drafts]
        return self._push_all(drafts, now, waiter, waits=waits)

    # one job

    def _push(self, draft: Draft, now: int, place: Waiter | None, *, waits: bool) -> PushOutcome:
        job = draft.job
        refusal = self._shut(draft)
        if refusal is not None:
            return refusal
        twin = None
        if draft.unique is not None:
            twin = self._twins.of(draft, now)
            if twin is not None and draft.unique.on_conflict in ("reject", "ignore"):
                assert job.unique is not None
                return Duplicate(twin, job.unique, draft.unique.on_conflict == "ignore")
        if self._is_counted(job):
            victims = [] if twin is None or twin.state in TERMINAL else [twin]
            plan = self._plan([draft], victims, now, place)
            if plan.refused is not None:
                return self._refused(draft, plan.refused[1], now, waits=waits)
            return self._enter(draft, twin, now, plan)
        return self._enter(draft, twin, now, None)

    def _shut(self, draft: Draft) -> PushOutcome | None:
        """Why the job may not even be looked at."""
        job = draft.job
        queue = self._tables.queues.get(job.queue)
        if queue is None or not queue.exists:
            if self._strict:
                return Unwanted(job.queue)
        elif queue.draining:
            return Draining(job.queue)
        if draft.named and self._tables.find(job.id) is not None:
            return IdTaken(job.id)
        return None

    def _is_counted(self, job: Job) -> bool:
        return self._tables.queue(job.queue).bounded or job.tenant in self._tenantry

    def _enter(self, draft: Draft, twin: Job | None, now: int, plan: Plan | None) -> Pushed:
        job = draft.job
        replaced = ""
        if twin is not None:
            policy = draft.unique
            assert policy is not None
            if policy.on_conflict == "replace_except_schedule" and twin.state == SCHEDULED:
                job.state = SCHEDULED
                job.due_at = twin.due_at
                # Its own words would contradict the schedule that it gets.
                job.fixed = unscheduled(job.fixed)
            replaced = twin.id
        goes = twin is not None and twin.state not in TERMINAL
        kept = self._keep_keys((draft,) if goes or (plan is not None and plan.drops) else ())
        if twin is not None and goes:
            self._life.cancel(twin, "system", f"replaced by {job.id}", now)
        if plan is not None:
            self._make_room(plan, now)
        self._life.accept(job, now, draft.uses)
        self._tables.keys.let_go(kept)
        if job.tenant:
            self._tenantry.pushed(job, now)
        return Pushed(job, replaced, None if plan is None else plan.warnings.get(job.queue))

    def _keep_keys(self, drafts: Iterable[Draft]) -> list[Key]:
        """Of jobs that are about to enter, though the last other job which names one goes in the same step."""
        keys = self._tables.keys
        return [key for draft in drafts for key in keys.keep(draft.job)]

    def _make_room(self, plan: Plan, now: int) -> None:
        for queue, count in plan.drops:
            for job in [job for _, job in zip(range(count), queue.by_age(), strict=False)]:
                self._life.overflow(job, now)
        plan.drops.clear()

    # all of them or none

    def _push_all(
        self, drafts: Sequence[Draft], now: int, place: Waiter | None, *, waits: bool
    ) -> list[PushOutcome]:
        outcomes, entering, victims, refused = self._rehearse(drafts, now)
        if refused:
            return outcomes
        plan = None
        if any(self._is_counted(draft.job) for draft in entering):
            plan = self._plan(entering, victims, now, place)
            if plan.refused is not None:
                at, refusal = plan.refused
                to_blame = entering[at]
                self._refused(to_blame, refusal, now, waits=waits)
                return [refusal if draft is to_blame else Held() for draft in drafts]
        kept = self._keep_keys(entering if victims or (plan is not None and plan.drops) else ())
        if plan is not None:
            self._clear(victims, plan, now)
        found: list[PushOutcome] = []
        for draft, outcome in zip(drafts, outcomes, strict=True):
            if isinstance(outcome, Duplicate):
                # Also when its twin had to make room just now: no room was made for this one.
                found.append(outcome)
            else:
                twin = None if draft.unique is None else self._twins.of(draft, now)
                found.append(self._enter(draft, twin, now, plan))
        self._tables.keys.let_go(kept)
        return found

    def _clear(self, victims: Sequence[Job], plan: Plan, now: int) -> None:
        """Drop what is oldest, but none that is replaced anyway."""
        gone = {job.id for job in victims}
        for queue, count in plan.drops:
            oldest = (job for job in queue.by_age() if job.id not in gone)
            for job in [job for _, job in zip(range(count), oldest, strict=False)]:
                self._life.overflow(job, now)
        plan.drops.clear()

    def _rehearse(
        self, drafts: Sequence[Draft], now: int
    ) -> tuple[list[PushOutcome], list[Draft], list[Job], bool]:
        """What would become of each if the batch were pushed one by one, who would enter and who would go; and whether anything is refused."""
        taken: set[str] = set()
        accepted: dict[str, list[Draft]] = {}
        entering: dict[str, Draft] = {}
        replaced: dict[str, Job] = {}
        outcomes: list[PushOutcome] = []
        refused = False
        for draft in drafts:
            job = draft.job
            outcome: PushOutcome = Held()
            shut = self._shut(draft)
            if job.id in taken and not isinstance(shut, Unwanted | Draining):
                outcome = IdTaken(job.id)
            elif shut is not None:
                outcome = shut
            elif draft.unique is not None and job.unique is not None:
                before = self._twins.equals(draft)
                before += [other.job for other in accepted.get(job.unique, [])]
                before.sort(key=_age)
                twin = next(
                    (
                        other
                        for other in before
                        if in_the_way(
                            draft, other, CANCELLED if other.id in replaced else other.state, now
                        )
                    ),
                    None,
                )
                if twin is not None and draft.unique.on_conflict in ("reject", "ignore"):
                    outcome = Duplicate(twin, job.unique, draft.unique.on_conflict == "ignore")
                elif twin is not None and twin.state not in TERMINAL:
                    replaced[twin.id] = twin
                    entering.pop(twin.id, None)
            if isinstance(outcome, Held):
                taken.add(job.id)
                entering[job.id] = draft
                if job.unique is not None:
                    accepted.setdefault(job.unique, []).append(draft)
            elif not (isinstance(outcome, Duplicate) and outcome.ignore):
                refused = True
            outcomes.append(outcome)
        victims = [job for name, job in replaced.items() if name not in taken]
        return outcomes, list(entering.values()), victims, refused

    # room

    def _plan(
        self, drafts: Sequence[Draft], victims: Sequence[Job], now: int, place: Waiter | None
    ) -> Plan:
        """Whether there is room for all of these, and what has to go for them."""
        plan = Plan()
        over = self._tenantry.refusal([draft.job for draft in drafts], victims, now)
        if over is not None:
            index, refusal = over
            self._tell_limited(refusal, now)
            plan.refused = (index, refusal)
            return plan
        by_queue: dict[str, list[int]] = {}
        for index, draft in enumerate(drafts):
            by_queue.setdefault(draft.job.queue, []).append(index)
        waits = place is not None and not place.is_first()
        for name, places in by_queue.items():
            queue = self._tables.queue(name)
            bounds = queue.resolved.bounds
            if not bounds.bounded:
                continue
            jobs = [drafts[i].job for i in places]
            leaving = [job for job in victims if job.queue == name]
            size = sum(size_of(job) for job in jobs)
            depth = self._depth(queue, leaving, None if waits else place)
            gone = {job.id for job in leaving}
            oldest = (size_of(job) for job in queue.by_age() if job.id not in gone)
            decision = decide(bounds, depth, len(jobs), size, oldest)
            if waits and place in queue.line and not isinstance(decision, Over):
                load = tightest(loads(bounds, depth))
                assert load is not None
                decision = Over(load, never=False)
            if isinstance(decision, Over):
                plan.refused = (places[0], self._full(queue, decision, jobs, now))
                return plan
            if isinstance(decision, DropOldest):
                plan.drops.append((queue, decision.count))
                decision = decision.accept
            if decision.warns and decision.load is not None:
                plan.warnings[name] = decision.load
        return plan

    def _depth(self, queue: Queue, leaving: Sequence[Job], place: Waiter | None) -> Depth:
        """As it is without those who leave, with the room that is kept for those who wait in line."""
        depth = queue.depth
        active = sum(job.state == ACTIVE for job in leaving)
        depth = Depth(
            depth.waiting - len(leaving) + active,
            depth.active - active,
            depth.bytes - sum(size_of(job) for job in leaving),
        )
        if not queue.line or (place is not None and place in queue.line):
            return depth
        bounds = queue.resolved.bounds
        if bounds.strategy != "block":
            return depth
        wanted, wanted_bytes = map(sum, zip(*queue.line.values(), strict=True))
        free = _free(bounds, depth)
        free_bytes = (
            max(0, bounds.max_size_bytes - depth.bytes) if bounds.max_size_bytes else wanted_bytes
        )
        return Depth(
            depth.waiting,
            depth.active,
            depth.bytes,
            min(free, wanted),
            min(free_bytes, wanted_bytes),
        )

    def _full(self, queue: Queue, over: Over, jobs: Sequence[Job], now: int) -> Full:
        load = over.load
        excess = load.depth - load.bound
        excess += sum(map(size_of, jobs)) if load.measure == "bytes" else len(jobs)
        if load.measure == "bytes":
            excess = math.ceil(excess * max(1, queue.live) / max(1, queue.bytes))
        wait_s = self._wait_s(queue, excess, over, now)
        return Full(queue.name, load, queue.resolved.bounds.strategy, over.never, wait_s)

    def _refused(self, draft: Draft, refusal: PushOutcome, now: int, *, waits: bool) -> PushOutcome:
        """The same refusal, told unless its producer would rather wait and may."""
        if isinstance(refusal, Full) and not (waits and refusal.may_wait):
            self.turn_away(draft.job.type, refusal, now)
        return refusal

    def turn_away(self, job_type: str, full: Full, now: int) -> None:
        """Tell that a job of this type is refused for want of room."""
        name = full.queue
        data = {
            "queue": name,
            "depth": full.load.depth,
            "bound": full.load.bound,
            "job_type": job_type,
            "measure": full.load.measure,
            "strategy": full.strategy,
        }
        self._tables.events.add("backpressure.rejected", now, name, job_type, name, data=data)

    @staticmethod
    def _wait_s(queue: Queue, excess: int, over: Over, now: int) -> int:
        """How long so many jobs need to leave, going by those that left in the last minute."""
        if over.never:
            return MOST_WAIT_S
        # A bound on jobs that wait has room again as soon as one of them runs.
        left = queue.recent.left(now, to_run=over.load.measure == "jobs")
        if not left:
            return SOON_S
        return max(1, min(MOST_WAIT_S, math.ceil(max(1, excess) * 60 / left)))

    def _tell_limited(self, refusal: TenantFull, now: int) -> None:
        data = {
            "tenant_id": refusal.tenant,
            "limit": refusal.limit,
            "current": refusal.current,
            "maximum": refusal.maximum,
        }
        self._tables.events.add("tenant.limit_exceeded", now, refusal.tenant, data=data)

    # the line

    def park(self, drafts: Sequence[Draft]) -> Waiter | None:
        if len(self.parked) >= MOST_PARKED:
            return None
        needs: dict[Queue, tuple[int, int]] = {}
        for draft in drafts:
            queue = self._tables.queue(draft.job.queue)
            bounds = queue.resolved.bounds
            if bounds.bounded and bounds.strategy == "block":
                jobs, size = needs.get(queue, (0, 0))
                needs[queue] = jobs + 1, size + size_of(draft.job)
        waiter = Waiter(needs, self._left)
        self.parked[waiter] = None
        for queue in needs:
            self.look(queue)
        return waiter

    def _left(self, waiter: Waiter) -> None:
        """It is no longer in line; who came after it may come forward."""
        self.parked.pop(waiter, None)
        for queue in waiter.needs:
            self.look(queue)

    def look(self, queue: Queue) -> None:
        """Let the first in line know when there is room for it."""
        for waiter in queue.line:
            if not waiter.is_woken and waiter.is_first() and self._has_room(waiter):
                waiter.wake()
            return

    def _has_room(self, waiter: Waiter) -> bool:
        """Or whether it waits in vain."""
        for queue, (jobs, size) in waiter.needs.items():
            bounds = queue.resolved.bounds
            if queue.draining or bounds.strategy != "block":
                return True
            decision = decide(bounds, queue.depth, jobs, size)
            if isinstance(decision, Over):
                return decision.never
        return True

    # crossings

    def watch(self, queue: Queue, at: int) -> None:
        """Tell when a queue comes near its bound, reaches it, or is far from it again."""
        if not queue.bounded and not queue.warned and not queue.filled:
            return
        bounds = queue.resolved.bounds
        found = loads(bounds, queue.depth)
        load = tightest(found)
        is_near = warns(bounds, load)
        if is_near != queue.warned:
            queue.warned = is_near
            shown = load or Load("jobs", queue.depth.waiting, 0)
            kind = "backpressure.warning" if is_near else "backpressure.cleared"
            data = _crossing(queue, shown)
            self._tables.events.add(kind, at, queue.name, queue=queue.name, data=data)
        full = next((load for load in found if load.depth >= load.bound), None)
        if (full is not None) != queue.filled:
            queue.filled = full is not None
            if full is not None:
                data = _crossing(queue, full)
                self._tables.events.add("queue.full", at, queue.name, queue=queue.name, data=data)
        queue.refollow()


def _crossing(queue: Queue, load: Load) -> dict[str, Any]:
    return {
        "queue": queue.name,
        "depth": load.depth,
        "bound": load.bound,
        "measure": load.measure,
    }


class Twins:
    """Jobs with the same fingerprint."""

    __slots__ = ("_tables",)

    def __init__(self, life: Life) -> None:
        self._tables = life.tables

    def of(self, draft: Draft, now: int) -> Job | None:
        """The job that stands in the way of this one."""
        for job in self.equals(draft):
            if in_the_way(draft, job, job.state, now):
                return job
        return None

    def equals(self, draft: Draft) -> list[Job]:
        """All jobs with the same fingerprint, oldest first, as far as they could stand in the way."""
        fingerprint, policy = draft.job.unique, draft.unique
        if fingerprint is None or policy is None:
            return []
        tables = self._tables
        found = tables.unique.get(fingerprint, [])
        if policy.looks_at_finished and not tables.keep_finished:
            ids = tables.log.rows(
                "SELECT id FROM jobs WHERE unique_key = ? AND finished_at > 0", (fingerprint,)
            )
            folded = [tables.find(job_id) for (job_id,) in ids if job_id not in tables.jobs]
            found = found + [job for job in folded if job is not None]
        if len(found) > 1:
            found = sorted(found, key=_age)
        return list(found)


def in_the_way(draft: Draft, job: Job, state: str, now: int) -> bool:
    policy = draft.unique
    return (
        policy is not None
        and state in policy.states
        and (policy.period_ms is None or now < job.created_at + policy.period_ms)
    )


def _age(job: Job) -> tuple[int, str]:
    """Of several that came in the same millisecond the ids decide, so that a restart changes nothing."""
    return job.created_at, job.id


def _free(bounds: Bounds, depth: Depth) -> int:
    """For how many more jobs there is room."""
    found = []
    if bounds.max_depth:
        found.append(bounds.max_depth - depth.waiting)
    if bounds.max_size:
        found.append(bounds.max_size - depth.waiting - depth.active)
    return max(0, min(found, default=0))
