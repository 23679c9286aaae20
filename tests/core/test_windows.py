from __future__ import annotations

import os
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.gates import (
    Closed,
    Gate,
    Limits,
    LimitsChange,
    Rate,
)

SECOND = 1_000_000
MINUTE = 60 * SECOND
DAY = 86_400 * SECOND
T0 = 1_760_000_000 * SECOND

THOROUGH = os.environ.get("HEADGATE_TEST_PROFILE") == "thorough"
STARTS = 5_000 if THOROUGH else 600


class Slow:
    """The definitions, over a list of all starts."""

    def __init__(self, rate: Rate | None, throttle: Rate | None) -> None:
        self.rate = rate
        self.throttle = throttle
        self.starts: list[int] = []
        self.due = Fraction(0)

    def counted(self, now: int) -> int:
        if self.rate is None:
            return 0
        return sum(1 for at in self.starts if at > now - self.rate.period_us)

    def open(self, now: int) -> bool:
        roomy = self.rate is None or self.counted(now) < self.rate.limit
        return roomy and now >= self.due

    def start(self, now: int) -> None:
        if self.throttle is not None:
            interval = Fraction(self.throttle.period_us, self.throttle.limit)
            late = Fraction(now) - self.due if self.starts else Fraction(0)
            self.due = now + interval - min(late, interval / 10)
        self.starts.append(now)


def greedy(gate: Gate, starts: int, *, begin: int = T0) -> list[int]:
    """Start whenever the gate opens, as soon as it does."""
    now = begin
    found: list[int] = []
    while len(found) < starts:
        shut = gate.closed(now)
        if shut is None:
            gate.start("j", len(found), now)
            gate.release("j", len(found))
            found.append(now)
        else:
            assert shut.opens_at_us is not None
            assert shut.opens_at_us > now
            now = shut.opens_at_us
    return found


def arrive(gate: Gate, gaps: Callable[[], int], starts: int) -> list[int]:
    """Start whoever comes to an open gate."""
    now = T0
    found: list[int] = []
    for _ in range(starts):
        now += gaps()
        if gate.closed(now) is None:
            gate.start("j", 1, now)
            found.append(now)
    return found


def most_in_a_window(starts: list[int], period: int) -> int:
    most = first = 0
    for last, at in enumerate(starts):
        while starts[first] <= at - period:
            first += 1
        most = max(most, last - first + 1)
    return most


def pattern(name: str, mean: int, seed: int) -> Callable[[], int]:
    """Gaps between arrivals whose mean is about this."""
    random = Random(seed)
    if name == "random":
        return lambda: int(random.expovariate(1) * mean)
    if name == "bursty":
        return lambda: 0 if random.random() < 0.95 else random.randrange(1, 40 * mean + 2)
    if name == "even":
        return lambda: mean
    # A burst that begins and one straggler just before the sixtieth ends.
    return lambda: mean * 50 if random.random() < 0.02 else random.randrange(2)


rates = st.builds(
    Rate,
    st.integers(1, 60) | st.integers(61, 10_000) | st.sampled_from([1, 59, 60, 61, 100, 10_000]),
    st.integers(1_000, DAY) | st.sampled_from([1_000, SECOND, MINUTE, DAY]),
)
patterns = st.sampled_from(["random", "bursty", "even", "straggling"])


@given(rates, patterns, st.floats(0.01, 3), st.integers(0, 2**32))
def test_no_window_of_the_period_holds_more_than_the_limit(
    rate: Rate, name: str, load: float, seed: int
) -> None:
    mean = max(0, int(rate.period_us / rate.limit * load))
    gate = Gate("k", Limits(rate=rate))
    starts = arrive(gate, pattern(name, mean, seed), STARTS)
    assert most_in_a_window(starts, rate.period_us) <= rate.limit


@given(rates.filter(lambda rate: rate.limit <= 200), st.integers(2, 9))
def test_a_saturated_window_is_used_whole(rate: Rate, periods: int) -> None:
    starts = greedy(Gate("k", Limits(rate=rate)), rate.limit * periods)
    assert most_in_a_window(starts, rate.period_us) == rate.limit
    assert starts[-1] == T0 + (periods - 1) * rate.period_us


