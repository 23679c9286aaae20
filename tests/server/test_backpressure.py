"""What producers are told, and how they wait, when a queue is full."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate.core.tenants import TenantLimits
from tests.server.admin_world import Reply
from tests.server.jobs_world import Client, World, in_world

JOB = {"type": "a", "args": [], "queue": "q"}


async def bound(world: World, queue: str = "q", **capacity: Any) -> None:
    found = await world.call("PUT", f"/admin/queues/{queue}/config", {"backpressure": capacity})
    assert found.status == 200, found.raw


async def breathe() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def enqueue(world: World, **members: Any) -> Reply:
    return await world.call("POST", "/jobs", {**JOB, **members})


def blocked(world: World, seconds: str = "30", **members: Any) -> Client:
    return world.ask("POST", "/jobs", {**JOB, **members}, ojs_block_timeout=seconds)


async def finish_one(world: World, queue: str = "q") -> None:
    (job,) = await world.fetch(queue)
    found = await world.call("POST", "/workers/ack", {"job_id": job["id"]})
    assert found.status == 200


async def depth(world: World, queue: str = "q") -> int:
    found = await world.call("GET", f"/queues/{queue}/stats")
    count: int = found.body["stats"]["depth"]
    return count


@in_world()
async def test_a_full_queue_refuses_and_says_how_full_it_is(world: World) -> None:
    await bound(world, max_depth=2)
    assert [(await enqueue(world)).status for _ in range(2)] == [201, 201]
    found = await enqueue(world)
    assert (found.status, found.error["code"], found.error["retryable"]) == (
        429,
        "QUEUE_FULL",
        True,
    )
    told = {"queue": "q", "depth": 2, "bound": 2, "strategy": "reject", "measure": "jobs"}
    assert {name: found.error[name] for name in told} == told
    assert found.headers["x-ojs-queue-depth"] == found.headers["x-ojs-queue-bound"] == "2"
    assert int(found.headers["retry-after"]) >= 1
    assert await depth(world) == 2


@in_world()
async def test_near_the_bound_producers_are_warned(world: World) -> None:
    await bound(world, max_depth=4, warning_threshold=0.5)
    seen = [(await enqueue(world)).headers for _ in range(3)]
    assert "x-ojs-queue-pressure" not in seen[0]
    names = ("x-ojs-queue-depth", "x-ojs-queue-bound", "x-ojs-queue-pressure")
    assert [tuple(headers[name] for name in names) for headers in seen[1:]] == [
        ("2", "4", "0.5"),
        ("3", "4", "0.75"),
    ]


@in_world()
async def test_a_batch_is_warned_of_its_fullest_queue(world: World) -> None:
    await bound(world, max_depth=10)
    await bound(world, "p", max_depth=2)
    jobs = [JOB, {**JOB, "queue": "p"}, {**JOB, "queue": "p"}, {**JOB, "queue": "free"}]
    for path in ("/jobs/batch", "/jobs/bulk"):
        found = await world.call("POST", path, {"jobs": jobs})
        assert found.status == 201, found.raw
        assert (found.headers["x-ojs-queue-bound"], found.headers["x-ojs-queue-pressure"]) == (
            "2",
            "1.0",
        )
        await finish_one(world, "p")
        await finish_one(world, "p")


@in_world()
async def test_a_batch_is_refused_as_a_whole(world: World) -> None:
    await bound(world, max_depth=3)
    await enqueue(world)
    found = await world.call("POST", "/jobs/batch", {"jobs": [JOB] * 3})
    assert (found.status, found.error["code"], found.error["depth"]) == (429, "QUEUE_FULL", 1)
    assert await depth(world) == 1
    never = await world.call("POST", "/jobs/batch", {"jobs": [JOB] * 4}, ojs_block_timeout="60")
    assert (never.status, never.error["retryable"]) == (429, False)
    assert await depth(world) == 1


@in_world()
async def test_in_bulk_each_job_is_refused_on_its_own(world: World) -> None:
    await bound(world, max_depth=2)
    found = await world.call("POST", "/jobs/bulk", {"jobs": [JOB] * 3}, ojs_block_timeout="60")
    assert (found.status, found.body["succeeded"]) == (207, 2)
    (last,) = found.body["items"][2:]
    assert (last["status"], last["error"]["code"]) == ("failed", "QUEUE_FULL")


@pytest.mark.parametrize(
    "given", ["", "soon", "-1", "61", "60.001", "nan", "inf", "1e1", "+5", "0x5", " 5", "1.", ".5"]
)
@pytest.mark.parametrize("path", ["/jobs", "/jobs/batch"])
def test_a_wrong_wait_is_refused(path: str, given: str) -> None:
    @in_world()
    async def test(world: World) -> None:
        body = JOB if path == "/jobs" else {"jobs": [JOB]}
        found = await world.call("POST", path, body, ojs_block_timeout=given)
        assert (found.status, found.error["details"]["field"]) == (400, "OJS-Block-Timeout")
        assert (await world.call("GET", "/queues/q")).status == 404

    test()


@pytest.mark.parametrize("given", ["0", "0.0", "60", "59.999", "7"])
def test_a_queue_with_room_waits_for_nothing(given: str) -> None:
    @in_world()
    async def test(world: World) -> None:
        await bound(world, max_depth=1, strategy="block")
        assert (await blocked(world, given).reply()).status == 201

    test()


@pytest.mark.parametrize("strategy", ["reject", "block"])
def test_only_a_queue_that_blocks_lets_producers_wait(strategy: str) -> None:
    @in_world()
    async def test(world: World) -> None:
        await bound(world, max_depth=1, strategy=strategy)
        await enqueue(world)
        if strategy == "block":
            # Nobody waits who does not ask for it.
            assert (await enqueue(world)).status == 429
            assert (await blocked(world, "0").reply()).status == 429
            assert (await blocked(world, "0.01").reply()).error["strategy"] == "block"
        else:
            assert (await blocked(world).reply()).error["strategy"] == "reject"
        assert await depth(world) == 1

    test()


@in_world()
async def test_whoever_waits_is_let_in_when_there_is_room_in_the_order_of_arrival(
    world: World,
) -> None:
    await bound(world, max_depth=1, strategy="block")
    await enqueue(world)
    waiting = []
    for number in range(3):
        waiting.append(blocked(world, args=[number]))
        await breathe()
    assert (await enqueue(world)).status == 429, "who does not wait does not pass those who do"
    world.now_ms += 5_000
    for number, client in enumerate(waiting):
        await finish_one(world)
        found = await client.reply()
        assert (found.status, found.body["job"]["args"]) == (201, [number])
        assert found.body["job"]["created_at"] == "2026-02-12T10:30:05.000Z"
    assert await depth(world) == 1


@pytest.mark.parametrize("breaths", [0, 1, 5, 20])
def test_a_job_that_starts_makes_room_where_active_ones_do_not_count(breaths: int) -> None:
    @in_world()
    async def test(world: World) -> None:
        await bound(world, max_depth=1, strategy="block")
        await enqueue(world)
        waiting = blocked(world)
        for _ in range(breaths):
            await asyncio.sleep(0)
        await world.fetch("q")
        assert (await waiting.reply()).status == 201
        assert await depth(world) == 2

    test()


@in_world()
async def test_a_batch_waits_for_room_for_all_of_it_and_small_ones_behind_it_wait_too(
    world: World,
) -> None:
    await bound(world, max_depth=3, strategy="block")
    await world.call("POST", "/jobs/batch", {"jobs": [JOB] * 3})
    large = world.ask("POST", "/jobs/batch", {"jobs": [JOB] * 2}, ojs_block_timeout="30")
    await breathe()
    small = blocked(world)
    await breathe()
    await finish_one(world)
    await breathe()
    assert await depth(world) == 2, "the freed place is kept for the batch"
    await finish_one(world)
    assert (await large.reply()).body["count"] == 2
    await finish_one(world)
    assert (await small.reply()).status == 201
    assert await depth(world) == 3


@in_world()
async def test_nothing_is_enqueued_for_a_client_that_left_and_its_place_is_free(
    world: World,
) -> None:
    await bound(world, max_depth=1, strategy="block")
    await enqueue(world)
    gone = blocked(world, args=["gone"])
    await breathe()
    stays = blocked(world, args=["stays"])
    await breathe()
    gone.leave()
    await breathe()
    await finish_one(world)
    assert (await stays.reply()).body["job"]["args"] == ["stays"]
    await gone.reply()
    assert await depth(world) == 1


@in_world()
async def test_a_turn_that_comes_when_its_client_has_just_left_passes_on(world: World) -> None:
    # Active jobs count as well, so that it is the ack that makes room.
    config = {"max_size": 1, "overflow_policy": "block"}
    await world.call("PUT", "/admin/queues/q/config", config)
    await enqueue(world)
    gone = blocked(world, args=["gone"])
    await breathe()
    stays = blocked(world, args=["stays"])
    await breathe()
    (job,) = await world.fetch("q")
    # Both in the same turn of the loop.
    gone.leave()
    acked = world.ask("POST", "/workers/ack", {"job_id": job["id"]})
    await acked.reply()
    taken = (await gone.reply()).status == 201
    if taken:
        await finish_one(world)
    assert (await stays.reply()).body["job"]["args"] == ["stays"]
    assert not taken
    assert await depth(world) == 1


@in_world()
async def test_a_stopping_server_lets_waiting_producers_go(world: World) -> None:
    await bound(world, max_depth=1, strategy="block")
    await enqueue(world)
    waiting = [blocked(world, "60") for _ in range(3)]
    await breathe()
    world.app.drain()
    assert {(await client.reply()).status for client in waiting} == {429}
    assert (await world.call("GET", "/queues/q/stats")).body["stats"]["depth"] == 1


@in_world()
async def test_what_is_in_the_way_besides_is_told_when_the_turn_comes(world: World) -> None:
    await bound(world, max_depth=1, strategy="block")
    await enqueue(world)
    waiting = blocked(world, type="b", unique={"keys": ["type"]})
    await breathe()
    config = {"allowed_job_types": ["a"], "backpressure": {"max_depth": 2}}
    await world.call("PUT", "/admin/queues/q/config", config)
    found = await waiting.reply()
    assert (found.status, found.error["code"]) == (422, "JOB_TYPE_NOT_ALLOWED")
    assert await depth(world) == 1


@in_world()
async def test_a_queue_takes_jobs_from_its_producers_only(world: World) -> None:
    await world.call("PUT", "/admin/queues/q/config", {"producers": ["shop"]})
    found = await enqueue(world)
    assert (found.status, found.error["code"]) == (403, "permission_denied")
    assert found.error["details"]["queue"] == "q"
    await world.call("PUT", "/admin/queues/q/config", {"producers": ["anonymous", "shop"]})
    assert (await enqueue(world)).status == 201


@in_world()
async def test_a_tenant_at_its_limit_is_refused(world: World) -> None:
    limits = TenantLimits(max_queue_depth=1, priority_boost=10)
    await world.engine.set_tenant("acme", limits, world.now_ms)
    first = await world.call("POST", "/jobs", JOB, x_ojs_tenant="acme")
    assert first.body["job"]["priority"] == 10
    found = await world.call("POST", "/jobs", JOB, x_ojs_tenant="acme")
    assert (found.status, found.error["code"]) == (429, "TENANT_LIMIT_EXCEEDED")
    told = {"tenant_id": "acme", "limit": "max_queue_depth", "current": 1, "maximum": 1}
    assert {name: found.error[name] for name in told} == told
    assert int(found.headers["retry-after"]) >= 1
    assert (await world.call("POST", "/jobs", JOB, x_ojs_tenant="other")).status == 201


@in_world()
async def test_a_start_makes_room_where_active_jobs_are_not_counted(world: World) -> None:
    await bound(world, max_depth=1, strategy="block")
    await enqueue(world)
    waiting = blocked(world)
    await breathe()
    await world.fetch("q")
    assert (await asyncio.wait_for(waiting.reply(), 5)).status == 201
    cleared = await world.call("GET", "/events?types=queue.full,backpressure.*")
    assert [event["type"] for event in cleared.body["events"]][:2] == [
        "backpressure.warning",
        "queue.full",
    ]


@in_world()
async def test_a_start_takes_the_pressure_off(world: World) -> None:
    await bound(world, max_depth=1)
    await enqueue(world)
    await world.fetch("q")
    await breathe()
    told = (await world.call("GET", "/events?types=backpressure.*")).body["events"]
    assert [event["type"] for event in told] == ["backpressure.warning", "backpressure.cleared"]
