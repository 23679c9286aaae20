from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate.server.settings import Limits
from tests.server.jobs_world import START, World, in_world

UNKNOWN = "01900000-0000-7000-8000-ffffffffffff"
ERROR = {"code": "handler_error", "message": "it broke"}
AFTER_1_S = "2026-02-12T10:30:01.000Z"


@in_world()
async def test_a_fetched_job_is_active_and_names_its_reservation(world: World) -> None:
    job_id = await world.push(queue="mail")
    new = await world.job(job_id)
    world.now_ms += 1_000
    (job,) = await world.fetch("mail", worker_id="w-1")
    assert job == {
        **new,
        "state": "active",
        "attempt": 1,
        "started_at": AFTER_1_S,
        "worker_id": "w-1",
        "claim": 1,
    }
    assert await world.fetch("mail") == []
    assert "claim" not in await world.job(job_id)


@in_world()
async def test_queues_are_served_in_the_order_given(world: World) -> None:
    low, high = await world.push(queue="low", priority=9), await world.push(queue="high")
    body = {"queues": ["high", "low"], "count": 5}
    found = await world.call("POST", "/workers/fetch", body)
    assert [job["id"] for job in found.body["jobs"]] == [high, low]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "queues"),
        ({"queues": []}, "queues"),
        ({"queues": "default"}, "queues"),
        ({"queues": ["a", "UPPER"]}, "queues[1]"),
        ({"queues": ["a", "b", "c"]}, "queues"),
        ({"queues": ["a"], "count": 0}, "count"),
        ({"queues": ["a"], "count": 6}, "count"),
        ({"queues": ["a"], "count": "1"}, "count"),
        ({"queues": ["a"], "worker_id": ""}, "worker_id"),
        ({"queues": ["a"], "worker_id": "w" * 256}, "worker_id"),
        ({"queues": ["a"], "wait_ms": -1}, "wait_ms"),
        ({"queues": ["a"], "wait_ms": 1_001}, "wait_ms"),
        ({"queues": ["a"], "visibility_timeout_ms": -1}, "visibility_timeout_ms"),
    ],
)
def test_a_wrong_fetch_is_refused(body: Any, field: str) -> None:
    @in_world(limits=Limits(fetch_jobs=5, fetch_queues=2, wait_ms=1_000))
    async def test(world: World) -> None:
        found = await world.call("POST", "/workers/fetch", body)
        assert (found.status, found.error["code"]) == (400, "invalid_request")
        assert found.error["details"]["field"].startswith(field)
        exchange = await world.call(
            "POST", "/workers/exchange", {"worker_id": "w", "fetch": {**body, "worker_id": None}}
        )
        if field == "worker_id":
            assert exchange.status == 200
        else:
            assert exchange.error["details"]["field"].endswith(field)

    test()


@in_world()
async def test_a_waiting_fetch_gets_a_job_that_comes(world: World) -> None:
    waiting = world.ask("POST", "/workers/fetch", {"queues": ["q"], "wait_ms": 30_000})
    await asyncio.sleep(0)
    job_id = await world.push(queue="q")
    found = await waiting.reply()
    assert [job["id"] for job in found.body["jobs"]] == [job_id]


@in_world()
async def test_a_wait_ends_empty_when_its_time_is_up(world: World) -> None:
    found = await world.call("POST", "/workers/fetch", {"queues": ["q"], "wait_ms": 1})
    assert (found.status, found.body) == (200, {"jobs": []})


@in_world()
async def test_a_client_that_left_claims_nothing(world: World) -> None:
    body = {"queues": ["q"], "wait_ms": 30_000}
    gone, stays = (world.ask("POST", "/workers/fetch", body) for _ in range(2))
    for _ in range(10):
        await asyncio.sleep(0)
    gone.leave()
    for _ in range(10):
        await asyncio.sleep(0)
    job_id = await world.push(queue="q")
    assert [job["id"] for job in (await stays.reply()).body["jobs"]] == [job_id]
    await gone.reply()
    assert (await world.job(job_id))["attempt"] == 1


