"""Stories: random commands and clock steps, told to the model and to an engine, which must agree after each.

A subclass says which engine it is and what else can befall it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from msgspec import Raw

from headgate.engines.contract import (
    Ack,
    Extend,
    Fail,
    Fetch,
    Interest,
    Page,
    Query,
    Replay,
    Report,
    Task,
    Watch,
)
from headgate.engines.local.engine import LocalEngine
from tests.agreement import views
from tests.agreement.wishes import (
    FAILURES,
    POLICIES,
    PRIORITIES,
    QUEUES,
    WORKERS,
    Wish,
    pages,
    queries,
    rarely,
    wishes,
)
from tests.model import Model, Said, Saved

T = TypeVar("T")

BEGIN_MS = 1_000_000
HANGS_S = 5.0
"""A step that takes longer never ends."""
EVERYTHING = Interest()


def stories(machine: type[RuleBasedStateMachine], examples: int = 80) -> Any:
    """The test case of a machine: so many stories, or as many as a thorough run may take."""
    thorough = os.environ.get("HEADGATE_TEST_PROFILE") == "thorough"
    case = machine.TestCase
    # Explaining a failure traces every line of another hundred runs, which takes minutes.
    case.settings = settings(
        max_examples=1_500 if thorough else examples,
        stateful_step_count=60 if thorough else 40,
        phases=set(Phase) - {Phase.explain},
    )
    return pytest.mark.timeout(3_600 if thorough else 300)(case)


def seen(choose: Callable[[Stories], list[T]]) -> st.SearchStrategy[T]:
    """One of what the story has at this point."""
    return st.runner().flatmap(lambda story: st.sampled_from(choose(story)))


def jobs(*states: str) -> st.SearchStrategy[str]:
    """The id of a job, mostly of one in these states."""

    def choose(story: Stories) -> list[str]:
        known = story.model.state.jobs
        fitting = [job.id for job in known if job.state in states]
        return fitting * 12 + [job.id for job in known] + ["nobody"]

    return seen(choose)


def with_jobs(*states: str) -> Callable[[Any], Any]:
    """A rule that tells little unless there are jobs in one of these states."""
    return precondition(lambda story: any(job.state in states for job in story.model.state.jobs))


def new_ids(story: Stories) -> list[str]:
    taken = [job.id for job in story.model.state.jobs]
    fresh = [f"j{number}" for number in range(1, 99) if f"j{number}" not in taken]
    return fresh[:5] * 4 + taken[:2]


ids = seen(new_ids)
queues = st.sampled_from(QUEUES)
orders = st.sampled_from([["a", "b"], ["a"], ["b", "a"], ["b"], ["a", "b", "a"], ["default", "a"]])
workers = st.sampled_from(WORKERS)
visibility = rarely(0, 100, 60_000)
claims = rarely(0, 1, 2)
KEYS = ("k1", "k2")
LIVE = ("available", "scheduled", "pending", "active", "retryable")
ENDED = ("completed", "cancelled", "discarded")
ENDS = ("ack", *FAILURES)


class Stories(RuleBasedStateMachine):
    """The model, one engine, and whoever waits for work of it."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.now = BEGIN_MS
        self.model.state.now = BEGIN_MS
        self.model.state.queues["default"].created_at = BEGIN_MS
        self.runner = asyncio.Runner()
        self.waiting: list[tuple[Fetch, Watch]] = []
        self.tasks = 0
        self.engine = self.alone(self.open())
        self.cursor = 0
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

        return self.runner.run(settled())

    def alone(self, step: Awaitable[T]) -> T:
        """Carry out what happens before there is an engine, or ends it."""
        return self.runner.run(asyncio.wait_for(step, HANGS_S))

    def teardown(self) -> None:
        try:
            if self.agreed:
                self.serve()
            for _, watch in self.waiting:
                watch.close()
        finally:
            self.alone(self.engine.close())
            self.runner.close()

    # comparing

    def agree(self) -> None:
        """Whatever can be seen of the engine is what the model says."""
        self.agreed = False
        model = self.model
        # A look is a step too, before which happens what the last one made due at once.
        model.catch_up(self.now)
        for fetch, watch in [w for w in self.waiting if not model.at_work(w[0].worker)]:
            watch.close()
            self.waiting.remove((fetch, watch))
        known = [job.id for job in model.state.jobs]
        found, saved, waiting, page, listed, alive, answers = self.run(self.look(known))
        views.assert_same(found, [views.of_entry(job) for job in model.state.jobs])
        assert saved == {job.id: job.checkpoint for job in model.state.jobs if job.checkpoint}
        assert answers == [model.recall("bulk", key, self.now) for key in KEYS]
        assert waiting == {name: [job.id for job in model.line(name)] for name in QUEUES}
        assert listed == views.of_queues(model)
        assert alive == views.of_workers(model)
        assert page == model.state.events
        due = model.next_due()
        assert due is None or self.engine.next_due() <= due
        self.engine.check()
        self.agreed = True

    async def look(self, known: list[str]) -> Any:
        engine, now = self.engine, self.now
        jobs = [job for job_id in known if (job := await engine.find(job_id, now)) is not None]
        found = [views.of_job(job) for job in jobs]
        line = sorted(jobs, key=lambda job: (-job.priority, job.seq))
        waiting = {
            name: [job.id for job in line if job.queue == name and job.state == "available"]
            for name in QUEUES
        }
        page = await engine.events(self.cursor, 10_000, EVERYTHING, now)
        saved = {
            job_id: Saved(checkpoint.sequence, checkpoint.saved_at, checkpoint.state)
            for job_id in known
            if (checkpoint := await engine.checkpoint(job_id, now)) is not None
        }
        answers = [await engine.recall("bulk", key, now) for key in KEYS]
        return (
            found,
            saved,
            waiting,
            views.of_events(page.events),
            [views.of_queue(queue) for queue in await engine.queues(now)],
            [views.of_worker(worker) for worker in await engine.workers(now)],
            answers,
        )

    def both(self, expected: T, step: Awaitable[T]) -> None:
        self.agreed = False
        assert self.run(step) == expected
        self.agree()

    async def said(self, step: Awaitable[Any]) -> Said:
        return views.of_outcome(await step)

    async def all_said(self, step: Awaitable[list[Any]]) -> list[Said]:
        return [views.of_outcome(outcome) for outcome in await step]

    # time

    @rule(ms=st.sampled_from([1, 64, 100, 1_000, 1, 100, 1_000, 5_000, 30_000, 3_600_000]))
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

    @initialize(batch=st.lists(wishes(ids), min_size=3, max_size=6))
    def begin(self, batch: list[Wish]) -> None:
        self.push_all(batch, whole=False)

    @rule(wish=wishes(ids))
    def push(self, wish: Wish) -> None:
        self.push_all([wish], whole=True)

    @rule(batch=st.lists(wishes(ids), min_size=2, max_size=4), whole=st.booleans())
    def push_all(self, batch: list[Wish], whole: bool) -> None:
        # Which of two equal jobs is older is clear only when they came at different instants.
        self.now += 1
        expected = self.model.push([w.draft(self.now) for w in batch], self.now, whole=whole)
        outcomes = self.engine.push([w.draft(self.now) for w in batch], self.now, whole=whole)

        async def said() -> list[Said]:
            return [views.of_push(outcome) for outcome in await outcomes]

        self.both(expected, said())

    # reservations

    @rule(
        names=orders,
        count=st.sampled_from([1, 2, 9]),
        worker=workers,
        ms=visibility,
    )
    def fetch(self, names: list[str], count: int, worker: str, ms: int) -> None:
        fetch = Fetch(names, count, worker, ms)
        expected = [job.id for job in self.model.fetch(fetch, self.now)]

        async def step() -> list[str]:
            return [job.id for job in await self.engine.fetch(fetch, self.now)]

        self.both(expected, step())

    @with_jobs("available")
    @rule(
        names=orders, worker=workers, ends=st.lists(st.sampled_from(ENDS), min_size=1, max_size=3)
    )
    def work(self, names: list[str], worker: str, ends: list[str]) -> None:
        """Fetch one job after the other and end each in its way."""
        for end in ends:
            self.fetch(names, 1, worker, 0)
            held = self.model.held_by(worker)
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

    @with_jobs("active")
    @rule(
        job=jobs("active"),
        part=st.none() | st.sampled_from([0.0, 0.25, 0.5, 1.0]),
        data=st.none() | st.just(b'{"at":7}'),
        message=st.none() | st.just("half"),
    )
    def report_progress(
        self, job: str, part: float | None, data: bytes | None, message: str | None
    ) -> None:
        raw = Raw(data) if data is not None else None
        self.both(
            self.model.progress(job, part, data, message, self.now),
            self.said(self.engine.progress(job, part, raw, message, self.now)),
        )

    @with_jobs(*LIVE)
    @rule(job=jobs(*LIVE), state=st.sampled_from([b"{}", b'{"page":2}']))
    def save_checkpoint(self, job: str, state: bytes) -> None:
        self.both(
            self.model.save_checkpoint(job, state, self.now),
            self.said(self.engine.save_checkpoint(job, state, self.now)),
        )

    @with_jobs(*LIVE, *ENDED)
    @rule(job=jobs("active", *ENDED))
    def drop_checkpoint(self, job: str) -> None:
        self.both(
            self.model.drop_checkpoint(job, self.now),
            self.said(self.engine.drop_checkpoint(job, self.now)),
        )

    # waiting for work

    @rule(
        names=orders,
        count=st.sampled_from([1, 2]),
        worker=workers,
    )
    def stand_in_line(self, names: list[str], count: int, worker: str) -> None:
        fetch = Fetch(names, count, worker)
        if not self.model.at_work(worker):
            return
        # First register, then look.
        watch = self.engine.watch(fetch)
        self.waiting.append((fetch, watch))
        self.fetch_waiting(fetch, watch)

    def fetch_waiting(self, fetch: Fetch, watch: Watch) -> None:
        """Look, and leave the line with what was found."""
        expected = [job.id for job in self.model.fetch(fetch, self.now)]

        async def step() -> list[str]:
            found = [job.id for job in await self.engine.fetch(fetch, self.now)]
            if found:
                watch.close()
                self.waiting.remove((fetch, watch))
            return found

        self.both(expected, step())

    @precondition(lambda self: self.waiting)
    @rule(place=st.integers(0, 5))
    def leave_the_line(self, place: int) -> None:
        _, watch = self.waiting.pop(place % len(self.waiting))
        watch.close()
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
        some=st.lists(jobs("active", "cancelled"), max_size=3),
        ms=visibility,
    )
    def beat(self, worker: str, state: str | None, some: list[str], ms: int) -> None:
        # Which of two workers dies first is clear only when they were heard of at different instants.
        self.now = max(self.now, self.model.state.now) + 1
        expected = self.model.beat(worker, state, some, ms, self.now)

        async def step() -> tuple[str, list[str], list[str]]:
            beat = await self.engine.beat(Report(worker, state), some, ms, self.now)
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

    # single jobs, by hand

    @with_jobs(*LIVE)
    @rule(job=jobs(*LIVE))
    def cancel(self, job: str) -> None:
        self.both(
            self.model.cancel(job, self.now),
            self.said(self.engine.cancel(job, "admin", "enough", self.now)),
        )

    @with_jobs("pending")
    @rule(job=jobs("pending"))
    def activate(self, job: str) -> None:
        self.both(
            self.model.activate(job, self.now), self.said(self.engine.activate(job, self.now))
        )

    @with_jobs("available", "scheduled")
    @rule(job=jobs("available", "scheduled"), priority=st.sampled_from(PRIORITIES))
    def reprioritize(self, job: str, priority: int) -> None:
        self.both(
            self.model.reprioritize(job, priority, self.now),
            self.said(self.engine.reprioritize(job, priority, self.now)),
        )

    @with_jobs("discarded", "retryable")
    @rule(
        job=jobs("discarded", "retryable"),
        queue=rarely(None, "b"),
        policy=rarely(None, *POLICIES),
        attempts=rarely(None, 1, 5),
        fixed=rarely(None, b'"args":[2],"meta":{}'),
    )
    def retry(
        self, job: str, queue: str | None, policy: str | None, attempts: int | None, fixed: bytes
    ) -> None:
        changes = Replay(queue, fixed, POLICIES[policy] if policy else None, attempts)
        self.both(
            self.model.retry(job, changes, self.now),
            self.said(self.engine.retry(job, changes, self.now)),
        )

    @with_jobs(*ENDED)
    @rule(job=jobs(*ENDED))
    def delete(self, job: str) -> None:
        expected = self.model.delete(job, self.now)

        async def step() -> Said:
            said = await self.said(self.engine.delete(job, self.now))
            gone = await self.engine.find(job, self.now) is None
            assert gone == (said.kind != "WrongState")
            return said

        self.both(expected, step())

    # many jobs

    @with_jobs(*LIVE, *ENDED)
    @rule(query=queries, page=pages)
    def list_jobs(self, query: Query, page: Page) -> None:
        self.model.catch_up(self.now)
        expected, total = self.model.find_all(query, page)

        async def step() -> tuple[list[views.View], int]:
            found = await self.engine.find_all(query, page, self.now)
            return [views.of_job(job) for job in found.jobs], found.total

        self.both(([views.of_entry(job) for job in expected], total), step())

    @with_jobs(*LIVE, *ENDED)
    @rule(kind=st.sampled_from(["cancel", "retry", "delete"]), query=queries)
    def start_task(self, kind: str, query: Query) -> None:
        self.tasks += 1
        name = f"task-{self.tasks}"
        done, skipped = self.model.task(Task(name, kind, query), self.now)

        async def step() -> tuple[int, int, int, bool]:
            task = await self.engine.start_task(Task(name, kind, query), self.now)
            return task.matched, task.done, task.skipped, task.finished

        self.both((done + skipped, done, skipped, True), step())

    # answers for repeated requests

    @rule(key=st.sampled_from(KEYS), value=st.sampled_from([b"1", b"2"]), ms=rarely(5_000, 1))
    def remember(self, key: str, value: bytes, ms: int) -> None:
        until = self.now + ms
        self.model.remember("bulk", key, value, until, self.now)
        self.both(None, self.engine.remember("bulk", key, value, until, self.now))

    # queues

    @rule(queue=queues, pause=st.booleans())
    def pause_or_resume(self, queue: str, pause: bool) -> None:
        if pause:
            self.model.pause(queue, self.now)
            self.both(None, self.engine.pause(queue, "admin", self.now))
        else:
            self.model.resume(queue, self.now)
            self.both(None, self.engine.resume(queue, "admin", self.now))

    @rule(
        queue=st.sampled_from([*QUEUES, "_default"]),
        seconds=st.none() | st.sampled_from([1, 60]),
    )
    def configure(self, queue: str, seconds: int | None) -> None:
        changes = {"visibility_timeout": seconds}
        self.model.configure(queue, changes, self.now)
        self.both(None, self.engine.configure(queue, changes, self.now))

    @rule(queue=queues, seconds=st.none() | st.just(2))
    def remove_and_create_queue(self, queue: str, seconds: int | None) -> None:
        changes = {"visibility_timeout": seconds}
        self.both(
            self.model.remove_queue(queue, self.now), self.engine.remove_queue(queue, self.now)
        )
        self.both(
            self.model.create_queue(queue, changes, self.now),
            self.engine.create_queue(queue, changes, self.now),
        )
