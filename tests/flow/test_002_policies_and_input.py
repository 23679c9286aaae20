"""Queue configuration (seed 002), sentence by sentence: policies, other extensions, HTTP, events, metrics (6.5 to 10)."""

from __future__ import annotations

from typing import Any

from tests.contract.home import until
from tests.flow.world import MINUTE, SECOND, START, World, chosen, in_world


@in_world()
async def test_002_7_2_a_queue_is_resolved_in_layers(world: World) -> None:
    system = await world.get("/queues/_default/config")
    await world.put("/queues/_default/config", {"concurrency": 10, "default_timeout": 100})
    await world.configure("q", default_timeout=5)
    shown = (await world.get("/queues/q"))["config"]
    assert chosen(shown, "concurrency", "default_timeout", "visibility_timeout") == {
        "concurrency": 10,
        "default_timeout": 5,
        "visibility_timeout": system["visibility_timeout"],
    }
    # Layers live: the policy shows in every queue that does not override it, at once.
    await world.put("/queues/_default/config", {"concurrency": 3, "default_timeout": 7})
    shown = (await world.get("/queues/q"))["config"]
    assert (shown["concurrency"], shown["default_timeout"]) == (3, 5)
    await world.configure("q", default_timeout=None)
    assert (await world.get("/queues/q/config"))["default_timeout"] == 7


@in_world()
async def test_002_7_2_only_members_that_are_set_override_inside_an_object(world: World) -> None:
    policy = {
        "retention": {"completed": "P1D", "cancelled": "P2D"},
        "default_retry": {"max_attempts": 9, "initial_interval": "PT5S"},
        "backpressure": {"max_depth": 9, "warning_threshold": 0.5},
    }
    await world.put("/queues/_default/config", policy)
    shown = await world.configure(
        "q",
        retention={"completed": "P3D"},
        default_retry={"max_attempts": 2},
        backpressure={"max_depth": 4},
    )
    assert shown["retention"] == {"completed": "P3D", "discarded": "P30D", "cancelled": "P2D"}
    assert chosen(shown["default_retry"], "max_attempts", "initial_interval") == {
        "max_attempts": 2,
        "initial_interval": "PT5S",
    }
    assert chosen(shown["backpressure"], "max_depth", "warning_threshold") == {
        "max_depth": 4,
        "warning_threshold": 0.5,
    }


@in_world()
async def test_002_7_3_job_over_queue_over_policy_over_system(world: World) -> None:
    async def timeout(**members: Any) -> int:
        job = await world.job(await world.push(queue="q", **members))
        found: int = job["timeout"]
        return found

    assert await timeout() == 1800
    await world.put("/queues/_default/config", {"default_timeout": 300})
    assert await timeout() == 300
    await world.configure("q", default_timeout=200)
    assert await timeout() == 200
    assert await timeout(timeout=100) == 100


@in_world()
async def test_002_8_2_both_vocabularies_mean_the_same(world: World) -> None:
    await world.configure("q", backpressure={"strategy": "drop_oldest"})
    assert (await world.get("/queues/q/config"))["overflow_policy"] == "drop_oldest"
    await world.configure("q", overflow_policy="block")
    assert (await world.get("/queues/q/config"))["backpressure"]["strategy"] == "block"
    await world.refused(
        "PUT",
        "/queues/q/config",
        {"overflow_policy": "reject", "backpressure": {"strategy": "block"}},
        "config.backpressure.strategy",
    )


@in_world()
async def test_002_8_3_the_queues_rate_is_independent_of_the_jobs_own(world: World) -> None:
    await world.configure("q", rate_limit={"limit": 3, "period": "PT1M"})
    limited = [await world.limited("k", "q", concurrency=1) for _ in range(2)]
    free = [await world.push(queue="q") for _ in range(3)]
    assert await world.take("q") == [limited[0], *free[:2]]
    await world.ack(limited[0])
    assert await world.take("q") == [], "the key is open, the queue is not"


@in_world()
async def test_002_8_4_priority_is_as_it_was_whatever_the_queue_is_configured(
    world: World,
) -> None:
    await world.configure("q", concurrency=1, max_size=10)
    low, high = await world.push(queue="q", priority=-1), await world.push(queue="q", priority=9)
    assert [(await world.run("q"))[0] for _ in range(2)] == [high, low]


@in_world()
async def test_002_8_5_what_is_configured_for_a_tenant_affects_no_other(world: World) -> None:
    await world.put("/admin/tenants/a", {"limits": {"max_concurrency": 1, "max_queue_depth": 2}})
    body = {"type": "t", "args": [], "queue": "q"}
    for tenant in ("a", "b", "b", "a", "b"):
        assert (await world.call("POST", "/jobs", body, x_ojs_tenant=tenant)).status == 201
    assert (await world.call("POST", "/jobs", body, x_ojs_tenant="a")).status == 429
    assert (await world.call("POST", "/jobs", body, x_ojs_tenant="b")).status == 201
    taken = [job["meta"]["tenant_id"] for job in await world.fetch("q", count=9)]
    assert taken == ["a", "b", "b", "b", "b"]


PAYMENTS = {
    "max_size": 100_000,
    "concurrency": 20,
    "visibility_timeout": 300,
    "default_timeout": 1800,
    "dead_letter_queue": "payments-dlq",
    "retention": {"completed": "P3D", "discarded": "P30D"},
    "allowed_job_types": ["payment.*"],
    "default_retry": {
        "max_attempts": 5,
        "initial_interval": "PT5S",
        "backoff_coefficient": 3.0,
    },
}