@in_world()
async def test_a_wake_up_of_a_client_that_left_passes_on(world: World) -> None:
    body = {"queues": ["q"], "wait_ms": 30_000}
    gone, stays = (world.ask("POST", "/workers/fetch", body) for _ in range(2))
    for _ in range(10):
        await asyncio.sleep(0)
    # Both in the same turn of the loop: the first waiter is woken, and its client is gone.
    gone.leave()
    pushed = world.ask("POST", "/jobs", {"type": "a", "args": [], "queue": "q"})
    job_id = (await pushed.reply()).body["job"]["id"]
    replies = [await gone.reply(), await stays.reply()]
    taken = [job["id"] for reply in replies for job in reply.body["jobs"]]
    assert taken == [job_id]


@in_world()
async def test_a_stopping_server_lets_waiting_fetches_go(world: World) -> None:
    waiting = world.ask("POST", "/workers/fetch", {"queues": ["q"], "wait_ms": 30_000})
    for _ in range(10):
        await asyncio.sleep(0)
    world.app.drain()
    assert (await waiting.reply()).body == {"jobs": []}


@pytest.mark.parametrize("path", ["/workers/ack", "/jobs/{id}/ack"])
def test_an_acked_job_is_completed_and_keeps_its_result(path: str) -> None:
    @in_world()
    async def test(world: World) -> None:
        job_id = await world.push()
        await world.fetch(worker_id="w")
        world.now_ms += 1_000
        body = {"result": {"n": [1.50]}, "worker_id": "w", "claim": 1}
        if "{id}" not in path:
            body["job_id"] = job_id
        found = await world.call("POST", path.format(id=job_id), body)
        assert found.status == 200
        assert {k: v for k, v in found.body.items() if k != "job"} == {
            "acknowledged": True,
            "id": job_id,
            "job_id": job_id,
            "state": "completed",
            "completed_at": AFTER_1_S,
        }
        job = found.body["job"]
        assert job == await world.job(job_id)
        assert (job["state"], job["result"], job["completed_at"]) == (
            "completed",
            {"n": [1.5]},
            AFTER_1_S,
        )
        assert b'"result":{"n":[1.5]}' in found.raw
        again = await world.call("POST", path.format(id=job_id), body)
        assert (again.status, again.error["code"]) == (409, "conflict")

    test()


@in_world()
async def test_an_ack_needs_no_body_where_the_path_says_it_all(world: World) -> None:
    job_id = await world.push()
    await world.fetch()
    found = await world.call("POST", f"/jobs/{job_id}/ack")
    assert found.body["job"]["state"] == "completed"
    assert "result" not in found.body["job"]


@in_world()
async def test_a_result_of_null_is_none(world: World) -> None:
    job_id = await world.push()
    await world.fetch()
    found = await world.call("POST", "/workers/ack", {"job_id": job_id, "result": None})
    assert "result" not in found.body["job"]


ANSWERS = ("ack", "nack")


@pytest.mark.parametrize("verb", ANSWERS)
@pytest.mark.parametrize(
    ("changes", "status", "details"),
    [
        ({"job_id": UNKNOWN}, 404, {"job_id": UNKNOWN}),
        ({"worker_id": "other"}, 409, {"state": "active", "held_by": "w", "claim": 2}),
        ({"claim": 1}, 409, {"state": "active", "held_by": "w", "claim": 2}),
        ({"claim": 3}, 409, {"state": "active", "held_by": "w", "claim": 2}),
        ({"claim": -1}, 400, {"field": "claim"}),
        ({"job_id": None}, 400, {"field": "job_id"}),
        ({"worker_id": 5}, 400, {"field": "worker_id"}),
    ],
)
def test_only_the_holder_of_the_reservation_may_answer(
    verb: str, changes: Any, status: int, details: dict[str, Any]
) -> None:
    @in_world()
    async def test(world: World) -> None:
        job_id = await world.push()
        await world.fetch(worker_id="w")
        await world.call(
            "POST", "/workers/nack", {"job_id": job_id, "error": ERROR, "requeue": True}
        )
        await world.fetch(worker_id="w")
        body = {"job_id": job_id, "error": ERROR, **changes}
        found = await world.call("POST", f"/workers/{verb}", body)
        assert found.status == status
        assert details.items() <= found.error["details"].items()
        good = {"job_id": job_id, "error": ERROR, "worker_id": "w", "claim": 2}
        assert (await world.call("POST", f"/workers/{verb}", good)).status == 200

    test()