@pytest.mark.parametrize("limit", [60, 61, 100, 1_000, 10_000 if THOROUGH else 2_000])
@pytest.mark.parametrize("name", ["random", "bursty", "even", "straggling"])
def test_in_the_long_run_nearly_all_of_the_limit_is_used(limit: int, name: str) -> None:
    rate = Rate(limit, MINUTE)
    gate = Gate("k", Limits(rate=rate))
    gap = pattern(name, MINUTE // limit // 3, 7)
    waiting = started = now = 0
    while now < 12 * MINUTE:
        # Whatever waits starts when the gate opens, so all that is lost is lost by the window.
        arrival = now + gap()
        waiting += 1
        while (shut := gate.closed(T0 + now)) is None or shut.opens_at_us <= T0 + arrival:  # type: ignore[operator]
            if shut is not None:
                now = (shut.opens_at_us or 0) - T0
            elif waiting:
                gate.start("j", 1, T0 + now)
                waiting -= 1
                started += 2 * MINUTE <= now < 12 * MINUTE
            else:
                break
        now = arrival
    assert 0.98 * 10 * limit <= started <= 10 * limit


@given(
    st.builds(Rate, st.integers(1, 60), st.integers(1_000, DAY)),
    st.none() | st.builds(Rate, st.integers(1, 10_000), st.integers(1_000, DAY)),
    patterns,
    st.floats(0.01, 3),
    st.integers(0, 2**32),
)
def test_up_to_sixty_the_gate_agrees_with_its_slow_twin(
    rate: Rate, throttle: Rate | None, name: str, load: float, seed: int
) -> None:
    gate = Gate("k", Limits(rate=rate, throttle=throttle))
    slow = Slow(rate, throttle)
    gap = pattern(name, max(1, int(rate.period_us / rate.limit * load)), seed)
    now = T0
    for _ in range(150):
        now += gap()
        shut = gate.closed(now)
        assert (shut is None) == slow.open(now)
        if shut is None:
            gate.start("j", 1, now)
            slow.start(now)
        else:
            at = shut.opens_at_us
            assert at is not None
            assert slow.open(at)
            assert not slow.open(at - 1)
        assert gate.state(now).current_count == slow.counted(now)


@given(rates, patterns, st.floats(0.01, 3), st.integers(0, 2**32))
def test_above_sixty_it_is_never_looser_than_its_slow_twin(
    rate: Rate, name: str, load: float, seed: int
) -> None:
    gate = Gate("k", Limits(rate=rate))
    slow = Slow(rate, None)
    gap = pattern(name, int(rate.period_us / rate.limit * load), seed)
    now = T0
    for _ in range(200):
        now += gap()
        assert gate.state(now).current_count >= slow.counted(now)
        if gate.closed(now) is None:
            gate.start("j", 1, now)
            slow.start(now)


@given(rates, patterns, st.integers(0, 2**32))
def test_a_window_has_at_most_61_entries(rate: Rate, name: str, seed: int) -> None:
    gate = Gate("k", Limits(rate=rate))
    gap = pattern(name, rate.period_us // 70, seed)
    now = T0
    for _ in range(300):
        now += gap()
        if gate.closed(now) is None:
            gate.start("j", 1, now)
        assert gate._window is not None
        assert len(gate._window._newest) <= 61


throttles = st.sampled_from(
    [Rate(1, MINUTE), Rate(3, SECOND), Rate(7, SECOND), Rate(7_000, SECOND), Rate(10_000, SECOND)]
) | st.builds(Rate, st.integers(1, 5_000), st.integers(SECOND, DAY))


@given(throttles, patterns, st.floats(0.01, 3), st.integers(0, 2**32))
def test_throttled_starts_are_spread(rate: Rate, name: str, load: float, seed: int) -> None:
    interval = Fraction(rate.period_us, rate.limit)
    gate = Gate("k", Limits(throttle=rate))
    starts = arrive(gate, pattern(name, max(1, int(interval * load)), seed), STARTS // 4)
    for before, at in pairwise(starts):
        assert 10 * (at - before) >= 9 * interval
    # n starts span n - 1.1 intervals: nowhere is the pace ahead of an earlier start by more.
    latest = Fraction(0)
    for n, at in enumerate(starts):
        behind = at - starts[0] - n * interval
        latest = max(latest, behind)
        assert latest - behind <= interval / 10


@given(throttles, st.integers(0, 2**32))
def test_small_delays_of_throttled_starts_never_add_up(rate: Rate, seed: int) -> None:
    random = Random(seed)
    interval = Fraction(rate.period_us, rate.limit)
    gate = Gate("k", Limits(throttle=rate))
    now, starts = T0, 300
    for n in range(starts):
        shut = gate.closed(now)
        if shut is not None:
            assert shut.opens_at_us is not None
            # The gate rounds up to a microsecond, which is a delay as well.
            now = shut.opens_at_us + random.randrange(max(1, int(interval / 10) - 1))
        gate.start("j", n, now)
    assert now - T0 <= (starts - 1) * interval + interval / 10


@pytest.mark.parametrize("limit", [3, 7, 7_000, 9_999])
def test_odd_rates_do_not_drift(limit: int) -> None:
    starts = greedy(Gate("k", Limits(throttle=Rate(limit, SECOND))), limit * 2 + 1)
    assert starts[limit] == T0 + SECOND
    assert starts[2 * limit] == T0 + 2 * SECOND


def test_throttle_gives_no_credit_for_a_long_pause() -> None:
    gate = Gate("k", Limits(throttle=Rate(10, SECOND)))
    gate.start("a", 1, T0)
    gate.start("b", 1, T0 + MINUTE)
    assert gate.closed(T0 + MINUTE) == Closed("throttle", 10, 1, T0 + MINUTE + 90_000)
    gate.start("c", 1, T0 + MINUTE + 90_000)
    assert gate.closed(T0 + MINUTE + 90_000) == Closed("throttle", 10, 1, T0 + MINUTE + 190_000)


def test_a_new_throttle_counts_from_the_last_start() -> None:
    gate = Gate("k")
    gate.start("a", 1, T0)
    assert gate.register(LimitsChange(throttle=Rate(1, SECOND)))
    assert gate.closed(T0) == Closed("throttle", 1, 1, T0 + SECOND)
    gate.register(LimitsChange(throttle=Rate(2, SECOND)))
    assert gate.closed(T0) == Closed("throttle", 2, 1, T0 + SECOND // 2)


def test_the_window_outlives_a_change_of_its_limit() -> None:
    gate = Gate("k", Limits(rate=Rate(3, MINUTE)))
    for n in range(3):
        gate.start("j", n, T0 + n)
    gate.register(LimitsChange(rate=Rate(5, MINUTE)))
    assert gate.permits(T0 + 3) == 2
    gate.register(LimitsChange(rate=None))
    gate.start("j", 3, T0 + 3)
    gate.register(LimitsChange(rate=Rate(2, MINUTE)))
    # Four are in it, so three have to leave.
    assert gate.closed(T0 + 4) == Closed("rate", 2, 4, T0 + 2 + MINUTE)


def test_a_longer_period_counts_what_the_shorter_one_still_knew() -> None:
    gate = Gate("k", Limits(rate=Rate(2, SECOND)))
    gate.start("a", 1, T0)
    gate.start("b", 1, T0 + SECOND)
    gate.start("c", 1, T0 + SECOND + 1)
    gate.register(LimitsChange(rate=Rate(2, MINUTE)))
    assert gate.closed(T0 + 2 * SECOND) == Closed("rate", 2, 2, T0 + MINUTE + SECOND)


def test_a_shorter_period_forgets_sooner() -> None:
    gate = Gate("k", Limits(rate=Rate(2, MINUTE)))
    gate.start("a", 1, T0)
    gate.start("b", 1, T0 + 10)
    gate.register(LimitsChange(rate=Rate(2, SECOND)))
    assert gate.closed(T0 + 11) == Closed("rate", 2, 2, T0 + SECOND)


@given(rates, rates, st.integers(0, 2**32))
def test_no_change_of_the_rate_lets_more_start_than_the_new_one_allows(
    before: Rate, after: Rate, seed: int
) -> None:
    gate = Gate("k", Limits(rate=before))
    starts = arrive(gate, pattern("random", before.period_us // 100, seed), 150)
    now = starts[-1]
    gate.register(LimitsChange(rate=after))
    # What the shorter of the two periods could not forget counts.
    known = [at for at in starts if at > now - min(before.period_us, after.period_us)]
    gap = pattern("random", after.period_us // 100, seed)
    for _ in range(150):
        now += gap()
        if gate.closed(now) is None:
            gate.start("j", 1, now)
            known.append(now)
            assert sum(at > now - after.period_us for at in known) <= after.limit


@given(rates, patterns, st.integers(0, 2**32))
def test_a_packed_window_decides_as_before(rate: Rate, name: str, seed: int) -> None:
    gate = Gate("k", Limits(rate=rate))
    gap = pattern(name, max(1, rate.period_us // rate.limit), seed)
    now = arrive(gate, gap, 200)[-1]
    twin = Gate.unpack("k", gate.pack())
    for _ in range(50):
        now += gap()
        assert twin.closed(now) == gate.closed(now)
        if gate.closed(now) is None:
            gate.start("j", 1, now)
            twin.start("j", 1, now)
    assert twin.pack() == gate.pack()


@given(
    st.none() | st.builds(Rate, st.integers(1, 20), st.integers(1_000, DAY)),
    st.none() | st.builds(Rate, st.integers(1, 20), st.integers(1_000, DAY)),
    st.integers(0, 40),
    st.integers(0, 50),
)
def test_a_prediction_is_when_a_greedy_line_gets_there(
    rate: Rate | None, throttle: Rate | None, before: int, ahead: int
) -> None:
    gate = Gate("k", Limits(rate=rate, throttle=throttle))
    begin = greedy(gate, before)[-1] if before else T0
    gate.hold(begin + 500, "why", begin)
    predicted = gate.predict(ahead, begin)
    actual = greedy(gate, ahead + 1, begin=begin)[-1]
    # A throttled line makes up for what the first of it came late.
    made_up = throttle.period_us / throttle.limit / 10 + 1 if throttle else 0
    assert predicted <= actual + made_up
    if rate is None or throttle is None:
        assert predicted >= actual
