"""What a request that names a tenant is not told of others, and what it cannot do to them."""

from __future__ import annotations

from typing import Any

from headgate.engines.contract import Interest
from headgate.server.routes import ROUTES
from tests.flow.world import World, in_world
from tests.server.admin_world import Reply

MINE: dict[str, str] = {"x_ojs_tenant": "acme"}
LIMIT = {"key": "k", "concurrency": 1}


async def enqueue(world: World, tenant: str, **members: Any) -> str:
    return await world.push(queue="q", meta={"tenant_id": tenant} if tenant else {}, **members)


async def of_everybody(world: World, **members: Any) -> dict[str, str]:
    """One job each of a tenant, another one and nobody."""
    return {tenant: await enqueue(world, tenant, **members) for tenant in ("acme", "other", "")}


async def ask(world: World, method: str, path: str, body: Any = None) -> Reply:
    """The request as the tenant makes it; nothing in the answer is about anybody else."""
    found = await world.call(method, path, body, **MINE)
    assert b"other" not in found.raw, found.raw
    return found


@in_world()
async def test_events_are_those_of_the_tenant(world: World) -> None:
    jobs = await of_everybody(world, retry={"max_attempts": 1, "on_exhaustion": "dead_letter"})
    await world.put("/admin/tenants/other", {"limits": {"max_queue_depth": 1}})
    await world.call("POST", "/jobs", {"type": "a", "args": [], "queue": "q"}, x_ojs_tenant="other")
    for job in await world.take("q"):
        await world.nack(job)
    await world.finish("/queues/q/pause")
    found = await ask(world, "GET", "/events?limit=1000")
    events = found.body["events"]
    assert {event["data"].get("job_id") for event in events} == {jobs["acme"]}
    everything = await world.events()
    mine = [event["type"] for event in everything if event.get("tenant_id") == "acme"]
    assert [event["type"] for event in events] == mine
    assert len(mine) < len(everything) / 2


@in_world()
async def test_streams_of_events_are_those_of_the_tenant(world: World) -> None:
    await of_everybody(world)
    first = (await world.engine.events(0, 1, Interest(), world.now_ms)).events[0]
    for path in ("/events/stream", "/queues/q/events"):
        client = world.ask("GET", path, None, last_event_id=str(first.number), **MINE)
        again = await enqueue(world, "acme")
        text = await client.until(again)
        client.leave()
        assert "other" not in text
        assert text.count("event: job.enqueued") == text.count('"tenant_id":"acme"') > 0


@in_world()
async def test_what_makes_room_or_is_dropped_is_told_to_its_tenant(world: World) -> None:
    await world.configure("q", max_size=3, overflow_policy="drop_oldest")
    await of_everybody(world)
    for _ in range(3):
        await enqueue(world, "acme")
    found = await ask(world, "GET", "/events?types=queue.overflow,backpressure.dropped")
    assert len(found.body["events"]) == 2


@in_world()
async def test_the_jobs_of_a_key_are_those_of_the_tenant(world: World) -> None:
    jobs = await of_everybody(world, rate_limit=LIMIT)
    more = await enqueue(world, "acme", rate_limit=LIMIT)
    found = (await ask(world, "GET", "/rate-limits/k/jobs")).body
    shown = [[job["id"] for job in found[name]] for name in ("allowed", "rate_limited")]
    assert shown == [[jobs["acme"]], [more]]
    cancelled = (await ask(world, "POST", "/rate-limits/k/jobs/cancel", {"confirm": True})).body
    assert (cancelled["total_matched"], cancelled["cancelled"]) == (2, 2)
    assert await world.states(jobs["other"], jobs[""]) == ["available", "available"]


@in_world()
async def test_keys_of_others_are_not_there(world: World) -> None:
    for tenant in ("acme", "other"):
        await enqueue(world, tenant, rate_limit={**LIMIT, "scope": "tenant"})
    await enqueue(world, "", rate_limit={"key": "shared", "concurrency": 1})
    found = (await ask(world, "GET", "/rate-limits")).body
    assert [(item["key"], item.get("tenant")) for item in found["items"]] == [
        ("k", "acme"),
        ("shared", None),
    ]
    for method, path, body in (
        ("GET", "/rate-limits/k", None),
        ("PUT", "/rate-limits/k", {"concurrency": 0}),
        ("DELETE", "/rate-limits/k", None),
        ("GET", "/rate-limits/k/jobs", None),
        ("POST", "/rate-limits/k/jobs/cancel", {"confirm": True}),
    ):
        theirs = await world.call(method, f"{path}?tenant=other", body, **MINE)
        assert (theirs.status, theirs.error["details"]["field"]) == (400, "tenant")
    assert (await ask(world, "GET", "/rate-limits/k?tenant=acme")).status == 200
    assert (await world.get("/rate-limits/k?tenant=other"))["waiting_count"] == 0


