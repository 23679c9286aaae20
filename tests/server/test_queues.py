from __future__ import annotations

import asyncio

import pytest

from headgate.core.gates import LimitsChange
from headgate.core.limits import Use
from headgate.engines.contract import Ack
from tests.server.admin_world import START, World, in_world

SYSTEM = {
    "visibility_timeout": 30,
    "default_timeout": 1800,
    "default_retry": {
        "max_attempts": 3,
        "initial_interval": "PT1S",
        "backoff_coefficient": 2.0,
        "max_interval": "PT5M",
        "jitter": True,
        "backoff_strategy": "exponential",
        "non_retryable_errors": [],
        "on_exhaustion": "discard",
    },
    "retention": {"completed": "P7D", "discarded": "P30D", "cancelled": "P7D"},
    "allowed_job_types": ["*"],
    "overflow_policy": "reject",
    "backpressure": {"strategy": "reject", "warning_threshold": 0.8},
    "dead_letter_ttl": "P30D",
    "producers": ["*"],
    "tenant_fairness": {"enabled": False, "strategy": "fair-share", "default_weight": 1},
}


@in_world()
async def test_the_default_queue_is_always_listed(world: World) -> None:
    reply = await world.call("GET", "/queues")
    assert reply.status == 200
    assert reply.body == {
        "queues": [
            {
                "name": "default",
                "status": "active",
                "state": "active",
                "created_at": START,
                "config": SYSTEM,
            }
        ],
        "pagination": {
            "total": 1,
            "limit": 50,
            "offset": 0,
            "has_more": False,
            "next_cursor": None,
        },
    }


@in_world()
async def test_a_list_is_walked_by_its_cursors(world: World) -> None:
    for name in ("a", "b", "c", "d"):
        await world.call("POST", "/queues", {"name": name})
    names: list[str] = []
    query = "limit=2"
    while query:
        body = (await world.call("GET", f"/queues?{query}")).body
        names += [queue["name"] for queue in body["queues"]]
        pagination = body["pagination"]
        assert pagination["total"] == 5
        assert pagination["has_more"] == bool(pagination["next_cursor"])
        query = f"limit=2&cursor={pagination['next_cursor']}" if pagination["has_more"] else ""
    assert names == ["a", "b", "c", "d", "default"]


@in_world()
async def test_creating_a_queue_answers_with_everything_that_holds(world: World) -> None:
    config = {"visibility_timeout": 300, "retention": {"completed": "P3D"}}
    reply = await world.call("POST", "/queues", {"name": "pay", "config": config})
    assert reply.status == 201
    assert reply.body == {
        "name": "pay",
        "state": "active",
        "config": {
            **SYSTEM,
            "visibility_timeout": 300,
            "retention": {"completed": "P3D", "discarded": "P30D", "cancelled": "P7D"},
        },
        "created_at": START,
    }


@in_world()
async def test_a_queue_is_created_once(world: World) -> None:
    await world.call("POST", "/queues", {"name": "pay", "config": {"default_timeout": 5}})
    reply = await world.call("POST", "/queues", {"name": "pay", "config": {"default_timeout": 9}})
    assert (reply.status, reply.error["code"]) == (409, "conflict")
    assert reply.error["details"] == {"queue": "pay"}
    config = (await world.call("GET", "/queues/pay/config")).body
    assert config["default_timeout"] == 5


@in_world()
async def test_a_refused_creation_creates_nothing(world: World) -> None:
    for body, status, field in (
        ({"name": "Pay"}, 400, "name"),
        ({"name": "_default"}, 400, "name"),
        ({"name": "x" * 129}, 400, "name"),
        ({"name": 3}, 400, "name"),
        ({}, 400, "name"),
        ({"name": "pay", "config": {"max_size": -5}}, 400, "config.max_size"),
        ({"name": "pay", "config": {"dead_letter_queue": "pay"}}, 400, "config.dead_letter_queue"),
        ({"name": "pay", "config": {"dead_letter_queue": "X"}}, 400, "config.dead_letter_queue"),
        ({"name": "pay", "config": {"visibility_timeout": 0}}, 400, "config.visibility_timeout"),
        ({"name": "pay", "config": {"default_retry": {"max_attempts": -1}}}, 422,
         "config.default_retry.max_attempts"),
    ):  # fmt: skip
        reply = await world.call("POST", "/queues", body)
        assert reply.status == status, body
        assert reply.error["details"]["field"] == field
    assert (await world.call("GET", "/queues")).body["pagination"]["total"] == 1
    assert (await world.call("POST", "/queues")).error["code"] == "invalid_payload"