@in_world(limits=Limits(result_bytes=10))
async def test_a_result_that_is_too_large_leaves_the_job_active(world: World) -> None:
    job_id = await world.push()
    await world.fetch()
    found = await world.call("POST", "/workers/ack", {"job_id": job_id, "result": "x" * 9})
    assert (found.status, found.error["code"]) == (413, "RESULT_TOO_LARGE")
    assert found.error["details"]["size_bytes"] == 11
    assert (await world.job(job_id))["state"] == "active"
    found = await world.call("POST", "/workers/ack", {"job_id": job_id, "result": "x" * 8})
    assert found.status == 200


@pytest.mark.parametrize("path", ["/workers/nack", "/jobs/{id}/nack"])
def test_a_failed_job_is_tried_again_later(path: str) -> None:
    @in_world()
    async def test(world: World) -> None:
        job_id = await world.push(retry={"jitter": False})
        await world.fetch(worker_id="w")
        error = {**ERROR, "type": "Net", "details": {"a": 1}, "backtrace": ["x.py:1"]}
        body = {"error": error, "worker_id": "w"}
        if "{id}" not in path:
            body["job_id"] = job_id
        found = await world.call("POST", path.format(id=job_id), body)
        assert found.status == 200
        assert {k: v for k, v in found.body.items() if k != "job"} == {
            "id": job_id,
            "job_id": job_id,
            "state": "retryable",
            "attempt": 1,
            "max_attempts": 3,
            "next_attempt_at": AFTER_1_S,
            "retry_delay_ms": 1_000,
        }
        job = found.body["job"]
        assert job == await world.job(job_id)
        assert job["errors"] == [job["error"]]
        assert job["error"] == {
            "attempt": 1,
            "code": "handler_error",
            "message": "it broke",
            "type": "Net",
            "occurred_at": START,
            "details": {"a": 1},
            "backtrace": ["x.py:1"],
        }
        world.now_ms += 1_000
        (again,) = await world.fetch()
        assert (again["attempt"], again["claim"], again["retry_delay_ms"]) == (2, 2, 1_000)

    test()


@in_world()
async def test_a_job_without_attempts_left_is_discarded(world: World) -> None:
    job_id = await world.push(retry={"max_attempts": 1})
    await world.fetch()
    found = await world.call("POST", "/workers/nack", {"job_id": job_id, "error": ERROR})
    assert {k: v for k, v in found.body.items() if k != "job"} == {
        "id": job_id,
        "job_id": job_id,
        "state": "discarded",
        "attempt": 1,
        "max_attempts": 1,
        "discarded_at": START,
        "completed_at": START,
    }
    assert found.body["job"]["completed_at"] == found.body["job"]["discarded_at"] == START


@in_world()
async def test_a_job_can_be_given_back(world: World) -> None:
    job_id = await world.push()
    await world.fetch(worker_id="w")
    error = {**ERROR, "retryable": False, "backtrace": "a\nb"}
    body = {"job_id": job_id, "error": error, "requeue": True}
    found = await world.call("POST", "/workers/nack", body)
    assert (found.body["state"], found.body["attempt"]) == ("available", 0)
    assert "worker_id" not in found.body["job"]
    assert "deferrals" not in found.body["job"]


