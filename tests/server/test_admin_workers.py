from __future__ import annotations

import msgspec

from tests.server.admin_world import START, World, in_world


@in_world()
async def test_nobody_is_there(world: World) -> None:
    assert (await world.call("GET", "/admin/workers")).body == {
        "items": [],
        "summary": {"total": 0, "running": 0, "quiet": 0, "stale": 0},
        "pagination": {"total": 0, "page": 1, "per_page": 20},
    }


@in_world()
async def test_workers_are_listed_and_summed_up(world: World) -> None:
    await world.beat("silent")
    world.now_ms += 20_000
    await world.push("mail", count=2)
    jobs = await world.fetch("mail", 2, worker="busy")
    await world.beat(
        "busy",
        *jobs,
        hostname="h1",
        pid=42,
        queues=["mail"],
        concurrency=10,
        labels=msgspec.Raw(b'{"zone":"a"}'),
        version="2.0",
        pool="fast",
    )
    await world.beat("resting", state="quiet")
    body = (await world.call("GET", "/admin/workers")).body
    assert body["summary"] == {"total": 3, "running": 1, "quiet": 1, "stale": 1}
    assert body["pagination"] == {"total": 3, "page": 1, "per_page": 20}
    at = "2026-02-02T02:40:20.000Z"
    by_id = {item["id"]: item for item in body["items"]}
    assert by_id["busy"] == {
        "id": "busy",
        "hostname": "h1",
        "pid": 42,
        "state": "running",
        "directive": "running",
        "queues": ["mail"],
        "concurrency": 10,
        "active_jobs": 2,
        "active_job_ids": jobs,
        "started_at": at,
        "last_heartbeat_at": at,
        "version": "2.0",
        "pool": "fast",
        "metadata": {"zone": "a"},
    }
    assert by_id["resting"]["state"] == "quiet"
    assert (by_id["silent"]["state"], by_id["silent"]["started_at"]) == ("stale", START)
    assert (await world.call("GET", "/admin/workers/busy")).body == by_id["busy"]
    second = (await world.call("GET", "/admin/workers?per_page=1&page=2")).body
    assert second["items"] == [body["items"][1]]
    assert second["summary"] == body["summary"]


@in_world()
async def test_a_quiet_worker_gets_no_more_jobs(world: World) -> None:
    await world.beat("w")
    await world.push()
    reply = await world.call("POST", "/admin/workers/w/quiet")
    assert reply.status == 200
    assert (reply.body["id"], reply.body["directive"]) == ("w", "quiet")
    assert await world.fetch(worker="w") == []
    assert len(await world.fetch(worker="other")) == 1


@in_world()
async def test_a_worker_that_is_to_terminate_does_not_go_back_to_quiet(world: World) -> None:
    await world.beat("w")
    await world.engine.direct("w", "terminate", world.now_ms)
    reply = await world.call("POST", "/admin/workers/w/quiet")
    assert reply.body["directive"] == "terminate"


@in_world()
async def test_a_stale_worker_is_removed_and_its_jobs_go_back(world: World) -> None:
    await world.call("PUT", "/queues/mail/config", {"visibility_timeout": 600})
    await world.push("mail")
    (job_id,) = await world.fetch("mail", worker="w")
    await world.beat("w")
    alive = await world.call("DELETE", "/admin/workers/w")
    assert (alive.status, alive.error["code"]) == (409, "conflict")
    assert await world.state(job_id) == "active"
    world.now_ms += 20_000
    reply = await world.call("DELETE", "/admin/workers/w")
    assert (reply.status, reply.body) == (200, {"deleted": True, "id": "w", "jobs_requeued": 1})
    assert await world.state(job_id) == "available"
    assert (await world.call("GET", "/admin/workers/w")).status == 404


@in_world()
async def test_workers_that_nobody_knows(world: World) -> None:
    for method, verb in (("GET", ""), ("POST", "/quiet"), ("DELETE", "")):
        reply = await world.call(method, f"/admin/workers/nobody{verb}")
        assert (reply.status, reply.error["details"]) == (404, {"worker_id": "nobody"})
    assert (await world.call("GET", "/admin/workers?per_page=0")).status == 400
