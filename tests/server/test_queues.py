from __future__ import annotations

import pytest

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
    for name, query, status, field in (
        ("mail", "", 400, "strategy"),
        ("mail", "strategy=burn", 400, "strategy"),
        ("mail", "strategy=move", 400, "target_queue"),
        ("mail", "strategy=move&target_queue=x", 422, "strategy"),
        ("mail", "strategy=discard", 422, "strategy"),
        ("mail", "strategy=reject", 409, None),
        ("default", "strategy=reject", 409, None),
    ):
        reply = await world.call("DELETE", f"/queues/{name}?{query}")
        assert reply.status == status, query
        assert reply.error["details"].get("field") == field
    refused = await world.call("DELETE", "/queues/mail", {"strategy": "reject"})
    assert refused.error["details"] == {"queue": "mail", "unfinished_jobs": 2}
    assert (await world.call("GET", "/queues/mail")).body["stats"]["available"] == 2


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