@pytest.mark.parametrize("door", ["nack", "exchange"])
def test_a_job_can_be_put_off(door: str) -> None:
    @in_world()
    async def test(world: World) -> None:
        job_id = await world.push()

        async def nack(**more: Any) -> dict[str, Any]:
            await world.fetch(worker_id="w")
            item = {"job_id": job_id, "error": ERROR, **more}
            if door == "nack":
                found = (await world.call("POST", "/workers/nack", item)).body
            else:
                body = {"worker_id": "w", "nacks": [item]}
                (found,) = (await world.call("POST", "/workers/exchange", body)).body["nacks"]
            return dict(found)

        found = await nack(requeue=True, retry_after_ms=2_500)
        assert (found["state"], found["attempt"], found["retry_delay_ms"]) == (
            "retryable",
            0,
            2_500,
        )
        job = (await world.call("GET", f"/jobs/{job_id}")).body["job"]
        assert job["deferrals"] == 1
        assert "error" not in job
        world.now_ms += 2_499
        await world.engine.tick(world.now_ms)
        assert (await world.call("GET", f"/jobs/{job_id}")).body["job"]["state"] == "retryable"
        world.now_ms += 1
        await world.engine.tick(world.now_ms)
        found = await nack(requeue=True, retry_after_ms=0)
        assert (found["state"], found["attempt"]) == ("available", 0)
        found = await nack(retry_after_ms=7)
        assert (found["state"], found["attempt"], found["retry_delay_ms"]) == ("retryable", 1, 7)
        job = (await world.call("GET", f"/jobs/{job_id}")).body["job"]
        assert (job["deferrals"], len(job["errors"])) == (2, 1)

    test()


@pytest.mark.parametrize(
    ("error", "field"),
    [
        (None, "error"),
        ("broken", "error"),
        ({}, "error.message"),
        ({"message": "m"}, "error.code"),
        ({"message": "m", "type": ""}, "error.code"),
        ({"code": "c"}, "error.message"),
        ({"code": "", "message": "m"}, "error.code"),
        ({**ERROR, "retryable": "no"}, "error.retryable"),
        ({**ERROR, "details": []}, "error.details"),
    ],
)
def test_a_nack_says_what_went_wrong(error: Any, field: str) -> None:
    @in_world()
    async def test(world: World) -> None:
        job_id = await world.push()
        await world.fetch()
        body = {"job_id": job_id, "error": error}
        for path in ("/workers/nack", f"/jobs/{job_id}/nack"):
            found = await world.call("POST", path, body)
            assert (found.status, found.error["details"]["field"]) == (400, field)
        assert (await world.job(job_id))["state"] == "active"

    test()


@in_world()
async def test_a_long_message_is_cut_and_large_details_are_refused(world: World) -> None:
    job_id = await world.push()
    await world.fetch(worker_id="w")
    error = {"code": "c", "message": "x" * 70_000, "details": {"a": "x" * 65_536}}
    for path, body, field in (
        ("/workers/nack", {"job_id": job_id, "error": error}, "error.details"),
        (
            "/workers/exchange",
            {"worker_id": "w", "nacks": [{"job_id": job_id, "error": error}]},
            "nacks[0].error.details",
        ),
    ):
        found = await world.call("POST", path, body)
        assert (found.status, found.error["details"]["field"]) == (413, field)
    del error["details"]
    await world.call("POST", "/workers/nack", {"job_id": job_id, "error": error})
    assert (await world.job(job_id))["error"]["message"] == "x" * 65_536


@in_world()
async def test_the_longest_durations_still_lead_to_instants(world: World) -> None:
    longest = 1_000 * 365 * 86_400
    retry = {"initial_interval": f"PT{longest}S", "max_interval": f"PT{longest}S"}
    job_id = await world.push(
        visibility_timeout=longest, timeout=longest, total_timeout=longest, retry=retry,
        enqueue_ttl=longest, heartbeat_timeout=longest, result_ttl=longest,
    )  # fmt: skip
    await world.fetch(worker_id="w")
    extended = await world.call(
        "POST",
        "/workers/exchange",
        {"worker_id": "w", "extend": [job_id], "visibility_timeout_ms": longest * 1_000},
    )
    assert extended.body["extend"][0]["visible_until"].startswith("3025-")
    error = {"code": "c", "message": "m"}
    assert (
        await world.call("POST", "/workers/nack", {"job_id": job_id, "error": error})
    ).status == 200
    assert (await world.call("GET", "/events?limit=1000")).status == 200


