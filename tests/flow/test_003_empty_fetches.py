"""Fair scheduling: a fetch that finds nothing says when it is worth another one, and never too late."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.core.times import instant_ms
from tests.flow.world import MINUTE, SECOND, World, in_world


async def next_at(world: World, *queues: str, **asked: Any) -> str | None:
    body = {"queues": list(queues or ("q",)), **asked}
    found = await world.finish("/workers/fetch", body)
    assert found["jobs"] == []
    at: str | None = found.get("next_at")
    return at


async def close(world: World, ms: int) -> None:
    """Let a job wait in the queue for a key that opens after so long."""
    rate = {"limit": 1, "period": f"PT{ms // SECOND}S"}
    for _ in range(2):
        await world.limited("k", "q", rate=rate)
    assert len(await world.run("q")) == 1


@in_world()
async def test_003_10_the_opening_of_a_key_or_what_is_due_whatever_comes_first(
    world: World,
) -> None:
    assert await next_at(world) is None
    await close(world, MINUTE)
    opens = world.at(MINUTE)
    assert await next_at(world) == opens
    due = await world.push(queue="q", scheduled_at="+PT5S")
    await world.push(queue="q", scheduled_at="+PT2M")
    await world.push(queue="elsewhere", scheduled_at="+PT1S")
    assert await next_at(world) == world.at(5 * SECOND)
    assert await next_at(world, "q", "elsewhere") == world.at(SECOND)
    await world.finish(f"/jobs/{due}/cancel")
    assert await next_at(world) == opens


@in_world()
async def test_003_10_it_becomes_true(world: World) -> None:
    """Whoever comes back at each instant that is told gets every job at the moment at which it becomes available."""
    retry = {"initial_interval": "PT7S", "jitter": False}
    failing = await world.push(queue="q", retry=retry)
    for s in (3, 11, 30):
        await world.push(queue="q", scheduled_at=f"+PT{s}S")
    await world.limited("k", "q", rate={"limit": 1, "period": "PT20S"})
    await world.limited("k", "q")
    seen = []
    begun = world.now_ms
    while True:
        found = await world.finish("/workers/fetch", {"queues": ["q"], "count": 9})
        for job in found["jobs"]:
            seen.append((world.now_ms - begun) // SECOND)
            if job["id"] == failing and job["attempt"] == 1:
                await world.nack(failing)
            else:
                await world.ack(job["id"])
        if not found["jobs"]:
            if "next_at" not in found:
                break
            at = instant_ms(found["next_at"])
            assert at > world.now_ms
            await world.later(at - world.now_ms)
    assert seen == [0, 0, 3, 7, 11, 20, 30]


@pytest.mark.parametrize("strategy", [None, "round-robin", "weighted"])
@in_world()
async def test_003_10_a_pool_is_told_of_its_own_queues(world: World, strategy: str | None) -> None:
    pool = {"queues": ["mine"]} | ({"strategy": strategy} if strategy else {})
    await world.put("/admin/pools/p", pool)
    await world.push(queue="mine", scheduled_at="+PT9S")
    await world.push(queue="q", scheduled_at="+PT1S")
    assert await next_at(world, "q", pool="p") == world.at(9 * SECOND)


@in_world()
async def test_003_10_no_time_ends_a_pause_or_an_isolation(world: World) -> None:
    await world.push(queue="q", scheduled_at="+PT9S")
    await world.finish("/queues/q/pause")
    assert await next_at(world) is None
    await world.finish("/queues/q/resume")
    assert await next_at(world) == world.at(9 * SECOND)
    await world.put("/admin/pools/p", {"queues": ["q"], "isolated": True})
    assert await next_at(world) is None


@in_world(file=True)
async def test_003_10_it_is_known_after_a_restart_and_in_another_queue(world: World) -> None:
    failing = await world.push(queue="q", retry={"initial_interval": "PT40S", "jitter": False})
    await world.take("q")
    await world.nack(failing)
    later = await world.push(queue="q", scheduled_at="+PT1M")
    await world.restart(SECOND)
    assert await next_at(world) == world.at(39 * SECOND)
    await world.finish("/queues", {"name": "target"})
    body = {"strategy": "move", "target_queue": "target"}
    await world.finish("/queues/q", body, method="DELETE")
    assert await next_at(world) is None
    assert await next_at(world, "target") == world.at(39 * SECOND)
    await world.finish(f"/admin/jobs/{failing}/retry")
    assert await world.run("target") == [failing]
    assert await next_at(world, "target") == world.at(59 * SECOND)
    await world.later(59 * SECOND)
    assert await world.run("target") == [later]
    assert await next_at(world, "target") is None
