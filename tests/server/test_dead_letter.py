from __future__ import annotations

import pytest

from headgate.core.retry import Failure, RetryPolicy
from headgate.engines.contract import Fail, Fetch
from tests.server.admin_world import START, START_MS, World, in_world

UNKNOWN = "01900000-0000-7000-8000-ffffffffffff"


@in_world()
async def test_dead_letters_are_listed_the_newest_first(world: World) -> None:
    await world.complete("mail")
    ids = []
    for _ in range(3):
        ids.append(await world.bury("mail"))
        world.now_ms += 1_000
    body = (await world.call("GET", "/dead-letter?limit=2")).body
    assert [job["id"] for job in body["jobs"]] == [ids[2], ids[1]]
    assert body["jobs"][0]["state"] == "discarded"
    assert body["jobs"][0]["errors"][0]["type"] == "Broken"
    assert body["pagination"] == {
        "total": 3,
        "limit": 2,
        "offset": 0,
        "has_more": True,
        "next_cursor": body["pagination"]["next_cursor"],
    }
    cursor = body["pagination"]["next_cursor"]
    rest = (await world.call("GET", f"/dead-letter?limit=2&cursor={cursor}")).body
    assert [job["id"] for job in rest["jobs"]] == [ids[0]]


@in_world()
async def test_jobs_that_were_discarded_without_being_kept_are_no_dead_letters(
    world: World,
) -> None:
    (job_id,) = await world.push(retry=RetryPolicy(max_attempts=1), max_attempts=1)
    await world.engine.fetch(Fetch(("default",)), world.now_ms)
    await world.engine.fail([Fail(job_id, Failure("handler_error", "x"))], world.now_ms)
    assert await world.state(job_id) == "discarded"
    assert (await world.call("GET", "/dead-letter")).body["jobs"] == []
    assert (await world.call("GET", f"/dead-letter/{job_id}")).status == 404
    assert (await world.call("POST", f"/dead-letter/{job_id}/retry")).status == 404
    assert (await world.call("DELETE", f"/dead-letter/{job_id}")).status == 404
    assert await world.state(job_id) == "discarded"


@in_world()
async def test_dead_letters_are_filtered(world: World) -> None:
    mail = await world.bury("mail", type="mail.send", error_type="Timeout")
    pay = await world.bury("pay", type="pay.out", error_type="Refused")
    for query, ids in (
        ("queue=mail", [mail]),
        ("type=pay.out", [pay]),
        ("type=pay.*", [pay]),
        ("error_type=Timeout", [mail]),
        ("queue=mail&error_type=Refused", []),
    ):
        body = (await world.call("GET", f"/dead-letter?{query}")).body
        assert [job["id"] for job in body["jobs"]] == ids, query
        assert body["pagination"]["total"] == len(ids)


@in_world()
async def test_at_most_a_hundred_are_listed_at_once(world: World) -> None:
    reply = await world.call("GET", "/dead-letter?limit=101")
    assert (reply.status, reply.error["details"]["field"]) == (400, "limit")
    assert (await world.call("GET", "/dead-letter?limit=100")).status == 200


@in_world()
async def test_one_dead_letter(world: World) -> None:
    job_id = await world.bury()
    assert (await world.call("GET", f"/dead-letter/{job_id}")).body["job"]["id"] == job_id
    missing = await world.call("GET", f"/dead-letter/{UNKNOWN}")
    assert (missing.status, missing.error["details"]) == (404, {"job_id": UNKNOWN})


@in_world()
async def test_a_dead_letter_is_tried_again_under_the_same_id(world: World) -> None:
    job_id = await world.bury("mail")
    world.now_ms += 5_000
    reply = await world.call("POST", f"/dead-letter/{job_id}/retry")
    assert reply.status == 200
    assert reply.body["re_enqueued_at"] == "2026-02-02T02:40:05.000Z"
    job = reply.body["job"]
    assert (job["id"], job["state"], job["attempt"]) == (job_id, "available", 0)
    assert job["enqueued_at"] == "2026-02-02T02:40:05.000Z"
    assert len(job["errors"]) == 1
    assert (await world.call("GET", "/dead-letter")).body["jobs"] == []
    assert (await world.call("POST", f"/dead-letter/{job_id}/retry")).status == 404
    assert await world.fetch("mail") == [job_id]


