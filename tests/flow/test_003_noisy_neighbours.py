"""Tenants that take so much that others may feel it are told from the others."""

from __future__ import annotations

from tests.flow.test_003_requirements import of_tenants
from tests.flow.world import MINUTE, World, in_world


async def noisy(world: World, tenant: str) -> list[str]:
    found: list[str] = (await world.get(f"/admin/tenants/{tenant}/stats"))["noisy"]
    return found


@in_world()
async def test_003_9_who_takes_much_more_than_the_others_is_told_so(world: World) -> None:
    await of_tenants(world, flood=200, calm=10, still=2)
    await world.push(queue="q")
    assert await noisy(world, "flood") == ["depth", "rate"]
    assert await noisy(world, "calm") == await noisy(world, "still") == []
    taken = await world.take("q", count=20)
    assert await noisy(world, "flood") == ["depth", "rate", "active"]
    for job in taken[:4]:
        await world.nack(job, code="DISCARD")
    assert await noisy(world, "flood") == ["depth", "rate", "active", "errors"]
    await world.ack(*taken[4:])
    await world.later(MINUTE)
    assert await noisy(world, "flood") == ["depth"]
    await world.finish("/jobs/bulk/cancel", {"filter": {"tenant": "flood"}})
    assert await noisy(world, "flood") == []


@in_world()
async def test_003_9_a_tenant_alone_disturbs_nobody(world: World) -> None:
    await of_tenants(world, only=300)
    await world.take("q", count=50)
    assert await noisy(world, "only") == []
