"""Maintenance: jobs are taken and none is given out, until somebody ends it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.flow.world import MINUTE, SECOND, START, World, chosen, in_world

PATH = "/admin/system/maintenance"


async def begin(world: World, **more: Any) -> Any:
    return await world.finish(PATH, {"enabled": True, **more})


async def end(world: World) -> Any:
    return await world.finish(PATH, {"enabled": False})


@in_world()
async def test_it_is_begun_and_ended_by_request(world: World) -> None:
    assert await world.get(PATH) == {"maintenance": False}
    assert "maintenance" not in await world.get("/health")
    found = await begin(world, reason="new disk", estimated_duration="PT30M")
    assert found == {
        "maintenance": True,
        "reason": "new disk",
        "enabled_at": START,
        "estimated_end": world.at(30 * MINUTE),
    }
    health = await world.get("/health")
    assert (health["status"], health["maintenance"]) == ("ok", found)
    await world.later(MINUTE)
    again = await begin(world, reason="the disk is late")
    assert again == {"maintenance": True, "reason": "the disk is late", "enabled_at": START}
    assert await world.get(PATH) == again
    for _ in range(2):
        assert await end(world) == {"maintenance": False}
    told = await world.events("maintenance.*")
    assert chosen(told, "type", "by") == [
        {"type": f"maintenance.{kind}", "by": "anonymous"}
        for kind in ("started", "started", "ended")
    ]
    assert (told[0]["reason"], told[0]["estimated_end_at"]) == (
        "new disk",
        found["estimated_end"],
    )


@in_world()
async def test_a_fetch_is_empty_and_says_why_and_an_enqueue_is_open(world: World) -> None:
    await begin(world)
    job = await world.push(queue="q")
    await world.finish("/jobs/batch", {"jobs": [{"type": "a", "args": [], "queue": "q"}]})
    for asked in ({}, {"strategy": "round-robin"}, {"pool": "p"}):
        found = await world.call("POST", "/workers/fetch", {"queues": ["q", "none"], **asked})
        assert found.body == {
            "jobs": [],
            "reasons": {"q": "maintenance", "none": "maintenance"},
        }
    exchange = {"worker_id": "w", "fetch": {"queues": ["q"], "count": 1}}
    assert (await world.finish("/workers/exchange", exchange))["jobs"] == []
    assert "oldest_runnable_at" not in await world.stats("q")
    await end(world)
    assert await world.take("q", count=1) == [job]


@in_world()
async def test_what_runs_may_end_and_what_is_lost_comes_back(world: World) -> None:
    done, failed, lost = [await world.push(queue="q") for _ in range(3)]
    await world.take("q")
    await begin(world)
    await world.ack(done)
    await world.nack(failed)
    await world.later(31 * SECOND)
    assert await world.states(done, failed, lost) == ["completed", "retryable", "available"]


@in_world()
async def test_nothing_becomes_due_and_afterwards_it_does_in_the_order_of_its_time(
    world: World,
) -> None:
    late = await world.push(queue="q", scheduled_at="+PT20S")
    early = await world.push(queue="q", scheduled_at="+PT10S")
    broken = await world.push(queue="q", retry={"initial_interval": "PT15S", "jitter": False})
    future = await world.push(queue="q", scheduled_at="+PT1H")
    dropped = await world.push(queue="q", scheduled_at="+PT10S", expires_at="+PT30S")
    await world.take("q")
    await world.nack(broken)
    await begin(world)
    await world.later(MINUTE)
    assert await world.states(early, late, broken, dropped) == [
        "scheduled",
        "scheduled",
        "retryable",
        "discarded",
    ]
    assert world.engine.next_due() > world.now_ms, "an idle server has nothing to do"
    assert await world.events("scheduling.*") == []
    await end(world)
    assert await world.run("q") == [early, broken, late]
    assert (await world.job(early))["enqueued_at"] == world.at(0)
    assert await world.states(future) == ["scheduled"]
    await world.later(59 * MINUTE)
    assert await world.take("q") == [future]


@in_world()
async def test_what_is_cancelled_or_moved_meanwhile_is_not_let_go_twice(world: World) -> None:
    cancelled, moved = [await world.push(queue="q", scheduled_at=f"+PT{s}S") for s in (1, 2)]
    await world.finish("/queues", {"name": "target"})
    await begin(world)
    await world.later(5 * SECOND)
    await world.finish(f"/jobs/{cancelled}/cancel")
    body = {"strategy": "move", "target_queue": "target"}
    await world.finish("/queues/q", body, method="DELETE")
    await world.later(SECOND)
    await end(world)
    assert await world.take("q", "target") == [moved]
    assert await world.states(cancelled) == ["cancelled"]
    enqueued = [event["job_id"] for event in await world.events("job.enqueued")]
    assert enqueued == [moved]


@in_world()
async def test_thousands_that_came_due_meanwhile_are_all_let_go(world: World) -> None:
    jobs = [{"type": "a", "args": [], "queue": "q", "scheduled_at": "+PT1S"}] * 900
    for _ in range(3):
        await world.finish("/jobs/batch", {"jobs": jobs})
    await begin(world)
    while world.engine.next_due() <= world.now_ms + MINUTE:
        await world.later(SECOND)
    await end(world)
    while world.engine.next_due() <= world.now_ms:
        await world.later(0)
    assert (await world.stats("q"))["available"] == 2_700


@in_world()
async def test_who_waits_for_work_gets_it_at_the_end(world: World) -> None:
    await begin(world)
    job = await world.push(queue="q")
    waiting = world.ask("POST", "/workers/fetch", {"queues": ["q"], "wait_ms": 30_000})
    for _ in range(20):
        await asyncio.sleep(0)
    assert waiting.sent == []
    await end(world)
    assert [each["id"] for each in (await waiting.reply()).body["jobs"]] == [job]


@in_world()
async def test_no_queue_starves_because_of_it(world: World) -> None:
    starvation = {"enabled": True, "rotation_interval": "PT10S", "min_dispatch_ratio": 0.01}
    pool = {"queues": ["a", "b"], "strategy": "strict", "starvation_prevention": starvation}
    await world.put("/admin/pools/p", pool)
    for queue in ("a", "b"):
        for _ in range(3):
            await world.push(queue=queue)
    await begin(world)
    await world.later(MINUTE)
    await end(world)
    await world.take("x", pool="p", count=2)
    assert await world.events("scheduling.queue_starved") == []


@in_world()
async def test_explain_says_that_and_since_when_and_how_to_end_it(world: World) -> None:
    job = await world.push(queue="q")
    later = await world.push(queue="q", scheduled_at="+PT1S")
    await begin(world, reason="new disk", estimated_duration="PT1H")
    await world.later(MINUTE)
    found: Any = None
    for job_id in (job, later):
        found = await world.get(f"/jobs/{job_id}/explain")
        barrier = found["barriers"][0]
        assert chosen(barrier, "kind", "scope", "reason") == {
            "kind": "maintenance",
            "scope": "server",
            "reason": "new disk",
        }
        assert barrier["summary"] == (
            f"The server is in maintenance since {START} (1 min ago), which is meant to end at "
            f"{world.at(59 * MINUTE)} (in 59 min) (new disk): no job is given out and none becomes due."
        )
        assert "/admin/system/maintenance" in barrier["remedy"]
    assert [each["kind"] for each in found["barriers"]] == ["maintenance"]


@in_world(file=True)
async def test_it_outlives_a_restart(world: World) -> None:
    job = await world.push(queue="q")
    due = [await world.push(queue="q", scheduled_at=f"+PT{s}S") for s in (3, 2)]
    begun = await begin(world, reason="new disk")
    await world.later(10 * SECOND)
    await world.restart(MINUTE)
    assert await world.get(PATH) == begun
    assert await world.take("q") == []
    assert await world.states(*due) == ["scheduled", "scheduled"]
    await end(world)
    await world.restart()
    assert await world.get(PATH) == {"maintenance": False}
    assert await world.take("q") == [job, due[1], due[0]]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "enabled"),
        ({"enabled": "yes"}, "enabled"),
        ({"enabled": True, "reason": 5}, "reason"),
        ({"enabled": True, "reason": "x" * 1_001}, "reason"),
        ({"enabled": True, "estimated_duration": 60}, "estimated_duration"),
        ({"enabled": True, "estimated_duration": "an hour"}, "estimated_duration"),
        ({"enabled": True, "estimated_duration": "PT0S"}, "estimated_duration"),
        ({"enabled": True, "until": "tomorrow"}, "until"),
    ],
)
@in_world()
async def test_what_is_wrong_begins_nothing(world: World, body: Any, field: str) -> None:
    await world.refused("POST", PATH, body, field)
    assert await world.get(PATH) == {"maintenance": False}