@in_world()
async def test_002_9_2_a_created_queue_is_answered_as_it_is_resolved(world: World) -> None:
    found = await world.call("POST", "/queues", {"name": "payments", "config": PAYMENTS})
    assert found.status == 201
    body = found.body
    assert chosen(body, "name", "state", "created_at") == {
        "name": "payments",
        "state": "active",
        "created_at": START,
    }
    config = body["config"]
    assert config["retention"] == {"completed": "P3D", "discarded": "P30D", "cancelled": "P7D"}
    assert chosen(config["default_retry"], "max_attempts", "jitter", "on_exhaustion") == {
        "max_attempts": 5,
        "jitter": True,
        "on_exhaustion": "dead_letter",
    }
    plain = ("max_size", "concurrency", "visibility_timeout", "default_timeout")
    assert chosen(config, *plain) == chosen(PAYMENTS, *plain)


@in_world()
async def test_002_9_3_the_details_of_a_queue(world: World) -> None:
    await world.configure("payments", default_retry={"initial_interval": "PT1H"})
    for attempts in (1, 3, 1, 1):
        await world.push(queue="payments", retry={"max_attempts": attempts})
    first, second, third = await world.take("payments", count=3)
    await world.ack(first)
    await world.nack(second)
    await world.nack(third)
    await world.push(queue="payments", scheduled_at="+PT1H")
    world.now_ms += 30 * MINUTE
    await world.configure("payments", visibility_timeout=5)
    found = await world.get("/queues/payments")
    assert chosen(found, "name", "state", "created_at", "updated_at") == {
        "name": "payments",
        "state": "active",
        "created_at": START,
        "updated_at": world.at(0),
    }
    assert found["stats"] == {
        "depth": 3,
        "available": 1,
        "active": 0,
        "retryable": 1,
        "scheduled": 1,
        "pending": 0,
        "completed_today": 1,
        "failed_today": 1,
    }


@in_world()
async def test_002_9_1_queues_are_listed_with_state_and_configuration(world: World) -> None:
    await world.configure("a", concurrency=3)
    await world.finish("/queues/b/pause")
    listed = {q["name"]: q for q in (await world.get("/queues"))["queues"]}
    assert listed.keys() == {"a", "b", "default"}
    assert (listed["a"]["config"]["concurrency"], listed["b"]["state"]) == (3, "paused")


@in_world()
async def test_002_9_4_a_queue_is_deleted_with_202(world: World) -> None:
    for _ in range(3):
        await world.push(queue="old-payments")
    await world.take("old-payments", count=1)
    await world.finish("/queues", {"name": "payments"})
    body = {"strategy": "move", "target_queue": "payments"}
    found = await world.call("DELETE", "/queues/old-payments", body)
    assert (found.status, found.body) == (
        202,
        {"queue": "old-payments", **body, "jobs_affected": 2, "state": "draining"},
    )


@in_world()
async def test_002_9_4_a_queue_of_more_than_1000_jobs_is_deleted_in_slices(world: World) -> None:
    for _ in range(3):
        await world.finish("/jobs/batch", {"jobs": [{"type": "a", "args": [], "queue": "q"}] * 999})
    await world.finish("/queues", {"name": "target"})
    body = {"strategy": "move", "target_queue": "target"}
    found = await world.call("DELETE", "/queues/q", body)
    assert (found.status, found.body["jobs_affected"]) == (202, 2_997)
    task = f"/admin/tasks/{found.body['task']['id']}"

    async def gone() -> bool:
        return (await world.call("GET", "/queues/q")).status == 404

    await until(gone)
    assert (await world.stats("target"))["depth"] == 2_997
    assert (await world.call("GET", task)).status == 200


@in_world()
async def test_002_10_1_events(world: World) -> None:
    await world.finish("/queues", {"name": "q", "config": {"max_size": 2}})
    await world.push(queue="implicit")
    assert chosen(await world.events("queue.created"), "queue") == [{"queue": "q"}]
    await world.configure("q", overflow_policy="drop_oldest")
    assert chosen(await world.events("queue.config_updated"), "queue") == [{"queue": "q"}]
    first = await world.push(queue="q")
    assert await world.events("queue.full") == []
    await world.push(queue="q")
    assert chosen(await world.events("queue.full"), "queue") == [{"queue": "q"}]
    await world.push(queue="q")
    assert chosen(await world.events("queue.overflow"), "queue", "job_id") == [
        {"queue": "q", "job_id": first}
    ]
    await world.finish("/queues/q", {"strategy": "discard"}, method="DELETE")
    assert chosen(await world.events("queue.deleted"), "queue") == [{"queue": "q"}]


@in_world()
async def test_002_10_2_metrics(world: World) -> None:
    await world.finish("/queues", {"name": "q", "config": {"max_size": 4}})
    for _ in range(5):
        await world.enqueue(queue="q")
    await world.take("q", count=1)
    found = await world.samples()
    assert found['ojs_queue_depth{queue="q",state="available"}'] == 3
    assert found['ojs_queue_depth{queue="q",state="active"}'] == 1
    assert found['ojs_queue_max_size{queue="q"}'] == 4
    assert found['ojs_queue_utilization{queue="q"}'] == 1
    assert found['ojs_queue_overflow_count_total{queue="q",policy="reject"}'] == 1
    created = found["ojs_queue_created_count_total"]
    assert created == 1
    await world.finish("/queues/q", {"strategy": "discard"}, method="DELETE")
    await world.later(31 * SECOND)
    assert (await world.samples())["ojs_queue_deleted_count_total"] == 1


@in_world()
async def test_002_10_2_implicit_creations_count_too(world: World) -> None:
    before = (await world.samples())["ojs_queue_created_count_total"]
    await world.finish("/queues", {"name": "explicit"})
    await world.push(queue="implicit")
    assert (await world.samples())["ojs_queue_created_count_total"] == before + 2
