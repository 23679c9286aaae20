from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from headgate.core.job import Job, copy_of
from headgate.engines.local.lanes import Group, Lane


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
        self.lane = Lane(Group(), ())
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
    lane = Lane(Group(), ())
    jobs = [job(seq) for seq in range(4_000)]
    for each in jobs:
        lane.add(each)
    for each in jobs[1:]:
        lane.leave(each)
    assert lane.size == 1
    assert lane.husks <= 1_001
    assert len(lane._rows[0].in_order) <= 1_002
    assert lane.take() is jobs[0]


def test_a_priority_without_jobs_is_forgotten() -> None:
    lane = Lane(Group(), ())
    for priority in range(100):
        lane.add(job(priority, priority))
    while lane.take():
        pass
    assert lane.head() is None
    assert lane.priorities == []


class GroupAgainstList(RuleBasedStateMachine):
    """The best lane of a group holds the job that comes first of all its lanes."""

    def __init__(self) -> None:
        super().__init__()
        self.group = Group()
        self.line: list[Job] = []
        self.seq = 0

    @rule(key=st.sampled_from(["a", "b", "c"]), priority=priorities)
    def enqueue(self, key: str, priority: int) -> None:
        self.seq += 1
        newest = job(self.seq, priority)
        lane = self.group.lane((key,))
        self.line.append(newest)
        if lane.add(newest):
            self.group.show(lane)

    @precondition(lambda self: self.line)
    @rule()
    def take(self) -> None:
        best = self.group.best()
        assert best is not None
        taken = best.take()
        assert taken is ordered(self.line)[0]
        self.line.remove(taken)

    @precondition(lambda self: self.line)
    @rule(place=st.integers(0, 1_000))
    def leave(self, place: int) -> None:
        gone = self.line.pop(place % len(self.line))
        gone.lane.leave(gone)

    @invariant()
    def agrees(self) -> None:
        best = self.group.best()
        if self.line:
            assert best is not None
            assert best.head() is ordered(self.line)[0]
        else:
            assert best is None


TestGroupAgainstList = GroupAgainstList.TestCase
TestGroupAgainstList.settings = settings(max_examples=60, stateful_step_count=40)


@given(st.lists(st.tuples(st.integers(0, 50), priorities), unique_by=lambda pair: pair[0]))
def test_jobs_that_come_in_any_order_leave_in_theirs(given: list[tuple[int, int]]) -> None:
    lane = Lane(Group(), ())
    jobs = [job(seq, priority) for seq, priority in given]
    for each in jobs:
        lane.add(each)
    assert [lane.take() for _ in jobs] == ordered(jobs)
