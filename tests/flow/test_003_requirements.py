"""Fair scheduling (seed 003): what is required and recommended, FS-001 to FS-004 and FS-R001 to FS-R006 (12)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.flow.world import MINUTE, SECOND, World, chosen, in_world


async def fill(world: World, count: int, *queues: str) -> None:
    for queue in queues:
        jobs = [{"type": "t", "args": [], "queue": queue}] * count
        await world.finish("/jobs/batch", {"jobs": jobs})


async def order(world: World, count: int, *queues: str, **asked: Any) -> str:
    """From which queues so many jobs come, one fetch for each; they are completed at once."""
    body = {"queues": list(queues) or ["none"], **asked}
    found = ""
    for _ in range(count):
        jobs = (await world.finish("/workers/fetch", body))["jobs"]
        for job in jobs:
            found += job["queue"]
            await world.ack(job["id"])
    return found


@in_world()
async def test_FS_001_each_job_is_given_to_exactly_one_worker(world: World) -> None:
    jobs = [await world.push(queue="q") for _ in range(100)]
    asked = [
        world.ask("POST", "/workers/fetch", {"queues": ["q"], "worker_id": f"w{n}", "count": 7})
        for n in range(20)
    ]
    replies = await asyncio.gather(*(client.reply() for client in asked))
    taken = [job["id"] for reply in replies for job in reply.body["jobs"]]
    assert sorted(taken) == sorted(jobs)
    workers = {(await world.job(job))["worker_id"] for job in jobs}
    assert len(workers) >= 100 / 7


@in_world()
async def test_FS_001_a_new_job_goes_to_one_of_those_who_wait_for_it(world: World) -> None:
    body = {"queues": ["q"], "wait_ms": 30_000}
    waiting = [
        world.ask("POST", "/workers/fetch", {**body, "worker_id": f"w{n}"}) for n in range(5)
    ]
    for _ in range(20):
        await asyncio.sleep(0)
    jobs = [await world.push(queue="q") for _ in range(3)]
    for _ in range(50):
        await asyncio.sleep(0)
    answered = [client for client in waiting if client.sent]
    taken = [job["id"] for client in answered for job in (await client.reply()).body["jobs"]]
    assert sorted(taken) == sorted(jobs)
    assert len(answered) == 3
    for client in waiting:
        client.leave()


@in_world()
async def test_FS_002_workers_consume_from_several_queues(world: World) -> None:
    await fill(world, 2, "a", "b", "c")
    assert await order(world, 7, "b", "c", "a") == "bbccaa"


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"strategy": "round-robin"}, "abcabcabc"),
        ({"strategy": "weighted", "weights": {"a": 3, "b": 2, "c": 1}}, None),
        ({"strategy": "least-loaded"}, None),
        ({"strategy": "strict"}, "aaaaaaaaa"),
    ],
)
@in_world()
async def test_FS_003_all_fair_distribution_strategies(
    world: World, asked: dict[str, Any], expected: str | None
) -> None:
    await fill(world, 12, "a", "b", "c")
    await fill(world, 6, "c")
    found = await order(world, 9, "a", "b", "c", **asked)
    if expected is not None:
        assert found == expected
    elif asked["strategy"] == "weighted":
        # Exact over each cycle of weights.
        assert sorted(found[:6]) == list("aaabbc")
        assert sorted(found[3:9]) == list("aaabbc")
    else:
        assert found[:6] == "cccccc", "the deepest backlog first"
        assert sorted(found[6:]) == list("abc")


@in_world()
async def test_FS_004_pools_are_listed_with_their_workers_and_jobs(world: World) -> None:
    critical = {"queues": ["critical", "payments"], "concurrency": 20, "strategy": "strict"}
    weights = {"default": 3, "email": 2, "notifications": 1}
    default = {
        "queues": ["default", "email", "notifications"],
        "concurrency": 50,
        "strategy": "weighted",
        "weights": weights,
    }
    await world.put("/admin/pools/critical-workers", critical)
    await world.put("/admin/pools/default-workers", default)
    for number, pool in enumerate(["critical-workers", "critical-workers", "default-workers"]):
        register = {"worker_id": f"w{number}", "pool": pool, "queues": []}
        await world.finish("/workers/register", register)
    await fill(world, 5, "critical", "email")
    await world.take("any", count=3, worker_id="w0")
    await world.take("any", count=2, worker_id="w2")
    items = (await world.get("/admin/pools"))["items"]
    names = ("name", "queues", "concurrency", "strategy", "active_workers", "active_jobs")
    assert chosen(items, *names) == [
        {"name": "critical-workers", **critical, "active_workers": 2, "active_jobs": 3},
        chosen(
            {"name": "default-workers", **default, "active_workers": 1, "active_jobs": 2}, *names
        ),
    ]
    assert items[1]["weights"] == weights
    assert "weights" not in items[0]


@in_world()
async def test_FS_R001_a_pool_serves_its_queues_and_has_its_concurrency(world: World) -> None:
    await world.put("/admin/pools/p", {"queues": ["a", "b"], "concurrency": 3})
    await fill(world, 5, "a", "b", "c")
    first = await world.take("c", count=9, pool="p", worker_id="w1")
    assert len(first) == 3
    assert {(await world.job(job))["queue"] for job in first} == {"a", "b"}
    # All workers of the pool together.
    assert await world.take("a", pool="p", worker_id="w2") == []
    await world.ack(first[0])
    assert len(await world.take("a", pool="p", worker_id="w2")) == 1
    # Nobody else is kept from them.
    assert len(await world.take("a", "c", worker_id="w3")) >= 5


@in_world()
async def test_FS_R002_weights_are_configurable_and_exact(world: World) -> None:
    weights = {"critical": 5, "default": 3, "low": 1}
    queues = list(weights)
    await world.put(
        "/admin/pools/p", {"queues": queues, "strategy": "weighted", "weights": weights}
    )
    await fill(world, 60, *queues)
    seen: list[str] = []
    for _ in range(54):
        (job,) = (await world.finish("/workers/fetch", {"queues": ["x"], "pool": "p"}))["jobs"]
        seen.append(job["queue"])
        await world.ack(job["id"])
    for start in range(len(seen) - 8):
        window = seen[start : start + 9]
        assert {queue: window.count(queue) for queue in queues} == weights


@in_world()
async def test_FS_R003_no_queue_starves_with_starvation_prevention(world: World) -> None:
    pool = {
        "queues": ["a", "b"],
        "strategy": "strict",
        "starvation_prevention": {
            "enabled": True,
            "rotation_interval": "PT10S",
            "min_dispatch_ratio": 0.1,
        },
    }
    await world.put("/admin/pools/p", pool)
    await fill(world, 200, "a", "b")
    # Many dispatches in an interval: its share. The rest goes as the strategy says.
    found = await order(world, 100, pool="p")
    assert all(found[start : start + 10].count("b") == 1 for start in range(91))
    # Few dispatches: it takes the next one after an interval without.
    rare = ""
    for _ in range(8):
        rare += await order(world, 1, pool="p")
        await world.later(10 * SECOND)
    assert "aa" not in rare[1:]


@in_world()
async def test_FS_R003_without_it_strict_lets_the_last_queue_wait(world: World) -> None:
    await world.put("/admin/pools/p", {"queues": ["a", "b"], "strategy": "strict"})
    await fill(world, 60, "a", "b")
    assert await order(world, 60, pool="p") == "a" * 60


@in_world()
async def test_FS_R004_scheduling_statistics(world: World) -> None:
    await fill(world, 6, "critical", "low")
    await world.later(2 * SECOND)
    critical = await world.take("critical", count=6)
    await world.take("low", count=2)
    await world.ack(*critical[:5])
    found = await world.get("/admin/scheduling/stats")
    assert found["window"] == "PT1M"
    by_name = {queue["name"]: queue for queue in found["queues"]}
    assert by_name["critical"] == {
        "name": "critical",
        "dispatch_count_1m": 6,
        "dispatch_ratio_1m": 0.75,
        "avg_wait_ms": 2_000,
        "active_jobs": 1,
    }
    assert chosen(by_name["low"], "dispatch_count_1m", "dispatch_ratio_1m", "active_jobs") == {
        "dispatch_count_1m": 2,
        "dispatch_ratio_1m": 0.25,
        "active_jobs": 2,
    }
    assert sum(queue["dispatch_ratio_1m"] for queue in found["queues"]) == pytest.approx(1)
    await world.later(2 * MINUTE)
    for queue in (await world.get("/admin/scheduling/stats"))["queues"]:
        assert (queue["dispatch_count_1m"], queue["dispatch_ratio_1m"]) == (0, 0)


async def of_tenants(world: World, queue: str = "q", **counts: int) -> None:
    for tenant, count in counts.items():
        job = {"type": "t", "args": [], "queue": queue, "meta": {"tenant_id": tenant}}
        await world.finish("/jobs/batch", {"jobs": [job] * count})


async def tenants(world: World, count: int, queue: str = "q", **asked: Any) -> str:
    found = ""
    for _ in range(count):
        (job,) = await world.fetch(queue, **asked)
        found += job["meta"]["tenant_id"]
        await world.ack(job["id"])
    return found


@in_world()
async def test_FS_R005_tenants_take_turns(world: World) -> None:
    await world.configure("q", tenant_fairness={"enabled": True})
    await of_tenants(world, a=500, b=10)
    found = await tenants(world, 30)
    assert found[:20] in {"ab" * 10, "ba" * 10}
    assert found[20:] == "a" * 10


@in_world()
async def test_FS_R006_an_isolated_pool_keeps_its_queues_for_itself(world: World) -> None:
    await world.put("/admin/pools/gpu", {"queues": ["images"], "isolated": True})
    await world.put("/admin/pools/general", {"queues": ["default", "images"]})
    await fill(world, 3, "images", "default")
    general = await world.take("any", pool="general")
    assert {(await world.job(job))["queue"] for job in general} == {"default"}
    found = await world.call("POST", "/workers/fetch", {"queues": ["images"]})
    assert found.body == {"jobs": [], "reasons": {"images": "isolated"}}
    assert len(await world.take("any", pool="gpu")) == 3
