from __future__ import annotations

import asyncio

from tests.server.admin_world import START, World, in_world

NO_JOBS = {
    "scheduled": 0, "available": 0, "pending": 0, "active": 0, "retryable": 0, "completed": 0,
    "cancelled": 0, "discarded": 0,
}  # fmt: skip


@in_world()
async def test_queues_are_listed_with_their_load(world: World) -> None:
    await world.push("mail", count=2)
    await world.fetch("mail")
    reply = await world.call("GET", "/admin/queues?per_page=1&page=2")
    assert reply.status == 200
    assert reply.body == {
        "items": [
            {
                "name": "mail",
                "state": "active",
                "counts": {**NO_JOBS, "available": 1, "active": 1},
                "throughput": {"processed_per_minute": 0, "failed_per_minute": 0},
                "latency_ms": {"p50": 0.0, "p95": 0.0, "p99": 0.0},
                "paused": False,
                "created_at": START,
                "oldest_available_at": START,
                "oldest_runnable_at": START,
            }
        ],
        "pagination": {"total": 2, "page": 2, "per_page": 1},
    }


@in_world()
async def test_one_queue_shows_its_configuration(world: World) -> None:
    await world.call("PUT", "/admin/queues/mail/config", {"default_timeout": 7})
    await world.complete("mail")
    await world.bury("mail")
    body = (await world.call("GET", "/admin/queues/mail")).body
    config = (await world.call("GET", "/queues/mail/config")).body
    assert config["default_timeout"] == 7
    assert body == {
        "name": "mail",
        "state": "active",
        "counts": {**NO_JOBS, "completed": 1, "discarded": 1},
        "throughput": {"processed_per_minute": 1, "failed_per_minute": 1},
        "latency_ms": {"p50": 0.0, "p95": 0.0, "p99": 0.0},
        "paused": False,
        "created_at": START,
        "configuration": config,
    }
    assert (await world.call("GET", "/admin/queues/nowhere")).status == 404


@in_world()
async def test_pausing_and_resuming(world: World) -> None:
    paused = await world.call("POST", "/admin/queues/mail/pause")
    assert paused.body == {"name": "mail", "paused": True, "state": "paused", "paused_at": START}
    shown = (await world.call("GET", "/admin/queues/mail")).body
    assert (shown["state"], shown["paused"], shown["paused_at"]) == ("paused", True, START)
    world.now_ms += 1
    resumed = await world.call("POST", "/admin/queues/mail/resume")
    assert resumed.body == {
        "name": "mail",
        "paused": False,
        "state": "active",
        "resumed_at": "2026-02-02T02:40:00.001Z",
    }
    assert "paused_at" not in (await world.call("GET", "/admin/queues/mail")).body
    assert (await world.call("POST", "/admin/queues/Mail/pause")).status == 400


@in_world()
async def test_purging_forgets_finished_jobs_unless_told_otherwise(world: World) -> None:
    done = await world.complete("mail", count=3)
    (waiting,) = await world.push("mail")
    other = await world.complete("pay")
    reply = await world.call("DELETE", "/admin/queues/mail/jobs", {"confirm": True})
    assert reply.status == 200
    assert reply.body == {"purged_count": 3, "states": ["completed", "discarded", "cancelled"]}
    assert [await world.state(job_id) for job_id in done] == [None, None, None]
    assert await world.state(waiting) == "available"
    assert await world.state(other[0]) == "completed"


@in_world()
async def test_purging_jobs_that_have_not_ended_cancels_them_first(world: World) -> None:
    await world.push("mail", count=2)
    active = await world.fetch("mail")
    path = "/admin/queues/mail/jobs?confirm=true&states=available,active"
    reply = await world.call("DELETE", path)
    assert reply.body == {"purged_count": 2, "states": ["available", "active"]}
    assert await world.state(active[0]) is None
    events = (await world.call("GET", "/events?types=job.cancelled")).body["events"]
    assert len(events) == 2


@in_world()
async def test_purging_only_what_is_old_enough(world: World) -> None:
    (old,) = await world.complete("mail")
    world.now_ms += 60_000
    (fresh,) = await world.complete("mail")
    body = {"confirm": True, "older_than": "PT30S"}
    reply = await world.call("DELETE", "/admin/queues/mail/jobs", body)
    assert reply.body["purged_count"] == 1
    assert (await world.state(old), await world.state(fresh)) == (None, "completed")
    body = {"confirm": True, "older_than": "2026-02-02T02:41:00.001Z"}
    reply = await world.call("DELETE", "/admin/queues/mail/jobs", body)
    assert reply.body["purged_count"] == 1


@in_world()
async def test_purging_is_refused(world: World) -> None:
    (job_id,) = await world.complete("mail")
    for body, field in (
        (None, "confirm"),
        ({}, "confirm"),
        ({"confirm": False}, "confirm"),
        ({"confirm": True, "states": ["done"]}, "states"),
        ({"confirm": True, "older_than": "P7"}, "older_than"),
        ({"confirm": True, "older_than": "yesterday"}, "older_than"),
    ):
        reply = await world.call("DELETE", "/admin/queues/mail/jobs", body)
        assert (reply.status, reply.error["details"]["field"]) == (400, field), body
    missing = await world.call("DELETE", "/admin/queues/nowhere/jobs", {"confirm": True})
    assert missing.status == 404
    assert await world.state(job_id) == "completed"


@in_world()
async def test_a_large_purge_goes_on_as_a_task(world: World) -> None:
    await world.push("mail", count=1_001)
    body = {"confirm": True, "states": ["available"]}
    reply = await world.call("DELETE", "/admin/queues/mail/jobs", body)
    assert reply.status == 202
    task = reply.body["task"]
    assert (task["kind"], task["matched"], task["finished"]) == ("purge", 1_001, False)
    while not task["finished"]:
        await asyncio.sleep(0)
        task = (await world.call("GET", f"/admin/tasks/{task['id']}")).body["task"]
    assert task == {
        "id": task["id"],
        "kind": "purge",
        "matched": 1_001,
        "done": 1_001,
        "skipped": 0,
        "finished": True,
    }
    listed = (await world.call("GET", "/admin/tasks")).body
    assert listed == {"items": [task], "pagination": {"total": 1, "page": 1, "per_page": 20}}
    assert (await world.call("GET", "/queues/mail/stats")).body["stats"]["depth"] == 0


@in_world()
async def test_a_task_that_nobody_knows(world: World) -> None:
    reply = await world.call("GET", "/admin/tasks/none")
    assert (reply.status, reply.error["details"]) == (404, {"task_id": "none"})
    assert (await world.call("GET", "/admin/tasks?page=0")).status == 400