@in_world()
async def test_a_heartbeat_keeps_jobs_and_tells_of_cancelled_ones(world: World) -> None:
    ids = [await world.push(visibility_timeout=10) for _ in range(3)]
    await world.fetch(count=2, worker_id="w")
    await world.fetch(worker_id="other")
    await world.call("DELETE", f"/jobs/{ids[1]}")
    world.now_ms += 9_000
    body = {"worker_id": "w", "active_jobs": [*ids, UNKNOWN], "hostname": "h", "labels": {"a": 1}}
    found = await world.call("POST", "/workers/heartbeat", body)
    assert found.body == {
        "state": "running",
        "directive": "running",
        "jobs_extended": [ids[0]],
        "cancelled_jobs": [ids[1]],
        "server_time": "2026-02-12T10:30:09.000Z",
    }
    world.now_ms += 9_000
    assert [(await world.job(job_id))["state"] for job_id in ids] == [
        "active",
        "cancelled",
        "available",
    ]


@in_world()
async def test_a_heartbeat_may_only_count_its_jobs(world: World) -> None:
    job_id = await world.push()
    await world.fetch(worker_id="w")
    body = {"worker_id": "w", "active_jobs": 1, "active_job_ids": [job_id]}
    found = await world.call("POST", "/workers/heartbeat", body)
    assert found.body["jobs_extended"] == [job_id]


@in_world(limits=Limits(fetch_jobs=1))
async def test_a_wrong_heartbeat_is_refused(world: World) -> None:
    for body, field in (
        ({}, "worker_id"),
        ({"worker_id": "w", "state": "asleep"}, "state"),
        ({"worker_id": "w", "labels": "x"}, "labels"),
        ({"worker_id": "w", "labels": ["x" * 20_000]}, "labels"),
        ({"worker_id": "w", "concurrency": -1}, "concurrency"),
    ):
        for path in ("/workers/heartbeat", "/workers/beat", "/workers/register"):
            found = await world.call("POST", path, body)
            assert (found.status, found.error["details"]["field"]) == (400, field)
    many = {"worker_id": "w", "active_jobs": ["a", "b"]}
    assert (await world.call("POST", "/workers/heartbeat", many)).status == 413


@in_world()
async def test_a_draining_worker_gets_nothing(world: World) -> None:
    await world.push()
    body = {"worker_id": "w", "state": "drain", "active_jobs": 2, "shutdown": True}
    found = await world.call("POST", "/workers/beat", body)
    assert found.body == {"acknowledged": True, "state": "quiet"}
    health = await world.call("GET", "/workers/w/health")
    assert (health.status, health.body) == (
        503,
        {
            "worker_id": "w",
            "state": "draining",
            "stale": False,
            "active_jobs": 0,
            "last_heartbeat_at": START,
        },
    )
    assert await world.fetch(worker_id="w") == []
    ending = {"worker_id": "w", "state": "terminate"}
    assert (await world.call("POST", "/workers/heartbeat", ending)).body["state"] == "terminate"
    assert (await world.call("GET", "/workers/w/health")).body["state"] == "shutting_down"
    assert (await world.call("GET", "/workers/nobody/health")).status == 404
    assert len(await world.fetch(worker_id="fresh")) == 1


@in_world()
async def test_what_an_operator_ordered_is_told_with_the_heartbeat(world: World) -> None:
    await world.call("POST", "/workers/register", {"worker_id": "w"})
    assert (await world.call("GET", "/workers/w/health")).status == 200
    await world.engine.direct("w", "quiet", world.now_ms)
    for body in ({"worker_id": "w"}, {"worker_id": "w", "state": "running"}):
        found = await world.call("POST", "/workers/heartbeat", body)
        assert (found.body["state"], found.body["directive"]) == ("quiet", "quiet")


