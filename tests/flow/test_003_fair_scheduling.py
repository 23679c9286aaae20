"""Fair scheduling (seed 003), sentence by sentence: consumers, pools, strategies, starvation, tenants (4 to 9)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.flow.test_003_requirements import fill, of_tenants, order, tenants
from tests.flow.world import MINUTE, SECOND, World, chosen, in_world


@in_world()
async def test_003_4_4_an_overloaded_pool_makes_jobs_wait_and_loses_none(world: World) -> None:
    await world.put("/admin/pools/p", {"queues": ["a", "b"], "concurrency": 1})
    await fill(world, 10, "a", "b")
    assert len(await order(world, 40, pool="p")) == 20


@in_world()
async def test_003_5_2_the_server_decides_and_not_the_worker(world: World) -> None:
    await world.put("/admin/pools/p", {"queues": ["a", "b"], "strategy": "strict"})
    await fill(world, 6, "a", "b")
    wishes = {"strategy": "weighted", "weights": {"b": 100}, "pool": "p"}
    assert await order(world, 6, "b", **wishes) == "a" * 6
    # Where the server says nothing, the wish counts.
    await fill(world, 12, "a", "b")
    found = await order(world, 6, "a", "b", strategy="weighted", weights={"a": 1, "b": 5})
    assert sorted(found) == list("abbbbb")


@in_world()
async def test_003_6_1_the_defaults_of_a_pool(world: World) -> None:
    shown = (await world.put("/admin/pools/p", {"queues": ["a", "b"]}))["pool"]
    assert (shown["strategy"], "concurrency" in shown) == ("round-robin", False)
    await fill(world, 3, "a", "b")
    assert await order(world, 6, pool="p") in {"ababab", "bababa"}


@in_world()
async def test_003_6_2_a_worker_belongs_to_exactly_one_pool(world: World) -> None:
    register = {"worker_id": "w", "queues": ["a"], "pool": "mailers"}
    await world.finish("/workers/register", register)
    await world.push(queue="a")
    body = {"queues": ["a"], "worker_id": "w", "pool": "others"}
    await world.refused("POST", "/workers/fetch", body, "pool")
    del body["pool"]
    (job,) = (await world.finish("/workers/fetch", body))["jobs"]
    (started,) = await world.events("job.started")
    assert started["pool"] == "mailers"
    assert job


@in_world()
async def test_003_6_2_who_names_no_pool_is_in_the_default_one(world: World) -> None:
    await world.put("/admin/pools/default", {"queues": ["b"]})
    await fill(world, 1, "a", "b")
    assert await order(world, 2, "a") == "b"


@in_world()
async def test_003_6_3_without_isolation_any_pool_may_serve_the_queue(world: World) -> None:
    for pool in ("one", "two"):
        await world.put(f"/admin/pools/{pool}", {"queues": ["q"]})
    await fill(world, 4, "q")
    seen = [await order(world, 1, "q", pool=pool) for pool in ("one", "two", "unknown")]
    seen.append(await order(world, 1, "q"))
    assert seen == ["q"] * 4


@in_world()
async def test_003_6_3_isolation_is_decided_by_the_server_and_can_be_ended(world: World) -> None:
    await world.put("/admin/pools/gpu", {"queues": ["q"], "isolated": True})
    await fill(world, 3, "q")
    waiting = world.ask("POST", "/workers/fetch", {"queues": ["q"], "wait_ms": 30_000})
    for _ in range(20):
        await asyncio.sleep(0)
    assert waiting.sent == []
    await world.put("/admin/pools/gpu", {"queues": ["q"], "isolated": False})
    assert len((await waiting.reply()).body["jobs"]) == 1
    await world.put("/admin/pools/gpu", {"queues": ["q"], "isolated": True})
    assert await world.take("q") == []
    await world.finish("/admin/pools/gpu", method="DELETE")
    assert len(await world.take("q")) == 2


@in_world()
async def test_003_7_1_round_robin_skips_empty_queues_and_saves_nothing_for_them(
    world: World,
) -> None:
    asked = {"strategy": "round-robin"}
    await fill(world, 9, "a", "c")
    assert await order(world, 4, "a", "b", "c", **asked) == "acac"
    await fill(world, 9, "b")
    found = await order(world, 6, "a", "b", "c", **asked)
    assert sorted(found[:3]) == sorted(found[3:]) == list("abc")


@in_world()
async def test_003_7_1_depth_makes_no_difference(world: World) -> None:
    await fill(world, 500, "a")
    await fill(world, 3, "b")
    found = await order(world, 8, "a", "b", strategy="round-robin")
    assert found.count("b") == 3
    assert "b" not in found[6:]


@in_world()
async def test_003_7_2_least_loaded_gives_a_worker_no_more_than_it_can_carry(
    world: World,
) -> None:
    await world.put("/admin/pools/p", {"queues": ["a", "b"], "strategy": "least-loaded"})
    for worker, concurrency in (("small", 1), ("large", 4)):
        register = {"worker_id": worker, "pool": "p", "concurrency": concurrency}
        await world.finish("/workers/register", register)
    await fill(world, 3, "a")
    await fill(world, 6, "b")
    small = await world.take("x", worker_id="small")
    large = await world.take("x", worker_id="large")
    assert (len(small), len(large)) == (1, 4)
    told = await world.call("POST", "/workers/fetch", {"queues": ["x"], "worker_id": "small"})
    assert set(told.body["reasons"].values()) == {"worker_full"}
    # Of the deepest backlog each time: 6, 5, 4 of b, then both by turns.
    taken = [(await world.job(job))["queue"] for job in small + large]
    assert taken[:3] == ["b"] * 3
    assert sorted(taken[3:]) == ["a", "b"]


@in_world()
async def test_003_7_2_of_several_who_wait_the_one_with_fewest_jobs_is_served(
    world: World,
) -> None:
    await world.put("/admin/pools/p", {"queues": ["a"], "strategy": "least-loaded"})
    for worker in ("busy", "idle"):
        await world.finish("/workers/register", {"worker_id": worker, "pool": "p"})
    await fill(world, 3, "a")
    assert len(await world.take("a", worker_id="busy")) == 3
    body = {"queues": ["a"], "wait_ms": 30_000}
    busy = world.ask("POST", "/workers/fetch", {**body, "worker_id": "busy"})
    idle = world.ask("POST", "/workers/fetch", {**body, "worker_id": "idle"})
    for _ in range(20):
        await asyncio.sleep(0)
    job = await world.push(queue="a")
    assert [found["id"] for found in (await idle.reply()).body["jobs"]] == [job]
    assert busy.sent == []
    busy.leave()


@in_world()
async def test_003_7_3_of_six_dispatches_three_two_and_one(world: World) -> None:
    await fill(world, 40, "a", "b", "c")
    asked = {"strategy": "weighted", "weights": {"a": 3, "b": 2, "c": 1}}
    found = await order(world, 60, "a", "b", "c", **asked)
    for start in range(55):
        window = found[start : start + 6]
        assert (window.count("a"), window.count("b"), window.count("c")) == (3, 2, 1)


@in_world()
async def test_003_7_3_the_smallest_weight_is_served_within_a_bounded_time(world: World) -> None:
    await fill(world, 1_000, "a")
    await fill(world, 5, "b")
    asked = {"strategy": "weighted", "weights": {"a": 100, "b": 1}}
    found = await order(world, 303, "a", "b", **asked)
    assert found.count("b") == 3
    assert "b" in found[:101]


@in_world()
async def test_003_7_3_turns_belong_to_the_pool_and_not_to_a_worker(world: World) -> None:
    weights = {"a": 1, "b": 1}
    await world.put(
        "/admin/pools/p", {"queues": ["a", "b"], "strategy": "weighted", "weights": weights}
    )
    await fill(world, 9, "a", "b")
    found = ""
    for number in range(8):
        found += await order(world, 1, pool="p", worker_id=f"w{number}")
    assert found in {"ab" * 4, "ba" * 4}


@in_world()
async def test_003_8_1_the_defaults_of_starvation_prevention(world: World) -> None:
    shown = (await world.put("/admin/pools/p", {"queues": ["a"]}))["pool"]
    assert shown["starvation_prevention"] == {
        "enabled": False,
        "rotation_interval": "PT30S",
        "min_dispatch_ratio": 0.05,
    }


async def dispatch(world: World, seconds: int, gap_ms: int) -> list[tuple[int, str]]:
    """Instants and queues of one dispatch after the other."""
    found = []
    for _ in range(seconds * SECOND // gap_ms):
        found.append((world.now_ms, await order(world, 1, pool="p")))
        await world.later(gap_ms)
    return found


@pytest.mark.parametrize(("ratio", "gap_ms"), [(0.05, 50), (0.1, 100), (0.25, 200), (0.33, 1_000)])
@pytest.mark.parametrize("strategy", ["strict", "weighted"])
@in_world()
async def test_003_8_2_each_queue_gets_its_ratio_in_any_sliding_window(
    world: World, strategy: str, ratio: float, gap_ms: int
) -> None:
    pool: dict[str, Any] = {
        "queues": ["a", "b", "c"],
        "strategy": strategy,
        "starvation_prevention": {
            "enabled": True,
            "rotation_interval": "PT5S",
            "min_dispatch_ratio": ratio,
        },
    }
    if strategy == "weighted":
        pool["weights"] = {"a": 1_000}
    await world.put("/admin/pools/p", pool)
    await fill(world, 400, "a", "b", "c")
    seen = await dispatch(world, 15, gap_ms)
    for start, _ in seen[: -5 * SECOND // gap_ms]:
        window = [queue for at, queue in seen if start <= at < start + 5 * SECOND]
        for queue in "abc":
            assert window.count(queue) >= int(ratio * len(window)), (start, queue)
    # And what is left of the dispatches goes by the strategy.
    assert sum(queue == "a" for _, queue in seen) >= (1 - 2 * ratio) * len(seen) - 8


@in_world()
async def test_003_8_2_whoever_got_nothing_for_an_interval_is_next(world: World) -> None:
    starvation = {"enabled": True, "rotation_interval": "PT10S", "min_dispatch_ratio": 0.01}
    await world.put(
        "/admin/pools/p",
        {"queues": ["a", "b", "c"], "strategy": "strict", "starvation_prevention": starvation},
    )
    await fill(world, 50, "a", "b", "c")
    assert await order(world, 5, pool="p") == "aaaaa"
    await world.later(10 * SECOND)
    assert await order(world, 4, pool="p") == "bcaa"


@in_world()
async def test_003_8_2_a_pool_that_is_put_again_takes_no_turn_from_who_waits(world: World) -> None:
    pool = {
        "queues": ["a", "b"],
        "strategy": "strict",
        "starvation_prevention": {
            "enabled": True,
            "rotation_interval": "PT10S",
            "min_dispatch_ratio": 0.2,
        },
    }
    await world.put("/admin/pools/p", pool)
    await fill(world, 50, "a", "b")
    found = ""
    for n in range(4):
        found += await order(world, 3, pool="p")
        await world.put("/admin/pools/p", {**pool, "concurrency": 10 + n})
    assert found[:5].count("b") >= 1
    assert found[5:10].count("b") >= 1


@in_world()
async def test_003_9_1_ten_jobs_are_not_behind_ten_thousand(world: World) -> None:
    await world.configure("q", tenant_fairness={"enabled": True})
    await of_tenants(world, a=800)
    await of_tenants(world, a=200, b=10)
    found = await tenants(world, 22)
    assert found.count("b") == 10
    for start in range(19):
        part = found[: start + 1]
        assert abs(part.count("a") - part.count("b")) <= 1


@in_world()
async def test_003_9_1_without_fairness_it_is_the_order_of_enqueue(world: World) -> None:
    await of_tenants(world, a=20, b=5)
    assert await tenants(world, 25) == "a" * 20 + "b" * 5


@in_world()
async def test_003_9_2_weights_by_tenant(world: World) -> None:
    fairness = {
        "enabled": True,
        "strategy": "fair-share",
        "weights": {"tenant:e": 5, "tenant:s": 1},
        "default_weight": 1,
    }
    await world.configure("q", tenant_fairness=fairness)
    await of_tenants(world, e=60, s=60, o=60)
    found = await tenants(world, 70)
    assert (found.count("e"), found.count("s"), found.count("o")) == (50, 10, 10)


@in_world()
async def test_003_9_2_without_weights_all_are_equal(world: World) -> None:
    await world.configure("q", tenant_fairness={"enabled": True, "strategy": "fair-share"})
    await of_tenants(world, a=40, b=40, c=40, d=40)
    found = await tenants(world, 40)
    assert {tenant: found.count(tenant) for tenant in "abcd"} == dict.fromkeys("abcd", 10)


@in_world()
async def test_003_9_2_a_tenant_that_was_away_has_saved_nothing(world: World) -> None:
    await world.configure("q", tenant_fairness={"enabled": True})
    await of_tenants(world, a=100, b=1)
    await tenants(world, 50)
    await of_tenants(world, b=40)
    found = await tenants(world, 20)
    assert found in {"ab" * 10, "ba" * 10}


@in_world()
async def test_003_9_2_a_pool_may_have_its_own_fairness(world: World) -> None:
    await world.put("/admin/pools/fair", {"queues": ["q"], "tenant_fairness": {"enabled": True}})
    await of_tenants(world, a=30, b=30)
    assert await tenants(world, 5) == "aaaaa"
    assert await tenants(world, 6, pool="fair") in {"ababab", "bababa"}


@in_world()
async def test_003_9_3_priority_goes_before_fairness(world: World) -> None:
    await world.configure("q", tenant_fairness={"enabled": True})
    await of_tenants(world, b=5)
    for _ in range(5):
        await world.push(queue="q", priority=10, meta={"tenant_id": "a"})
    await of_tenants(world, a=5)
    assert await tenants(world, 5) == "aaaaa"
    assert (await tenants(world, 10)).count("b") == 5


@in_world()
async def test_003_9_1_the_tenant_is_the_one_in_meta(world: World) -> None:
    job = await world.push(meta={"tenant_id": "acme"})
    found = await world.get("/admin/tenants/acme")
    assert chosen(found, "tenant_id", "total_jobs") == {"tenant_id": "acme", "total_jobs": 1}
    assert [j["id"] for j in (await world.get("/admin/tenants/acme/jobs"))["items"]] == [job]
    await world.later(MINUTE)
