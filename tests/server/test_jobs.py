from __future__ import annotations

from typing import Any

import pytest

from headgate.server.settings import Limits
from tests.server.jobs_world import START, World, in_world

UNKNOWN = "01900000-0000-7000-8000-ffffffffffff"
ID = "019461a8-1a2b-7c3d-8e4f-5a6b7c8d9e0f"
ECHO = {"type": "test.echo", "args": []}


@in_world()
async def test_a_new_job_is_answered_whole(world: World) -> None:
    found = await world.call(
        "POST",
        "/jobs",
        {
            "id": ID,
            "type": "email.send",
            "args": ["a@b.c", {"n": 1}],
            "meta": {"trace_id": "t"},
            "x_new": [None],
            "state": "completed",
            "options": {"queue": "mail", "priority": 7, "tags": ["a"], "timeout_ms": 2_500},
        },
    )
    assert found.status == 201
    assert found.headers["location"] == f"/ojs/v1/jobs/{ID}"
    assert found.headers["content-type"] == "application/openjobspec+json"
    job = {
        "specversion": "1.0",
        "id": ID,
        "type": "email.send",
        "queue": "mail",
        "args": ["a@b.c", {"n": 1}],
        "meta": {"trace_id": "t"},
        "priority": 7,
        "state": "available",
        "attempt": 0,
        "max_attempts": 3,
        "timeout": 3,
        "timeout_ms": 2_500,
        "created_at": START,
        "enqueued_at": START,
        "tags": ["a"],
        "x_new": [None],
    }
    assert found.body == {"job": job}
    looked = await world.call("GET", f"/jobs/{ID}")
    assert looked.body == {"job": job}
    assert looked.headers["retry-after"] == "1"


@in_world()
async def test_a_job_waits_for_its_time(world: World) -> None:
    found = await world.call("POST", "/jobs", {**ECHO, "options": {"scheduled_at": "+PT5S"}})
    job = found.body["job"]
    assert (job["state"], job["scheduled_at"]) == ("scheduled", "2026-02-12T10:30:05.000Z")
    assert "enqueued_at" not in job
    assert await world.fetch() == []
    world.now_ms += 5_000
    (fetched,) = await world.fetch()
    assert (fetched["id"], fetched["state"], fetched["attempt"]) == (job["id"], "active", 1)
    assert fetched["scheduled_at"] == fetched["enqueued_at"] == fetched["started_at"]


@in_world()
async def test_what_was_scheduled_for_the_past_is_available_at_once(world: World) -> None:
    literal = "2026-02-12T11:29:59+01:00"
    job_id = await world.push(scheduled_at=literal)
    job = await world.job(job_id)
    assert (job["state"], job["scheduled_at"], job["enqueued_at"]) == ("available", literal, START)


@in_world()
async def test_a_job_expires(world: World) -> None:
    job_id = await world.push(options={"expires_at": "+PT2S"})
    ttl_id = await world.push(enqueue_ttl=1, expires_at="2099-12-31T23:59:59Z")
    world.now_ms += 2_000
    job = await world.job(job_id)
    assert (job["state"], job["error"]["type"]) == ("discarded", "expired")
    assert "completed_at" not in job
    ttl = await world.job(ttl_id)
    assert (ttl["state"], ttl["error"]["type"]) == ("discarded", "enqueue_ttl_expired")
    assert ttl["expires_at"] == "2099-12-31T23:59:59Z"


@in_world()
async def test_a_pending_job_waits_for_its_activation(world: World) -> None:
    job_id = await world.push(pending=True, scheduled_at="+PT1S")
    assert (await world.job(job_id))["state"] == "pending"
    world.now_ms += 1_500
    assert await world.fetch() == []
    found = await world.call("POST", f"/jobs/{job_id}/activate")
    assert found.status == 200
    assert {k: v for k, v in found.body.items() if k != "job"} == {
        "id": job_id,
        "job_id": job_id,
        "state": "available",
        "previous_state": "pending",
    }
    assert found.body["job"]["activated_at"] == "2026-02-12T10:30:01.500Z"
    assert found.body["job"]["previous_state"] == "pending"
    again = await world.call("POST", f"/jobs/{job_id}/activate")
    assert (again.status, again.error["code"]) == (409, "conflict")
    assert again.error["details"] == {"job_id": job_id, "state": "available"}
    assert (await world.call("POST", f"/jobs/{UNKNOWN}/activate")).status == 404