@in_world()
async def test_a_queue_shows_its_jobs_flat_and_as_an_object(world: World) -> None:
    await world.push("mail", count=3)
    await world.fetch("mail")
    world.now_ms += 1_000
    reply = await world.call("GET", "/queues/mail")
    assert reply.status == 200
    assert reply.body == {
        "name": "mail",
        "state": "active",
        "config": SYSTEM,
        "stats": {
            "depth": 3,
            "available": 2,
            "active": 1,
            "retryable": 0,
            "scheduled": 0,
            "pending": 0,
            "completed_today": 0,
            "failed_today": 0,
        },
        "created_at": START,
        "updated_at": START,
        "queue": {
            "name": "mail",
            "paused": False,
            "available": 2,
            "active": 1,
            "scheduled": 0,
            "retryable": 0,
            "pending": 0,
            "completed": 0,
            "discarded": 0,
            "cancelled": 0,
        },
    }


@in_world()
async def test_stats_have_both_shapes(world: World) -> None:
    await world.complete("mail")
    await world.push("mail", count=2)
    world.now_ms += 1_000
    body = (await world.call("GET", "/queues/mail/stats")).body
    counts = {
        "available": 2, "active": 0, "scheduled": 0, "retryable": 0, "pending": 0, "completed": 1,
        "discarded": 0, "cancelled": 0,
    }  # fmt: skip
    assert body == {
        "queue": {"name": "mail", "paused": False, **counts},
        "stats": {
            "queue": "mail",
            "depth": 2,
            **counts,
            "completed_last_hour": 1,
            "failed_last_hour": 0,
            "avg_duration_ms": 0.0,
            "avg_wait_ms": 0.0,
            "throughput_per_second": 1 / 60,
            "bytes": body["stats"]["bytes"],
            "parked": 0,
            "oldest_available_at": START,
            "oldest_available_age_ms": 1_000,
            "oldest_runnable_at": START,
            "oldest_runnable_age_ms": 1_000,
        },
        "status": "active",
        "computed_at": "2026-02-02T02:40:01.000Z",
    }


@pytest.mark.parametrize("path", ["", "/config", "/stats", "/priority-stats"])
def test_a_queue_that_nobody_knows(path: str) -> None:
    @in_world()
    async def look(world: World) -> None:
        reply = await world.call("GET", f"/queues/nowhere{path}")
        assert (reply.status, reply.error["code"]) == (404, "not_found")
        assert reply.error["details"] == {"queue": "nowhere"}
        assert await world.engine.queue("nowhere", world.now_ms) is None

    look()


@in_world()
async def test_stats_of_the_default_queue_are_there_from_the_start(world: World) -> None:
    assert (await world.call("GET", "/queues/default/stats")).status == 200


@in_world()
async def test_pausing_and_resuming_an_unknown_queue_creates_it(world: World) -> None:
    paused = await world.call("POST", "/queues/mail/pause")
    assert paused.status == 200
    assert paused.body == {
        "queue": {"name": "mail", "paused": True},
        "status": "paused",
        "paused_at": START,
    }
    await world.push("mail")
    assert await world.fetch("mail") == []
    world.now_ms += 500
    again = await world.call("POST", "/queues/mail/pause", {})
    assert again.body["paused_at"] == START
    resumed = await world.call("POST", "/queues/mail/resume")
    assert resumed.body == {
        "queue": {"name": "mail", "paused": False},
        "status": "active",
        "resumed_at": "2026-02-02T02:40:00.500Z",
    }
    assert len(await world.fetch("mail")) == 1


