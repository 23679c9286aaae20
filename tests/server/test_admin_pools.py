from __future__ import annotations

from typing import Any

import pytest

from headgate.engines.contract import Fetch
from tests.server.admin_world import World, in_world

OFF = {"enabled": False, "rotation_interval": "PT30S", "min_dispatch_ratio": 0.05}


@in_world()
async def test_a_pool_is_created_and_then_replaced(world: World) -> None:
    body = {"queues": ["critical", "payments"], "concurrency": 20, "strategy": "strict"}
    created = await world.call("PUT", "/admin/pools/critical-workers", body)
    assert created.status == 201
    assert created.body == {
        "pool": {
            "name": "critical-workers",
            "queues": ["critical", "payments"],
            "concurrency": 20,
            "strategy": "strict",
            "isolated": False,
            "starvation_prevention": OFF,
            "active_workers": 0,
            "active_jobs": 0,
        }
    }
    weights = {"name": "critical-workers", "queues": {"a": {"weight": 7}, "b": None},
               "strategy": "weighted"}  # fmt: skip
    replaced = await world.call("PUT", "/admin/pools/critical-workers", {"pool": weights})
    assert replaced.status == 200
    assert replaced.body == {
        "pool": {
            "name": "critical-workers",
            "queues": ["a", "b"],
            "strategy": "weighted",
            "weights": {"a": 7, "b": 1},
            "isolated": False,
            "starvation_prevention": OFF,
            "active_workers": 0,
            "active_jobs": 0,
        }
    }
    assert (await world.call("GET", "/admin/pools/critical-workers")).body == replaced.body


@in_world()
async def test_pools_are_listed_with_their_workers_and_jobs(world: World) -> None:
    for name in ("b", "a"):
        await world.call("PUT", f"/admin/pools/{name}", {"queues": ["mail"]})
    await world.beat("w1", pool="a", queues=["mail"])
    await world.beat("w2", pool="a", queues=["mail"])
    await world.push("mail", count=3)
    assert len(await world.fetch("mail", 3, worker="w1")) == 3
    body = (await world.call("GET", "/admin/pools")).body
    shown = [(p["name"], p["active_workers"], p["active_jobs"]) for p in body["items"]]
    assert shown == [("a", 2, 3), ("b", 0, 0)]
    assert body["pagination"] == {"total": 2, "page": 1, "per_page": 20}


@in_world()
async def test_a_pool_is_deleted_and_its_workers_go_on(world: World) -> None:
    await world.call("PUT", "/admin/pools/gpu", {"queues": ["video"]})
    await world.push("mail")
    await world.beat("w", pool="gpu")
    assert await world.fetch("mail", worker="w") == []
    reply = await world.call("DELETE", "/admin/pools/gpu")
    assert (reply.status, reply.body) == (200, {"deleted": True, "name": "gpu"})
    assert len(await world.fetch("mail", worker="w")) == 1
    for method in ("GET", "DELETE"):
        missing = await world.call(method, "/admin/pools/gpu")
        assert (missing.status, missing.error["details"]) == (404, {"pool": "gpu"})


@pytest.mark.parametrize(
    ("name", "body", "field"),
    [
        ("p", {}, "body.queues"),
        ("p", {"queues": []}, "body.queues"),
        ("p", {"queues": ["a", "a"]}, "body.queues[1]"),
        ("p", {"queues": ["A"]}, "body.queues[0]"),
        ("p", {"queues": ["a"], "concurrency": 0}, "body.concurrency"),
        ("p", {"queues": ["a"], "strategy": "fifo"}, "body.strategy"),
        ("p", {"queues": ["a"], "weights": {"a": -1}}, "body.weights.a"),
        ("p", {"queues": ["a"], "weights": {"b": 1}}, "body.weights.b"),
        ("p", {"queues": ["a"], "name": "q"}, "body.name"),
        ("p", {"queues": ["a"], "extra": 1}, "body.extra"),
        ("p", {"queues": ["a", "b", "c"],
               "starvation_prevention": {"enabled": True, "min_dispatch_ratio": 0.34}},
         "body.starvation_prevention.min_dispatch_ratio"),
        ("-p", {"queues": ["a"]}, "name"),
    ],
)  # fmt: skip
def test_pools_that_cannot_be(name: str, body: Any, field: str) -> None:
    @in_world()
    async def ask(world: World) -> None:
        reply = await world.call("PUT", f"/admin/pools/{name}", body)
        assert (reply.status, reply.error["details"]["field"]) == (400, field)
        assert (await world.call("GET", "/admin/pools")).body["items"] == []

    ask()


@in_world()
async def test_what_queues_got_adds_up(world: World) -> None:
    await world.push("a", count=3)
    await world.push("b", count=1)
    world.now_ms += 200
    await world.engine.fetch(Fetch(("a", "b"), 4), world.now_ms)
    body = (await world.call("GET", "/admin/scheduling/stats")).body
    by_name = {queue["name"]: queue for queue in body["queues"]}
    assert by_name["a"] == {
        "name": "a",
        "dispatch_count_1m": 3,
        "dispatch_ratio_1m": 0.75,
        "avg_wait_ms": 200.0,
        "active_jobs": 3,
    }
    assert by_name["b"]["dispatch_ratio_1m"] == 0.25
    assert sum(queue["dispatch_ratio_1m"] for queue in body["queues"]) == 1
    assert sum(q["dispatch_count_1m"] for q in body["queues"]) == body["total_dispatches"] == 4
    assert body["window"] == "PT1M"
    assert body["stats"] == {key: body[key] for key in ("queues", "total_dispatches", "window")}


@in_world()
async def test_without_dispatches_the_shares_are_zero(world: World) -> None:
    body = (await world.call("GET", "/admin/scheduling/stats")).body
    assert all(queue["dispatch_ratio_1m"] == 0 for queue in body["queues"])
    await world.push()
    await world.fetch()
    world.now_ms += 61_000
    body = (await world.call("GET", "/admin/scheduling/stats")).body
    assert body["total_dispatches"] == 0


@in_world()
async def test_giving_a_pool_another_strategy_is_told(world: World) -> None:
    await world.call("PUT", "/admin/pools/p", {"queues": ["a"], "strategy": "strict"})
    await world.call("PUT", "/admin/pools/p", {"queues": ["a"], "strategy": "weighted"})
    events = (await world.call("GET", "/events?types=scheduling.*")).body["events"]
    (event,) = events
    data = event["data"]
    assert event["type"] == "scheduling.rebalanced"
    assert (data["pool"], data["previous_strategy"], data["new_strategy"]) == (
        "p",
        "strict",
        "weighted",
    )
