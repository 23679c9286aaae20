"""Rate limiting (seed 000): what is recommended, RL-R001 to RL-R005 (12.2)."""

from __future__ import annotations

import itertools

import pytest

from tests.flow.world import MINUTE, SECOND, World, chosen, in_world


@pytest.mark.parametrize("limit", [1, 5, 60])
@in_world()
async def test_RL_R001_no_window_of_the_period_holds_more_starts_than_the_limit(
    world: World, limit: int
) -> None:
    rate = {"limit": limit, "period": "PT1M"}
    for _ in range(4 * limit):
        await world.limited(rate=rate)
    starts: list[int] = []
    # Half of the first window at its start, half at its end: a fixed window would let 1.5 limits follow at once.
    starts += [world.now_ms] * len(await world.run(count=(limit + 1) // 2))
    await world.later(50 * SECOND)
    for _ in range(260):
        starts += [world.now_ms] * len(await world.run())
        await world.later(SECOND // 2)
    for first in starts:
        assert sum(first <= at < first + MINUTE for at in starts) <= limit
    # And a saturated key uses all of it.
    assert sum(starts[0] <= at < starts[0] + 2 * MINUTE for at in starts) == 2 * limit


@in_world()
async def test_RL_R001_a_large_rate_is_used_up_to_98_percent_and_never_exceeded(
    world: World,
) -> None:
    rate = {"limit": 600, "period": "PT1M"}
    body = {"type": "a", "args": [], "rate_limit": {"key": "k", "rate": rate}}
    for _ in range(3):
        await world.finish("/jobs/batch", {"jobs": [body] * 1_000})
    starts: list[int] = []
    for _ in range(4 * 60 * 2):
        starts += [world.now_ms] * len(await world.run(count=20))
        await world.later(SECOND // 2)
    for first in sorted(set(starts)):
        assert sum(first <= at < first + MINUTE for at in starts) <= 600
    assert len(starts) >= 0.98 * 4 * 600


@pytest.mark.parametrize(
    ("limit", "period", "interval"),
    [(1, "PT1S", 1_000), (10, "PT1S", 100), (60, "PT1M", 1_000), (1, "PT1M", 60_000)],
)
@in_world()
async def test_RL_R002_a_throttle_spaces_starts_evenly(
    world: World, limit: int, period: str, interval: int
) -> None:
    for _ in range(12):
        await world.limited(throttle={"limit": limit, "period": period})
    starts: list[int] = []
    while len(starts) < 12:
        starts += [world.now_ms] * len(await world.run())
        await world.later(interval // 20)
    gaps = [after - before for before, after in itertools.pairwise(starts)]
    assert min(gaps) >= 0.9 * interval
    assert max(gaps) <= 1.1 * interval
    assert starts[-1] - starts[0] >= (12 - 1.1) * interval


@in_world()
async def test_RL_R002_a_throttle_saves_nothing_up_for_a_burst(world: World) -> None:
    for _ in range(4):
        await world.limited(throttle={"limit": 10, "period": "PT1S"})
    assert len(await world.run()) == 1
    await world.later(MINUTE)
    assert len(await world.run()) == 1
    assert await world.run() == []
    await world.later(100)
    assert len(await world.run()) == 1


@in_world()
async def test_RL_R003_a_handler_that_met_a_429_holds_its_key_until_the_time_it_was_told(
    world: World,
) -> None:
    retry = {"initial_interval": "PT1S", "jitter": False}
    first = await world.push(rate_limit={"key": "stripe-api"}, retry=retry)
    second, free = await world.limited("stripe-api"), await world.push()
    assert await world.take(count=1) == [first]
    until = world.at(5 * MINUTE)
    await world.nack(
        first,
        type="RateLimitExceeded",
        message="Stripe API rate limit exceeded",
        rate_limit_until=until,
    )
    assert await world.run() == [free]
    assert chosen(await world.key("stripe-api"), "hold", "waiting_count") == {
        "hold": {"until": until, "reason": "Stripe API rate limit exceeded"},
        "waiting_count": 1,
    }
    await world.later(5 * MINUTE - 1)
    assert await world.take() == []
    await world.later(1)
    # The failed job went behind those that were there before it.
    assert await world.take() == [second, first]
    assert "hold" not in await world.key("stripe-api")


@in_world()
async def test_RL_R004_a_key_can_be_stopped_for_an_incident_and_goes_on_by_itself(
    world: World,
) -> None:
    jobs = [await world.limited(concurrency=5) for _ in range(3)]
    running = await world.take(count=1)
    override = {"concurrency": 0, "expires_at": world.at(MINUTE)}
    shown = await world.put("/rate-limits/k", override)
    assert shown["override"] == override
    assert shown["concurrency"] == {"limit": 0, "active": 1, "available": 0}
    assert await world.take() == []
    await world.ack(*running)
    await world.later(MINUTE - 1)
    assert await world.take() == []
    await world.later(1)
    assert await world.take() == jobs[1:]
    assert (await world.key())["concurrency"] == {"limit": 5, "active": 2, "available": 3}


@in_world()
async def test_RL_R004_an_override_governs_jobs_that_come_while_it_lasts(world: World) -> None:
    await world.put("/rate-limits/k", {"concurrency": 1})
    jobs = [await world.limited(concurrency=9) for _ in range(3)]
    assert await world.take() == jobs[:1]
    assert await world.finish("/rate-limits/k", method="DELETE") == {"key": "k", "lifted": True}
    assert await world.take() == jobs[1:]


@in_world()
async def test_RL_R005_a_queue_as_a_whole_is_limited_through_the_admin_api(world: World) -> None:
    limits = {"concurrency": 20, "rate": {"limit": 30, "period": "PT1H"}}
    shown = await world.put("/admin/queues/email/rate-limit", limits)
    assert shown["concurrency"] == {"limit": 20, "active": 0, "available": 20}
    # Whatever the jobs say of themselves, or do not.
    jobs = [await world.push(queue="email") for _ in range(30)]
    jobs += [await world.limited(f"k{n}", "email", concurrency=100) for n in range(10)]
    first = await world.take("email")
    assert first == jobs[:20]
    await world.ack(*first)
    assert await world.run("email") == jobs[20:30]
    assert await world.take("email") == []
    told = await world.get("/admin/queues/email/rate-limit")
    assert told["concurrency"] == {"limit": 20, "active": 0, "available": 20}
    assert told["rate"]["current_count"] == 30
    await world.later(60 * MINUTE)
    assert await world.take("email") == jobs[30:]


@in_world()
async def test_RL_R005_the_same_through_the_configuration_of_the_queue(world: World) -> None:
    await world.configure("q", concurrency=2, rate_limit={"limit": 3, "period": "PT1M"})
    jobs = [await world.push(queue="q") for _ in range(5)]
    first = await world.take("q")
    assert first == jobs[:2]
    await world.ack(*first)
    assert await world.run("q") == jobs[2:3]
    await world.configure("q", concurrency=None, rate_limit=None)
    assert await world.take("q") == jobs[3:]