@in_world()
async def test_a_name_that_no_queue_can_have_cannot_be_paused(world: World) -> None:
    for name in ("_default", "Mail", "a%20b"):
        for verb in ("pause", "resume"):
            reply = await world.call("POST", f"/queues/{name}/{verb}")
            assert (reply.status, reply.error["details"]["field"]) == (400, "name")


@in_world()
async def test_configuration_is_merged_and_null_clears(world: World) -> None:
    first = await world.call(
        "PUT", "/queues/mail/config", {"default_timeout": 60, "allowed_job_types": ["mail.*"]}
    )
    assert first.status == 200
    assert first.body == {**SYSTEM, "default_timeout": 60, "allowed_job_types": ["mail.*"]}
    second = await world.call("PUT", "/queues/mail/config", {"allowed_job_types": None})
    assert second.body == {**SYSTEM, "default_timeout": 60}
    assert (await world.call("GET", "/queues/mail/config")).body == second.body
    assert (await world.call("GET", "/admin/queues/mail/config")).body == second.body


@in_world()
async def test_both_ways_to_the_configuration_lead_to_the_same_one(world: World) -> None:
    await world.call("PUT", "/admin/queues/mail/config", {"default_timeout": 60})
    assert (await world.call("GET", "/queues/mail/config")).body["default_timeout"] == 60


@in_world()
async def test_a_refused_configuration_changes_nothing(world: World) -> None:
    for body, status in (
        ({"default_timeout": 60, "concurrency": -3}, 400),
        ({"default_timeout": "60"}, 400),
        ({"retention": {"completed": "7 days"}}, 400),
        ({"default_retry": {"backoff_coefficient": 0.5}}, 422),
        ([], 400),
        (b"{", 400),
    ):
        assert (await world.call("PUT", "/queues/mail/config", body)).status == status, body
    assert (await world.call("GET", "/queues/mail")).status == 404


@in_world()
async def test_the_default_policy_shows_in_queues_that_say_nothing(world: World) -> None:
    await world.call("PUT", "/queues/own/config", {"default_timeout": 5})
    await world.call("PUT", "/queues/plain/config", {})
    policy = await world.call("PUT", "/queues/_default/config", {"default_timeout": 77})
    assert policy.body == {**SYSTEM, "default_timeout": 77}
    assert (await world.call("GET", "/admin/queues/_default/config")).body == policy.body
    assert (await world.call("GET", "/queues/_default/config")).body == policy.body
    assert (await world.call("GET", "/queues/plain/config")).body["default_timeout"] == 77
    assert (await world.call("GET", "/queues/own/config")).body["default_timeout"] == 5
    assert (await world.call("GET", "/queues/_default")).status == 404


@in_world()
async def test_an_empty_queue_is_deleted(world: World) -> None:
    await world.complete("mail")
    reply = await world.call("DELETE", "/queues/mail", {"strategy": "reject"})
    assert reply.status == 202
    assert reply.body == {
        "queue": "mail",
        "strategy": "reject",
        "jobs_affected": 0,
        "state": "deleted",
    }
    assert (await world.call("GET", "/queues/mail")).status == 404
    assert (await world.call("DELETE", "/queues/mail?strategy=reject")).status == 404


@in_world()
async def test_deleting_is_refused(world: World) -> None:
    await world.push("mail", count=2)
    await world.push("leaving")
    await world.call("POST", "/queues/leaving/drain")
    for name, query, status, field in (
        ("mail", "", 400, "strategy"),
        ("mail", "strategy=burn", 400, "strategy"),
        ("mail", "strategy=move", 400, "target_queue"),
        ("mail", "strategy=move&target_queue=x", 400, "target_queue"),
        ("mail", "strategy=move&target_queue=X", 400, "target_queue"),
        ("mail", "strategy=move&target_queue=mail", 400, "target_queue"),
        ("mail", "strategy=move&target_queue=leaving", 400, "target_queue"),
        ("mail", "strategy=discard&target_queue=default", 400, "target_queue"),
        ("mail", "strategy=reject", 409, None),
        ("default", "strategy=reject", 409, None),
        ("default", "strategy=discard", 409, None),
        ("nowhere", "strategy=discard", 404, None),
        ("nowhere", "strategy=move&target_queue=default", 404, None),
    ):
        reply = await world.call("DELETE", f"/queues/{name}?{query}")
        assert reply.status == status, query
        assert reply.error["details"].get("field") == field
    refused = await world.call("DELETE", "/queues/mail", {"strategy": "reject"})
    assert refused.error["details"] == {"queue": "mail", "unfinished_jobs": 2}
    assert (await world.call("GET", "/queues/mail")).body["stats"]["available"] == 2


