from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.core.job import Job
from headgate.engines.local.timers import NEVER, Alarm, Timers

LONG_AFTER = 1 << 40


def job(seq: int) -> Job:
    return Job(f"job-{seq}", "t", "q", 0, b"{}", 0, seq=seq)


def ring_all(timers: Timers, now_ms: int) -> list[tuple[int, int]]:
    """What is due by now as (instant, sequence), in the order in which it comes."""
    rung = []
    while (found := timers.due(now_ms)) is not None:
        entry, at = found
        assert entry.alarm == 0
        rung.append((at, entry.seq))
    assert timers.next_at > now_ms
    return rung


class TimersAgainstList(RuleBasedStateMachine):
    """Timers behave like a list that is sorted at every look."""

    def __init__(self) -> None:
        super().__init__()
        self.timers = Timers()
        self.timers.on_sooner = self.hear
        self.jobs = [job(seq) for seq in range(1, 9)]
        self.now = 1_000
        self.sleeps_until = NEVER
        """When somebody who slept until `next_at`, and hears when it gets sooner, wakes up."""

    def hear(self) -> None:
        self.sleeps_until = min(self.sleeps_until, self.timers.next_at)

    def armed(self) -> list[tuple[int, int]]:
        return sorted((job.alarm, job.seq) for job in self.jobs if job.alarm)

    @rule(which=st.integers(0, 7), after=st.integers(0, 400))
    def arm(self, which: int, after: int) -> None:
        entry = self.jobs[which]
        at = self.now + after
        before = entry.alarm
        self.timers.arm(entry, at)
        assert entry.alarm == (min(before, at) if before else at)

    @rule(which=st.integers(0, 7))
    def disarm(self, which: int) -> None:
        self.jobs[which].alarm = 0

    @rule(after=st.sampled_from([0, 1, 3, 30, 64, 200, 1_000]))
    def let_time_pass(self, after: int) -> None:
        self.now += after
        expected = [pair for pair in self.armed() if pair[0] <= self.now]
        assert ring_all(self.timers, self.now) == expected
        self.sleeps_until = self.timers.next_at

    @precondition(lambda self: self.armed())
    @rule(after=st.integers(0, 100))
    def arm_again_what_rings(self, after: int) -> None:
        first = self.armed()[0]
        self.now = max(self.now, first[0])
        rung = self.timers.due(self.now)
        assert rung is not None
        entry, at = rung
        assert (at, entry.seq) == first
        self.timers.arm(entry, self.now + after)

    @invariant()
    def nothing_is_due_while_all_sleep(self) -> None:
        armed = self.armed()
        if armed:
            assert self.timers.next_at <= armed[0][0]
            assert self.sleeps_until <= armed[0][0]

    def teardown(self) -> None:
        expected = self.armed()
        assert ring_all(self.timers, LONG_AFTER) == expected
        assert self.timers.next_at == NEVER


TestTimersAgainstList = TimersAgainstList.TestCase
TestTimersAgainstList.settings = settings(max_examples=100, stateful_step_count=40)


def test_ten_thousand_of_one_moment_come_in_order_and_none_is_left() -> None:
    timers = Timers()
    count = 10_000
    for seq in range(count):
        # The later half of the bucket is armed first.
        timers.arm(job(seq), 6_463 - 63 * seq // count)
    assert ring_all(timers, 6_399) == []
    half = ring_all(timers, 6_430)
    rest = ring_all(timers, 6_463)
    assert half + rest == sorted(half + rest)
    assert len(half) + len(rest) == count
    assert half[-1][0] == 6_430
    assert rest[0][0] == 6_431


def test_of_one_instant_the_older_comes_first_whichever_was_armed_first() -> None:
    timers = Timers()
    for seq in (5, 1, 3):
        timers.arm(job(seq), 500)
    timers.due(400)
    for seq in (4, 2):
        timers.arm(job(seq), 500)
    assert [seq for _, seq in ring_all(timers, 500)] == [1, 2, 3, 4, 5]


def test_an_alarm_stands_before_the_jobs_of_its_instant() -> None:
    timers = Timers()
    rung: list[int] = []
    timers.arm(job(1), 500)
    timers.arm(Alarm(rung.append), 500)
    found = timers.due(500)
    assert found is not None
    entry, at = found
    assert isinstance(entry, Alarm)
    entry.ring(at)
    assert rung == [500]


def test_the_next_instant_is_known_to_a_bucket_and_then_to_the_millisecond() -> None:
    timers = Timers()
    assert timers.next_at == NEVER
    timers.arm(job(1), 1_000)
    assert timers.next_at == 960
    assert timers.due(960) is None
    assert timers.next_at == 1_000
    assert timers.due(999) is None
    assert ring_all(timers, 1_000) == [(1_000, 1)]
    assert timers.next_at == NEVER


def test_entries_that_were_overtaken_are_dropped() -> None:
    timers = Timers()
    entry = job(1)
    for at in range(20_000, 100, -100):
        timers.arm(entry, at)
    assert entry.alarm == 200
    assert ring_all(timers, 200) == [(200, 1)]
    assert ring_all(timers, LONG_AFTER) == []


def test_who_gets_another_number_comes_in_its_new_place() -> None:
    timers = Timers()
    first, second = job(1), job(2)
    assert ring_all(timers, 1_000) == []
    for each in (first, second):
        timers.arm(each, 1_001)
    timers.disarm(first)
    first.seq = 3
    timers.arm(first, 1_001)
    assert ring_all(timers, 1_001) == [(1_001, 2), (1_001, 3)]
