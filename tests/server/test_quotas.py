"""What pushes of a tenant are told whose rate is limited."""

from __future__ import annotations

from typing import Any

from tests.server.admin_world import Reply
from tests.server.jobs_world import START_MS, World, in_world

JOB: dict[str, Any] = {"type": "test.echo", "args": []}
MINE = {"x_ojs_tenant": "acme"}
NAMES = ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset")
START_S = START_MS // 1000


def told(reply: Reply) -> tuple[int, ...]:
    return tuple(int(reply.headers[name]) for name in NAMES if name in reply.headers)


async def limited(world: World, **limits: Any) -> None:
    rate = limits or {"max_enqueue_rate": {"limit": 3, "period": "PT1M"}}
    assert (await world.call("PUT", "/admin/tenants/acme/limits", rate)).status == 201


@in_world()
async def test_every_answer_to_a_push_says_what_is_left(world: World) -> None:
    await limited(world)
    assert told(await world.call("POST", "/jobs", {"type": "Bad", "args": []}, **MINE)) == (
        3, 3, START_S,
    )  # fmt: skip
    first = await world.call("POST", "/jobs", JOB, **MINE)
    assert (first.status, told(first)) == (201, (3, 2, START_S + 60))
    world.now_ms += 10_500
    by_meta = await world.call("POST", "/jobs", {**JOB, "meta": {"tenant_id": "acme"}})
    assert told(by_meta) == (3, 1, START_S + 71), "rounded up"
    batch = await world.call("POST", "/jobs/batch", {"jobs": [JOB, JOB]}, **MINE)
    assert (batch.status, told(batch)) == (429, (3, 1, START_S + 71))
    bulk = await world.call("POST", "/jobs/bulk", {"jobs": [JOB, JOB]}, **MINE)
    assert (bulk.status, told(bulk)[:2]) == (207, (3, 0))
    refused = await world.call("POST", "/jobs", JOB, **MINE)
    assert (refused.status, told(refused)[:2]) == (429, (3, 0))
    assert int(refused.headers["retry-after"]) >= 1
    world.now_ms += 120_000
    batch = await world.call("POST", "/jobs/batch", {"jobs": [JOB]}, **MINE)
    assert (batch.status, told(batch)[:2]) == (201, (3, 2))


@in_world()
async def test_a_duplicate_costs_nothing_and_says_so(world: World) -> None:
    await limited(world)
    job = {**JOB, "unique": {"keys": ["type"], "on_conflict": "ignore"}}
    assert told(await world.call("POST", "/jobs", job, **MINE))[1] == 2
    again = await world.call("POST", "/jobs", job, **MINE)
    assert (again.status, told(again)[1]) == (200, 2)


@in_world()
async def test_of_several_tenants_the_one_with_least_left_is_told(world: World) -> None:
    await limited(world)
    limits = {"max_enqueue_rate": {"limit": 1, "period": "PT1M"}}
    await world.call("PUT", "/admin/tenants/small/limits", limits)
    jobs = [{**JOB, "meta": {"tenant_id": name}} for name in ("acme", "small", "other")]
    found = await world.call("POST", "/jobs/batch", {"jobs": jobs})
    assert (found.status, told(found)[:2]) == (201, (1, 0))


@in_world()
async def test_nobody_else_is_told_anything(world: World) -> None:
    await limited(world, max_queue_depth=5)
    for headers in ({}, MINE, {"x_ojs_tenant": "other"}):
        assert told(await world.call("POST", "/jobs", JOB, **headers)) == ()