@in_world()
async def test_deleting_a_queue_with_its_jobs(world: World) -> None:
    ids = await world.push("mail", count=2)
    reply = await world.call("DELETE", "/queues/mail", {"strategy": "discard"})
    assert reply.status == 202
    assert reply.body == {
        "queue": "mail",
        "strategy": "discard",
        "jobs_affected": 2,
        "state": "deleted",
    }
    assert (await world.call("GET", "/queues/mail")).status == 404
    for job_id in ids:
        job = (await world.call("GET", f"/admin/jobs/{job_id}")).body
        assert (job["state"], job["error"]["type"]) == ("discarded", "queue_deleted")


@in_world()
async def test_moving_jobs_to_another_queue(world: World) -> None:
    ids = await world.push("mail", count=2)
    await world.call("POST", "/queues", {"name": "post"})
    body = {"strategy": "move", "target_queue": "post"}
    reply = await world.call("DELETE", "/queues/mail", body)
    assert (reply.status, reply.body) == (
        202,
        {
            "queue": "mail",
            "strategy": "move",
            "target_queue": "post",
            "jobs_affected": 2,
            "state": "deleted",
        },
    )
    assert (await world.call("GET", "/queues/mail")).status == 404
    assert await world.fetch("post", 5) == ids


@in_world()
async def test_active_jobs_end_before_their_queue(world: World) -> None:
    await world.push("mail", count=2)
    (job_id,) = await world.fetch("mail")
    reply = await world.call("DELETE", "/queues/mail?strategy=discard")
    assert (reply.body["state"], reply.body["jobs_affected"]) == ("draining", 1)
    assert (await world.call("GET", "/queues/mail")).body["state"] == "draining"
    await world.engine.ack([Ack(job_id)], world.now_ms)
    assert (await world.call("GET", "/queues/mail")).status == 404


@in_world()
async def test_deleting_a_large_queue_goes_on_as_a_task(world: World) -> None:
    await world.push("mail", count=1_001)
    reply = await world.call("DELETE", "/queues/mail?strategy=discard")
    assert (reply.status, reply.body["jobs_affected"]) == (202, 1_001)
    task = reply.body["task"]
    assert (task["kind"], task["matched"], task["finished"]) == ("discard", 1_001, False)
    while not task["finished"]:
        await asyncio.sleep(0)
        task = (await world.call("GET", f"/admin/tasks/{task['id']}")).body["task"]
    assert (await world.call("GET", "/queues/mail")).status == 404


@in_world()
async def test_draining_lets_a_queue_run_empty(world: World) -> None:
    await world.push("mail")
    reply = await world.call("POST", "/queues/mail/drain")
    assert (reply.status, reply.body) == (
        200,
        {"queue": {"name": "mail", "paused": False}, "status": "draining", "unfinished_jobs": 1},
    )
    (job_id,) = await world.fetch("mail")
    await world.engine.ack([Ack(job_id)], world.now_ms)
    assert (await world.call("GET", "/queues/mail")).status == 404


@in_world()
async def test_an_empty_queue_is_drained_at_once(world: World) -> None:
    await world.call("POST", "/queues", {"name": "mail"})
    reply = await world.call("POST", "/admin/queues/mail/drain")
    assert reply.body == {"name": "mail", "paused": False, "state": "deleted", "unfinished_jobs": 0}
    for name, status in (("mail", 404), ("default", 409)):
        assert (await world.call("POST", f"/queues/{name}/drain")).status == status


