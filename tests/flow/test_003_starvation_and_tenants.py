"""Fair scheduling (seed 003), sentence by sentence: starvation, tenants (8 and 9)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.flow.test_003_requirements import fill, of_tenants, order, tenants
from tests.flow.world import MINUTE, SECOND, World, chosen, in_world


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