@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        (b"", 400, "invalid_payload", None),
        (b"{", 400, "invalid_payload", None),
        (b"[]", 400, "invalid_payload", None),
        (b'{"type":"a","args":["\xff"]}', 400, "invalid_payload", None),
        ({"args": []}, 400, "invalid_request", "type"),
        ({"type": "a"}, 400, "invalid_request", "args"),
        ({**ECHO, "id": "x"}, 400, "invalid_request", "id"),
        ({**ECHO, "options": {"priority": 101}}, 400, "invalid_request", "priority"),
        ({**ECHO, "queue": "UPPER"}, 400, "invalid_request", "queue"),
        ({**ECHO, "total_timeout": 5, "timeout": 6}, 400, "invalid_request", "total_timeout"),
        ({**ECHO, "meta": {"k": "x" * 65_536}}, 413, "envelope_too_large", "meta"),
        ({**ECHO, "retry": {"max_attempts": -1}}, 422, "validation_error", "retry.max_attempts"),
        ({**ECHO, "retry": []}, 422, "validation_error", "retry"),
        (
            {**ECHO, "retry": {"backoff_coefficient": 0.5}},
            422,
            "validation_error",
            "retry.backoff_coefficient",
        ),
        ({**ECHO, "unique": {"keys": ["who"]}}, 422, "validation_error", "unique.keys"),
        ({**ECHO, "unique": 1}, 422, "validation_error", "unique"),
        (
            {**ECHO, "unique": {"args_keys": ["id"]}},
            422,
            "validation_error",
            "unique.args_keys",
        ),
        (
            b'{"type":"a","args":[1e999],"unique":{"keys":["args"]}}',
            400,
            "invalid_request",
            "args",
        ),
    ],
)
def test_what_is_wrong_is_refused(body: Any, status: int, code: str, field: str | None) -> None:
    @in_world()
    async def test(world: World) -> None:
        found = await world.call("POST", "/jobs", body)
        assert (found.status, found.error["code"]) == (status, code)
        assert found.error.get("details", {}).get("field") == field
        assert found.error["retryable"] is False
        assert found.error["request_id"] == found.headers["x-request-id"]
        assert (await world.engine.queues(world.now_ms))[0].counts["available"] == 0

    test()


@in_world()
async def test_an_id_is_taken_once(world: World) -> None:
    await world.push(id=ID)
    found = await world.call("POST", "/jobs", {**ECHO, "id": ID})
    assert (found.status, found.error["code"]) == (409, "duplicate")
    assert found.error["details"] == {"existing_job_id": ID}


@in_world()
async def test_equal_jobs_are_refused_replaced_or_given_back(world: World) -> None:
    def body(on_conflict: str, **more: Any) -> dict[str, Any]:
        unique = {"keys": ["type", "args"], "args_keys": ["u"], "on_conflict": on_conflict}
        return {"type": "test.echo", "args": [{"u": 1, **more}], "options": {"unique": unique}}

    first = (await world.call("POST", "/jobs", body("reject"))).body["job"]["id"]
    refused = await world.call("POST", "/jobs", body("reject", v=2))
    assert (refused.status, refused.error["code"]) == (409, "duplicate")
    details = refused.error["details"]
    assert (details["existing_job_id"], details["existing_job_state"]) == (first, "available")
    assert len(details["unique_key"]) == 64
    known = await world.call("POST", "/jobs", body("ignore", v=3))
    assert known.status == 200
    assert known.body == {"job": await world.job(first), "deduplicated": True}
    fresh = await world.call("POST", "/jobs", body("replace", v=4))
    assert fresh.status == 201
    assert (await world.job(first))["state"] == "cancelled"