@in_world(heartbeat_timeout_s=30)
async def test_a_worker_registers_and_leaves(world: World) -> None:
    await world.engine.configure("_default", {"visibility_timeout": 45}, world.now_ms)
    body = {"worker_id": "w", "queues": ["q"], "concurrency": 4, "started_at": START, "pid": 7}
    found = await world.call("POST", "/workers/register", body)
    assert found.body == {
        "ok": True,
        "worker_id": "w",
        "server_time": START,
        "heartbeat_interval": 5,
        "heartbeat_timeout": 30,
        "visibility_timeout_default": 45,
    }
    wrong = await world.call("POST", "/workers/register", {"worker_id": "w", "started_at": "now"})
    assert (wrong.status, wrong.error["details"]["field"]) == (400, "started_at")
    job_id = await world.push()
    await world.fetch(worker_id="w")
    gone = await world.call("POST", "/workers/deregister", {"worker_id": "w"})
    assert gone.body == {"ok": True, "worker_id": "w", "requeued": 1}
    assert (await world.job(job_id))["state"] == "available"
    assert (await world.call("POST", "/workers/deregister", {"worker_id": "w"})).status == 404


@pytest.mark.parametrize("where", ["meta", "options"])
@pytest.mark.parametrize("directive", ["quiet", "terminate"])
def test_with_test_hooks_a_job_can_say_what_its_worker_is_told(where: str, directive: str) -> None:
    meta: dict[str, Any] = {"test_directive": directive}
    members = {"meta": meta} if where == "meta" else {"options": {"metadata": meta}}

    async def told(world: World) -> list[str]:
        job_id = await world.push(**members)
        await world.fetch(worker_id="w")
        beat = {"worker_id": "w", "active_jobs": [job_id]}
        trade = {"worker_id": "w", "extend": [job_id]}
        found = [
            await world.call("POST", "/workers/heartbeat", beat),
            await world.call("POST", "/workers/exchange", trade),
            await world.call("POST", "/workers/heartbeat", {"worker_id": "w"}),
        ]
        return [each.body["state"] for each in found]

    @in_world(test_hooks=True)
    async def hooked(world: World) -> None:
        assert await told(world) == [directive, directive, "running"]

    @in_world()
    async def plain(world: World) -> None:
        assert await told(world) == ["running", "running", "running"]

    hooked()
    plain()


@in_world()
async def test_one_exchange_answers_old_jobs_and_fetches_new_ones(world: World) -> None:
    ids = [await world.push(retry={"jitter": False}) for _ in range(7)]
    await world.fetch(count=6, worker_id="w")
    await world.call("DELETE", f"/jobs/{ids[4]}")
    world.now_ms += 1_000
    body = {
        "worker_id": "w",
        "acks": [
            {"job_id": ids[0], "claim": 1, "result": [1]},
            {"job_id": ids[0]},
            {"job_id": UNKNOWN},
        ],
        "nacks": [
            {"job_id": ids[1], "error": ERROR},
            {"job_id": ids[2], "error": {**ERROR, "retryable": False}},
            {"job_id": ids[2], "claim": 9, "error": ERROR},
        ],
        "extend": [ids[3], {"job_id": ids[4]}, {"job_id": ids[5], "claim": 2}],
        "fetch": {"queues": ["default"], "count": 3, "wait_ms": 30_000},
    }
    found = await world.call("POST", "/workers/exchange", body)
    assert found.status == 200
    answer = found.body
    assert answer["acks"][0] == {
        "job_id": ids[0],
        "state": "completed",
        "attempt": 1,
        "max_attempts": 3,
        "finished_at": AFTER_1_S,
    }
    assert answer["nacks"][0] == {
        "job_id": ids[1],
        "state": "retryable",
        "attempt": 1,
        "max_attempts": 3,
        "next_attempt_at": "2026-02-12T10:30:02.000Z",
        "retry_delay_ms": 1_000,
    }
    assert answer["nacks"][1]["state"] == "discarded"
    assert answer["extend"][0] == {
        "job_id": ids[3],
        "state": "active",
        "attempt": 1,
        "max_attempts": 3,
        "visible_until": "2026-02-12T10:30:31.000Z",
    }
    refused = [*answer["acks"][1:], answer["nacks"][2], *answer["extend"][1:]]
    assert [(item["job_id"], item["error"]["code"]) for item in refused] == [
        (ids[0], "conflict"),
        (UNKNOWN, "not_found"),
        (ids[2], "conflict"),
        (ids[4], "conflict"),
        (ids[5], "conflict"),
    ]
    assert (answer["state"], answer["cancelled_jobs"]) == ("running", [ids[4]])
    assert answer["server_time"] == AFTER_1_S
    (job,) = answer["jobs"]
    assert (job["id"], job["worker_id"], job["claim"]) == (ids[6], "w", 1)
    assert (await world.job(ids[0]))["result"] == [1]


