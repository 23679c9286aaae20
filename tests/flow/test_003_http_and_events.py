"""Fair scheduling (seed 003), sentence by sentence: HTTP, events, metrics, examples (10 to 14), and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.flow.test_003_requirements import fill, of_tenants, order, tenants
from tests.flow.world import MINUTE, SECOND, World, chosen, in_world


@in_world()
async def test_003_10_1_a_pool_is_created_updated_and_deleted(world: World) -> None:
    body = {"queues": ["critical", "payments"], "concurrency": 20, "strategy": "strict"}
    first = await world.call("PUT", "/admin/pools/p", body)
    assert first.status == 201
    again = await world.call("PUT", "/admin/pools/p", {"queues": ["critical"]})
    assert (again.status, again.body["pool"]["strategy"]) == (200, "round-robin")
    assert "concurrency" not in again.body["pool"], "what is left out has its default again"
    await world.finish("/admin/pools/p", method="DELETE")
    assert (await world.get("/admin/pools"))["items"] == []
    assert (await world.call("DELETE", "/admin/pools/p")).status == 404


@in_world()
async def test_003_10_1_weights_can_be_changed_at_run_time(world: World) -> None:
    pool: dict[str, Any] = {"queues": ["a", "b"], "strategy": "weighted", "weights": {"a": 3}}
    await world.put("/admin/pools/p", pool)
    await fill(world, 60, "a", "b")
    assert sorted(await order(world, 4, pool="p")) == list("aaab")
    pool["weights"] = {"b": 3}
    await world.put("/admin/pools/p", pool)
    assert sorted(await order(world, 4, pool="p")) == list("abbb")
    pool["strategy"] = "strict"
    await world.put("/admin/pools/p", pool)
    assert await order(world, 4, pool="p") == "aaaa"


@in_world()
async def test_003_10_2_the_figures_add_up(world: World) -> None:
    await world.put("/admin/pools/p", {"queues": ["a", "b", "c"], "strategy": "weighted"})
    await fill(world, 20, "a", "b", "c")
    for _ in range(13):
        await order(world, 1, pool="p")
        await world.later(SECOND)
    found = await world.get("/admin/scheduling/stats")
    counts = [queue["dispatch_count_1m"] for queue in found["queues"]]
    assert sum(counts) == found["total_dispatches"] == 13
    for queue in found["queues"]:
        assert queue["dispatch_ratio_1m"] == pytest.approx(queue["dispatch_count_1m"] / 13)
    started = await world.events("job.started")
    assert len(started) == 13
    dispatched = {k: v for k, v in (await world.samples()).items() if "dispatch_total" in k}
    assert sum(dispatched.values()) == 13


@in_world()
async def test_003_11_1_a_starved_queue_is_told(world: World) -> None:
    starvation = {"enabled": True, "rotation_interval": "PT10S", "min_dispatch_ratio": 0.01}
    pool = {"queues": ["a", "b"], "strategy": "strict", "starvation_prevention": starvation}
    await world.put("/admin/pools/p", pool)
    await fill(world, 30, "a", "b")
    for _ in range(11):
        await order(world, 1, pool="p")
        await world.later(SECOND)
    (told,) = await world.events("scheduling.queue_starved")
    assert chosen(told, "queue", "duration", "available_count") == {
        "queue": "b",
        "duration": 10,
        "available_count": told["available_count"],
    }
    assert 29 <= told["available_count"] <= 30
    found = await world.samples()
    assert found['ojs_scheduling_starvation_events_total{queue="b"}'] == 1


@in_world()
async def test_003_11_1_an_overloaded_pool_is_told(world: World) -> None:
    await world.put("/admin/pools/p", {"queues": ["a", "b"], "concurrency": 3})
    await fill(world, 2, "a", "b")
    await world.take("x", count=2, pool="p")
    assert await world.events("scheduling.pool_overloaded") == []
    await world.take("x", count=2, pool="p")
    (told,) = await world.events("scheduling.pool_overloaded")
    assert chosen(told, "pool", "active_jobs", "waiting_jobs") == {
        "pool": "p",
        "active_jobs": 3,
        "waiting_jobs": 1,
    }


@in_world()
async def test_003_11_1_a_pool_is_overloaded_when_all_its_workers_are(world: World) -> None:
    await world.put("/admin/pools/p", {"queues": ["a"]})
    for worker, pool in (("w1", "p"), ("w2", "p"), ("w3", "other")):
        register = {"worker_id": worker, "pool": pool, "concurrency": 2}
        await world.finish("/workers/register", register)
    await fill(world, 9, "a")
    (job, _) = await world.take("x", worker_id="w1", count=2)
    (_,) = await world.take("x", worker_id="w2", count=1)
    assert await world.events("scheduling.pool_overloaded") == []
    await world.take("x", worker_id="w2", count=1)
    (told,) = await world.events("scheduling.pool_overloaded")
    overloaded = {"pool": "p", "active_jobs": 4, "waiting_jobs": 5}
    assert chosen(told, *overloaded) == overloaded
    # It is told once, until there was nothing left to do.
    await world.ack(job)
    await world.take("x", worker_id="w1", count=1)
    assert len(await world.events("scheduling.pool_overloaded")) == 1


@in_world()
async def test_003_11_1_a_worker_that_rests_or_names_no_number_makes_no_difference(
    world: World,
) -> None:
    await world.put("/admin/pools/p", {"queues": ["a"]})
    for worker, more in (("full", {"concurrency": 1}), ("quiet", {"concurrency": 9})):
        register = {"worker_id": worker, "pool": "p", **more}
        await world.finish("/workers/register", register)
    beat = {"worker_id": "quiet", "state": "quiet", "active_jobs": []}
    await world.finish("/workers/heartbeat", beat)
    await world.finish("/workers/register", {"worker_id": "boundless", "pool": "p"})
    await fill(world, 5, "a")
    await world.take("x", worker_id="full", count=1)
    assert await world.events("scheduling.pool_overloaded") == []
    await world.finish("/workers/deregister", {"worker_id": "boundless"})
    await world.take("x", worker_id="quiet", count=1)
    await world.take("x", pool="p", count=1)
    assert len(await world.events("scheduling.pool_overloaded")) == 1


@in_world()
async def test_003_11_1_a_pool_that_was_made_smaller_is_told_when_somebody_asks_in_vain(
    world: World,
) -> None:
    await world.put("/admin/pools/p", {"queues": ["a"]})
    await fill(world, 3, "a")
    await world.take("x", pool="p", count=2)
    await world.put("/admin/pools/p", {"queues": ["a"], "concurrency": 1})
    assert await world.take("x", pool="p") == []
    (told,) = await world.events("scheduling.pool_overloaded")
    assert chosen(told, "active_jobs", "waiting_jobs") == {"active_jobs": 2, "waiting_jobs": 1}


@in_world()
async def test_003_11_1_a_rebalanced_pool_is_told(world: World) -> None:
    await world.put("/admin/pools/p", {"queues": ["a", "b"], "strategy": "strict"})
    assert await world.events("scheduling.rebalanced") == []
    await world.put("/admin/pools/p", {"queues": ["a", "b"], "strategy": "weighted"})
    (told,) = await world.events("scheduling.rebalanced")
    assert chosen(told, "pool", "previous_strategy", "new_strategy") == {
        "pool": "p",
        "previous_strategy": "strict",
        "new_strategy": "weighted",
    }


@in_world()
async def test_003_11_2_the_metrics_have_their_names_and_labels(world: World) -> None:
    await world.put("/admin/pools/p", {"queues": ["a", "b"], "concurrency": 4})
    await fill(world, 5, "a", "b")
    await world.later(3 * SECOND)
    await world.take("x", count=2, pool="p")
    await world.take("a", count=2)
    found = await world.samples()
    assert found['ojs_scheduling_dispatch_total{queue="a",pool="p"}'] == 1
    assert found['ojs_scheduling_dispatch_total{queue="b",pool="p"}'] == 1
    assert found['ojs_scheduling_dispatch_total{queue="a",pool="default"}'] == 2
    assert found['ojs_scheduling_dispatch_ratio{queue="a"}'] == 0.75
    assert found['ojs_scheduling_pool_utilization{pool="p"}'] == 0.5
    assert found['ojs_scheduling_queue_wait_duration_seconds_count{queue="a"}'] == 3
    assert found['ojs_scheduling_queue_wait_duration_seconds_sum{queue="a"}'] == 9


@in_world()
async def test_003_11_2_an_old_runnable_job_is_told_from_one_that_a_limit_keeps_waiting(
    world: World,
) -> None:
    await world.limited("k", "q", concurrency=0)
    await world.later(MINUTE)
    free = await world.push(queue="q")
    await world.later(5 * SECOND)
    stats = await world.stats("q")
    assert stats["oldest_available_age_ms"] == MINUTE + 5 * SECOND
    assert stats["oldest_runnable_age_ms"] == 5 * SECOND
    found = await world.samples()
    assert found['ojs_queue_oldest_available_age_seconds{queue="q"}'] == 65
    assert found['ojs_queue_oldest_runnable_age_seconds{queue="q"}'] == 5
    assert await world.take("q") == [free]
    assert "oldest_runnable_age_ms" not in await world.stats("q")


@in_world()
async def test_003_14_1_a_worker_may_ask_for_weights_itself(world: World) -> None:
    queues = ["critical", "default", "low"]
    await fill(world, 30, *queues)
    asked = {
        "worker_id": "worker-abc-123",
        "pool": "general",
        "strategy": "weighted",
        "weights": {"critical": 5, "default": 3, "low": 1},
    }
    found = [await order(world, 1, *queues, **asked) for _ in range(18)]
    assert [found.count(queue) for queue in queues] == [10, 6, 2]


@in_world()
async def test_003_14_2_dedicated_workers_for_payments(world: World) -> None:
    payments = {"queues": ["payments"], "concurrency": 10, "strategy": "strict", "isolated": True}
    general = {
        "queues": ["default", "email", "notifications"],
        "concurrency": 50,
        "strategy": "round-robin",
    }
    await world.put("/admin/pools/payment-workers", payments)
    await world.put("/admin/pools/general-workers", general)
    await fill(world, 20, "payments", "default")
    assert len(await world.take("x", pool="payment-workers")) == 10
    taken = await world.take("payments", pool="general-workers")
    assert {(await world.job(job))["queue"] for job in taken} == {"default"}
    assert await world.take("payments") == []


@in_world()
async def test_003_14_3_analytics_gets_its_tenth(world: World) -> None:
    pool = {
        "queues": ["critical", "default", "analytics"],
        "strategy": "strict",
        "starvation_prevention": {
            "enabled": True,
            "rotation_interval": "PT30S",
            "min_dispatch_ratio": 0.10,
        },
    }
    await world.put("/admin/pools/general", {"pool": {"name": "general", **pool}})
    await fill(world, 200, *pool["queues"])
    found = [await order(world, 1, pool="general") for _ in range(100)]
    assert found.count("analytics") == 10
    assert found.count("default") == 10
    assert found.count("critical") == 80


@in_world()
async def test_003_14_4_one_tenant_cannot_monopolize_the_queue(world: World) -> None:
    fairness = {"enabled": True, "strategy": "fair-share", "default_weight": 1}
    await world.configure("q", tenant_fairness=fairness)
    await of_tenants(world, a=900, b=100)
    found = await tenants(world, 200)
    assert (found.count("a"), found.count("b")) == (100, 100)


WRONG: list[tuple[Any, str]] = [
    ({}, "body.queues"),
    ({"queues": []}, "body.queues"),
    ({"queues": "a"}, "body.queues"),
    ({"queues": ["a", "a"]}, "body.queues[1]"),
    ({"queues": ["A b"]}, "body.queues[0]"),
    ({"queues": [5]}, "body.queues[0]"),
    ({"queues": ["a"], "name": "other"}, "body.name"),
    ({"queues": ["a"], "strategy": "random"}, "body.strategy"),
    ({"queues": ["a"], "strategy": 1}, "body.strategy"),
    ({"queues": ["a"], "strategy": "weighted", "weights": {"a": -1}}, "body.weights.a"),
    ({"queues": ["a"], "strategy": "weighted", "weights": {"a": 0}}, "body.weights.a"),
    ({"queues": ["a"], "strategy": "weighted", "weights": {"a": 1.5}}, "body.weights.a"),
    ({"queues": ["a"], "strategy": "weighted", "weights": {"b": 1}}, "body.weights.b"),
    ({"queues": ["a"], "concurrency": 0}, "body.concurrency"),
    ({"queues": ["a"], "concurrency": -1}, "body.concurrency"),
    ({"queues": ["a"], "isolated": "yes"}, "body.isolated"),
    ({"queues": ["a"], "colour": "green"}, "body.colour"),
    ({"queues": ["a"], "starvation_prevention": 1}, "body.starvation_prevention"),
    (
        {"queues": ["a"], "starvation_prevention": {"rotation_interval": "PT0S"}},
        "body.starvation_prevention.rotation_interval",
    ),
    (
        {"queues": ["a"], "starvation_prevention": {"min_dispatch_ratio": 1.5}},
        "body.starvation_prevention.min_dispatch_ratio",
    ),
    (
        # Three queues cannot each have 40 %.
        {
            "queues": ["a", "b", "c"],
            "starvation_prevention": {"enabled": True, "min_dispatch_ratio": 0.4},
        },
        "body.starvation_prevention.min_dispatch_ratio",
    ),
    (
        {"queues": ["a"], "tenant_fairness": {"weights": {"acme": -1}}},
        "body.tenant_fairness.weights.acme",
    ),
    (
        {"queues": ["a"], "tenant_fairness": {"strategy": "lottery"}},
        "body.tenant_fairness.strategy",
    ),
]


@pytest.mark.parametrize(("pool", "field"), WRONG)
@in_world()
async def test_003_6_1_a_wrong_pool_is_refused(world: World, pool: Any, field: str) -> None:
    await world.put("/admin/pools/p", {"queues": ["a", "b"], "strategy": "strict"})
    for name in ("p", "fresh"):
        if pool.get("name") != name:
            await world.refused("PUT", f"/admin/pools/{name}", pool, field)


@in_world()
async def test_003_8_2_three_queues_may_have_a_third_each(world: World) -> None:
    starvation = {"enabled": True, "min_dispatch_ratio": 0.3333}
    pool = {"queues": ["a", "b", "c"], "strategy": "strict", "starvation_prevention": starvation}
    await world.put("/admin/pools/p", pool)
    await fill(world, 30, "a", "b", "c")
    found = await order(world, 30, pool="p")
    assert {queue: found.count(queue) for queue in "abc"} == {"a": 10, "b": 10, "c": 10}


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"strategy": "random"}, "strategy"),
        ({"strategy": "weighted", "weights": {"a": -1}}, "weights.a"),
        ({"strategy": "weighted", "weights": {"other": 1}}, "weights.other"),
        ({"pool": "a b"}, "pool"),
    ],
)
@in_world()
async def test_003_5_2_a_wrong_wish_is_refused(world: World, asked: Any, field: str) -> None:
    await fill(world, 1, "a")
    await world.refused("POST", "/workers/fetch", {"queues": ["a"], **asked}, field)


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        ({"fairness_weight": 0}, "limits.fairness_weight"),
        ({"fairness_weight": -1}, "limits.fairness_weight"),
        ({"max_concurrency": -1}, "limits.max_concurrency"),
        ({"max_queue_depth": "5"}, "limits.max_queue_depth"),
        ({"max_enqueue_rate": {"limit": 1, "period": "PT0S"}}, "limits.max_enqueue_rate.period"),
        ({"priority_boost": 101}, "limits.priority_boost"),
        ({"luck": 7}, "limits.luck"),
    ],
)
@in_world()
async def test_003_9_wrong_limits_of_a_tenant_are_refused(
    world: World, limits: Any, field: str
) -> None:
    await world.put("/admin/tenants/acme", {"limits": {"max_concurrency": 3}})
    for tenant in ("acme", "fresh"):
        path = f"/admin/tenants/{tenant}"
        await world.refused("PUT", path, {"limits": limits}, f"body.{field}")
