"""Backpressure (seed 001): what is required and recommended, BP-001 to BP-005 and BP-R001 to BP-R005 (11)."""

from __future__ import annotations

import asyncio

import pytest

from tests.flow.world import SECOND, World, chosen, in_world


async def breathe() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@in_world()
async def test_BP_001_a_queue_takes_no_more_jobs_than_its_max_depth(world: World) -> None:
    await world.configure("q", backpressure={"max_depth": 5})
    asked = [world.ask("POST", "/jobs", {"type": "a", "args": [n], "queue": "q"}) for n in range(9)]
    replies = [await client.reply() for client in asked]
    assert [reply.status for reply in replies] == [201] * 5 + [429] * 4
    assert (await world.stats("q"))["depth"] == 5


@in_world()
async def test_BP_001_whatever_waits_counts_and_what_runs_does_not(world: World) -> None:
    await world.configure("q", backpressure={"max_depth": 4})
    retry = {"initial_interval": "PT1H"}
    await world.push(queue="q", retry=retry)
    (failed,) = await world.take("q")
    await world.nack(failed)
    await world.push(queue="q", scheduled_at="+PT1H")
    await world.push(queue="q", pending=True)
    await world.push(queue="q")
    assert (await world.enqueue(queue="q")).status == 429
    (running,) = await world.take("q")
    await world.push(queue="q")
    # What comes back is no push: it may leave the queue above its bound, and then nobody else enters.
    await world.nack(running, requeue=True)
    assert (await world.stats("q"))["bound"] == {"measure": "jobs", "depth": 5, "bound": 4}
    assert (await world.enqueue(queue="q")).status == 429


@in_world()
async def test_BP_002_a_full_queue_rejects_with_429_and_retry_after(world: World) -> None:
    await world.configure("q", backpressure={"max_depth": 1, "strategy": "reject"})
    await world.push(queue="q")
    jobs = (await world.get("/admin/jobs"))["items"]
    found = await world.enqueue(queue="q")
    assert found.status == 429
    assert int(found.headers["retry-after"]) >= 1
    assert (await world.get("/admin/jobs"))["items"] == jobs, "it is not stored"


@in_world()
async def test_BP_003_bounds_are_configured_through_the_admin_api(world: World) -> None:
    capacity = {
        "max_depth": 50_000,
        "max_size_bytes": 536_870_912,
        "strategy": "reject",
        "warning_threshold": 0.8,
    }
    shown = await world.put("/admin/queues/q/config", {"backpressure": capacity})
    assert shown["backpressure"] == capacity
    for path in ("/admin/queues/q/config", "/queues/q/config"):
        assert (await world.get(path))["backpressure"] == capacity
    (updated,) = await world.events("queue.config_updated")
    assert updated["queue"] == "q"


@in_world()
async def test_BP_004_a_rejected_enqueue_is_an_event(world: World) -> None:
    await world.configure("q", backpressure={"max_depth": 2})
    for _ in range(2):
        await world.push(queue="q")
    assert await world.events("backpressure.rejected") == []
    await world.enqueue(queue="q", type="report.build")
    (told,) = await world.events("backpressure.rejected")
    assert chosen(told, "queue", "depth", "bound", "job_type") == {
        "queue": "q",
        "depth": 2,
        "bound": 2,
        "job_type": "report.build",
    }


@in_world()
async def test_BP_005_a_429_says_depth_and_bound_in_headers(world: World) -> None:
    await world.configure("q", backpressure={"max_depth": 3})
    for _ in range(3):
        await world.push(queue="q")
    found = await world.enqueue(queue="q")
    assert (found.headers["x-ojs-queue-depth"], found.headers["x-ojs-queue-bound"]) == ("3", "3")


