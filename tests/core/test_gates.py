"""What the two records of starts guarantee is shown in test_windows.py."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headgate.core.gates import (
    UNKNOWN_US,
    UNLIMITED,
    Closed,
    Gate,
    Limits,
    LimitsChange,
    Override,
    Rate,
)

SECOND = 1_000_000
MINUTE = 60 * SECOND
DAY = 86_400 * SECOND
T0 = 1_760_000_000 * SECOND
T0_MS = T0 // 1000


def test_concurrency_counts_holders() -> None:
    gate = Gate("k", Limits(concurrency=2))
    assert gate.permits(T0) == 2
    gate.start("a", 1, T0)
    gate.start("b", 4, T0)
    assert gate.closed(T0) == Closed("concurrency", 2, 2, None)
    assert list(gate.holders.items()) == [("a", 1), ("b", 4)]
    assert not gate.release("a", 2)
    assert not gate.release("c", 1)
    assert gate.closed(T0) is not None
    assert gate.release("a", 1)
    assert not gate.release("a", 1)
    assert gate.permits(T0) == 1


def test_concurrency_zero_is_opened_by_a_command_only() -> None:
    gate = Gate("k", Limits(concurrency=0))
    assert gate.closed(T0) == Closed("concurrency", 0, 0, None)
    assert gate.permits(T0) == 0
    assert gate.register(LimitsChange(concurrency=None))
    assert gate.closed(T0) is None
    assert gate.permits(T0) == UNLIMITED


def test_lowering_concurrency_below_the_holders_closes_until_enough_have_left() -> None:
    gate = Gate("k", Limits(concurrency=3))
    for job in "abc":
        gate.start(job, 1, T0)
    gate.register(LimitsChange(concurrency=1))
    assert gate.permits(T0) == 0
    assert gate.state(T0).available == 0
    gate.release("a", 1)
    gate.release("b", 1)
    assert gate.closed(T0) == Closed("concurrency", 1, 1, None)


def test_a_hold_is_never_shortened_and_ignores_the_past() -> None:
    gate = Gate("k")
    assert not gate.hold(T0, "late", T0)
    assert gate.hold(T0 + 9, "first", T0)
    assert not gate.hold(T0 + 5, "shorter", T0)
    assert not gate.hold(T0 + 9, "same", T0)
    assert gate.closed(T0 + 8) == Closed("hold", 0, 0, T0 + 9)
    assert gate.state(T0).hold_reason == "first"
    assert gate.closed(T0 + 9) is None
    assert gate.state(T0 + 9).hold_until_us == 0
    assert gate.lift()
    assert not gate.lift()


def test_every_reason_is_explained_and_the_first_is_reported() -> None:
    gate = Gate("k", Limits(2, Rate(1, MINUTE), Rate(1, SECOND)))
    gate.start("a", 1, T0)
    gate.start("b", 1, T0)
    gate.hold(T0 + DAY, "told so", T0)
    assert gate.closings(T0) == [
        Closed("hold", 0, 0, T0 + DAY),
        Closed("concurrency", 2, 2, None),
        Closed("rate", 1, 2, T0 + MINUTE),
        Closed("throttle", 1, 1, T0 + SECOND),
    ]
    assert gate.closed(T0) == Closed("hold", 0, 0, None)
    gate.release("a", 1)
    assert gate.closed(T0) == Closed("hold", 0, 0, T0 + DAY)
    gate.lift()
    assert gate.closed(T0) == Closed("rate", 1, 2, T0 + MINUTE)
    assert gate.closed(T0 + MINUTE) is None
    assert gate.closings(T0 + MINUTE) == []


def test_registering_goes_member_by_member() -> None:
    gate = Gate("k", Limits(1, Rate(2, SECOND)))
    assert gate.register(LimitsChange(throttle=Rate(3, SECOND)))
    assert gate.limits == Limits(1, Rate(2, SECOND), Rate(3, SECOND))
    assert gate.register(LimitsChange(rate=None))
    assert gate.limits == Limits(1, None, Rate(3, SECOND))
    assert not gate.register(LimitsChange(concurrency=1))
    assert not gate.register(LimitsChange())


def test_an_override_replaces_what_it_names_until_it_expires() -> None:
    gate = Gate("k", Limits(5, None, Rate(1, SECOND)))
    override = Override(Limits(0), ("concurrency",), T0_MS + 60_000)
    assert gate.impose(override)
    assert not gate.impose(override)
    assert gate.effective(T0) == Limits(0, None, Rate(1, SECOND))
    assert gate.closed(T0) == Closed("concurrency", 0, 0, T0 + MINUTE)
    assert gate.closed(T0 + MINUTE - 1) is not None
    assert gate.closed(T0 + MINUTE) is None
    assert gate.state(T0).override == override
    assert gate.state(T0 + MINUTE).override is None
    gate.start("a", 1, T0 + MINUTE)
    assert gate.override is None


def test_an_override_without_end_is_opened_by_a_command_only() -> None:
    gate = Gate("k")
    gate.impose(Override(Limits(0), ("concurrency",)))
    assert gate.closed(T0) == Closed("concurrency", 0, 0, None)
    assert not gate.idle(T0 + DAY)
    assert gate.lift()
    assert gate.closed(T0) is None


def test_a_policy_registered_under_an_override_counts_after_it() -> None:
    gate = Gate("k", Limits(5))
    gate.impose(Override(Limits(1), ("concurrency",), T0_MS + 1_000))
    gate.register(LimitsChange(concurrency=7, throttle=Rate(1, SECOND)))
    assert gate.effective(T0) == Limits(1, None, Rate(1, SECOND))
    assert gate.effective(T0 + SECOND) == Limits(7, None, Rate(1, SECOND))


def test_what_starts_under_a_lifted_rate_counts_when_the_rate_is_back() -> None:
    gate = Gate("k", Limits(rate=Rate(2, MINUTE)))
    gate.impose(Override(Limits(), ("rate",), T0_MS + 10_000))
    for n in range(5):
        assert gate.closed(T0 + n) is None
        gate.start("j", n, T0 + n)
    # The hold alone stands in the way now, but when it is over the rate will.
    gate.hold(T0 + 20 * SECOND, "wait", T0 + 5)
    assert gate.closed(T0 + 5) == Closed("hold", 0, 0, T0 + 3 + MINUTE)
    assert gate.closed(T0 + MINUTE + 2) is not None
    assert gate.closed(T0 + MINUTE + 3) is None


def test_a_shorter_window_of_an_override_leaves_the_longer_one_whole() -> None:
    gate = Gate("k", Limits(rate=Rate(4, MINUTE)))
    gate.start("a", 1, T0)
    gate.impose(Override(Limits(rate=Rate(2, SECOND)), ("rate",), T0_MS + 10_000))
    gate.start("b", 1, T0)
    assert gate.closed(T0) == Closed("rate", 2, 2, T0 + SECOND)
    gate.start("c", 1, T0 + 5 * SECOND)
    gate.start("d", 1, T0 + 5 * SECOND)
    assert gate.closed(T0 + 10 * SECOND) == Closed("rate", 4, 4, T0 + MINUTE)


def test_without_a_free_slot_it_is_worth_a_look_soon_but_not_before_all_else_allows_it() -> None:
    gate = Gate("k", Limits(1))
    assert gate.predict(0, T0) == T0
    gate.start("a", 1, T0)
    assert gate.predict(0, T0) == gate.predict(9, T0) == T0 + SECOND
    gate.hold(T0 + MINUTE, "why", T0)
    assert gate.predict(0, T0) == T0 + MINUTE
    gate.lift()
    gate.register(LimitsChange(rate=Rate(1, MINUTE)))
    gate.start("a", 1, T0)
    assert gate.predict(0, T0) == T0 + MINUTE
    assert gate.predict(1, T0) == T0 + 2 * MINUTE
    assert gate.predict(0, T0 + MINUTE) == T0 + MINUTE + SECOND


def test_a_limit_of_0_is_over_when_its_override_ends() -> None:
    gate = Gate("k", Limits(2))
    gate.impose(Override(Limits(0), ("concurrency",), T0_MS + 60_000))
    assert gate.predict(0, T0) == gate.predict(9, T0) == T0 + MINUTE
    gate.hold(T0 + 2 * MINUTE, "why", T0)
    assert gate.predict(0, T0) == T0 + 2 * MINUTE
    gate.lift()
    # Nobody says when it ends.
    gate.impose(Override(Limits(0), ("concurrency",)))
    assert gate.predict(0, T0) == T0 + SECOND
    gate.hold(T0 + MINUTE, "why", T0)
    assert gate.predict(0, T0) == T0 + MINUTE


def test_what_an_override_forbids_may_be_allowed_at_its_end() -> None:
    gate = Gate("k", Limits(rate=Rate(10, MINUTE)))
    gate.start("a", 1, T0)
    gate.impose(Override(Limits(rate=Rate(1, 60 * MINUTE)), ("rate",), T0_MS + 10 * 60_000))
    assert [gate.predict(n, T0) for n in (0, 9, 10)] == [
        T0 + 10 * MINUTE,
        T0 + 10 * MINUTE,
        T0 + 11 * MINUTE,
    ]
    # And what it allows before its end does not wait for that.
    gate.impose(Override(Limits(rate=Rate(5, MINUTE)), ("rate",), T0_MS + 10 * 60_000))
    assert gate.predict(3, T0) == T0
    assert gate.predict(4, T0) == T0 + MINUTE


def test_a_gate_is_idle_when_nothing_of_it_is_left() -> None:
    gate = Gate("k", Limits(1, Rate(100, MINUTE), Rate(1, SECOND)))
    assert gate.idle(T0)
    gate.start("a", 1, T0)
    assert gate.idle_at() is None
    gate.release("a", 1)
    assert gate.idle_at() == T0 + MINUTE
    assert not gate.idle(T0 + MINUTE - 1)
    assert gate.idle(T0 + MINUTE)
    gate.hold(T0 + 2 * MINUTE, "why", T0)
    assert gate.idle_at() == T0 + 2 * MINUTE
    gate.impose(Override(Limits(2), ("concurrency",), T0_MS + 180_000))
    assert gate.idle_at() == T0 + 3 * MINUTE


def test_the_state_names_only_what_is_limited() -> None:
    gate = Gate("k", Limits(5, Rate(100, MINUTE), Rate(10, SECOND)))
    for n in range(3):
        gate.start(str(n), 1, T0 + n * 100_000)
    state = gate.state(T0 + 200_000)
    assert (state.active, state.available, state.current_count) == (3, 2, 3)
    assert state.window_resets_at_us == T0 + 200_000 + MINUTE
    assert state.next_allowed_at_us == T0 + 300_000
    bare = Gate("b").state(T0)
    assert (bare.available, bare.window_resets_at_us, bare.next_allowed_at_us) == (None, None, None)


slots = st.none() | st.integers(0, 4)
short = st.none() | st.builds(Rate, st.integers(1, 5), st.sampled_from([1_000, 7_000, 50_000]))
overrides = st.builds(
    Override,
    st.builds(Limits, slots, short, short),
    st.lists(st.sampled_from(["concurrency", "rate", "throttle"]), unique=True).map(tuple),
    st.sampled_from([0, *range(T0_MS, T0_MS + 60)]),
)
# The base rate keeps its period, so that it forgets nothing which a later one would count.
changes = st.builds(
    LimitsChange, slots, st.none() | st.builds(Rate, st.integers(1, 5), st.just(50_000)), short
)
Step = tuple[str, Any]
steps = st.lists(
    st.tuples(st.just("go"), st.integers(0, 5_000))
    | st.tuples(st.just("go"), st.integers(0, 5_000))
    | st.tuples(st.just("leave"), st.integers(0, 4))
    | st.tuples(st.just("hold"), st.integers(-5_000, 20_000))
    | st.tuples(st.just("register"), changes)
    | st.tuples(st.just("impose"), st.none() | overrides),
    max_size=60,
)


def fresh() -> Gate:
    return Gate("k", Limits(rate=Rate(3, 50_000)))


def apply(gate: Gate, step: Step, now: int, n: int) -> int:
    """Do one step, let a job start if it may; gives the time after it."""
    what, value = step
    match what:
        case "go":
            now += value
            if gate.closed(now) is None:
                gate.start(f"job-{n}", 1, now)
        case "leave":
            held = list(gate.holders.items())
            if value < len(held):
                assert gate.release(*held[value])
        case "hold":
            gate.hold(now + value, "why", now)
        case "register":
            gate.register(value)
        case _:
            gate.impose(value)
    return now


@given(steps)
def test_a_gate_is_closed_exactly_when_a_limit_in_force_is_reached(given_steps: list[Step]) -> None:
    gate = fresh()
    now = T0
    starts: list[int] = []
    for n, step in enumerate(given_steps):
        before = len(gate.holders)
        now = apply(gate, step, now, n)
        limits = gate.effective(now)
        if step[0] == "go" and len(gate.holders) > before:
            starts.append(now)
            assert limits.concurrency is None or len(gate.holders) <= limits.concurrency
            if limits.throttle is not None and len(starts) > 1:
                gap = 10 * (starts[-1] - starts[-2]) * limits.throttle.limit
                assert gap >= 9 * limits.throttle.period_us
        kinds = [shut.kind for shut in gate.closings(now)]
        counted = 0
        if limits.rate is not None:
            counted = sum(at > now - limits.rate.period_us for at in starts)
            assert ("rate" in kinds) == (counted >= limits.rate.limit)
            assert gate.state(now).current_count == counted
        full = limits.concurrency is not None and len(gate.holders) >= limits.concurrency
        assert ("concurrency" in kinds) == full
        assert ("hold" in kinds) == (gate.hold_until_us > now)
        if limits.throttle is not None and starts:
            interval = limits.throttle.period_us / limits.throttle.limit
            since = now - starts[-1]
            assert ("throttle" in kinds) or since >= 0.9 * interval
            assert ("throttle" not in kinds) or since < interval
        shut = gate.closed(now)
        assert (shut is None) == (not kinds) == (gate.permits(now) > 0)
        assert shut is None or shut.kind == kinds[0]


@given(steps)
def test_a_closed_gate_opens_exactly_when_it_said(given_steps: list[Step]) -> None:
    gate = fresh()
    now = T0
    for n, step in enumerate(given_steps):
        now = apply(gate, step, now, n)
        shut = gate.closed(now)
        if shut is None:
            assert gate.closings(now) == []
            continue
        twin = Gate.unpack("k", gate.pack())
        twin.holders = gate.holders
        if shut.opens_at_us is None:
            assert twin.closed(now + DAY) is not None
        else:
            assert shut.opens_at_us > now
            assert twin.closed(shut.opens_at_us - 1) is not None
            assert twin.closed(shut.opens_at_us) is None
        slots = gate.effective(now).concurrency
        if slots and len(gate.holders) >= slots:
            # A holder may leave at any time, and an override may end.
            known = shut.opens_at_us or now + DAY
            assert min(known, now + UNKNOWN_US) <= gate.predict(0, now) <= known
        elif shut.opens_at_us is not None:
            assert gate.predict(0, now) == shut.opens_at_us
        for one in gate.closings(now):
            if one.opens_at_us is not None:
                assert one.opens_at_us > now
                then = {c.kind: c for c in gate.closings(one.opens_at_us - 1)}
                assert one.kind in then
                assert one.kind not in {c.kind for c in twin.closings(one.opens_at_us)}
                twin = Gate.unpack("k", gate.pack())
                twin.holders = gate.holders


@given(steps, st.integers(0, 100_000))
def test_permits_admits_exactly_that_many(given_steps: list[Step], wait: int) -> None:
    gate = fresh()
    now = T0
    for n, step in enumerate(given_steps):
        now = apply(gate, step, now, n)
    now += wait
    permits = gate.permits(now)
    if permits == UNLIMITED:
        assert gate.effective(now) == Limits()
        return
    for n in range(permits):
        assert gate.closed(now) is None
        gate.start(f"new-{n}", 1, now)
    assert gate.closed(now) is not None
    assert gate.permits(now) == 0


@given(steps, steps)
def test_a_packed_gate_decides_as_before(first: list[Step], then: list[Step]) -> None:
    gate = fresh()
    now = T0
    for n, step in enumerate(first):
        now = apply(gate, step, now, n)
    twin = Gate.unpack("k", gate.pack())
    twin.holders = dict(gate.holders)
    for n, step in enumerate(then, len(first)):
        assert twin.closed(now) == gate.closed(now)
        assert twin.idle_at() == gate.idle_at()
        after = apply(gate, step, now, n)
        assert apply(twin, step, now, n) == after
        now = after
        assert twin.state(now) == gate.state(now)
    assert twin.pack() == gate.pack()
