"""What stories tell of flow control: keys, limits, pools, tenants, bounds, lines before full queues, queues that go."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from headgate.core.pools import Pool
from headgate.core.replays import ReplayRule
from headgate.core.tenants import TenantLimits
from headgate.engines.contract import Draft, Fail, Fetch, Full, Place, PushOutcome, Query, Task
from tests.agreement import views
from tests.agreement.machine import LIVE, Machine, jobs, wish, with_jobs
from tests.agreement.wishes import (
    FAILURES,
    KEYS,
    QUEUES,
    SETTINGS,
    TENANTS,
    WORKERS,
    Wish,
    fetches,
    overrides,
    pools,
    rarely,
    tenant_limits,
)
from tests.model import Place as ModelPlace
from tests.model import Said

queues = st.sampled_from([*QUEUES, "dlq"])
keys = st.sampled_from([*KEYS, "@t1/k1"])


class FlowRules(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.parked: list[tuple[list[Draft], Place, ModelPlace]] = []
        self.told_to_wait: dict[int, tuple[Said, Full]] = {}
        """By the list of each producer that waits: what it was told last."""

    # keys

    @with_jobs("active")
    @rule(
        job=jobs("active"),
        failure=st.sampled_from(["plain", "requeue", "final"]),
        later=st.sampled_from([1_000, 100, 10_000, -5]),
        key=rarely("", "k1", "k2"),
    )
    def nack_and_hold(self, job: str, failure: str, later: int, key: str) -> None:
        """The worker was told to come back later."""
        worker, claim = self.holder(job)
        fail = Fail(job, FAILURES[failure], worker, claim)
        fail.hold_until = self.now + later
        fail.hold_key = key
        self.fail_all([fail])

    @rule(key=keys, lift=rarely(False, True), data=st.data())
    def override(self, key: str, lift: bool, data: st.DataObject) -> None:
        if lift:
            self.both(self.model.lift(key, self.now), self.engine.lift(key, "admin", self.now))
            return
        override = data.draw(overrides(self.model.state.now), "override")
        self.model.override(key, override, self.now)
        self.both(None, self.engine.override(key, override, "admin", self.now))

    def start_task(self, kind: str, query: Query) -> None:
        self.tasks += 1
        name = f"task-{self.tasks}"
        done, skipped = self.model.task(Task(name, kind, query), self.now)

        async def step() -> tuple[int, int, int, bool]:
            task = await self.engine.start_task(Task(name, kind, query), self.now)
            return task.matched, task.done, task.skipped, task.finished

        self.both((done + skipped, done, skipped, True), step())

    @precondition(lambda self: any(True for _ in self.model.gate_changes()))
    @rule(early_ms=rarely(0, 1))
    def wait_for_a_gate(self, early_ms: int) -> None:
        """Until just when something opens or an override ends."""
        at = min(self.model.gate_changes(), default=self.now)
        self.now = max(self.now, at - early_ms)
        self.model.catch_up(self.now)
        self.both(None, self.engine.tick(self.now))

    # dead letters that start over

    @with_jobs("available")
    @rule(queue=st.sampled_from(["a", "b"]), worker=st.sampled_from(WORKERS))
    def bury(self, queue: str, worker: str) -> None:
        """Somebody takes a job and makes a dead letter of it."""
        self.fetch(Fetch([queue], 1, worker))
        held = self.model.held_by(worker)
        if held:
            self.fail_all([Fail(held[-1].id, FAILURES["bury"])])

    @rule(
        name=st.sampled_from(["r1", "r2"]),
        queue=rarely(None, "a", "b"),
        error_type=rarely(None, "handler_error"),
        delay_ms=st.sampled_from([0, 1, 1_000, 60_000]),
        most=st.sampled_from([1, 2, 9]),
        enabled=rarely(True, False),
    )
    def set_replay_rule(
        self,
        name: str,
        queue: str | None,
        error_type: str | None,
        delay_ms: int,
        most: int,
        enabled: bool,
    ) -> None:
        self.tasks += 1
        task = f"task-{self.tasks}"
        wanted = ReplayRule(name, queue, None, error_type, delay_ms, most, enabled)

        async def step() -> tuple[bool, int, int]:
            found = await self.engine.set_replay_rule(wanted, task, self.now)
            assert found.task.finished
            return found.created, found.task.matched, found.task.done

        self.both(self.model.set_replay_rule(wanted, self.now), step())

    @precondition(lambda self: self.model.state.rules)
    @rule(name=st.sampled_from(["r1", "r2"]))
    def drop_replay_rule(self, name: str) -> None:
        self.both(
            self.model.drop_replay_rule(name, self.now),
            self.engine.drop_replay_rule(name, self.now),
        )

    # pools and tenants

    @rule(pool=pools(), drop=rarely(False, True))
    def set_pool(self, pool: Pool, drop: bool) -> None:
        model, engine, now = self.model, self.engine, self.now
        if drop:
            self.both(model.drop_pool(pool.name, now), engine.drop_pool(pool.name, now))
        else:
            self.both(model.set_pool(pool, now), engine.set_pool(pool, now))

    @rule(tenant=st.sampled_from(TENANTS), limits=tenant_limits, forget=rarely(False, True))
    def set_tenant(self, tenant: str, limits: TenantLimits, forget: bool) -> None:
        model, engine, now = self.model, self.engine, self.now
        if forget:
            self.both(model.forget_tenant(tenant, now), engine.forget_tenant(tenant, now))
        else:
            self.both(model.set_tenant(tenant, limits, now), engine.set_tenant(tenant, limits, now))

    # maintenance

    @rule(begin=st.sampled_from([False, False, True]), reason=st.sampled_from(["", "new disk"]))
    def begin_or_end_maintenance(self, begin: bool, reason: str) -> None:
        if begin:
            expected = self.model.begin_maintenance(reason, 0, self.now)
            self.both(expected, self.engine.begin_maintenance(reason, 0, "admin", self.now))
        else:
            expected_end = self.model.end_maintenance(self.now)
            self.both(expected_end, self.engine.end_maintenance("admin", self.now))
        assert self.engine.maintenance == self.model.state.maintenance

    @rule(fetch=fetches(counts=[1]))
    def ask_why(self, fetch: Fetch) -> None:
        """Why a fetch finds nothing: each queue has a reason, and a true one."""
        self.agree()
        model = self.model
        self.latest_us = max(self.latest_us, self.now * 1000 + fetch.micros)
        model.catch_up(self.now, fetch.micros)
        why = self.run(self.engine.why(fetch, self.now))
        refusal = model.refusal(fetch)
        free = model.fetchable(fetch)
        for queue in model.queues_of(fetch):
            reason = why.reasons.get(queue, "")
            fitting = [j for j in model.available(queue) if fetch.tenant in ("", j.tenant)]
            if refusal:
                assert reason == refusal, queue
            elif left_out := model.left_out(queue, model.pool_name(fetch)):
                assert reason == left_out, queue
            elif queue in free:
                assert not reason, queue
            else:
                assert reason == ("blocked" if fitting else "empty"), queue
        assert not why.next_at or why.next_at >= self.now
        # Of a single tenant's jobs nobody keeps the openings apart.
        opening = 0 if fetch.tenant else model.next_opening(fetch)
        assert not opening or 0 < why.next_at <= opening, "it says to come back too late"

    @with_jobs(*LIVE)
    @rule(job=jobs("available", "available", "scheduled"))
    def ask_what_is_in_its_way(self, job: str) -> None:
        """What keeps a job from running: everything that does, and nothing that does not."""
        self.agree()
        expected = self.model.barriers(job)
        found = self.run(self.engine.explain(job, self.now))
        assert (found is None) == (expected is None)
        if found is not None:
            there = {(b.kind, b.scope, b.name) for b in found.barriers}
            assert {each for each in there if each[0] != "no_consumers"} == expected
            assert all(not b.opens_at or b.opens_at >= self.now for b in found.barriers)
            assert found.place == self.model.place(job)

    @rule(key=keys, limit=st.sampled_from([1, 2, 50]), offset=st.integers(0, 3))
    def turn_pages(self, key: str, limit: int, offset: int) -> None:
        """Of all keys, and of the jobs of one."""
        self.agree()
        page, total = self.run(self.engine.keys(limit, offset, self.now))
        known = list(self.model.state.gates)
        assert ([each.key for each in page], total) == (known[offset:][:limit], len(known))
        found = self.run(self.engine.key_jobs(key, limit, offset, self.now))
        assert (found is None) == (key not in known)
        if found is not None:
            allowed, limited = ([job.id for job in jobs] for jobs in self.model.key_jobs(key))
            shown = [job.id for job in [*found.allowed, *found.rate_limited]]
            assert shown == (allowed + limited)[offset:][:limit]
            assert found.allowed_total == len(allowed)
            assert found.rate_limited_total == len(limited)

    # queues

    @rule(
        queue=st.sampled_from([*QUEUES[:2], "_default", "dlq"]),
        said=st.sampled_from(list(SETTINGS)),
    )
    def configure(self, queue: str, said: str) -> None:
        changes = SETTINGS[said]
        if queue == "dlq" and "dead_letter_queue" in changes:
            return
        self.model.configure(queue, changes, self.now)
        self.both(None, self.engine.configure(queue, changes, self.now))

    @rule(queue=queues, pause=rarely(False, True))
    def pause_or_resume(self, queue: str, pause: bool) -> None:
        if pause:
            self.model.pause(queue, self.now)
            self.both(None, self.engine.pause(queue, "admin", self.now))
        else:
            self.model.resume(queue, self.now)
            self.both(None, self.engine.resume(queue, "admin", self.now))

    @rule(
        queue=queues,
        how=st.sampled_from(["drain", "reject", "discard", "move"]),
        to=st.sampled_from(QUEUES),
    )
    def let_a_queue_go(self, queue: str, how: str, to: str) -> None:
        model, engine, now = self.model, self.engine, self.now
        if how == "drain":
            self.both(model.drain(queue, now), engine.drain(queue, "admin", now))
            return
        known = model.state.queues.get(to)
        if how == "move" and (known is None or known.draining or to == queue):
            return
        self.remove_queue(queue, how, to if how == "move" else "")

    def remove_queue(self, queue: str, strategy: str, target: str) -> None:
        self.tasks += 1
        expected = self.model.remove_queue(queue, strategy, target, self.now)

        async def step() -> Said | None:
            return views.of_removal(
                await self.engine.remove_queue(
                    queue, strategy, target, f"task-{self.tasks}", self.now
                )
            )

        self.both(expected, step())

    # producers that wait

    @rule(batch=st.lists(wish, min_size=1, max_size=2))
    def park(self, batch: list[Wish]) -> None:
        """Push, and stand in line when the queue says that it may be worth the while."""
        self.now += 1
        drafts = [wish.draft(self.now) for wish in batch]
        if self.knock(drafts):
            engine_place = self.inside(lambda: self.engine.park(drafts))
            place = self.model.park(drafts)
            assert place is not None
            assert engine_place is not None
            self.parked.append((drafts, engine_place, place))
        self.agree()

    def knock(self, drafts: list[Draft], place: Place | None = None, theirs: Any = None) -> bool:
        """Push what can wait; whether it has to, and then what it was told is remembered."""
        expected = self.model.push(drafts, self.now, place=theirs, waits=True)
        outcomes: list[PushOutcome] = []

        async def step() -> list[PushOutcome]:
            outcomes.extend(
                await self.engine.push(self.again(drafts), self.now, place=place, waits=True)
            )
            return outcomes

        taken_by = {
            d.job.queue for d, s in zip(drafts, expected, strict=True) if s.kind == "Pushed"
        }
        self.agreed = False
        assert self.run(self.pushed(step(), taken_by)) == expected
        self.told_to_wait.pop(id(drafts), None)
        for said, outcome in zip(expected, outcomes, strict=True):
            if isinstance(outcome, Full) and outcome.may_wait:
                self.told_to_wait[id(drafts)] = said, outcome
        return id(drafts) in self.told_to_wait

    def again(self, drafts: list[Draft]) -> list[Draft]:
        """Engines keep the records that they are given."""
        return copy.deepcopy(drafts)

    @precondition(lambda self: self.parked)
    @rule(data=st.integers(0, 5), gone=st.booleans())
    def give_up(self, data: int, gone: bool) -> None:
        """A producer has left, or is turned away because its time is up."""
        which = data % len(self.parked)
        drafts = self.parked[which][0]
        said, full = self.told_to_wait[id(drafts)]
        if not gone:
            self.model.turn_away(said, self.now)
            self.inside(lambda: self.engine.turn_away(drafts[0], full, self.now))
        self.leave(which)
        self.agree()

    def leave(self, which: int) -> None:
        _, engine_place, place = self.parked.pop(which)
        self.inside(engine_place.close)
        self.model.leave_line(place)

    @precondition(lambda self: self.parked)
    @rule()
    def let_in(self) -> None:
        """Everybody who was woken tries; afterwards nobody is left standing before an open door."""
        self.agree()
        tried = 0
        while woken := next((p for p in self.parked if self.run(p[1].wait(0))), None):
            tried += 1
            assert tried <= 50, "somebody is woken again and again"
            self.enter(*woken)
        for drafts, _, place in self.parked:
            assert not self.model.may_enter(place), f"{drafts[0].job.id} was not let in"

    def enter(self, drafts: list[Draft], engine_place: Place, place: ModelPlace) -> None:
        if not self.knock(drafts, engine_place, place):
            # It was told something else than to wait: in or out for good.
            self.leave(next(i for i, p in enumerate(self.parked) if p[2] is place))
        self.agree()

    def come_to_an_end(self) -> None:
        self.let_in()
        super().come_to_an_end()

    def leave_all(self) -> None:
        super().leave_all()
        while self.parked:
            self.leave(0)