@in_world()
async def test_resuming_calls_draining_off(world: World) -> None:
    await world.push("mail")
    await world.call("POST", "/queues/mail/drain")
    resumed = await world.call("POST", "/queues/mail/resume")
    assert resumed.body["status"] == "active"
    (job_id,) = await world.fetch("mail")
    await world.engine.ack([Ack(job_id)], world.now_ms)
    assert (await world.call("GET", "/queues/mail")).body["state"] == "active"


@in_world()
async def test_a_bounded_queue_shows_how_full_it_is(world: World) -> None:
    bounds = {"max_size": 10, "backpressure": {"max_depth": 4, "max_size_bytes": 10_000_000}}
    config = (await world.call("PUT", "/queues/mail/config", bounds)).body
    assert (config["max_size"], config["backpressure"]["max_depth"]) == (10, 4)
    await world.push("mail", count=3)
    await world.fetch("mail")
    stats = (await world.call("GET", "/queues/mail/stats")).body["stats"]
    assert (stats["max_depth"], stats["max_size"]) == (4, 10)
    assert stats["bound"] == {"measure": "jobs", "depth": 2, "bound": 4}
    assert (stats["pressure"], stats["depth"]) == (0.5, 3)
    shown = (await world.call("GET", "/admin/queues/mail")).body
    assert shown["pressure"] == 0.5


@in_world()
async def test_a_job_that_a_limit_holds_back_is_not_runnable(world: World) -> None:
    use = Use("api", change=LimitsChange(concurrency=0))
    await world.push("mail", uses=[use])
    world.now_ms += 5_000
    await world.push("mail")
    world.now_ms += 1_000
    stats = (await world.call("GET", "/queues/mail/stats")).body["stats"]
    assert stats["oldest_available_age_ms"] == 6_000
    assert stats["oldest_runnable_age_ms"] == 1_000
    await world.fetch("mail")
    stats = (await world.call("GET", "/queues/mail/stats")).body["stats"]
    assert "oldest_runnable_at" not in stats
    assert stats["oldest_available_age_ms"] == 6_000


@in_world(strict_queues=True)
async def test_a_strict_server_wants_dead_letter_queues_that_exist(world: World) -> None:
    for method, path, body in (
        ("PUT", "/queues/default/config", {"dead_letter_queue": "graves"}),
        ("PUT", "/queues/_default/config", {"dead_letter_queue": "graves"}),
        ("POST", "/queues", {"name": "mail", "config": {"dead_letter_queue": "graves"}}),
    ):
        reply = await world.call(method, path, body)
        assert (reply.status, reply.error["details"]["field"]) == (400, "config.dead_letter_queue")
    await world.call("POST", "/queues", {"name": "graves"})
    reply = await world.call("PUT", "/queues/default/config", {"dead_letter_queue": "graves"})
    assert reply.body["dead_letter_queue"] == "graves"


@in_world()
async def test_jobs_are_counted_by_priority_the_highest_first(world: World) -> None:
    for priority, count in ((0, 3), (-100, 1), (100, 2), (7, 1)):
        await world.push("mail", priority=priority, count=count)
    await world.push("mail", priority=-7, count=300)
    await world.push("other", priority=5)
    reply = await world.call("GET", "/queues/mail/priority-stats")
    assert reply.body == {
        "queue": "mail",
        "counts_by_priority": {"100": 2, "7": 1, "0": 3, "-7": 300, "-100": 1},
        "total": 307,
    }
    assert list(reply.body["counts_by_priority"]) == ["100", "7", "0", "-7", "-100"]
    await world.fetch("mail", 2)
    again = (await world.call("GET", "/queues/mail/priority-stats")).body
    assert again["counts_by_priority"] == {"7": 1, "0": 3, "-7": 300, "-100": 1}


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=ten", "limit"),
        ("offset=-1", "offset"),
        ("cursor=zzz", "cursor"),
        ("cursor=o1&offset=1", "cursor"),
    ],
)
def test_a_part_that_cannot_be_asked_for(query: str, field: str) -> None:
    @in_world()
    async def ask(world: World) -> None:
        reply = await world.call("GET", f"/queues?{query}")
        assert (reply.status, reply.error["details"]["field"]) == (400, field)

    ask()
