from __future__ import annotations

import asyncio

import pytest

from headgate.core.times import DAY_MS
from tests.server.admin_world import World, in_world

UNKNOWN = "01900000-0000-7000-8000-ffffffffffff"


@in_world()
async def test_a_list_of_jobs_is_cancelled_one_by_one(world: World) -> None:
    (done,) = await world.complete()
    waiting, other = await world.push(count=2)
    reply = await world.call(
        "POST", "/jobs/bulk/cancel", {"job_ids": [waiting, UNKNOWN, done, waiting]}
    )
    assert reply.status == 200
    assert reply.body == {
        "total_matched": 3,
        "skipped": 3,
        "items": [
            {"index": 0, "job_id": waiting, "status": "cancelled"},
            {"index": 1, "job_id": UNKNOWN, "status": "skipped", "reason": "not_found"},
            {"index": 2, "job_id": done, "status": "skipped", "reason": "state_completed"},
            {"index": 3, "job_id": waiting, "status": "skipped", "reason": "state_cancelled"},
        ],
        "cancelled": 1,
    }
    assert await world.state(other) == "available"


@in_world()
async def test_a_list_of_jobs_is_tried_again(world: World) -> None:
    dead = await world.bury()
    (waiting,) = await world.push("mail")
    reply = await world.call("POST", "/jobs/bulk/retry", {"job_ids": [dead, waiting]})
    assert reply.body == {
        "total_matched": 2,
        "skipped": 1,
        "items": [
            {"index": 0, "job_id": dead, "status": "retried"},
            {"index": 1, "job_id": waiting, "status": "skipped", "reason": "state_available"},
        ],
        "retried": 1,
    }
    assert await world.state(dead) == "available"


@in_world()
async def test_a_list_of_jobs_is_forgotten(world: World) -> None:
    (done,) = await world.complete()
    (waiting,) = await world.push()
    reply = await world.call("POST", "/jobs/bulk/delete", {"job_ids": [done, waiting]})
    assert reply.body["deleted"] == 1
    assert reply.body["items"][1]["reason"] == "state_available"
    assert (await world.state(done), await world.state(waiting)) == (None, "available")


@in_world()
async def test_cancelling_by_filter_leaves_active_jobs_unless_they_are_named(
    world: World,
) -> None:
    await world.push("mail", count=3)
    await world.fetch("mail")
    reply = await world.call("POST", "/jobs/bulk/cancel", {"filter": {"queue": "mail"}})
    assert reply.status == 200
    assert reply.body == {"total_matched": 2, "skipped": 0, "items": [], "cancelled": 2}
    body = {"filter": {"queue": "mail", "state": ["active"]}}
    assert (await world.call("POST", "/jobs/bulk/cancel", body)).body["cancelled"] == 1


@in_world()
async def test_retrying_and_deleting_by_filter(world: World) -> None:
    await world.bury("mail")
    await world.complete("mail", count=2)
    retried = await world.call("POST", "/jobs/bulk/retry", {"filter": {"queue": "mail"}})
    assert retried.body == {"total_matched": 1, "skipped": 0, "items": [], "retried": 1}
    deleted = await world.call("POST", "/jobs/bulk/delete", {"filter": {"queue": "mail"}})
    assert deleted.body == {"total_matched": 2, "skipped": 0, "items": [], "deleted": 2}


@in_world()
async def test_many_jobs_are_cancelled_by_a_task(world: World) -> None:
    await world.push("mail", count=1_500)
    reply = await world.call("POST", "/jobs/bulk/cancel", {"filter": {"queue": "mail"}})
    assert reply.status == 202
    assert (reply.body["total_matched"], reply.body["task"]["finished"]) == (1_500, False)
    task = reply.body["task"]
    while not task["finished"]:
        await asyncio.sleep(0)
        task = (await world.call("GET", f"/admin/tasks/{task['id']}")).body["task"]
    assert (task["done"], task["skipped"]) == (1_500, 0)
    assert (await world.call("GET", "/queues/mail/stats")).body["queue"]["cancelled"] == 1_500


