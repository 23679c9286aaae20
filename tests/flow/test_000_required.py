"""Rate limiting (seed 000): what an implementation must support, RL-001 to RL-006 (12.1)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.flow.world import MINUTE, World, chosen, in_world


@in_world()
async def test_RL_001_no_more_jobs_of_a_key_run_than_its_concurrency(world: World) -> None:
    jobs = [await world.limited(concurrency=3) for _ in range(8)]
    # As many workers as there are jobs, all at the same moment.
    asked = [
        world.ask("POST", "/workers/fetch", {"queues": ["default"], "worker_id": f"w{n}"})
        for n in range(8)
    ]
    replies = [await client.reply() for client in asked]
    taken = [job["id"] for reply in replies for job in reply.body["jobs"]]
    assert taken == jobs[:3]
    assert (await world.key())["concurrency"] == {"limit": 3, "active": 3, "available": 0}


@in_world()
async def test_RL_001_taking_and_releasing_never_drift_apart(world: World) -> None:
    jobs = [await world.limited(concurrency=2) for _ in range(40)]
    done: list[str] = []
    while len(done) < len(jobs):
        held = await world.take(count=5)
        assert 0 < len(held) <= 2
        assert (await world.key())["concurrency"]["active"] == len(held)
        # Answers that come twice or late release nothing twice.
        await world.ack(*held)
        for job_id in held:
            again = await world.call("POST", "/workers/ack", {"job_id": job_id})
            assert again.status == 409
        done += held
    assert done == jobs
    assert (await world.call("GET", "/rate-limits/k")).status == 404


@in_world()
async def test_RL_002_each_key_counts_for_itself(world: World) -> None:
    keys = ["stripe-api", "tenant:acme-corp", "api.github.com", "a_b"]
    jobs = {key: [await world.limited(key, concurrency=1) for _ in range(2)] for key in keys}
    assert await world.take() == [both[0] for both in jobs.values()]
    for key, (first, second) in jobs.items():
        assert await world.key_jobs(key) == ([first], [second])
    await world.ack(jobs["a_b"][0])
    assert await world.take() == [jobs["a_b"][1]]


@in_world()
async def test_RL_002_jobs_of_one_key_share_its_limits_whatever_their_queue_and_type(
    world: World,
) -> None:
    first = await world.push(queue="a", type="x.one", rate_limit={"key": "k", "concurrency": 1})
    second = await world.push(queue="b", type="x.two", rate_limit={"key": "k"})
    assert await world.take("b", "a") == [second]
    assert await world.take("a") == []
    await world.ack(second)
    assert await world.take("a") == [first]


@pytest.mark.parametrize("on_limit", [{}, {"on_limit": "wait"}])
@in_world()
async def test_RL_003_a_job_that_waits_stays_available_until_it_runs(
    world: World, on_limit: dict[str, str]
) -> None:
    first = await world.limited(concurrency=1, **on_limit)
    second = await world.limited(concurrency=1, **on_limit)
    await world.take()
    before = await world.job(second)
    for _ in range(3):
        assert await world.take() == []
        await world.later(1_000)
    assert before["state"] == "available"
    assert await world.job(second) == before
    await world.ack(first)
    assert await world.take() == [second]


@in_world()
async def test_RL_004_a_limited_job_is_skipped_and_the_next_eligible_one_is_assigned(
    world: World,
) -> None:
    holder = await world.limited(concurrency=1)
    blocked = [await world.limited() for _ in range(5)]
    free = await world.push()
    other_key = await world.limited("other", concurrency=1)
    assert await world.take(count=1) == [holder]
    assert await world.take(count=1) == [free]
    assert await world.take(count=1) == [other_key]
    assert await world.take(count=1) == []
    assert set(await world.states(*blocked)) == {"available"}


@in_world()
async def test_RL_004_a_fetch_that_waits_gets_the_job_when_its_key_opens(world: World) -> None:
    first, second = await world.limited(concurrency=1), await world.limited()
    await world.take()
    waiting = world.ask(
        "POST", "/workers/fetch", {"queues": ["default"], "wait_ms": 30_000, "worker_id": "w2"}
    )
    for _ in range(20):
        await asyncio.sleep(0)
    assert waiting.sent == []
    await world.ack(first)
    assert [job["id"] for job in (await waiting.reply()).body["jobs"]] == [second]


@in_world()
async def test_RL_005_the_state_of_a_key_can_be_inspected(world: World) -> None:
    policy: dict[str, Any] = {
        "concurrency": 5,
        "rate": {"limit": 100, "period": "PT1M"},
        "throttle": {"limit": 10, "period": "PT1S"},
    }
    for _ in range(5):
        await world.limited("stripe-api", **policy)
    started = []
    for _ in range(2):
        started += await world.take()
        await world.later(100)
    assert await world.get("/rate-limits/stripe-api") == {
        "key": "stripe-api",
        "concurrency": {"limit": 5, "active": 2, "available": 3},
        "rate": {
            "limit": 100,
            "period": "PT1M",
            "current_count": 2,
            "window_resets_at": world.at(MINUTE - 100),
        },
        "throttle": {"limit": 10, "period": "PT1S", "next_allowed_at": world.at(0)},
        "waiting_count": 2,  # of three; the throttle lets one start now
    }
    assert len(started) == 2


@in_world()
async def test_RL_006_a_closed_key_tells_that_it_is_exceeded_and_when_it_is_released(
    world: World,
) -> None:
    first = await world.limited(concurrency=1)
    await world.take()
    assert await world.events("rate_limit.*") == [], "nobody waits for it"
    second = await world.limited()
    (exceeded,) = await world.events("rate_limit.*")
    assert exceeded["type"] == "rate_limit.exceeded"
    assert chosen(exceeded, "key", "strategy", "limit", "current") == {
        "key": "k",
        "strategy": "concurrency",
        "limit": 1,
        "current": 1,
    }
    await world.ack(first)
    _, released = await world.events("rate_limit.*")
    assert released["type"] == "rate_limit.released"
    assert chosen(released, "key", "strategy", "job_id") == {
        "key": "k",
        "strategy": "concurrency",
        "job_id": second,
    }


@pytest.mark.parametrize(
    ("policy", "strategy", "limit"),
    [
        ({"concurrency": 1}, "concurrency", 1),
        ({"rate": {"limit": 1, "period": "PT1M"}}, "rate", 1),
        ({"throttle": {"limit": 1, "period": "PT1M"}}, "throttle", 1),
    ],
)
@in_world()
async def test_RL_006_the_events_name_the_strategy(
    world: World, policy: Any, strategy: str, limit: int
) -> None:
    first, second = await world.limited(**policy), await world.limited()
    assert await world.run(count=1) == [first]
    await world.later(MINUTE)
    told = await world.events("rate_limit.exceeded", "rate_limit.released")
    assert [(event["type"], event["strategy"]) for event in told] == [
        ("rate_limit.exceeded", strategy),
        ("rate_limit.released", strategy),
    ]
    assert (told[0]["limit"], told[1]["job_id"]) == (limit, second)
