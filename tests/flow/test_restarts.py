"""A restart in the middle of everything changes nothing: limits, windows, holds, overrides, pools, turns and configuration go on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.flow.test_003_requirements import fill, of_tenants, order, tenants
from tests.flow.world import MINUTE, SECOND, World, in_world


@in_world(file=True)
async def test_RL_001_holders_keep_their_slots(world: World) -> None:
    jobs = [await world.limited(concurrency=2) for _ in range(5)]
    assert await world.take(worker_id="w") == jobs[:2]
    before = await world.key()
    await world.restart(SECOND)
    assert await world.key() == before
    assert await world.key_jobs() == (jobs[:2], jobs[2:])
    assert await world.take() == []
    await world.ack(jobs[0])
    assert await world.take() == jobs[2:3]
    assert await world.take() == []


@in_world(file=True)
async def test_RL_001_a_worker_that_died_with_the_server_loses_its_slots_in_time(
    world: World,
) -> None:
    jobs = [await world.limited(concurrency=1) for _ in range(2)]
    await world.take(worker_id="w")
    await world.restart(29 * SECOND)
    assert await world.take() == []
    await world.later(SECOND)
    assert await world.take() == jobs[:1]


@pytest.mark.parametrize("limit", [3, 100])
@in_world(file=True)
async def test_RL_R001_a_restart_grants_no_fresh_window(world: World, limit: int) -> None:
    rate = {"limit": limit, "period": "PT1M"}
    job = {"type": "a", "args": [], "rate_limit": {"key": "k", "rate": rate}}
    await world.finish("/jobs/batch", {"jobs": [job] * (4 * limit)})
    starts: list[int] = []
    for _ in range(24):
        starts += [world.now_ms] * len(await world.run(count=limit // 3 + 1))
        await world.restart(5 * SECOND)
    for first in set(starts):
        assert sum(first <= at < first + MINUTE for at in starts) <= limit
    assert len(starts) >= 2 * limit - limit // 10


@in_world(file=True)
async def test_RL_R001_a_window_outlives_the_jobs_that_filled_it(world: World) -> None:
    await world.limited(rate={"limit": 1, "period": "PT1M"})
    await world.run()
    await world.restart()
    job = await world.limited(rate={"limit": 1, "period": "PT1M"})
    assert await world.take() == []
    await world.restart(MINUTE - 1)
    assert await world.take() == []
    await world.later(1)
    assert await world.take() == [job]


@in_world(file=True)
async def test_RL_R002_the_throttle_remembers_the_last_start(world: World) -> None:
    for _ in range(5):
        await world.limited(throttle={"limit": 6, "period": "PT1M"})
    for _ in range(4):
        assert len(await world.run()) == 1
        await world.restart(8 * SECOND)
        assert await world.run() == []
        await world.later(2 * SECOND)


@in_world(file=True)
async def test_RL_R003_a_hold_goes_on(world: World) -> None:
    job = await world.limited()
    await world.take()
    await world.nack(job, requeue=True, message="429", rate_limit_until="+PT1M")
    held = (await world.key())["hold"]
    await world.restart(MINUTE - 1)
    assert (await world.key())["hold"] == held
    assert await world.take() == []
    await world.later(1)
    assert await world.take() == [job]


@in_world(file=True)
async def test_RL_R004_an_override_goes_on_and_ends_in_time(world: World) -> None:
    job = await world.limited(concurrency=3)
    override = {"concurrency": 0, "expires_at": world.at(MINUTE)}
    await world.put("/rate-limits/k", override)
    await world.restart(30 * SECOND)
    assert (await world.key())["override"] == override
    assert await world.take() == []
    # It ends while the server is down.
    await world.restart(MINUTE)
    assert "override" not in await world.key()
    assert await world.take() == [job]


@in_world(file=True)
async def test_RL_R005_the_limits_of_queue_and_tenant_know_their_holders(world: World) -> None:
    await world.put("/admin/queues/q/rate-limit", {"concurrency": 2})
    await world.put("/admin/tenants/a", {"limits": {"max_concurrency": 1}})
    await of_tenants(world, a=3, b=3)
    assert len(await world.take("q")) == 2
    await world.restart(SECOND)
    assert await world.take("q") == []
    limits = await world.get("/admin/queues/q/rate-limit")
    assert limits["concurrency"] == {"limit": 2, "active": 2, "available": 0}
    used = (await world.get("/admin/tenants/a/stats"))["limits"]["max_concurrency"]
    assert used == {"limit": 1, "current": 1}


@in_world(file=True)
async def test_RL_003_put_off_jobs_come_back_in_their_order(world: World) -> None:
    rate = {"limit": 1, "period": "PT1M"}
    jobs = [await world.limited(rate=rate, on_limit="reschedule") for _ in range(3)]
    assert await world.run() == jobs[:1]
    await world.restart(30 * SECOND)
    assert await world.states(*jobs[1:]) == ["scheduled", "scheduled"]
    await world.later(30 * SECOND)
    assert await world.run() == jobs[1:2]
    await world.restart(MINUTE)
    assert await world.run() == jobs[2:]


@pytest.mark.parametrize("shape", [{"max_per_second": 1}, {"key": "k", "concurrency": 1}])
@in_world(file=True)
async def test_RL_001_jobs_that_are_tried_again_later_bring_their_limits_back(
    world: World, shape: Any
) -> None:
    jobs = [await world.push(rate_limit=shape, retry={"max_attempts": 1}) for _ in range(3)]
    for job in jobs:
        assert await world.take() == [job]
        await world.nack(job)
        await world.later(SECOND)
    assert (await world.get("/rate-limits"))["items"] == []
    await world.restart(MINUTE)
    await world.finish("/jobs/bulk/retry", {"job_ids": jobs})
    await world.restart(MINUTE)
    assert await world.take() == jobs[:1]
    assert await world.take() == []
    await world.ack(jobs[0])
    await world.later(SECOND)
    assert await world.take() == jobs[1:2]


@in_world(file=True)
async def test_BP_001_a_full_queue_is_full_still(world: World) -> None:
    capacity = {"max_depth": 3, "max_size_bytes": 100_000, "strategy": "drop_oldest"}
    await world.configure("q", backpressure=capacity)
    jobs = [await world.push(queue="q") for _ in range(3)]
    before = await world.stats("q")
    await world.restart()
    stats = await world.stats("q")
    assert (stats["bytes"], stats["bound"]) == (before["bytes"], before["bound"])
    newest = await world.push(queue="q")
    assert await world.states(*jobs, newest) == ["discarded", *["available"] * 3]


@in_world(file=True)
async def test_002_configuration_states_and_layers_survive(world: World) -> None:
    await world.put("/queues/_default/config", {"concurrency": 5, "default_timeout": 60})
    await world.configure("q", max_size=9, dead_letter_queue="dlq", producers=["anonymous"])
    await world.finish("/queues/q/pause")
    await world.push(queue="leaving")
    await world.finish("/queues/leaving/drain")
    before = await world.get("/queues")
    await world.restart(SECOND)
    assert await world.get("/queues") == before
    await world.put("/queues/_default/config", {"concurrency": 4})
    assert (await world.get("/queues/q/config"))["concurrency"] == 4
    assert len(await world.run("leaving")) == 1
    assert (await world.call("GET", "/queues/leaving")).status == 404


@in_world(file=True)
async def test_002_5_3_a_deletion_goes_on_after_the_restart(world: World) -> None:
    (active,) = [await world.push(queue="q")]
    await world.take("q")
    waiting = await world.push(queue="q")
    await world.finish("/queues", {"name": "target"})
    body = {"strategy": "move", "target_queue": "target"}
    await world.finish("/queues/q", body, method="DELETE")
    await world.restart(SECOND)
    assert (await world.job(waiting))["queue"] == "target"
    await world.nack(active, requeue=True)
    assert (await world.job(active))["queue"] == "target"
    assert (await world.call("GET", "/queues/q")).status == 404


@in_world(file=True)
async def test_002_6_4_a_dead_letter_is_one_still(world: World) -> None:
    await world.configure("q", dead_letter_queue="dlq")
    job = await world.push(queue="q", retry={"max_attempts": 1})
    await world.take("q")
    await world.nack(job)
    before = await world.job(job)
    await world.restart(SECOND)
    assert await world.job(job) == before
    await world.finish(f"/dead-letter/{job}/retry")
    assert await world.take("q") == [job]


@pytest.mark.parametrize("strategy", ["round-robin", "weighted"])
@in_world(file=True)
async def test_FS_R001_pools_and_their_turns_survive(world: World, strategy: str) -> None:
    pool: dict[str, Any] = {"queues": ["a", "b"], "strategy": strategy, "concurrency": 9}
    if strategy == "weighted":
        pool["weights"] = {"a": 3, "b": 1}
    await world.put("/admin/pools/p", pool)
    before = await world.get("/admin/pools")
    await fill(world, 30, "a", "b")
    found = ""
    for _ in range(16):
        found += await order(world, 1, pool="p")
        await world.restart()
    assert await world.get("/admin/pools") == before
    if strategy == "weighted":
        assert all(found[at : at + 4].count("b") == 1 for at in range(13))
    else:
        assert found in {"ab" * 8, "ba" * 8}


@in_world(file=True)
async def test_FS_R005_tenants_take_turns_over_restarts(world: World) -> None:
    await world.configure("q", tenant_fairness={"enabled": True, "weights": {"a": 3}})
    await of_tenants(world, a=30, b=30)
    found = ""
    for _ in range(16):
        found += await tenants(world, 1)
        await world.restart()
    assert (found.count("a"), found.count("b")) == (12, 4)


@in_world(file=True)
async def test_000_the_time_does_not_go_back(world: World) -> None:
    """The wall clock of the new process is an hour behind."""
    job = await world.limited(rate={"limit": 1, "period": "PT1M"})
    other = await world.limited()
    assert await world.run() == [job]
    last = world.now_ms
    await world.restart(-60 * MINUTE)
    assert await world.take() == []
    world.now_ms = last + MINUTE - 1
    assert await world.take() == []
    world.now_ms = last + MINUTE
    assert await world.take() == [other]


@in_world(file=True)
async def test_RL_R005_a_limited_queue_wakes_its_pool_after_a_restart(world: World) -> None:
    await world.put("/admin/queues/q/rate-limit", {"rate": {"limit": 1, "period": "PT1M"}})
    await world.put("/admin/pools/p", {"queues": ["q"]})
    jobs = [await world.push(queue="q") for _ in range(2)]
    assert await world.run("q", pool="p") == jobs[:1]
    await world.restart()
    assert await world.run("q", pool="p") == []
    await world.later(MINUTE)
    assert await world.run("q", pool="p") == jobs[1:]


@in_world(file=True)
async def test_RL_R005_a_limited_queue_wakes_who_waits_after_a_restart(world: World) -> None:
    await world.put("/admin/queues/q/rate-limit", {"rate": {"limit": 1, "period": "PT1M"}})
    jobs = [await world.push(queue="q") for _ in range(2)]
    assert await world.run("q") == jobs[:1]
    await world.restart()
    waiting = world.ask("POST", "/workers/fetch", {"queues": ["q"], "wait_ms": 30_000})
    while not (await world.get(f"/jobs/{jobs[1]}/explain"))["consumers"]:
        pass
    await world.later(MINUTE)
    async with asyncio.timeout(10):
        assert [job["id"] for job in (await waiting.reply()).body["jobs"]] == jobs[1:]


@in_world(file=True)
async def test_002_9_3_what_ended_today_is_counted_on_until_midnight(world: World) -> None:
    async def today(queue: str = "q") -> list[int]:
        stats = (await world.get(f"/queues/{queue}"))["stats"]
        return [stats["completed_today"], stats["failed_today"]]

    await world.configure("q", dead_letter_queue="graves")
    jobs = [await world.push(queue="q", retry={"max_attempts": 1}) for _ in range(4)]
    await world.take("q")
    await world.ack(jobs[0])
    await world.nack(jobs[1])
    await world.nack(jobs[2], code="DISCARD")
    await world.push(queue="other")
    await world.restart(SECOND)
    assert (await today(), await today("other")) == ([1, 2], [0, 0])
    await world.ack(jobs[3])
    await world.restart()
    assert await today() == [2, 2]
    # The worlds begin at half past ten.
    await world.later(13 * 60 * MINUTE + 29 * MINUTE)
    await world.restart()
    assert await today() == [2, 2]
    await world.restart(MINUTE)
    assert await today() == [0, 0]
    again = await world.push(queue="q")
    assert await world.run("q") == [again]
    await world.restart()
    assert await today() == [1, 0]