@in_world()
async def test_an_exchange_that_brings_answers_does_not_wait(world: World) -> None:
    fetch = {"queues": ["q"], "wait_ms": 30_000}
    for answers in ({"acks": [{"job_id": "x"}]}, {"nacks": [{"job_id": "x", "error": ERROR}]}):
        body = {"worker_id": "w", "fetch": fetch, **answers}
        found = await world.call("POST", "/workers/exchange", body)
        assert found.body["jobs"] == []
    waiting = world.ask("POST", "/workers/exchange", {"worker_id": "w", "fetch": fetch})
    for _ in range(10):
        await asyncio.sleep(0)
    job_id = await world.push(queue="q")
    assert [job["id"] for job in (await waiting.reply()).body["jobs"]] == [job_id]


@in_world(heartbeat_timeout_s=1)
async def test_a_worker_that_waits_in_an_exchange_is_not_given_up(world: World) -> None:
    fetch = {"queues": ["q"], "wait_ms": 30_000}
    started = asyncio.get_running_loop().time()
    body = {"worker_id": "w", "fetch": fetch}
    assert (await world.call("POST", "/workers/exchange", body)).body["jobs"] == []
    assert 0.4 < asyncio.get_running_loop().time() - started < 0.95


@in_world(limits=Limits(fetch_jobs=1, result_bytes=10))
async def test_an_exchange_is_bounded(world: World) -> None:
    for part in (
        {"acks": [{"job_id": "a"}, {"job_id": "b"}]},
        {"nacks": [{"job_id": "a", "error": ERROR}, {"job_id": "b", "error": ERROR}]},
        {"extend": ["a", "b"]},
    ):
        found = await world.call("POST", "/workers/exchange", {"worker_id": "w", **part})
        assert (found.status, found.error["code"]) == (413, "BATCH_SIZE_EXCEEDED")
    job_id = await world.push()
    await world.fetch(worker_id="w")
    body = {"worker_id": "w", "acks": [{"job_id": job_id, "result": "x" * 20}]}
    (item,) = (await world.call("POST", "/workers/exchange", body)).body["acks"]
    assert (item["job_id"], item["error"]["code"]) == (job_id, "RESULT_TOO_LARGE")
    assert (await world.job(job_id))["state"] == "active"


@in_world(limits=Limits(result_bytes=10))
async def test_one_result_that_is_too_large_does_not_stop_the_others(world: World) -> None:
    ids = [await world.push() for _ in range(3)]
    await world.fetch(count=3, worker_id="w")
    results = ["x", "x" * 20, "y"]
    acks = [{"job_id": i, "result": r} for i, r in zip(ids, results, strict=True)]
    found = await world.call("POST", "/workers/exchange", {"worker_id": "w", "acks": acks})
    assert [item["job_id"] for item in found.body["acks"]] == ids
    assert ["error" in item for item in found.body["acks"]] == [False, True, False]
    assert [(await world.job(i))["state"] for i in ids] == ["completed", "active", "completed"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "worker_id"),
        ({"worker_id": "w", "acks": [{}]}, "acks[0].job_id"),
        ({"worker_id": "w", "nacks": [{"job_id": "a"}]}, "nacks[0].error"),
        ({"worker_id": "w", "extend": [5]}, "extend[0]"),
        ({"worker_id": "w", "fetch": {}}, "fetch.queues"),
        ({"worker_id": "w", "state": "gone"}, "state"),
    ],
)
def test_an_exchange_with_a_wrong_part_does_nothing(body: Any, field: str) -> None:
    @in_world()
    async def test(world: World) -> None:
        found = await world.call("POST", "/workers/exchange", body)
        assert (found.status, found.error["details"]["field"]) == (400, field)
        assert await world.engine.workers(world.now_ms) == []

    test()
