"""Queue configuration (seed 002): the required, recommended and optional capabilities (11)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.flow.world import MINUTE, SECOND, World, chosen, in_world

DAY = 24 * 60 * MINUTE


# 11.1 Required


@in_world()
async def test_002_11_1_implicit_queue_creation(world: World) -> None:
    assert (await world.call("GET", "/queues/fresh")).status == 404
    await world.push(queue="fresh")
    found = await world.get("/queues/fresh")
    assert (found["name"], found["state"], found["stats"]["depth"]) == ("fresh", "active", 1)
    assert found["config"] == (await world.get("/queues/_default/config"))


@in_world()
async def test_002_11_1_queue_configuration_retrieval(world: World) -> None:
    await world.configure("q", concurrency=4, max_size=9)
    for config in (
        await world.get("/queues/q/config"),
        await world.get("/admin/queues/q/config"),
        (await world.get("/queues/q"))["config"],
    ):
        assert (config["concurrency"], config["max_size"]) == (4, 9)


@in_world()
async def test_002_11_1_queue_configuration_update_of_concurrency_and_retention(
    world: World,
) -> None:
    await world.put("/queues/q/config", {"concurrency": 1, "retention": {"completed": "PT1M"}})
    jobs = [await world.push(queue="q") for _ in range(3)]
    assert await world.take("q") == jobs[:1]
    await world.put("/queues/q/config", {"concurrency": 2})
    assert await world.take("q") == jobs[1:2]
    await world.ack(jobs[0])
    await world.later(MINUTE)
    await world.gone(jobs[0])


@in_world()
async def test_002_11_1_queue_pause_and_resume(world: World) -> None:
    running, waiting = await world.push(queue="q"), await world.push(queue="q")
    assert await world.take("q", count=1) == [running]
    await world.finish("/queues/q/pause")
    assert (await world.get("/queues/q"))["state"] == "paused"
    later = await world.push(queue="q")
    assert await world.take("q") == []
    await world.ack(running)
    assert await world.states(running, waiting, later) == ["completed", "available", "available"]
    await world.finish("/queues/q/resume")
    assert (await world.get("/queues/q"))["state"] == "active"
    assert await world.take("q") == [waiting, later]


@in_world()
async def test_002_11_1_queue_deletion_with_reject(world: World) -> None:
    job = await world.push(queue="q")
    before = await world.everything()
    found = await world.call("DELETE", "/queues/q", {"strategy": "reject"})
    assert (found.status, found.error["details"]["unfinished_jobs"]) == (409, 1)
    assert await world.everything() == before
    assert await world.run("q") == [job]
    found = await world.call("DELETE", "/queues/q", {"strategy": "reject"})
    assert (found.status, found.body["state"]) == (202, "deleted")
    assert (await world.call("GET", "/queues/q")).status == 404


@pytest.mark.parametrize("end", ["completed", "discarded", "cancelled"])
@in_world()
async def test_002_11_1_retention_based_pruning(world: World, end: str) -> None:
    await world.configure("q", retention={end: "PT10M"})
    job = await world.push(queue="q", retry={"max_attempts": 1})
    match end:
        case "completed":
            await world.run("q")
        case "discarded":
            await world.take("q")
            await world.nack(job)
        case _:
            await world.finish(f"/jobs/{job}/cancel")
    await world.later(10 * MINUTE - 1)
    assert await world.states(job) == [end]
    await world.later(1)
    await world.gone(job)
    assert (await world.get("/admin/jobs"))["items"] == []


# 11.2 Recommended


@in_world()
async def test_002_11_2_explicit_queue_creation(world: World) -> None:
    config = {"max_size": 100_000, "concurrency": 20, "dead_letter_queue": "payments-dlq"}
    found = await world.call("POST", "/queues", {"name": "payments", "config": config})
    assert found.status == 201
    assert chosen(found.body["config"], *config) == config
    again = await world.call("POST", "/queues", {"name": "payments"})
    assert again.status == 409
    assert (await world.get("/queues/payments"))["config"] == found.body["config"]


@in_world()
async def test_002_11_2_capacity_limits(world: World) -> None:
    await world.configure("q", max_size=3)
    for _ in range(3):
        await world.push(queue="q")
    await world.take("q", count=1)
    # Active jobs count.
    found = await world.enqueue(queue="q")
    assert (found.status, found.error["code"]) == (429, "QUEUE_FULL")
    assert chosen(found.error, "measure", "depth", "bound") == {
        "measure": "active_included",
        "depth": 3,
        "bound": 3,
    }


@in_world()
async def test_002_11_2_dead_letter_queue_routing(world: World) -> None:
    await world.configure("q", dead_letter_queue="q-dlq")
    job = await world.push(queue="q", retry={"max_attempts": 2, "initial_interval": "PT1S"})
    for _ in range(2):
        assert await world.take("q") == [job]
        await world.nack(job, message="no route")
        await world.later(2 * SECOND)
    buried = await world.job(job)
    assert chosen(buried, "queue", "state", "attempt") == {
        "queue": "q-dlq",
        "state": "available",
        "attempt": 0,
    }
    assert buried["error"]["message"] == "no route"
    assert chosen(buried["dead_letter"], "original_queue", "attempts") == {
        "original_queue": "q",
        "attempts": 2,
    }
    assert await world.take("q") == []
    assert await world.run("q-dlq") == [job], "a worker can consume it"


@in_world()
async def test_002_11_2_default_queue_policy(world: World) -> None:
    await world.put("/queues/_default/config", {"concurrency": 2, "default_timeout": 60})
    jobs = [await world.push(queue="implicit") for _ in range(3)]
    assert (await world.job(jobs[0]))["timeout"] == 60
    assert await world.take("implicit") == jobs[:2]
    assert "_default" not in [q["name"] for q in (await world.get("/queues"))["queues"]]


@in_world()
async def test_002_11_2_draining_state(world: World) -> None:
    jobs = [await world.push(queue="q") for _ in range(2)]
    shown = await world.finish("/queues/q/drain")
    assert (shown["status"], shown["unfinished_jobs"]) == ("draining", 2)
    found = await world.enqueue(queue="q")
    assert (found.status, found.error["code"]) == (422, "queue_paused")
    assert await world.run("q", count=1) == jobs[:1]
    assert (await world.get("/queues/q"))["state"] == "draining"
    assert await world.run("q") == jobs[1:]
    assert (await world.call("GET", "/queues/q")).status == 404
    assert (await world.enqueue(queue="q")).status == 201, "it is a new queue then"


@in_world()
async def test_002_11_2_deletion_with_discard(world: World) -> None:
    jobs = [
        await world.push(queue="q"),
        await world.push(queue="q", scheduled_at="+PT1H"),
        await world.push(queue="q", pending=True),
        await world.limited("k", "q", concurrency=0),
    ]
    deleted = await world.finish("/queues/q", {"strategy": "discard"}, method="DELETE")
    assert chosen(deleted, "jobs_affected", "state") == {"jobs_affected": 4, "state": "deleted"}
    for job in jobs:
        shown = await world.job(job)
        assert (shown["state"], shown["error"]["type"]) == ("discarded", "queue_deleted")
    assert (await world.get("/dead-letter"))["jobs"] == []
    assert (await world.call("GET", "/rate-limits/k")).status == 404, "nobody names it any more"


@in_world()
async def test_002_11_2_deletion_with_move(world: World) -> None:
    waiting = [await world.push(queue="q", priority=p) for p in (0, 5, 0)]
    scheduled = await world.push(queue="q", scheduled_at="+PT1M")
    there = await world.push(queue="target")
    body = {"strategy": "move", "target_queue": "target"}
    deleted = await world.finish("/queues/q", body, method="DELETE")
    assert deleted == {"queue": "q", **body, "jobs_affected": 4, "state": "deleted"}
    # Ids, priorities and order are kept.
    expected = [waiting[1], waiting[0], waiting[2], there]
    assert await world.take("target") == expected
    assert await world.states(scheduled) == ["scheduled"]
    await world.later(MINUTE)
    assert scheduled in await world.take("target")


# 11.3 Optional


@in_world(strict_queues=True)
async def test_002_11_3_strict_queue_mode(world: World) -> None:
    before = await world.everything()
    job = {"type": "a", "args": [], "queue": "unknown"}
    jobs = {"jobs": [{**job, "queue": "default"}, job]}
    for path, body in (("/jobs", job), ("/jobs/batch", jobs)):
        found = await world.call("POST", path, body)
        assert (found.status, found.error["code"]) == (404, "QUEUE_NOT_FOUND")
        assert found.error["details"]["queue"] == "unknown"
    found = await world.call("POST", "/jobs/bulk", {**jobs, "atomicity": "atomic"})
    assert found.status == 422
    assert found.body["items"][1]["error"]["code"] == "QUEUE_NOT_FOUND"
    assert await world.take("unknown") == []
    assert await world.everything() == before
    await world.finish("/queues", {"name": "unknown"})
    assert (await world.enqueue(queue="unknown")).status == 201
    assert (await world.enqueue(queue="default")).status == 201, "it always exists"


@in_world()
async def test_002_11_3_size_based_capacity(world: World) -> None:
    await world.configure("q", max_size_bytes=1_000)
    assert (await world.enqueue(queue="q", args=["x" * 300])).status == 201
    found = await world.enqueue(queue="q", args=["x" * 300])
    assert (found.status, found.error["measure"], found.error["bound"]) == (429, "bytes", 1_000)


@in_world()
async def test_002_11_3_allowed_job_types(world: World) -> None:
    await world.configure("q", allowed_job_types=["payment.*", "refund.create"])
    for job_type, status in (
        ("payment.charge", 201),
        ("payment.card.charge", 201),
        ("refund.create", 201),
        ("refund.cancel", 422),
        ("payments.charge", 422),
    ):
        found = await world.enqueue(queue="q", type=job_type)
        assert found.status == status, job_type
        if status == 422:
            assert found.error["code"] == "JOB_TYPE_NOT_ALLOWED"
    assert (await world.stats("q"))["depth"] == 3


@in_world()
async def test_002_11_3_producers_are_who_their_tokens_say(world: World) -> None:
    await world.configure("q", producers=["shop", "crm-*"])
    found = await world.enqueue(queue="q", meta={"producer": "shop"})
    assert (found.status, found.error["code"]) == (403, "permission_denied")
    await world.configure("q", producers=["shop", "anonymous"])
    assert (await world.enqueue(queue="q")).status == 201


@in_world()
async def test_002_11_3_queue_level_timeout_defaults(world: World) -> None:
    await world.configure("q", default_timeout=7)
    job = await world.push(queue="q")
    await world.take("q")
    await world.later(7 * SECOND)
    shown = await world.job(job)
    assert (shown["state"], shown["timeout"]) == ("retryable", 7)


def _config(**config: Any) -> dict[str, Any]:
    return config


@pytest.mark.parametrize(
    "config",
    [
        _config(
            max_size=50_000, concurrency=50, visibility_timeout=120, default_timeout=60,
            overflow_policy="reject", dead_letter_queue="payments-dlq",
            retention={"completed": "P30D", "discarded": "P90D"},
            allowed_job_types=["payment.*"],
            default_retry={
                "max_attempts": 5, "initial_interval": "PT1S", "backoff_coefficient": 2.0,
                "on_exhaustion": "dead_letter",
            },
        ),
        _config(
            max_size=1_000_000, overflow_policy="drop_oldest", concurrency=100,
            retention={"completed": "P1D", "discarded": "P1D"},
            default_retry={"max_attempts": 1, "on_exhaustion": "discard"},
        ),
    ],
)  # fmt: skip
@in_world()
async def test_002_13_the_examples_are_taken_as_they_stand(
    world: World, config: dict[str, Any]
) -> None:
    found = await world.finish("/queues", {"name": "example", "config": config})
    for name, value in config.items():
        shown = found["config"][name]
        assert (chosen(shown, *value) if isinstance(value, dict) else shown) == value
