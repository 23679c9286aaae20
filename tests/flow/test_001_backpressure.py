"""Backpressure (seed 001), sentence by sentence: strategies (5)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.flow.test_001_required import breathe
from tests.flow.world import MINUTE, World, chosen, in_world

JOB = {"type": "a", "args": [], "queue": "q"}


@pytest.mark.parametrize(
    ("left", "wait_s"), [(0, None), (60, 1), (12, 5), (6, 10), (2, 30), (1, 60)]
)
@in_world()
async def test_001_5_1_retry_after_goes_by_how_fast_the_queue_empties(
    world: World, left: int, wait_s: int | None
) -> None:
    await world.configure("q", backpressure={"max_depth": 3})
    for _ in range(left):
        await world.push(queue="q")
        await world.run("q")
    for _ in range(3):
        await world.push(queue="q")
    found = await world.call("POST", "/jobs", JOB)
    assert found.status == 429
    given = int(found.headers["retry-after"])
    assert given >= 1 if wait_s is None else given == wait_s


@pytest.mark.parametrize(
    ("bound", "then", "wait_s"),
    [
        ("max_depth", "runs", 2),  # thirty a minute went to workers
        ("max_depth", "fails", 5),  # and all of them came back
        ("max_depth", "is given back", 5),
        ("max_depth", "is lost", 5),
        ("max_depth", "is discarded", 2),
        ("max_size", "runs", 5),  # nothing has ended
        ("max_size", "is discarded", 2),
    ],
)
@in_world()
async def test_001_5_1_retry_after_goes_by_what_makes_room_under_the_bound_in_the_way(
    world: World, bound: str, then: str, wait_s: int
) -> None:
    retry = {"initial_interval": "PT1H", "max_attempts": 1 if then == "is discarded" else 99}
    lease = 500 if then == "is lost" else 600_000
    for _ in range(30):
        await world.push(queue="q", retry=retry)
        (job,) = await world.take("q", count=1, visibility_timeout_ms=lease)
        if then in {"fails", "is discarded"}:
            await world.nack(job)
        elif then == "is given back":
            await world.nack(job, requeue=True)
        await world.later(1_000)
    stats = await world.stats("q")
    depth = stats["depth"] - (stats["active"] if bound == "max_depth" else 0)
    if not depth:
        await world.push(queue="q")
        depth = 1
    await world.configure("q", **sized(bound, depth))
    found = await world.call("POST", "/jobs", JOB)
    assert (found.status, found.headers["retry-after"]) == (429, str(wait_s))


def sized(bound: str, size: int) -> dict[str, Any]:
    return {"max_size": size} if bound == "max_size" else {"backpressure": {"max_depth": size}}


@pytest.mark.parametrize("headers", [{}, {"ojs_block_timeout": "0"}])
@in_world()
async def test_001_5_2_without_a_timeout_it_is_rejected_at_once(
    world: World, headers: dict[str, str]
) -> None:
    await world.configure("q", backpressure={"max_depth": 1, "strategy": "block"})
    await world.push(queue="q")
    found = await world.call("POST", "/jobs", JOB, **headers)
    assert (found.status, found.error["strategy"]) == (429, "block")


@pytest.mark.parametrize(
    "what", ["ack", "discard", "cancel", "bulk cancel", "expiry", "bound", "policy", "dead letter"]
)
@in_world()
async def test_001_5_2_whatever_frees_room_lets_the_blocked_job_in(world: World, what: str) -> None:
    await world.put("/queues/_default/config", {"max_size": 1, "overflow_policy": "block"})
    await world.configure("q", dead_letter_queue="elsewhere")
    first = await world.push(queue="q", retry={"max_attempts": 1}, expires_at="+PT1M")
    waiting = world.ask("POST", "/jobs", JOB, ojs_block_timeout="30")
    await breathe()
    assert waiting.sent == []
    match what:
        case "ack":
            await world.run("q")
        case "discard":
            await world.configure("q", dead_letter_queue=None)
            await world.take("q")
            await world.nack(first)
        case "dead letter":
            await world.take("q")
            await world.nack(first)
        case "cancel":
            await world.finish(f"/jobs/{first}/cancel")
        case "bulk cancel":
            await world.finish("/jobs/bulk/cancel", {"filter": {"queue": "q"}})
        case "expiry":
            await world.later(MINUTE)
        case "bound":
            await world.configure("q", max_size=2)
        case _:
            await world.put("/queues/_default/config", {"max_size": None})
    assert (await waiting.reply()).status == 201


@pytest.mark.parametrize("what", ["drain", "discard", "move", "reject"])
@in_world()
async def test_001_5_2_who_waits_in_vain_is_told_at_once(world: World, what: str) -> None:
    await world.configure("q", max_size=1, overflow_policy="block")
    await world.finish("/queues", {"name": "target"})
    await world.push(queue="q")
    waiting = world.ask("POST", "/jobs", JOB, ojs_block_timeout="30")
    await breathe()
    match what:
        case "drain":
            await world.finish("/queues/q/drain")
        case "discard":
            await world.finish("/queues/q", {"strategy": "discard"}, method="DELETE")
        case "move":
            body = {"strategy": "move", "target_queue": "target"}
            await world.finish("/queues/q", body, method="DELETE")
        case _:
            await world.configure("q", overflow_policy="reject")
    found = await waiting.reply()
    assert found.status == (429 if what == "reject" else 422)


@pytest.mark.parametrize(
    ("what", "status", "code", "at_once"),
    [
        ("the bound is lowered below the batch", 429, "QUEUE_FULL", True),
        ("its type is not taken any more", 422, "JOB_TYPE_NOT_ALLOWED", False),
        ("its tenant is full meanwhile", 429, "TENANT_LIMIT_EXCEEDED", False),
        ("its id is taken meanwhile", 409, "duplicate", False),
    ],
)
@in_world()
async def test_001_5_2_whether_it_may_enter_is_looked_at_again_when_there_is_room(
    world: World, what: str, status: int, code: str, at_once: bool
) -> None:
    await world.configure("q", backpressure={"max_depth": 2, "strategy": "block"})
    await world.finish("/jobs/batch", {"jobs": [JOB] * 2})
    ids = [f"01900000-0000-7000-8000-00000000000{n}" for n in (1, 2)]
    own = {**JOB, "meta": {"tenant_id": "acme"}}
    batch = {"jobs": [{**own, "id": job} for job in ids]}
    waiting = world.ask("POST", "/jobs/batch", batch, ojs_block_timeout="60")
    await breathe()
    assert waiting.sent == []
    match what.split()[1]:
        case "bound":
            await world.configure("q", backpressure={"max_depth": 1})
        case "type":
            await world.configure("q", allowed_job_types=["other.*"])
        case "tenant":
            await world.put("/admin/tenants/acme", {"limits": {"max_queue_depth": 1}})
        case _:
            await world.push(id=ids[1])
    await breathe()
    assert bool(waiting.sent) == at_once
    before = (await world.stats("q"))["depth"]
    await world.run("q")
    async with asyncio.timeout(5):
        found = await waiting.reply()
    assert (found.status, found.error["code"]) == (status, code)
    assert before == 2
    stats = await world.stats("q")
    assert (stats["depth"], stats["parked"]) == (0, 0)


@in_world()
async def test_001_5_2_a_batch_at_the_head_of_the_line_is_not_starved_by_those_behind_it(
    world: World,
) -> None:
    await world.configure("q", backpressure={"max_depth": 5, "strategy": "block"})
    await world.finish("/jobs/batch", {"jobs": [JOB] * 5})
    large = world.ask("POST", "/jobs/batch", {"jobs": [JOB] * 4}, ojs_block_timeout="60")
    await breathe()
    small = []
    for _ in range(3):
        small.append(world.ask("POST", "/jobs", JOB, ojs_block_timeout="60"))
        await breathe()
    for left in (4, 3, 2):
        await world.run("q", count=1)
        await breathe()
        assert [bool(each.sent) for each in (large, *small)] == [False] * 4
        stats = await world.stats("q")
        assert (stats["depth"], stats["parked"]) == (left, 4)
        refused = await world.call("POST", "/jobs", JOB)
        assert (refused.status, refused.error["depth"]) == (429, 5), "kept places count"
    for entered in range(1, 5):
        await world.run("q", count=1)
        await breathe()
        assert [bool(each.sent) for each in (large, *small)] == [n < entered for n in range(4)]
        assert (await world.stats("q"))["depth"] == 5
    assert (await large.reply()).status == 201


@in_world()
async def test_001_5_2_producers_are_let_in_as_they_came_and_nobody_passes_them(
    world: World,
) -> None:
    await world.configure("q", backpressure={"max_depth": 2, "strategy": "block"})
    for _ in range(2):
        await world.push(queue="q")
    waiting = []
    for number in range(4):
        body = {**JOB, "args": [number]}
        waiting.append(world.ask("POST", "/jobs", body, ojs_block_timeout="60"))
        await breathe()
    impatient = await world.call("POST", "/jobs", JOB)
    assert (impatient.status, impatient.error["depth"]) == (429, 2)
    entered = []
    for client in waiting:
        await world.run("q", count=1)
        entered.append((await client.reply()).body["job"]["args"])
    assert entered == [[0], [1], [2], [3]]


@in_world()
async def test_001_5_2_so_many_producers_may_wait_and_no_more(world: World) -> None:
    await world.configure("q", backpressure={"max_depth": 1, "strategy": "block"})
    await world.push(queue="q")
    waiting = [world.ask("POST", "/jobs", JOB, ojs_block_timeout="60") for _ in range(1_000)]
    await breathe()
    assert (await world.stats("q"))["parked"] == 1_000
    assert (await world.call("POST", "/jobs", JOB, ojs_block_timeout="60")).status == 429
    for client in waiting:
        client.leave()
    await asyncio.gather(*(client.reply() for client in waiting))
    stats = await world.stats("q")
    assert (stats["parked"], stats["depth"]) == (0, 1)
    assert len(await world.run("q")) == 1
    assert (await world.call("POST", "/jobs", JOB)).status == 201


@in_world()
async def test_001_5_3_neither_active_nor_scheduled_jobs_are_dropped(world: World) -> None:
    await world.configure("q", backpressure={"max_depth": 2, "strategy": "drop_oldest"})
    active = await world.push(queue="q")
    await world.take("q")
    scheduled = [await world.push(queue="q", scheduled_at="+PT1H") for _ in range(2)]
    # Nothing is available that could go: the newcomer is refused, and nothing is dropped.
    found = await world.call("POST", "/jobs", JOB)
    assert (found.status, found.error["strategy"]) == (429, "drop_oldest")
    assert await world.states(active, *scheduled) == ["active", "scheduled", "scheduled"]


@in_world()
async def test_001_5_3_the_dropped_job_is_discarded_and_told(world: World) -> None:
    await world.configure("q", backpressure={"max_depth": 1, "strategy": "drop_oldest"})
    retry = {"on_exhaustion": "dead_letter"}
    old = await world.push(queue="q", type="cache.warm", retry=retry)
    found = await world.call("POST", "/jobs", JOB)
    assert found.status == 201, "the new job is accepted normally"
    job = await world.job(old)
    assert (job["state"], job["error"]["type"]) == ("discarded", "overflow")
    assert (await world.get("/dead-letter"))["jobs"] == []
    (dropped,) = await world.events("backpressure.dropped")
    assert chosen(dropped, "queue", "job_id", "job_type") == {
        "queue": "q",
        "job_id": old,
        "job_type": "cache.warm",
    }


@in_world()
async def test_001_5_3_nothing_is_dropped_unless_it_was_configured(world: World) -> None:
    await world.configure("q", backpressure={"max_depth": 1})
    assert (await world.get("/queues/q/config"))["backpressure"]["strategy"] == "reject"
    first = await world.push(queue="q")
    assert (await world.call("POST", "/jobs", JOB)).status == 429
    assert await world.states(first) == ["available"]
    # And it is one queue's matter.
    await world.configure("other", backpressure={"max_depth": 1, "strategy": "drop_oldest"})
    assert (await world.call("POST", "/jobs", JOB)).status == 429