@pytest.mark.parametrize("command", ["cancel", "retry", "delete"])
def test_requests_that_are_refused_change_nothing(command: str) -> None:
    @in_world()
    async def ask(world: World) -> None:
        (waiting,) = await world.push()
        dead = await world.bury("bad")
        for body, status, field in (
            ({}, 400, "job_ids"),
            ({"job_ids": [waiting], "filter": {"queue": "default"}}, 400, "job_ids"),
            ({"job_ids": []}, 400, "job_ids"),
            ({"job_ids": waiting}, 400, "job_ids"),
            ({"job_ids": [1]}, 400, "job_ids[0]"),
            ({"filter": {}}, 400, "filter"),
            ({"filter": {"queue": None}}, 400, "filter"),
            ({"filter": {"state": "gone"}}, 400, "filter.state"),
            ({"filter": {"queues": "default"}}, 400, "filter.queues"),
            ({"job_ids": [waiting], "atomicity": "atomic"}, 422, "atomicity"),
            ({"job_ids": [waiting], "idempotency_key": ""}, 400, "idempotency_key"),
            ({"job_ids": [waiting], "idempotency_key": "x" * 257}, 400, "idempotency_key"),
        ):
            reply = await world.call("POST", f"/jobs/bulk/{command}", body)
            assert reply.status == status, body
            assert reply.error["details"]["field"] == field
        assert (await world.call("POST", f"/jobs/bulk/{command}")).status == 400
        too_many = await world.call("POST", f"/jobs/bulk/{command}", {"job_ids": [waiting] * 1_001})
        assert (too_many.status, too_many.error["code"]) == (413, "BATCH_SIZE_EXCEEDED")
        assert too_many.headers["x-ojs-max-batch-size"] == "1000"
        assert (await world.state(waiting), await world.state(dead)) == ("available", "discarded")

    ask()


@in_world()
async def test_a_repeated_request_gets_its_first_answer_again(world: World) -> None:
    (job_id,) = await world.push()
    body = {"job_ids": [job_id], "idempotency_key": "k"}
    first = await world.call("POST", "/jobs/bulk/cancel", body)
    world.now_ms += DAY_MS - 1
    second = await world.call("POST", "/jobs/bulk/cancel", body)
    assert (second.status, second.raw) == (first.status, first.raw)
    assert second.body["cancelled"] == 1
    world.now_ms += 1
    assert (await world.call("POST", "/jobs/bulk/cancel", body)).body["cancelled"] == 0


@in_world()
async def test_equal_requests_at_one_time_get_one_answer(world: World) -> None:
    await world.push("mail", count=3)
    body = {"filter": {"queue": "mail"}, "idempotency_key": "k"}
    replies = await asyncio.gather(
        *(world.call("POST", "/jobs/bulk/cancel", body) for _ in range(3))
    )
    assert len({reply.raw for reply in replies}) == 1
    assert replies[0].body["cancelled"] == 3


@in_world()
async def test_the_header_has_the_last_word_on_the_key(world: World) -> None:
    one, two = await world.push(count=2)
    headers = {"Idempotency-Key": "k"}
    body = {"job_ids": [one], "idempotency_key": "other"}
    await world.call("POST", "/jobs/bulk/cancel", body, headers=headers)
    reply = await world.call("POST", "/jobs/bulk/cancel", {"job_ids": [two]}, headers=headers)
    assert (reply.status, reply.error["code"]) == (409, "conflict")
    assert reply.error["details"] == {"idempotency_key": "k"}
    assert await world.state(two) == "available"
    long = {"Idempotency-Key": "x" * 257}
    reply = await world.call("POST", "/jobs/bulk/cancel", {"job_ids": [two]}, headers=long)
    assert (reply.status, reply.error["details"]["field"]) == (400, "Idempotency-Key")


@in_world()
async def test_a_key_holds_for_one_operation(world: World) -> None:
    (job_id,) = await world.push()
    body = {"job_ids": [job_id], "idempotency_key": "k"}
    assert (await world.call("POST", "/jobs/bulk/cancel", body)).body["cancelled"] == 1
    assert (await world.call("POST", "/jobs/bulk/delete", body)).body["deleted"] == 1


@in_world()
async def test_a_refused_request_uses_up_no_key(world: World) -> None:
    (job_id,) = await world.push()
    body = {"job_ids": [], "idempotency_key": "k"}
    assert (await world.call("POST", "/jobs/bulk/cancel", body)).status == 400
    body = {"job_ids": [job_id], "idempotency_key": "k"}
    assert (await world.call("POST", "/jobs/bulk/cancel", body)).status == 200