@in_world()
async def test_BP_R001_a_queue_can_be_bounded_in_bytes(world: World) -> None:
    await world.push(queue="q", args=["x" * 1_000])
    one = (await world.stats("q"))["bytes"]
    assert one > 1_000
    await world.configure("q", backpressure={"max_size_bytes": 3 * one})
    for _ in range(2):
        await world.push(queue="q", args=["x" * 1_000])
    found = await world.enqueue(queue="q", args=["x"])
    assert (found.status, found.error["measure"]) == (429, "bytes")
    assert (found.error["depth"], found.error["bound"]) == (3 * one, 3 * one)
    # Active jobs take room too; when one ends, there is some again.
    (job,) = await world.take("q", count=1)
    assert (await world.enqueue(queue="q", args=["x"])).status == 429
    await world.ack(job)
    assert (await world.enqueue(queue="q", args=["x"])).status == 201
    large = await world.enqueue(queue="q", args=["x" * 4_000])
    assert (large.status, large.error["retryable"]) == (429, False), "it would never fit"


@in_world()
async def test_BP_R002_a_blocked_enqueue_waits_until_there_is_room(world: World) -> None:
    await world.configure("q", backpressure={"max_depth": 1, "strategy": "block"})
    await world.push(queue="q")
    job = {"type": "report.generate", "args": [{}], "queue": "q"}
    waiting = world.ask("POST", "/jobs", job, ojs_block_timeout="30")
    await breathe()
    assert waiting.sent == []
    assert (await world.stats("q"))["parked"] == 1
    assert len(await world.run("q")) == 1
    found = await waiting.reply()
    assert (found.status, found.body["job"]["state"]) == (201, "available")
    stats = await world.stats("q")
    assert (stats["depth"], stats["parked"]) == (1, 0)


@in_world()
async def test_BP_R002_when_the_time_is_over_it_is_answered_with_429(world: World) -> None:
    await world.configure("q", backpressure={"max_depth": 1, "strategy": "block"})
    await world.push(queue="q")
    found = await world.call(
        "POST", "/jobs", {"type": "a", "args": [], "queue": "q"}, ojs_block_timeout="0.01"
    )
    assert (found.status, found.error["code"], found.error["strategy"]) == (
        429,
        "QUEUE_FULL",
        "block",
    )
    stats = await world.stats("q")
    assert (stats["depth"], stats["parked"]) == (1, 0)


@in_world()
async def test_BP_R003_the_oldest_available_job_makes_room_for_the_newest(world: World) -> None:
    await world.configure("q", backpressure={"max_depth": 3, "strategy": "drop_oldest"})
    scheduled = await world.push(queue="q", scheduled_at="+PT1H")
    old = await world.push(queue="q", priority=100)
    young = await world.push(queue="q")
    new = await world.push(queue="q")
    assert await world.states(scheduled, old, young, new) == [
        "scheduled",
        "discarded",
        "available",
        "available",
    ]
    assert (await world.stats("q"))["bound"]["depth"] == 3


@in_world()
async def test_BP_R004_above_the_threshold_accepted_jobs_are_answered_with_a_warning(
    world: World,
) -> None:
    await world.configure("q", backpressure={"max_depth": 50, "warning_threshold": 0.8})
    seen = [await world.enqueue(queue="q") for _ in range(50)]
    names = ("x-ojs-queue-depth", "x-ojs-queue-bound", "x-ojs-queue-pressure")
    for reply in seen[:39]:
        assert not any(name in reply.headers for name in names)
    assert [tuple(reply.headers[name] for name in names) for reply in seen[39:42]] == [
        ("40", "50", "0.8"),
        ("41", "50", "0.82"),
        ("42", "50", "0.84"),
    ]
    assert seen[49].headers["x-ojs-queue-pressure"] == "1.0"


@pytest.mark.parametrize(("depth", "pressure"), [(0, 0.0), (1, 0.25), (4, 1.0)])
@in_world()
async def test_BP_R005_the_pressure_is_a_gauge(world: World, depth: int, pressure: float) -> None:
    await world.configure("q", backpressure={"max_depth": 4})
    for _ in range(depth):
        await world.push(queue="q")
    found = await world.samples()
    assert found['ojs_backpressure_pressure{queue="q"}'] == pressure
    assert 'ojs_backpressure_pressure{queue="default"}' not in found, "it has no bound"
    await world.later(SECOND)
