from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.bounds import (
    NONE,
    Accept,
    Bounds,
    Depth,
    DropOldest,
    Full,
    Load,
    decide,
    loads,
    tightest,
    warns,
)


def untouched() -> Iterator[int]:
    for size in (1, 1):
        assert not size, "nothing has to be dropped"
        yield size


def test_without_bounds_everything_enters() -> None:
    assert decide(NONE, Depth(10**9, 10**9, 10**15), 10**6, 10**12, untouched()) == (
        Accept(None, warns=False)
    )


def test_the_last_place_is_taken_and_no_more() -> None:
    bounds = Bounds(max_depth=10)
    assert decide(bounds, Depth(9), 1, 0) == Accept(Load("jobs", 10, 10), warns=True)
    assert decide(bounds, Depth(10), 1, 0) == Full(Load("jobs", 10, 10), never=False)
    assert decide(bounds, Depth(8), 3, 0) == Full(Load("jobs", 8, 10), never=False)


def test_active_jobs_count_for_the_size_and_not_for_the_depth() -> None:
    depth = Depth(waiting=5, active=5)
    assert decide(Bounds(max_depth=6), depth, 1, 0) == Accept(Load("jobs", 6, 6), warns=True)
    assert decide(Bounds(max_size=10), depth, 1, 0) == (
        Full(Load("active_included", 10, 10), never=False)
    )


def test_a_batch_larger_than_the_bound_never_fits() -> None:
    for strategy in ("reject", "block", "drop_oldest"):
        bounds: Any = Bounds(max_depth=10, max_size_bytes=100, strategy=strategy)
        assert decide(bounds, Depth(3), 11, 1, untouched()) == (
            Full(Load("jobs", 3, 10), never=True)
        )
        assert decide(bounds, Depth(0, bytes=7), 1, 101, untouched()) == (
            Full(Load("bytes", 7, 100), never=True)
        )


def test_reserved_places_are_taken() -> None:
    bounds = Bounds(max_depth=10, max_size_bytes=100)
    assert decide(bounds, Depth(4, reserved=5), 2, 0) == Full(Load("jobs", 9, 10), never=False)
    assert decide(bounds, Depth(0, bytes=40, reserved_bytes=50), 1, 11) == (
        Full(Load("bytes", 90, 100), never=False)
    )


@pytest.mark.parametrize(
    ("depth", "measure"),
    [
        (Depth(10, 0), "jobs"),
        (Depth(9, 6), "active_included"),
        (Depth(10, 3), "jobs"),
        (Depth(10, 7), "active_included"),
        (Depth(2, 0, 100), "bytes"),
        (Depth(10, 0, 200), "jobs"),
    ],
)
def test_the_bound_that_is_reached_first_is_named(depth: Depth, measure: str) -> None:
    bounds = Bounds(max_depth=10, max_size=15, max_size_bytes=100)
    decision = decide(bounds, depth, 1, 1)
    assert isinstance(decision, Full)
    assert decision.load.measure == measure


def test_the_oldest_go_until_all_bounds_hold() -> None:
    bounds = Bounds(max_depth=10, max_size_bytes=100, strategy="drop_oldest")
    depth = Depth(9, bytes=80)
    assert decide(bounds, depth, 3, 10, iter([1, 2, 3])) == (
        DropOldest(2, 3, Accept(Load("jobs", 10, 10), warns=True))
    )
    # Two for their places, but only four free the bytes.
    assert decide(bounds, depth, 3, 30, iter([1, 2, 3, 4, 5])) == (
        DropOldest(4, 10, Accept(Load("bytes", 100, 100), warns=True))
    )
    assert decide(bounds, Depth(8), 1, 0, untouched()) == Accept(Load("jobs", 9, 10), warns=True)


def test_too_few_to_drop_drops_none() -> None:
    bounds = Bounds(max_depth=10, strategy="drop_oldest")
    assert decide(bounds, Depth(10), 3, 0, [1, 1]) == Full(Load("jobs", 10, 10), never=False)


def test_what_is_above_its_bound_already_has_to_go_too() -> None:
    bounds = Bounds(max_depth=10, strategy="drop_oldest")
    assert decide(bounds, Depth(15), 1, 0, [1] * 9) == (
        DropOldest(6, 6, Accept(Load("jobs", 10, 10), warns=True))
    )


def test_the_tightest_bound_is_told() -> None:
    bounds = Bounds(max_depth=100, max_size=200, max_size_bytes=1_000)
    assert tightest(loads(bounds, Depth(50, 10, 100))) == Load("jobs", 50, 100)
    assert tightest(loads(bounds, Depth(50, 90, 100))) == Load("active_included", 140, 200)
    assert tightest(loads(bounds, Depth(50, 50, 500))) == Load("jobs", 50, 100)
    assert tightest(loads(bounds, Depth(50, 50, 501))) == Load("bytes", 501, 1_000)
    assert tightest([]) is None


def test_warnings_begin_at_the_threshold() -> None:
    bounds = Bounds(max_depth=50_000, warning_threshold=0.8)
    assert not warns(bounds, Load("jobs", 39_999, 50_000))
    assert warns(bounds, Load("jobs", 40_000, 50_000))
    assert not warns(bounds, None)
    assert Load("jobs", 42_000, 50_000).pressure == 0.84
    assert Load("jobs", 3, 2).pressure == 1.0


small = st.integers(0, 12)
bounds_of_all_kinds = st.builds(
    Bounds,
    small,
    small,
    st.integers(0, 60),
    st.sampled_from(["reject", "block", "drop_oldest"]),
)
depths = st.builds(Depth, small, small, st.integers(0, 60), st.integers(0, 3), st.integers(0, 9))


def fits(bounds: Bounds, depth: Depth, jobs: int, size: int) -> bool:
    """The definition."""
    waiting = depth.waiting + depth.reserved + jobs
    total = depth.bytes + depth.reserved_bytes + size
    return (
        (not bounds.max_depth or waiting <= bounds.max_depth)
        and (not bounds.max_size or waiting + depth.active <= bounds.max_size)
        and (not bounds.max_size_bytes or total <= bounds.max_size_bytes)
    )


@given(
    bounds_of_all_kinds,
    depths,
    st.integers(1, 14),
    st.integers(0, 70),
    st.lists(st.integers(1, 9), max_size=12),
)
def test_the_decision_is_the_one_of_the_definition(
    bounds: Bounds, depth: Depth, jobs: int, size: int, oldest: list[int]
) -> None:
    decision = decide(bounds, depth, jobs, size, iter(oldest))
    never = not fits(bounds, Depth(), jobs, size)
    # The fewest that have to go, by trying.
    tries = (
        n
        for n in range(1, len(oldest) + 1)
        if fits(bounds, depth, jobs - n, size - sum(oldest[:n]))
    )
    enough = next(tries, None) if bounds.strategy == "drop_oldest" and not never else None
    if fits(bounds, depth, jobs, size):
        assert isinstance(decision, Accept)
        assert decision.load is None or decision.load.depth <= decision.load.bound
    elif enough is not None:
        assert isinstance(decision, DropOldest)
        assert decision.count == enough
        assert decision.bytes == sum(oldest[:enough])
    else:
        assert isinstance(decision, Full)
        assert decision.never == never
        own = size if decision.load.measure == "bytes" else jobs
        assert decision.load.depth + own > decision.load.bound
        assert decision.load in loads(bounds, depth)