@in_world()
async def test_an_explanation_names_no_job_of_others(world: World) -> None:
    holder = await enqueue(world, "other", rate_limit=LIMIT)
    job = await enqueue(world, "acme", rate_limit=LIMIT)
    assert await world.take("q") == [holder]
    everybody = await world.get(f"/jobs/{job}/explain")
    assert holder in str(everybody["barriers"])
    found = await ask(world, "GET", f"/jobs/{job}/explain")
    assert holder not in found.raw.decode()
    (barrier, *_) = found.body["barriers"]
    assert barrier["summary"] == "The key k lets 1 run at a time and 1 is held."


@in_world()
async def test_commands_for_a_queue_reach_the_jobs_of_the_tenant(world: World) -> None:
    jobs = await of_everybody(world)
    found = await ask(
        world, "DELETE", "/admin/queues/q/jobs", {"states": ["available"], "confirm": True}
    )
    assert found.body["purged_count"] == 1
    assert (await world.call("GET", f"/jobs/{jobs['acme']}")).status == 404
    assert await world.states(jobs["other"], jobs[""]) == ["available", "available"]


@in_world()
async def test_counts_are_those_of_the_tenant(world: World) -> None:
    for priority in (5, 0):
        await of_everybody(world, priority=priority)
    await enqueue(world, "other", priority=7)
    for path in ("/queues/q/priority-stats", "/queues/q", "/queues/q/stats", "/admin/queues/q"):
        assert (await ask(world, "GET", path)).status == 200
    found = (await ask(world, "GET", "/queues/q/priority-stats")).body
    assert found == {"queue": "q", "counts_by_priority": {"5": 1, "0": 1}, "total": 2}
    assert (await ask(world, "GET", "/admin/queues/q")).body["counts"]["available"] == 2
    listed = (await ask(world, "GET", "/admin/queues")).body["items"]
    assert {item["name"]: item["counts"]["available"] for item in listed} == {"default": 0, "q": 2}
    assert (await ask(world, "GET", "/admin/stats")).body["jobs"]["available"] == 2
    assert (await world.get("/admin/stats"))["jobs"]["available"] == 7


@in_world()
async def test_other_tenants_are_not_there(world: World) -> None:
    await of_everybody(world)
    await world.put("/admin/tenants/other", {"limits": {"max_concurrency": 3}})
    found = (await ask(world, "GET", "/admin/tenants")).body
    assert [item["tenant_id"] for item in found["items"]] == ["acme"]
    before = await world.get("/admin/tenants/other")
    for method, path, body in (
        ("GET", "", None),
        ("PUT", "", {"limits": {}}),
        ("DELETE", "", None),
        ("PUT", "/limits", {"max_concurrency": 1}),
        ("GET", "/stats", None),
        ("GET", "/jobs", None),
    ):
        theirs = await world.call(method, f"/admin/tenants/other{path}", body, **MINE)
        assert theirs.status == 404, path
    assert await world.get("/admin/tenants/other") == before
    assert (await ask(world, "GET", "/admin/tenants/acme/stats")).body["total_jobs"] == 1


def test_what_heeds_no_tenant_is_about_what_all_share() -> None:
    """Whoever adds a request has to decide whether it shows or changes what belongs to a tenant."""
    heedless = {
        f"{route.method} {route.path.removeprefix('/ojs/v1')}"
        for route in ROUTES
        if route.tenant == "ignored"
    }
    assert heedless == {
        "DELETE /admin/pools/{name}",
        "DELETE /admin/queues/{name}",
        "DELETE /admin/workers/{id}",
        "DELETE /dead-letter/replay-rules/{name}",
        "DELETE /queues/{name}",
        "GET /admin/pools",
        "GET /admin/pools/{name}",
        "GET /admin/queues/{name}/config",
        "GET /admin/queues/{name}/rate-limit",
        "GET /admin/scheduling/stats",
        "GET /admin/stats/history",
        "GET /admin/system/config",
        "GET /admin/system/maintenance",
        "GET /admin/tasks",
        "GET /admin/tasks/{id}",
        "GET /admin/workers",
        "GET /admin/workers/{id}",
        "GET /dead-letter/replay-rules",
        "GET /dead-letter/replay-rules/{name}",
        "GET /health",
        "GET /metrics",
        "GET /ojs/manifest",
        "GET /queues",
        "GET /queues/{name}/config",
        "GET /ready",
        "GET /workers/{id}/health",
        "POST /admin/queues/{name}/drain",
        "POST /admin/queues/{name}/pause",
        "POST /admin/queues/{name}/resume",
        "POST /admin/reset",
        "POST /admin/system/maintenance",
        "POST /admin/workers/{id}/quiet",
        "POST /queues",
        "POST /queues/{name}/drain",
        "POST /queues/{name}/pause",
        "POST /queues/{name}/resume",
        "PUT /dead-letter/replay-rules/{name}",
        "POST /workers/beat",
        "POST /workers/deregister",
        "POST /workers/heartbeat",
        "POST /workers/register",
        "PUT /admin/pools/{name}",
        "PUT /admin/queues/{name}/config",
        "PUT /admin/queues/{name}/rate-limit",
        "PUT /queues/{name}/config",
    }
