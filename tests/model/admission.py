"""Which jobs enter: uniqueness, the limits of tenants, the bounds of queues and the line before them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

from headgate.core import bounds
from headgate.core.bounds import Accept, Depth, DropOldest, Full, decide
from headgate.core.gates import Gate
from headgate.core.limits import Use, full_key
from headgate.engines.contract import Draft
from tests.model.life import Life
from tests.model.records import TERMINAL, Entry, Place, Said

PLACES = 1_000
"""As many producers may wait."""


def size_of(draft: Draft) -> int:
    return len(draft.job.fixed) + len(draft.job.type) + 200


class Admission(Life):
    def push(
        self,
        drafts: Sequence[Draft],
        now: int,
        *,
        whole: bool = True,
        place: Place | None = None,
        waits: bool = False,
    ) -> list[Said]:
        now = self.catch_up(now)
        said = []
        for batch in [list(drafts)] if whole else [[draft] for draft in drafts]:
            # Whoever goes for them may be the last one who names a key that they name, too.
            self.entering = {self._name(use, draft) for draft in batch for use in draft.uses}
            said += self._admit(batch, place if whole else None, now, waits=waits)
            self.entering = set()
            self.forget_keys()
        self.settle()
        return said

    def _admit(
        self, batch: list[Draft], place: Place | None, now: int, *, waits: bool = False
    ) -> list[Said]:
        """All of them or none: it is tried out before anything is done."""
        before = copy.deepcopy(self.state)
        said = [self._take(draft, now) for draft in batch]
        victims = [job.id for job in self.state.jobs if job.state == "cancelled"]
        refusal = None
        rooms: dict[str, Accept | DropOldest] = {}
        refused = any(self._refused(outcome) for outcome in said)
        if not refused:
            entering = [
                draft
                for draft, outcome in zip(batch, said, strict=True)
                if outcome.kind == "Pushed" and draft.job.id not in victims
            ]
            refusal, rooms = self._look_for_room(entering, place)
        self.state = before
        if refused:
            return [Said("Held", "") if outcome.kind == "Pushed" else outcome for outcome in said]
        if refusal is not None:
            to_blame, outcome = refusal
            if outcome.kind == "Full":
                _, _, strategy, never = outcome.rest
                if not waits or strategy != "block" or never:
                    self._tell_full(outcome, now)
            return [outcome if draft is to_blame else Said("Held", "") for draft in batch]

        def make_room() -> None:
            for queue, room in rooms.items():
                if isinstance(room, DropOldest):
                    self._drop_oldest(queue, room.count, victims, now)

        if len(batch) == 1:
            said = [self._take(batch[0], now, make_room)]
        else:
            make_room()
            # Whoever was a duplicate is one still when its twin had to make room: none was made for it.
            said = [
                outcome if outcome.kind == "Duplicate" else self._take(draft, now)
                for draft, outcome in zip(batch, said, strict=True)
            ]
        said = [
            self._with_load(outcome, rooms.get(draft.job.queue))
            for draft, outcome in zip(batch, said, strict=True)
        ]
        for draft, outcome in zip(batch, said, strict=True):
            tenant = self.state.tenants.get(draft.job.tenant)
            if outcome.kind == "Pushed" and tenant is not None and tenant.window is not None:
                tenant.window.start(now * 1000)
        return said

    def _tell_full(self, said: Said, now: int) -> None:
        queue, load, _, _ = said.rest
        self.tell("backpressure.rejected", now, queue, load.depth, load.bound)

    def turn_away(self, said: Said, now: int) -> None:
        """Somebody who waited is refused after all."""
        now = self.catch_up(now)
        self._tell_full(said, now)
        self.settle()

    @staticmethod
    def _with_load(outcome: Said, room: Accept | DropOldest | None) -> Said:
        if outcome.kind != "Pushed":
            return outcome
        accept = room.accept if isinstance(room, DropOldest) else room
        load = accept.load if accept is not None and accept.warns else None
        return outcome._replace(rest=(*outcome.rest, load))

    @staticmethod
    def _refused(said: Said) -> bool:
        ignored = said.kind == "Duplicate" and said.rest[1]
        return said.kind != "Pushed" and not ignored

    def _look_for_room(
        self, entering: list[Draft], place: Place | None
    ) -> tuple[tuple[Draft, Said] | None, dict[str, Accept | DropOldest]]:
        """The first refusal and whom it concerns, else what each queue says; the jobs are in place already."""
        for name in dict.fromkeys(draft.job.tenant for draft in entering):
            own = [draft for draft in entering if draft.job.tenant == name]
            over = self._over_tenant_limit(name, own)
            if over is not None:
                return (own[0], over), {}
        rooms = {}
        for queue in dict.fromkeys(draft.job.queue for draft in entering):
            own = [draft for draft in entering if draft.job.queue == queue]
            room = self._room(queue, own, place)
            if isinstance(room, Full):
                limits = self.settings(queue).bounds
                rest = (queue, room.load, limits.strategy, room.never)
                return (own[0], Said("Full", "", rest)), {}
            rooms[queue] = room
        return None, rooms

    # tenants

    def _over_tenant_limit(self, name: str, entering: list[Draft]) -> Said | None:
        """Which of its limits the tenant has used up."""
        tenant = self.state.tenants.get(name)
        if tenant is None:
            return None
        limits = tenant.limits
        new = [draft.job.id for draft in entering]
        jobs = [job for job in self.live() if job.tenant == name]
        for queue in dict.fromkeys(draft.job.queue for draft in entering):
            standing = [
                j for j in jobs if j.queue == queue and j.state in ("available", "scheduled")
            ]
            over = self._excess("max_queue_depth", limits.max_queue_depth, name, standing, new)
            if over is not None:
                return over
        later = [job for job in jobs if job.state == "scheduled"]
        over = self._excess("max_scheduled", limits.max_scheduled, name, later, new)
        if over is not None:
            return over
        window = tenant.window
        # Pushes come at whole milliseconds.
        if window is not None and window.room(self.state.now * 1000) < len(new):
            rest = (name, "max_enqueue_rate", window.count, window.rate.limit)
            return Said("TenantFull", "", rest)
        return None

    @staticmethod
    def _excess(
        limit: str, most: int | None, tenant: str, jobs: list[Entry], new: list[str]
    ) -> Said | None:
        """Jobs of which some are new may not be more than that."""
        before = sum(job.id not in new for job in jobs)
        if most is None or before == len(jobs) or len(jobs) <= most:
            return None
        return Said("TenantFull", "", (tenant, limit, before, most))

    # bounds

    def _room(
        self, queue: str, entering: list[Draft], place: Place | None
    ) -> Accept | DropOldest | Full:
        """What the queue says to all of these together, which are in place already."""
        limits = self.settings(queue).bounds
        stands = place is not None and queue in place.needs
        in_turn = place is not None and self.is_first(place)
        size = sum(size_of(draft) for draft in entering)
        new = [draft.job.id for draft in entering]
        depth = self.depth(queue)
        depth = Depth(depth.waiting - len(new), depth.active, depth.bytes - size)
        if not (stands and in_turn):
            depth = self._with_reserved(queue, depth)
        oldest = [job.size for job in self._oldest(queue, new)]
        decision = decide(limits, depth, len(new), size, oldest)
        load = bounds.tightest(bounds.loads(limits, depth))
        if stands and not in_turn and not isinstance(decision, Full) and load is not None:
            return Full(load, never=False)
        return decision

    def _oldest(self, queue: str, but: Sequence[str]) -> list[Entry]:
        """The available jobs by age, without some."""
        waiting = [job for job in self.available(queue) if job.id not in but]
        return sorted(waiting, key=lambda job: job.seq)

    def _drop_oldest(self, queue: str, count: int, but: Sequence[str], now: int) -> None:
        for job in self._oldest(queue, but)[:count]:
            self.tell("backpressure.dropped", now, job.id, queue)
            self.tell("queue.overflow", now, job.id, queue)
            self.throw_out(job, "overflow", now)

    # the line

    def park(self, drafts: Sequence[Draft]) -> Place | None:
        if len(self.places) >= PLACES:
            return None
        needs: dict[str, tuple[int, int]] = {}
        for queue in dict.fromkeys(draft.job.queue for draft in drafts):
            limits = self.settings(queue).bounds
            if limits.strategy == "block" and bounds.loads(limits, Depth()):
                own = [draft for draft in drafts if draft.job.queue == queue]
                needs[queue] = len(own), sum(size_of(draft) for draft in own)
        place = Place(list(drafts), needs)
        self.places.append(place)
        return place

    def leave_line(self, place: Place) -> None:
        self.places.remove(place)

    def in_line(self, queue: str) -> list[Place]:
        """Those who wait before this queue, in the order of their arrival."""
        return [place for place in self.places if queue in place.needs]

    def is_first(self, place: Place) -> bool:
        return all(self.in_line(queue)[0] is place for queue in place.needs)

    def _with_reserved(self, queue: str, depth: Depth) -> Depth:
        """What is free belongs to those in line, as far as they need it."""
        limits = self.settings(queue).bounds
        line = self.in_line(queue)
        if not line or limits.strategy != "block":
            return depth
        jobs = sum(place.needs[queue][0] for place in line)
        size = sum(place.needs[queue][1] for place in line)
        free = []
        if limits.max_depth:
            free.append(limits.max_depth - depth.waiting)
        if limits.max_size:
            free.append(limits.max_size - depth.waiting - depth.active)
        free_bytes = limits.max_size_bytes - depth.bytes if limits.max_size_bytes else size
        return Depth(
            depth.waiting,
            depth.active,
            depth.bytes,
            reserved=min(jobs, max(0, min(free, default=0))),
            reserved_bytes=min(size, max(0, free_bytes)),
        )

    def may_enter(self, place: Place) -> bool:
        """Whether it is this one's turn, and there is room."""
        if not self.is_first(place):
            return False
        for queue, (jobs, size) in place.needs.items():
            limits = self.settings(queue).bounds
            if isinstance(decide(limits, self.depth(queue), jobs, size), Full):
                return False
        return True

    # one job

    def _take(self, draft: Draft, now: int, make_room: Callable[[], None] = lambda: None) -> Said:
        """Put a job in its place, whatever the bounds say."""
        given = draft.job
        queue = self.state.queues.get(given.queue)
        if queue is not None and queue.draining:
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
                self.call_off(twin, now, "system", f"replaced by {given.id}")
        make_room()
        job = self._entry(draft)
        job.state, job.due_at = "", due_at
        self.state.jobs.append(job)
        self.open_queue(job.queue, now)
        self._register(draft)
        if state == "available":
            self.enqueue(job, now, "push")
        else:
            self.number(job)
            self.change(job, state, now, "push")
            if state == "scheduled":
                self.tell("job.scheduled", now, job)
        return Said("Pushed", job.id, (replaced,))

    def _register(self, draft: Draft) -> None:
        """The latest that is said of a key holds for all its jobs."""
        for use in draft.uses:
            key = self._name(use, draft)
            if key not in self.state.gates:
                self.state.gates[key] = Gate(key)
            self.state.gates[key].register(use.change)

    @staticmethod
    def _name(use: Use, draft: Draft) -> str:
        return full_key(use.key, use.scope, draft.job.tenant)

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
            keys=tuple(
                (full_key(use.key, use.scope, job.tenant), use.on_limit) for use in draft.uses
            ),
            fixed=job.fixed,
            state=job.state,
            due_at=job.due_at,
        )

    def _twin(self, draft: Draft, now: int) -> Entry | None:
        """The job that stands in the way of this one, if it wants to be unique."""
        policy = draft.unique
        if policy is None:
            return None
        for job in sorted(self.state.jobs, key=lambda job: (job.created_at, job.id)):
            if job.unique != draft.job.unique or job.state not in policy.states:
                continue
            if policy.period_ms is None or now < job.created_at + policy.period_ms:
                return job
        return None