@in_world()
async def test_a_replacement_may_keep_the_schedule(world: World) -> None:
    unique = {"on_conflict": "replace_except_schedule"}
    await world.push(scheduled_at="2026-02-12T10:31:00Z", unique=unique)
    job_id = await world.push(scheduled_at="2026-02-12T10:59:00Z", args=[2], unique=unique)
    job = await world.job(job_id)
    assert (job["state"], job["scheduled_at"]) == ("scheduled", "2026-02-12T10:31:00.000Z")
    world.now_ms += 60_000
    assert [job["args"] for job in await world.fetch(count=5)] == [[2]]


@in_world()
async def test_a_fingerprint_of_the_producer_counts(world: World) -> None:
    await world.push(unique_key="mine")
    found = await world.call("POST", "/jobs", {**ECHO, "args": [2], "unique_key": "mine"})
    assert (found.status, found.error["details"]["unique_key"]) == (409, "mine")


@in_world()
async def test_settings_of_the_queue_stand_in_for_what_the_job_leaves_out(world: World) -> None:
    config = {
        "default_timeout": 9,
        "default_retry": {"max_attempts": 5, "initial_interval": "PT10S"},
        "allowed_job_types": ["mail.*"],
    }
    await world.engine.configure("mail", config, world.now_ms)
    job_id = await world.push(type="mail.send", queue="mail", retry={"jitter": False})
    job = await world.job(job_id)
    assert (job["timeout"], job["max_attempts"], job["retry"]) == (9, 5, {"jitter": False})
    await world.fetch("mail")
    nacked = await world.call(
        "POST", "/workers/nack", {"job_id": job_id, "error": {"code": "c", "message": "m"}}
    )
    assert nacked.body["retry_delay_ms"] == 10_000
    found = await world.call("POST", "/jobs", {**ECHO, "queue": "mail"})
    assert (found.status, found.error["code"]) == (422, "JOB_TYPE_NOT_ALLOWED")
    assert found.error["details"] == {"queue": "mail", "allowed_job_types": ["mail.*"]}


@in_world()
async def test_a_job_is_cancelled_wherever_it_stands(world: World) -> None:
    waiting, running = await world.push(queue="a"), await world.push()
    await world.fetch(worker_id="w")
    world.now_ms += 1_000
    at = "2026-02-12T10:30:01.000Z"
    for job_id, was, call in (
        (waiting, "available", ("DELETE", f"/jobs/{waiting}?reason=late")),
        (running, "active", ("POST", f"/jobs/{running}/cancel", {"reason": "no"})),
    ):
        found = await world.call(*call)
        assert found.status == 200
        flat = {k: v for k, v in found.body.items() if k != "job"}
        assert flat == {
            "id": job_id,
            "job_id": job_id,
            "state": "cancelled",
            "cancelled_at": at,
            "previous_state": was,
        }
        job = found.body["job"]
        assert (job["state"], job["cancelled_at"], job["previous_state"]) == ("cancelled", at, was)
        assert "completed_at" not in job
        again = await world.call("DELETE", f"/jobs/{job_id}")
        assert (again.status, again.error["code"]) == (409, "conflict")
    events = (await world.call("GET", "/events?types=job.cancelled")).body["events"]
    assert [event["data"]["reason"] for event in events] == ["late", "no"]
    missing = await world.call("DELETE", f"/jobs/{UNKNOWN}")
    assert (missing.status, missing.error["code"]) == (404, "not_found")
    assert missing.error["hint"]
    assert missing.error["docs_url"]
    long = await world.call("DELETE", f"/jobs/{UNKNOWN}?reason={'x' * 1_025}")
    assert (long.status, long.error["details"]["field"]) == (400, "reason")


@in_world()
async def test_the_priority_of_a_waiting_job_can_be_changed(world: World) -> None:
    first, second = await world.push(), await world.push(priority=1)
    found = await world.call("PATCH", f"/jobs/{first}", {"priority": 2})
    assert found.body == {"id": first, "priority": 2, "previous_priority": 0}
    assert [job["id"] for job in await world.fetch(count=2)] == [first, second]
    assert (await world.call("PATCH", f"/jobs/{first}", {"priority": 3})).status == 409
    assert (await world.call("PATCH", f"/jobs/{UNKNOWN}", {"priority": 3})).status == 404
    for wrong in (101, -101, 1.5, "1", None):
        refused = await world.call("PATCH", f"/jobs/{second}", {"priority": wrong})
        assert (refused.status, refused.error["details"]["field"]) == (400, "priority")


