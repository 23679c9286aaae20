"""What holds of a key however its jobs come and go, in thousands of starts under a clock that the test moves."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.gates import LimitsChange, Rate
from headgate.core.limits import Use
from headgate.core.retry import Failure
from headgate.engines.contract import Ack, Done, Fail, NotHolder
from tests.contract.home import NOW, story
from tests.flow.floor import KEY, Floor, floor

SECOND = 1_000_000
MINUTE = 60 * SECOND


def limited(**limits: object) -> list[Use]:
    return [Use(KEY, change=LimitsChange(**limits))]  # type: ignore[arg-type]


def most_in_any_window(starts: list[int], period_us: int) -> int:
    """The largest number of starts in a window [t, t + period), which begins at one of them."""
    most = first = 0
    for last, at in enumerate(starts):
        while starts[first] <= at - period_us:
            first += 1
        most = max(most, last - first + 1)
    return most


@pytest.mark.parametrize("limit", [1, 7, 60, 61, 500])
@given(arrivals=st.lists(st.integers(0, 999), min_size=1, max_size=40))
@settings(max_examples=10)
def test_a_saturated_key_uses_what_it_may_and_never_more(limit: int, arrivals: list[int]) -> None:
    """Jobs come at any instants of the first second; from then on there are always some."""

    async def run() -> None:
        rate = Rate(limit, SECOND)
        async with floor() as there:
            await there.push(1, uses=limited(rate=rate))
            each = -(-limit // len(arrivals))
            for at in sorted(arrivals):
                there.now_us = NOW * 1000 + at * 1000
                await there.push(each, uses=limited())
                await there.take(limit)
            periods = 12
            await there.push((periods + 1) * limit, uses=limited())
            end = NOW + 1_000 * (periods + 1)
            saturated_from = there.now_us
            while there.now < end:
                await there.take(2 * limit)
                at = await there.next_at()
                assert at > there.now
                there.now_us = at * 1000
            starts = [start.at_us for start in there.starts]
            assert most_in_any_window(starts, SECOND) <= limit
            span = (starts[-1] - saturated_from) / SECOND
            late = [at for at in starts if at > starts[-1] - 10 * SECOND]
            assert span > 10
            assert len(late) >= (10 * limit if limit <= 60 else 0.98 * 10 * limit)

    asyncio.run(run())


@pytest.mark.parametrize("limit", [1, 3, 60, 100])
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from([0, 1, 499, 1_000, 16_667, 100_000, 999_999, SECOND]),
            st.integers(1, 30),
        ),
        min_size=20,
        max_size=60,
    )
)
@settings(max_examples=15)
def test_no_window_holds_more_starts_than_the_limit(
    limit: int, steps: list[tuple[int, int]]
) -> None:
    async def run() -> None:
        async with floor() as there:
            await there.push(2_000, uses=limited(rate=Rate(limit, SECOND)))
            for us, count in steps:
                there.now_us += us
                await there.take(count)
            starts = [start.at_us for start in there.starts]
            assert most_in_any_window(starts, SECOND) <= limit

    asyncio.run(run())


@pytest.mark.parametrize(
    "rate",
    [Rate(1, MINUTE), Rate(3, SECOND), Rate(10_000, SECOND)],
    ids=["1/min", "3/s", "10000/s"],
)
@given(lateness=st.lists(st.integers(0, 400), min_size=30, max_size=60))
@settings(max_examples=15)
def test_a_throttle_spaces_its_starts(rate: Rate, lateness: list[int]) -> None:
    """Each worker comes late by so many thousandths of an interval."""

    async def run() -> None:
        interval = rate.period_us / rate.limit
        async with floor() as there:
            await there.push(len(lateness), uses=limited(throttle=rate))
            for late in lateness:
                due = (await there.gate()).next_allowed_at_us
                assert due is not None
                if due > there.now_us:
                    there.now_us = due - 1
                    assert not await there.take()
                    there.now_us = due + int(late * interval / 1000)
                assert len(await there.take(9)) == 1
            starts = [start.at_us for start in there.starts]
            for i, first in enumerate(starts):
                for n, last in enumerate(starts[i + 1 :], 2):
                    # (n - 1.1) intervals, in whole numbers.
                    assert 10 * rate.limit * (last - first) >= (10 * n - 11) * rate.period_us
            gaps = [after - before for before, after in pairwise(starts)]
            assert min(gaps) >= 0.9 * interval
            if max(lateness) <= 100:
                assert starts[-1] - starts[0] <= len(starts) * interval

    asyncio.run(run())


@pytest.mark.parametrize("rate", [Rate(1, MINUTE), Rate(10_000, SECOND)], ids=["1/min", "10000/s"])
@story
async def test_small_delays_of_workers_never_add_up(rate: Rate) -> None:
    interval = rate.period_us / rate.limit
    async with floor() as there:
        count = 2_000
        await there.push(count, uses=limited(throttle=rate))
        for turn in range(count):
            due = (await there.gate()).next_allowed_at_us
            assert due is not None
            there.now_us = max(there.now_us, due + int(interval * (turn % 10) / 100))
            assert await there.take()
        span = there.starts[-1].at_us - there.starts[0].at_us
        # Reckoning in whole microseconds loses at most one of them at each start.
        assert (count - 1.1) * interval <= span <= count * interval + count


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["take", "take", "ack", "requeue", "lose", "wait"]), st.integers(0, 9)
        ),
        min_size=20,
        max_size=80,
    )
)
@settings(max_examples=40)
def test_jobs_of_a_key_start_in_the_order_of_their_age(steps: list[tuple[str, int]]) -> None:
    """Whoever comes back keeps its place: nothing that starts is younger than a job that waits."""

    async def run() -> None:
        uses = limited(concurrency=3, rate=Rate(20, SECOND))
        async with floor() as there:
            jobs = await there.push(40, uses=uses)
            held: list[tuple[str, int]] = []
            for what, which in steps:
                if what == "take":
                    for job in await there.take(1 + which % 3, finish=False):
                        waiting = [other.seq for other in jobs if other.state == "available"]
                        # Of jobs that were taken together the older ones are active already.
                        assert not waiting or job.seq < min(waiting)
                        held.append((job.id, job.claim))
                elif what == "wait":
                    there.now_us += (1 + which) * 20_000
                elif what == "lose":
                    there.now_us += 31 * SECOND
                    await there.engine.tick(there.now)
                    held.clear()
                elif held:
                    await answer(there, *held.pop(which % len(held)), what)
                gate = await there.gate()
                assert gate.active == len(held) <= 3

    asyncio.run(run())


async def answer(there: Floor, job: str, claim: int, what: str) -> None:
    if what == "ack":
        (outcome,) = await there.engine.ack([Ack(job, "w", claim)], there.now)
    else:
        failure = Failure("later", "not now", requeue=True)
        (outcome,) = await there.engine.fail([Fail(job, failure, "w", claim)], there.now)
    assert isinstance(outcome, Done)


@story
async def test_a_late_answer_frees_nobody_elses_slot() -> None:
    async with floor() as there:
        await there.push(2, uses=limited(concurrency=1))
        (first,) = await there.take(finish=False)
        lost = first.claim
        # The reservation is lost, and the same job is given out again: its slot is another one now.
        there.now_us += 31 * SECOND
        (again,) = await there.take(finish=False)
        assert (again.id, again.claim) == (first.id, lost + 1)
        late = Fail(first.id, Failure("late", "boom"), "w", lost)
        for outcome in [
            *await there.engine.ack([Ack(first.id, "w", lost)], there.now),
            *await there.engine.fail([late], there.now),
        ]:
            assert isinstance(outcome, NotHolder)
        assert (await there.gate()).active == 1
        assert not await there.take()
        await there.engine.ack([Ack(again.id, "w", again.claim)], there.now)
        assert len(await there.take()) == 1


@pytest.mark.parametrize("limit", [5, 200])
@story
async def test_a_restart_grants_no_fresh_window_even_when_the_clock_was_set_back(
    limit: int, tmp_path: Path
) -> None:
    path = str(tmp_path / "jobs.db")
    uses = limited(rate=Rate(limit, 10 * SECOND))
    at, starts = NOW, []
    for turn in range(30):
        async with floor(path, at) as there:
            there.pushed = turn * limit
            await there.push(limit, uses=uses)
            there.now_us += 999
            await there.take(limit // 2 + 1)
            await there.engine.settled()
            # What counts is the latest instant that any process was given.
            starts += [(max(NOW, start.at_us // 1000), start.job) for start in there.starts]
        at += 1_700 if turn % 3 else -900
    first = most = 0
    latest = 0
    instants = []
    for start, _ in starts:
        latest = max(latest, start)
        instants.append(latest)
    for last, instant in enumerate(instants):
        while instants[first] <= instant - 10_000:
            first += 1
        most = max(most, last - first + 1)
    assert limit // 2 < most <= limit
    assert len({job for _, job in starts}) == len(starts)