@in_world()
async def test_a_replay_may_override_what_the_job_had(world: World) -> None:
    fixed = b'"args":[1],"meta":{"a":1},"retry":{"max_attempts":1,"jitter":false},"x_own":{"b": 2}'
    job_id = await world.bury("mail", fixed=fixed)
    reply = await world.call(
        "POST",
        f"/dead-letter/{job_id}/retry",
        {
            "override": {
                "queue": "slow",
                "args": [{"n": 2}],
                "meta": {"c": None},
                "retry": {"max_attempts": 9, "initial_interval": "PT9S"},
            }
        },
    )
    assert reply.status == 200
    job = reply.body["job"]
    assert job["queue"] == "slow"
    assert job["args"] == [{"n": 2}]
    assert job["meta"] == {"c": None}
    assert job["max_attempts"] == 9
    assert job["retry"] == {"max_attempts": 9, "jitter": False, "initial_interval": "PT9S"}
    assert job["x_own"] == {"b": 2}
    assert await world.fetch("mail") == []
    assert await world.fetch("slow") == [job_id]
    found = await world.engine.find(job_id, world.now_ms)
    assert found is not None
    assert found.retry == RetryPolicy(max_attempts=9, initial_ms=9_000, on_exhaustion="dead_letter")


@in_world()
async def test_an_override_that_says_nothing_changes_nothing(world: World) -> None:
    for override in (None, {}, {"queue": None, "args": None, "meta": None, "retry": None}):
        job_id = await world.bury("mail", fixed=b'"args":[1],"meta":{"a":1}')
        path = f"/dead-letter/{job_id}/retry"
        job = (await world.call("POST", path, {"override": override})).body["job"]
        assert (job["queue"], job["args"], job["meta"]) == ("mail", [1], {"a": 1})
        await world.fetch("mail")


@in_world()
async def test_an_override_that_is_refused_leaves_the_dead_letter(world: World) -> None:
    await world.call("PUT", "/queues/pay/config", {"allowed_job_types": ["pay.*"]})
    job_id = await world.bury("mail")
    for override, status, field in (
        ({"queue": "Slow"}, 400, "override.queue"),
        ({"queue": "pay"}, 422, "override.queue"),
        ({"args": {}}, 400, "override.args"),
        ({"args": "x"}, 400, "override.args"),
        ({"meta": []}, 400, "override.meta"),
        ({"meta": {"a": "x" * 70_000}}, 413, "override.meta"),
        ({"retry": {"max_attempts": -1}}, 422, "override.retry.max_attempts"),
        ({"priority": 3}, 400, "override.priority"),
        ("all", 400, "override"),
    ):
        reply = await world.call("POST", f"/dead-letter/{job_id}/retry", {"override": override})
        assert reply.status == status, override
        assert reply.error["details"]["field"] == field
    assert (await world.call("GET", f"/dead-letter/{job_id}")).status == 200


@in_world(strict_queues=True)
async def test_where_queues_have_to_exist_a_replay_makes_none(world: World) -> None:
    job_id = await world.bury("mail")
    body = {"override": {"queue": "slow"}}
    reply = await world.call("POST", f"/dead-letter/{job_id}/retry", body)
    assert (reply.status, reply.error["code"]) == (404, "QUEUE_NOT_FOUND")
    assert await world.state(job_id) == "discarded"
    await world.call("POST", "/queues", {"name": "slow"})
    assert (await world.call("POST", f"/dead-letter/{job_id}/retry", body)).status == 200


@in_world()
async def test_a_deleted_dead_letter_is_gone(world: World) -> None:
    job_id = await world.bury()
    reply = await world.call("DELETE", f"/dead-letter/{job_id}")
    assert (reply.status, reply.body) == (200, {"deleted": True, "job_id": job_id})
    assert await world.state(job_id) is None
    assert (await world.call("DELETE", f"/dead-letter/{job_id}")).status == 404