@in_world()
async def test_looking_changes_nothing(world: World) -> None:
    job_id = await world.push()
    assert await world.job(job_id) == await world.job(job_id)
    assert (await world.call("GET", f"/jobs/{UNKNOWN}")).status == 404


@in_world(test_hooks=True)
async def test_with_test_hooks_a_job_can_ask_to_be_validated(world: World) -> None:
    meta = {"ojs_validate": True}
    found = await world.call("POST", "/jobs", {**ECHO, "meta": meta})
    assert (found.status, found.error["details"]["field"]) == (422, "args")
    await world.push(meta=meta, args=[1])
    await world.push(meta={"ojs_validate": False})


@in_world()
async def test_without_test_hooks_meta_is_only_meta(world: World) -> None:
    await world.push(meta={"ojs_validate": True})


@in_world(limits=Limits(envelope_bytes=100, batch_items=2))
async def test_jobs_are_bounded_in_size_and_number(world: World) -> None:
    large = {"type": "a", "args": ["x" * 100]}
    assert (await world.call("POST", "/jobs", large)).error["code"] == "envelope_too_large"
    found = await world.call("POST", "/jobs/batch", {"jobs": [ECHO, large]})
    assert (found.status, found.error["details"]["index"]) == (413, 1)
    for path in ("/jobs/batch", "/jobs/bulk"):
        many = await world.call("POST", path, {"jobs": [ECHO] * 3})
        assert (many.status, many.error["code"]) == (413, "BATCH_SIZE_EXCEEDED")
        assert many.headers["x-ojs-max-batch-size"] == "2"
        empty = await world.call("POST", path, {"jobs": []})
        assert (empty.status, empty.error["details"]["field"]) == (400, "jobs")


@in_world()
async def test_a_batch_comes_in_whole_and_in_order(world: World) -> None:
    jobs = [{**ECHO, "args": [n], "options": {"queue": "q"}} for n in range(100)]
    found = await world.call("POST", "/jobs/batch", {"jobs": jobs})
    assert (found.status, found.body["count"]) == (201, 100)
    assert [job["args"] for job in found.body["jobs"]] == [[n] for n in range(100)]
    assert {job["state"] for job in found.body["jobs"]} == {"available"}
    assert [job["args"] for job in await world.fetch("q", count=100)] == [[n] for n in range(100)]


@pytest.mark.parametrize(
    ("item", "status", "field"),
    [
        ({"type": "a"}, 400, "args"),
        ([], 400, None),
        ({**ECHO, "retry": {"max_attempts": -1}}, 422, "retry.max_attempts"),
        ({**ECHO, "id": ID}, 409, None),
        ({**ECHO, "unique_key": "k"}, 409, None),
    ],
)
def test_one_bad_item_refuses_the_whole_batch(item: Any, status: int, field: str | None) -> None:
    @in_world()
    async def test(world: World) -> None:
        await world.push(id=ID, unique_key="k", queue="other")
        found = await world.call("POST", "/jobs/batch", {"jobs": [ECHO, item, ECHO]})
        assert found.status == status
        assert found.error["details"]["index"] == 1
        assert found.error["message"].startswith("jobs[1]: ")
        if field is not None:
            assert found.error["details"]["field"] == field
        assert await world.fetch() == []

    test()


@in_world()
async def test_a_batch_says_which_items_existed(world: World) -> None:
    again = {**ECHO, "unique": {"on_conflict": "ignore"}}
    found = await world.call("POST", "/jobs/batch", {"jobs": [again, {**ECHO, "args": [1]}]})
    assert "deduplicated" not in found.body
    found = await world.call("POST", "/jobs/batch", {"jobs": [{**ECHO, "args": [2]}, again]})
    assert (found.status, found.body["deduplicated"]) == (201, [1])


