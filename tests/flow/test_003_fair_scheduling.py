"""Fair scheduling (seed 003), sentence by sentence: consumers, pools, strategies (4 to 7)."""

from __future__ import annotations

import asyncio

from tests.flow.test_003_requirements import fill, order
from tests.flow.world import World, in_world


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