@in_world()
async def test_many_are_tried_again(world: World) -> None:
    mail = [await world.bury("mail"), await world.bury("mail")]
    pay = await world.bury("pay")
    reply = await world.call(
        "POST", "/dead-letter/retry", {"filter": {"queue": "mail"}, "confirm": True}
    )
    assert reply.status == 200
    assert reply.body == {"total_matched": 2, "skipped": 0, "items": [], "retried": 2}
    assert sorted(await world.fetch("mail", 5)) == sorted(mail)
    assert await world.state(pay) == "discarded"


@pytest.mark.parametrize("in_body", [True, False])
def test_many_are_deleted(in_body: bool) -> None:
    @in_world()
    async def delete(world: World) -> None:
        await world.bury("mail", error_type="Timeout")
        kept = await world.bury("mail", error_type="Refused")
        done = await world.complete("mail")
        if in_body:
            body = {"filter": {"error_type": "Timeout"}, "confirm": True}
            reply = await world.call("DELETE", "/dead-letter", body)
        else:
            reply = await world.call("DELETE", "/dead-letter?error_type=Timeout&confirm=true")
        assert reply.body == {"total_matched": 1, "skipped": 0, "items": [], "deleted": 1}
        listed = (await world.call("GET", "/dead-letter")).body["jobs"]
        assert [job["id"] for job in listed] == [kept]
        assert await world.state(done[0]) == "completed"

    delete()


@in_world()
async def test_an_empty_filter_means_all_dead_letters_and_nothing_else(world: World) -> None:
    await world.bury("mail")
    await world.bury("pay")
    done = await world.complete("mail")
    reply = await world.call("DELETE", "/dead-letter", {"filter": {}, "confirm": True})
    assert reply.body["deleted"] == 2
    assert await world.state(done[0]) == "completed"


@pytest.mark.parametrize("prefix", ["", "/admin"])
def test_many_are_not_touched_without_confirmation(prefix: str) -> None:
    @in_world()
    async def ask(world: World) -> None:
        job_id = await world.bury()
        path = f"{prefix}/dead-letter"
        for method, target, body, field in (
            ("POST", f"{path}/retry", {"filter": {}}, "confirm"),
            ("POST", f"{path}/retry", {"filter": {}, "confirm": False}, "confirm"),
            ("POST", f"{path}/retry", {"filter": {}, "confirm": "true"}, "confirm"),
            ("POST", f"{path}/retry", {"confirm": True}, "filter"),
            ("POST", f"{path}/retry", {"confirm": True, "filter": {"que": "x"}}, "filter.que"),
            ("DELETE", path, {"filter": {}}, "confirm"),
            ("DELETE", path, {"confirm": True}, "filter"),
            ("DELETE", path, None, "confirm"),
            ("DELETE", f"{path}?confirm=yes", None, "confirm"),
        ):
            reply = await world.call(method, target, body)
            assert (reply.status, reply.error["details"]["field"]) == (400, field), body
        assert await world.state(job_id) == "discarded"
        assert (await world.call("POST", f"{path}/retry")).status == 400

    ask()


@in_world()
async def test_stats_count_by_queue_and_error(world: World) -> None:
    empty = (await world.call("GET", "/dead-letter/stats")).body
    kept = {"max_age": "P180D", "max_count": 10_000, "next_prune_at": START}
    assert empty == {"total": 0, "by_queue": {}, "by_error_type": {}, "retention": kept}
    await world.bury("mail", error_type="Timeout")
    world.now_ms += 1_000
    await world.bury("mail", error_type="Refused")
    world.now_ms += 1_000
    await world.bury("pay", error_type="Timeout")
    for path in ("/dead-letter/stats", "/admin/dead-letter/stats"):
        found = (await world.call("GET", path)).body
        assert found.pop("retention")["max_count"] == 10_000
        assert found == {
            "total": 3,
            "by_queue": {"mail": 2, "pay": 1},
            "by_error_type": {"Timeout": 2, "Refused": 1},
            "oldest_at": START,
            "newest_at": "2026-02-02T02:40:02.000Z",
        }
    assert world.now_ms == START_MS + 2_000
