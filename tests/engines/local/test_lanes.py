from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from headgate.core.gates import LimitsChange
from headgate.core.job import Job, copy_of
from headgate.core.states import AVAILABLE
from headgate.engines.local.events import EventLog
from headgate.engines.local.lanes import Lane
from headgate.engines.local.queue import AGE, PLAIN
from headgate.engines.local.rows import Record
from headgate.engines.local.tables import Tables


def job(seq: int, priority: int = 0) -> Job:
    return Job(f"job-{seq}", "t", "q", priority, b"{}", 0, seq=seq)


def ordered(jobs: list[Job]) -> list[Job]:
    return sorted(jobs, key=lambda job: (-job.priority, job.seq))


priorities = st.sampled_from([-1, 0, 0, 0, 5])


places = st.integers(0, 1_000)


class LaneAgainstList(RuleBasedStateMachine):
    """A lane behaves like a list that is sorted at every look."""

    def __init__(self) -> None:
        super().__init__()
        self.lane = Lane("", ())
        self.line: list[Job] = []
        self.away: list[Job] = []
        self.seq = 0

    def add(self, job: Job) -> None:
        self.line.append(job)
        husks = self.lane.husks
        leads = self.lane.add(job)
        # Behind husks nobody needs to be told: who looks at the head will find out.
        assert leads or husks or ordered(self.line)[0] is not job

    def remove(self, place: int) -> Job:
        gone = self.line.pop(place % len(self.line))
        self.lane.leave(gone)
        return gone

    @rule(priority=priorities)
    def enqueue(self, priority: int) -> None:
        self.seq += 1
        self.add(job(self.seq, priority))

    @precondition(lambda self: self.line)
    @rule()
    def take(self) -> None:
        taken = self.lane.take()
        assert taken is ordered(self.line)[0]
        assert taken.lane is None
        self.line.remove(taken)
        self.away.append(taken)

    @precondition(lambda self: self.line)
    @rule(place=places)
    def leave(self, place: int) -> None:
        self.away.append(self.remove(place))

    @precondition(lambda self: self.away)
    @rule(place=places)
    def come_back(self, place: int) -> None:
        # As the engine does: places of before may still hold the old record.
        self.add(copy_of(self.away.pop(place % len(self.away))))

    @precondition(lambda self: self.line)
    @rule(place=places, priority=priorities)
    def reprioritize(self, place: int, priority: int) -> None:
        fresh = copy_of(self.remove(place))
        fresh.priority = priority
        self.add(fresh)

    @rule()
    def sweep(self) -> None:
        self.lane._sweep()
        assert self.lane.husks == 0

    @invariant()
    def agrees(self) -> None:
        assert self.lane.size == len(self.line)
        assert self.lane.husks >= 0
        assert self.lane.head() is (ordered(self.line)[0] if self.line else None)
        assert all(job.lane is self.lane for job in self.line)

    def teardown(self) -> None:
        for expected in ordered(self.line):
            assert self.lane.take() is expected
        assert self.lane.take() is None
        assert self.lane.husks == 0


TestLaneAgainstList = LaneAgainstList.TestCase
TestLaneAgainstList.settings = settings(max_examples=80, stateful_step_count=40)


def test_a_lane_that_jobs_only_leave_gives_its_memory_back() -> None:
    lane = Lane("", ())
    jobs = [job(seq) for seq in range(4_000)]
    for each in jobs:
        lane.add(each)
    for each in jobs[1:]:
        lane.leave(each)
    assert lane.size == 1
    assert lane.husks <= 1_001
    assert lane._rows is not None
    assert len(lane._rows[0].in_order) <= 1_002
    assert lane.take() is jobs[0]


def test_a_priority_without_jobs_is_forgotten() -> None:
    lane = Lane("", ())
    for priority in range(100):
        lane.add(job(priority, priority))
    while lane.take():
        pass
    assert lane.head() is None
    assert lane.priorities == []


class Nowhere:
    """A log that keeps nothing."""

    now_ms = 0
    number = 0

    def write(self, record: Record) -> None:
        pass

    def row(self, job_id: str) -> None:
        return None

    def rows(self, sql: str, values: tuple[Any, ...]) -> list[Record]:
        return []


class QueueAgainstList(RuleBasedStateMachine):
    """The first lane of a queue holds the job that comes first of all that no closed gate stops."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = Tables(Nowhere(), EventLog(10), keep_finished=True)
        self.queue = self.tables.queue("q")
        self.queue.exists = True
        self.line: list[Job] = []
        self.seq = 0

    def free(self) -> list[Job]:
        known = self.tables.keys.known
        return [job for job in self.line if all(not known[name].shut for name, _ in job.keys)]

    @rule(
        names=st.lists(st.sampled_from("abc"), unique=True, max_size=2),
        tenant=st.sampled_from(["", "", "t", "u"]),
        priority=priorities,
    )
    def enqueue(self, names: list[str], tenant: str, priority: int) -> None:
        self.seq += 1
        newest = job(self.seq, priority)
        newest.keys = tuple((name, "wait") for name in names)
        newest.tenant = tenant
        self.tables.keys.use(newest)
        self.queue.count(newest, AVAILABLE, 1)
        self.queue.line_up(newest)
        self.line.append(newest)

    def ended(self, gone: Job) -> None:
        self.queue.count(gone, AVAILABLE, -1)
        self.tables.keys.unuse(gone)

    @rule(name=st.sampled_from("abc"), slots=st.sampled_from([None, 0, 1]))
    def limit(self, name: str, slots: int | None) -> None:
        key = self.tables.keys.named(name)
        key.register(LimitsChange(concurrency=slots))
        self.tables.keys.recheck(key)

    @rule(order=st.sampled_from([PLAIN, AGE]), tenant=st.sampled_from(["", "", "", "t"]))
    def take(self, order: int, tenant: str) -> None:
        free = [job for job in self.free() if not tenant or job.tenant == tenant]
        lane = self.queue.first(order, tenant)
        if not free:
            assert lane is None
            return
        assert lane is not None
        if order == AGE and not tenant:
            assert lane.oldest() is min(free, key=lambda job: job.seq)
        else:
            assert lane.head() is ordered(free)[0]
        taken = self.queue.take(lane)
        self.ended(taken)
        self.line.remove(taken)

    @precondition(lambda self: self.line)
    @rule(place=st.integers(0, 1_000))
    def leave(self, place: int) -> None:
        gone = self.line.pop(place % len(self.line))
        self.queue.step_out(gone)
        self.ended(gone)

    @invariant()
    def agrees(self) -> None:
        self.queue.check()
        oldest = sorted(self.line, key=lambda job: job.seq)
        assert list(self.queue.by_age()) == oldest
        free = ordered(self.free())
        lane = self.queue.first()
        assert (None if lane is None else lane.head()) is (free[0] if free else None)


TestQueueAgainstList = QueueAgainstList.TestCase
TestQueueAgainstList.settings = settings(max_examples=120, stateful_step_count=40)


@given(st.lists(st.tuples(st.integers(0, 50), priorities), unique_by=lambda pair: pair[0]))
def test_jobs_that_come_in_any_order_leave_in_theirs(given: list[tuple[int, int]]) -> None:
    lane = Lane("", ())
    jobs = [job(seq, priority) for seq, priority in given]
    for each in jobs:
        lane.add(each)
    assert [lane.take() for _ in jobs] == ordered(jobs)
