"""Stories: random commands and clock steps, told to the model and to an engine, which must agree after each.

Here is what all stories need: time, jobs that enter, run and end, and whoever waits for work.
A subclass says which engine it is and what else can befall it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from headgate.core.job import Job
from headgate.engines.contract import (
    Ack,
    Extend,
    Fail,
    Fetch,
    Interest,
    KeyJobs,
    KeyView,
    Report,
    Watch,
)
from headgate.engines.local.engine import LocalEngine
from tests.agreement import views
from tests.agreement.invariants import Watcher
from tests.agreement.wishes import FAILURES, WORKERS, Wish, fetches, rarely, wishes
from tests.model import Event, Model, Said, Saved

T = TypeVar("T")

BEGIN_MS = 1_000_000
HANGS_S = 5.0
"""A step that takes longer never ends."""
EVERYTHING = Interest()
MANY = 1_000


def stories(machine: type[RuleBasedStateMachine], examples: int = 80) -> Any:
    """The test case of a machine: so many stories, or as many as a thorough run may take."""
    thorough = os.environ.get("HEADGATE_TEST_PROFILE") == "thorough"
    case = machine.TestCase
    # Explaining a failure traces every line of another hundred runs, which takes minutes.
    case.settings = settings(
        max_examples=1_500 if thorough else examples,
        stateful_step_count=60 if thorough else 40,
        phases=set(Phase) - {Phase.explain},
        report_multiple_bugs=False,
    )
    return pytest.mark.timeout(3_600 if thorough else 600)(case)


def seen(choose: Callable[[Any], list[T]]) -> st.SearchStrategy[T]:
    """One of what the story has at this point."""
    return st.runner().flatmap(lambda story: st.sampled_from(choose(story)))


def jobs(*states: str) -> st.SearchStrategy[str]:
    """The id of a job, mostly of one in these states."""

    def choose(story: Machine) -> list[str]:
        known = story.model.state.jobs
        fitting = [job.id for job in known if job.state in states]
        return fitting * 12 + [job.id for job in known] + ["nobody"]

    return seen(choose)


def with_jobs(*states: str) -> Callable[[Any], Any]:
    """A rule that tells little unless there are jobs in one of these states."""
    return precondition(lambda story: any(job.state in states for job in story.model.state.jobs))


def new_ids(story: Machine) -> list[str]:
    taken = [job.id for job in story.model.state.jobs]
    fresh = [f"j{number}" for number in range(1, 99) if f"j{number}" not in taken]
    return fresh[:30] + taken[:1]


ids = seen(new_ids)
wish = st.runner().flatmap(lambda story: story.wishes)
workers = st.sampled_from(WORKERS)
visibility = rarely(0, 100, 60_000)
claims = rarely(0, 1, 2)
ANSWERS = ("k1", "k2")
LIVE = ("available", "scheduled", "pending", "active", "retryable")
ENDED = ("completed", "cancelled", "discarded")
ENDS = ("ack", *FAILURES)


class Seen(NamedTuple):
    """What can be seen of an engine."""

    jobs: list[views.View]
    saved: dict[str, Saved]
    told: list[Event]
    flow: Any
    queues: list[views.View]
    keys: list[views.View]
    tenants: list[views.View]
    pools: Any
    workers: list[views.View]
    answers: list[bytes | None]


class Machine(RuleBasedStateMachine):
    """The model, one engine, and whoever waits for work of it."""

    wishes = wishes(ids)
    """The jobs that these stories are about."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.now = BEGIN_MS
        self.latest_us = 0
        self.model.state.now = BEGIN_MS
        self.model.state.queues["default"].created_at = BEGIN_MS
        self.runner = asyncio.Runner()
        self.waiting: list[tuple[Fetch, Watch]] = []
        self.tasks = 0
        self.engine = self.alone(self.open())
        self.watcher = Watcher()
        self.agreed = True

    async def open(self) -> LocalEngine:
        return await LocalEngine.open(
            self.path(), now_ms=self.now, elapsed_s=time.monotonic, durability="normal"
        )

    def path(self) -> str:
        raise NotImplementedError

    def run(self, step: Awaitable[T]) -> T:
        """Carry out a step as the server does: nobody learns of it before it is durable."""

        async def settled() -> T:
            async with asyncio.timeout(HANGS_S):
                outcome = await step
                await self.engine.settled()
                return outcome

        self.latest_us = max(self.latest_us, self.now * 1000)
        return self.runner.run(settled())

    def inside(self, call: Callable[[], T]) -> T:
        """Call what is no step, as the server does it: from within the loop."""

        async def called() -> T:
            return call()

        return self.runner.run(called())

    def alone(self, step: Awaitable[T]) -> T:
        """Carry out what happens before there is an engine, or ends it."""
        return self.runner.run(asyncio.wait_for(step, HANGS_S))

    def teardown(self) -> None:
        try:
            if self.agreed:
                self.come_to_an_end()
            self.leave_all()
        finally:
            self.alone(self.engine.close())
            self.runner.close()

    def come_to_an_end(self) -> None:
        """What must be true whenever a story ends."""
        self.serve()

    def leave_all(self) -> None:
        """Nobody waits any more."""
        for _, watch in self.waiting:
            self.inside(watch.close)
        self.waiting.clear()

    # comparing

    def agree(self) -> None:
        """Whatever can be seen of the engine is what the model says."""
        self.agreed = False
        model = self.model
        # A look is a step too, before which happens what the last one made due at once.
        model.catch_up(self.now)
        for fetch, watch in [w for w in self.waiting if not model.at_work(w[0].worker)]:
            self.inside(watch.close)
            self.waiting.remove((fetch, watch))
        found = self.run(self.look([job.id for job in model.state.jobs]))
        views.assert_same(found.jobs, [views.of_entry(job) for job in model.state.jobs])
        assert found.saved == {j.id: j.checkpoint for j in model.state.jobs if j.checkpoint}
        assert found.answers == [model.recall("bulk", key, self.now) for key in ANSWERS]
        views.assert_same(found.queues, views.of_queues(model), "name")
        views.assert_same(found.keys, views.of_keys(model), "key")
        views.assert_same(found.tenants, views.of_tenants(model))
        assert found.pools == views.of_pools(model)
        assert found.workers == views.of_workers(model)
        plain, flow = views.of_told(model)
        assert found.told == plain
        assert found.flow - flow == flow - found.flow, "told (too much, too little)"
        due = model.next_due()
        assert due is None or self.engine.next_due() <= due
        self.engine.check()
        self.agreed = True

    async def look(self, known: list[str]) -> Seen:
        engine, now = self.engine, self.now
        jobs = [job for job_id in known if (job := await engine.find(job_id, now)) is not None]
        page = await engine.events(0, 10_000, EVERYTHING, now)
        saved = {
            job_id: Saved(checkpoint.sequence, checkpoint.saved_at, checkpoint.state)
            for job_id in known
            if (checkpoint := await engine.checkpoint(job_id, now)) is not None
        }
        keys, total = await engine.keys(MANY, 0, now)
        assert total == len(keys)
        queues = await engine.queues(now)
        fresh = [event for event in page.events if event.number > self.watcher.last_event]
        self.watcher.look(keys, queues, jobs, fresh)
        self.watcher.last_event = page.events[-1].number if page.events else 0
        return Seen(
            [views.of_job(job) for job in jobs],
            saved,
            views.of_events(page.events),
            views.of_flow_events(page.events),
            [views.of_queue(queue) for queue in queues],
            [views.of_key(key, await self.key_jobs(key)) for key in keys],
            [views.of_tenant(tenant) for tenant in await engine.tenants(now)],
            [views.of_pool(pool) for pool in await engine.pools(now)],
            [views.of_worker(worker) for worker in await engine.workers(now)],
            [await engine.recall("bulk", key, now) for key in ANSWERS],
        )

    async def key_jobs(self, key: KeyView) -> KeyJobs:
        found = await self.engine.key_jobs(key.key, MANY, 0, self.now)
        assert found is not None
        return found

    def both(self, expected: T, step: Awaitable[T]) -> None:
        self.agreed = False
        assert self.run(step) == expected
        self.agree()

    async def said(self, step: Awaitable[Any]) -> Said:
        return views.of_outcome(await step)

    async def all_said(self, step: Awaitable[list[Any]]) -> list[Said]:
        return [views.of_outcome(outcome) for outcome in await step]

    # time

    @rule(
        ms=st.sampled_from(
            [1, 64, 100, 334, 500, 1_000, 1, 100, 1_000, 5_000, 10_000, 31_000, 3_600_000]
        )
    )
    def let_time_pass(self, ms: int) -> None:
        self.now += ms
        self.model.catch_up(self.now)
        self.both(None, self.engine.tick(self.now))

    @rule(ms=st.sampled_from([1, 1_000, 60_000]))
    def set_the_clock_back(self, ms: int) -> None:
        self.now -= ms
        self.both(None, self.engine.tick(self.now))

    @precondition(lambda self: self.model.next_due())
    @rule(early=rarely(0, 1))
    def wait_for_what_is_due(self, early: int) -> None:
        due = self.model.next_due()
        assert due is not None
        self.now = max(self.now, due - early)
        self.model.catch_up(self.now)
        self.both(None, self.engine.tick(self.now))

    # enqueue

    @initialize(batch=st.lists(wish, min_size=3, max_size=6))
    def begin(self, batch: list[Wish]) -> None:
        self.push_all(batch, whole=False)

    @rule(one=wish)
    def push(self, one: Wish) -> None:
        self.push_all([one], whole=True)

    @rule(batch=st.lists(wish, min_size=2, max_size=4), whole=st.booleans())
    def push_all(self, batch: list[Wish], whole: bool) -> None:
        # Which of two equal jobs is older is clear only when they came at different instants.
        self.now += 1
        expected = self.model.push([w.draft(self.now) for w in batch], self.now, whole=whole)
        outcomes = self.engine.push([w.draft(self.now) for w in batch], self.now, whole=whole)
        taken_by = {w.queue for w, s in zip(batch, expected, strict=True) if s.kind == "Pushed"}
        self.both(expected, self.pushed(outcomes, taken_by))

    async def pushed(self, outcomes: Awaitable[list[Any]], taken_by: set[str]) -> list[Said]:
        said = [views.of_push(outcome) for outcome in await outcomes]
        queues = await self.engine.queues(self.now)
        self.watcher.pushed(queue for queue in queues if queue.name in taken_by)
        return said

    # reservations

    @rule(fetch=fetches())
    def take(self, fetch: Fetch) -> None:
        self.fetch(fetch)

    @with_jobs("available")
    @rule(queue=st.sampled_from(["a", "b"]), worker=workers)
    def take_one(self, queue: str, worker: str) -> None:
        self.fetch(Fetch([queue], 1, worker))

    def fetch(self, fetch: Fetch) -> None:
        self.latest_us = max(self.latest_us, self.now * 1000 + fetch.micros)
        expected = [job.id for job in self.model.fetch(fetch, self.now)]
        self.both(expected, self.fetched(fetch))

    async def fetched(self, fetch: Fetch) -> list[str]:
        engine, now = self.engine, self.now
        jobs = await engine.fetch(fetch, now)
        keys, _ = await engine.keys(MANY, 0, now)
        known = [await engine.find(job.id, now) for job in self.model.state.jobs]
        running = [job for job in known if isinstance(job, Job) and job.state == "active"]
        self.watcher.started(jobs, self.latest_us, {key.key: key for key in keys}, running)
        return [job.id for job in jobs]

    @with_jobs("available")
    @rule(fetch=fetches(counts=[1]), ends=st.lists(st.sampled_from(ENDS), min_size=1, max_size=3))
    def work(self, fetch: Fetch, ends: list[str]) -> None:
        """Fetch one job after the other and end each in its way."""
        for end in ends:
            self.fetch(fetch)
            held = self.model.held_by(fetch.worker)
            if held and end == "ack":
                self.ack_as_its_holder(held[-1].id, b"null")
            elif held:
                self.nack_as_its_holder(held[-1].id, end, 0.5)

    @with_jobs("active")
    @rule(job=jobs("active"), worker=workers, claim=claims, result=rarely(None, b'{"n":1}'))
    def ack(self, job: str, worker: str, claim: int, result: bytes | None) -> None:
        ack = Ack(job, worker, claim, result)
        self.both(self.model.ack([ack], self.now), self.all_said(self.engine.ack([ack], self.now)))

    @with_jobs("active")
    @rule(job=jobs("active"), result=rarely(b"null", b"[1]"))
    def ack_as_its_holder(self, job: str, result: bytes) -> None:
        ack = Ack(job, *self.holder(job), result)
        self.both(self.model.ack([ack], self.now), self.all_said(self.engine.ack([ack], self.now)))

    @with_jobs("active")
    @rule(job=jobs("active"), failure=st.sampled_from(list(FAILURES)), uniform=rarely(0.5, 0.0))
    def nack_as_its_holder(self, job: str, failure: str, uniform: float) -> None:
        worker, claim = self.holder(job)
        self.fail_all([Fail(job, FAILURES[failure], worker, claim, uniform)])

    @with_jobs("active")
    @rule(
        some=st.lists(st.tuples(jobs("active"), st.sampled_from(list(FAILURES))), max_size=3),
        worker=workers,
        claim=claims,
    )
    def nack(self, some: list[tuple[str, str]], worker: str, claim: int) -> None:
        self.fail_all([Fail(job, FAILURES[failure], worker, claim) for job, failure in some])

    def fail_all(self, fails: list[Fail]) -> None:
        self.both(
            self.model.fail(fails, self.now), self.all_said(self.engine.fail(fails, self.now))
        )

    def holder(self, job_id: str) -> tuple[str, int]:
        job = self.model.find(job_id)
        return (job.worker, job.claim) if job else ("w1", 1)

    @with_jobs("active")
    @rule(job=jobs("active"), worker=workers, claim=claims, ms=visibility)
    def extend(self, job: str, worker: str, claim: int, ms: int) -> None:
        one = [Extend(job, claim)]
        self.both(
            self.model.extend(worker, one, ms, self.now),
            self.all_said(self.engine.extend(worker, one, ms, self.now)),
        )

    @with_jobs(*LIVE)
    @rule(job=jobs(*LIVE))
    def cancel(self, job: str) -> None:
        self.both(
            self.model.cancel(job, self.now),
            self.said(self.engine.cancel(job, "admin", "enough", self.now)),
        )

    # waiting for work

    @rule(fetch=fetches(counts=[1, 2]))
    def stand_in_line(self, fetch: Fetch) -> None:
        if not self.model.at_work(fetch.worker):
            return
        # First register, then look.
        watch = self.inside(lambda: self.engine.watch(fetch))
        self.waiting.append((fetch, watch))
        self.fetch_waiting(fetch, watch)

    def fetch_waiting(self, fetch: Fetch, watch: Watch) -> None:
        """Look, and leave the line with what was found."""
        self.latest_us = max(self.latest_us, self.now * 1000 + fetch.micros)
        expected = [job.id for job in self.model.fetch(fetch, self.now)]

        async def step() -> list[str]:
            found = await self.fetched(fetch)
            if found:
                watch.close()
                self.waiting.remove((fetch, watch))
            return found

        self.both(expected, step())

    @precondition(lambda self: self.waiting)
    @rule(place=st.integers(0, 5))
    def leave_the_line(self, place: int) -> None:
        _, watch = self.waiting.pop(place % len(self.waiting))
        self.inside(watch.close)
        self.agree()

    @precondition(lambda self: self.waiting)
    @rule()
    def serve(self) -> None:
        """Everybody who was woken looks; afterwards nobody is left standing in front of work."""
        self.agree()
        while woken := next((w for w in self.waiting if self.run(w[1].wait(0))), None):
            self.fetch_waiting(*woken)
        for fetch, _ in self.waiting:
            assert not self.model.fetchable(fetch), f"{fetch} was not woken"

    # workers

    @rule(
        worker=st.sampled_from(WORKERS[:2]),
        state=rarely(None, "running", "quiet", "terminate", "drain"),
        pool=rarely(None, "p1", "p2", "default"),
        concurrency=rarely(None, 0, 1, 2),
        some=st.lists(jobs("active", "cancelled"), max_size=3),
        ms=visibility,
    )
    def beat(
        self,
        worker: str,
        state: str | None,
        pool: str | None,
        concurrency: int | None,
        some: list[str],
        ms: int,
    ) -> None:
        # Which of two workers dies first is clear only when they were heard of at different instants.
        self.now = max(self.now, self.model.state.now) + 1
        report = Report(worker, state, pool=pool, concurrency=concurrency)
        expected = self.model.beat(report, some, ms, self.now)

        async def step() -> tuple[str, list[str], list[str]]:
            beat = await self.engine.beat(report, some, ms, self.now)
            return beat.state, beat.extended, beat.cancelled

        self.both(expected, step())

    @precondition(lambda self: self.model.state.workers)
    @rule(worker=workers, state=st.sampled_from(["quiet", "terminate", "running"]))
    def direct(self, worker: str, state: str) -> None:
        self.both(
            self.model.direct(worker, state, self.now), self.engine.direct(worker, state, self.now)
        )

    @precondition(lambda self: self.model.state.workers)
    @rule(worker=workers)
    def forget_worker(self, worker: str) -> None:
        self.both(
            self.model.forget_worker(worker, self.now),
            self.engine.forget_worker(worker, "shutdown", self.now),
        )