def shown(body: Any) -> list[tuple[int, str, Any]]:
    return [
        (i["index"], i["status"], i["error"]["code"] if "error" in i else i["job"]["state"])
        for i in body["items"]
    ]


@in_world()
async def test_in_bulk_each_item_has_its_own_outcome(world: World) -> None:
    await world.push(id=ID)
    good, taken, bad = {**ECHO, "queue": "q"}, {**ECHO, "id": ID}, {"type": "a"}
    mixed = await world.call("POST", "/jobs/bulk", {"jobs": [good, taken, bad, good]})
    assert mixed.status == 207
    assert mixed.headers["x-ojs-batch-size"] == "4"
    assert {k: v for k, v in mixed.body.items() if k != "items"} == {
        "total": 4,
        "succeeded": 2,
        "failed": 2,
    }
    assert shown(mixed.body) == [
        (0, "created", "available"),
        (1, "duplicate", "duplicate"),
        (2, "failed", "invalid_request"),
        (3, "created", "available"),
    ]
    whole = await world.call("POST", "/jobs/bulk", {"jobs": [good, good]})
    assert (whole.status, whole.body["failed"]) == (201, 0)
    none = await world.call("POST", "/jobs/bulk", {"jobs": [taken, bad]})
    assert (none.status, none.body["succeeded"]) == (422, 0)
    assert len(await world.fetch("q", count=10)) == 4


@in_world()
async def test_in_bulk_an_existing_job_may_be_what_its_producer_wants(world: World) -> None:
    item = {**ECHO, "unique": {"on_conflict": "ignore"}}
    found = await world.call("POST", "/jobs/bulk", {"jobs": [item, item]})
    assert (found.status, found.body["succeeded"]) == (207, 2)
    assert shown(found.body) == [(0, "created", "available"), (1, "duplicate", "available")]
    assert found.body["items"][0]["job"] == found.body["items"][1]["job"]


@pytest.mark.parametrize("bad", [{"type": "a"}, {**ECHO, "id": ID}])
def test_an_atomic_bulk_is_rolled_back_as_a_whole(bad: Any) -> None:
    @in_world()
    async def test(world: World) -> None:
        await world.push(id=ID, queue="other")
        body = {"jobs": [ECHO, bad], "atomicity": "atomic"}
        found = await world.call("POST", "/jobs/bulk", body)
        assert (found.status, found.body["failed"]) == (422, 2)
        assert found.body["items"][0]["error"]["code"] == "conflict"
        assert await world.fetch() == []
        body["jobs"] = [ECHO, ECHO]
        assert (await world.call("POST", "/jobs/bulk", body)).status == 201

    test()


@in_world()
async def test_a_repeated_bulk_request_gets_its_first_answer(world: World) -> None:
    body = {"jobs": [ECHO, {"type": "a"}], "idempotency_key": "ignored"}
    first = await world.call("POST", "/jobs/bulk", body, idempotency_key="k")
    again = await world.call("POST", "/jobs/bulk", body, idempotency_key="k")
    assert (again.status, again.raw) == (first.status, first.raw) == (207, first.raw)
    assert len(await world.fetch(count=10)) == 1
    other = await world.call("POST", "/jobs/bulk", {"jobs": [ECHO]}, idempotency_key="k")
    assert (other.status, other.error["code"]) == (409, "conflict")
    world.now_ms += 86_400_000
    late = await world.call("POST", "/jobs/bulk", {"jobs": [ECHO]}, idempotency_key="k")
    assert late.status == 201
    inside = await world.call("POST", "/jobs/bulk", body)
    assert (await world.call("POST", "/jobs/bulk", body)).raw == inside.raw
    long = await world.call("POST", "/jobs/bulk", body, idempotency_key="k" * 257)
    assert (long.status, long.error["details"]["field"]) == (400, "idempotency_key")


@in_world()
async def test_atomicity_is_one_of_two(world: World) -> None:
    found = await world.call("POST", "/jobs/bulk", {"jobs": [ECHO], "atomicity": "maybe"})
    assert (found.status, found.error["details"]["field"]) == (400, "atomicity")
