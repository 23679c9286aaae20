from __future__ import annotations

import pytest

from headgate.core.retry import Failure
from headgate.engines.contract import Fail
from tests.server.admin_world import START, World, in_world

UNKNOWN = "01900000-0000-7000-8000-ffffffffffff"


@in_world()
async def test_jobs_are_listed_the_newest_first(world: World) -> None:
    ids = []
    for _ in range(3):
        ids += await world.push()
        world.now_ms += 1
    body = (await world.call("GET", "/admin/jobs?per_page=2")).body
    assert [job["id"] for job in body["items"]] == [ids[2], ids[1]]
    assert body["pagination"] == {"total": 3, "page": 1, "per_page": 2}
    body = (await world.call("GET", "/admin/jobs?order=asc&per_page=2&page=2")).body
    assert [job["id"] for job in body["items"]] == [ids[2]]


@in_world()
async def test_jobs_are_filtered(world: World) -> None:
    (mail,) = await world.push("mail", type="mail.send", priority=3)
    world.now_ms += 1_000
    (pay,) = await world.push("pay", type="pay.out")
    assert await world.fetch("pay") == [pay]
    world.now_ms += 1_000
    dead = await world.bury("bad", error_type="Timeout")
    for query, ids in (
        ("queue=mail", [mail]),
        ("state=active", [pay]),
        ("state=active,discarded", [dead, pay]),
        ("type=mail.send", [mail]),
        ("type=mail*", [mail]),
        ("type=mai", []),
        ("error_type=Timeout", [dead]),
        ("since=2026-02-02T02:40:01Z", [dead, pay]),
        ("until=2026-02-02T02:40:01Z", [mail]),
        ("since=2026-02-02T02:40:01Z&until=2026-02-02T02:40:02Z", [pay]),
        ("sort=priority", [mail, dead, pay]),
        ("sort=started_at&order=asc&state=active,discarded", [pay, dead]),
    ):
        body = (await world.call("GET", f"/admin/jobs?{query}")).body
        assert [job["id"] for job in body["items"]] == ids, query


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("state=done", "state"),
        ("since=yesterday", "since"),
        ("until=2026-02-02T02:40:01", "until"),
        ("sort=id", "sort"),
        ("order=up", "order"),
        ("page=0", "page"),
        ("per_page=101", "per_page"),
    ],
)
def test_lists_that_cannot_be_asked_for(query: str, field: str) -> None:
    @in_world()
    async def ask(world: World) -> None:
        reply = await world.call("GET", f"/admin/jobs?{query}")
        assert (reply.status, reply.error["details"]["field"]) == (400, field)

    ask()


@in_world()
async def test_a_job_in_full_stands_at_the_top_level(world: World) -> None:
    (job_id,) = await world.push("mail", type="mail.send")
    reply = await world.call("GET", f"/admin/jobs/{job_id}")
    assert reply.status == 200
    body = reply.body
    assert (body["id"], body["type"], body["queue"]) == (job_id, "mail.send", "mail")
    assert (body["state"], body["args"], body["meta"]) == ("available", [1], {})
    assert body["retry_policy"]["max_attempts"] == 3
    assert body["errors"] == []
    assert body["metadata"] == {"created_at": START, "enqueued_at": START}


@in_world()
async def test_a_job_that_ended_shows_its_errors_and_when(world: World) -> None:
    dead = await world.bury()
    body = (await world.call("GET", f"/admin/jobs/{dead}")).body
    assert [error["type"] for error in body["errors"]] == ["Broken"]
    assert body["metadata"] == {
        "created_at": START,
        "enqueued_at": START,
        "started_at": START,
        "discarded_at": START,
    }
    (later,) = await world.push("later")
    await world.fetch("later")
    failure = Failure("handler_error", "once more")
    await world.engine.fail([Fail(later, failure, uniform=0.5)], world.now_ms)
    body = (await world.call("GET", f"/admin/jobs/{later}")).body
    assert body["metadata"]["next_attempt_at"] == "2026-02-02T02:40:01.000Z"
    (done,) = await world.complete()
    body = (await world.call("GET", f"/admin/jobs/{done}")).body
    assert body["metadata"]["completed_at"] == START


@in_world()
async def test_a_job_is_cancelled(world: World) -> None:
    (job_id,) = await world.push()
    reply = await world.call("POST", f"/admin/jobs/{job_id}/cancel")
    assert reply.status == 200
    assert reply.body["previous_state"] == "available"
    assert reply.body["job"]["state"] == "cancelled"
    assert reply.body["job"]["cancelled_at"] == START
    again = await world.call("POST", f"/admin/jobs/{job_id}/cancel")
    assert (again.status, again.error["code"]) == (409, "conflict")
    assert again.error["details"] == {"job_id": job_id, "state": "cancelled"}


@in_world()
async def test_a_job_is_tried_again(world: World) -> None:
    job_id = await world.bury()
    reply = await world.call("POST", f"/admin/jobs/{job_id}/retry", {})
    assert reply.status == 200
    assert reply.body["previous_state"] == "discarded"
    assert (reply.body["job"]["state"], reply.body["job"]["attempt"]) == ("available", 0)
    assert (await world.call("POST", f"/admin/jobs/{job_id}/retry")).status == 409
    await world.call("POST", f"/admin/jobs/{job_id}/cancel")
    assert (await world.call("POST", f"/admin/jobs/{job_id}/retry")).status == 409


@in_world()
async def test_jobs_that_nobody_knows(world: World) -> None:
    for method, verb in (("GET", ""), ("POST", "/cancel"), ("POST", "/retry")):
        reply = await world.call(method, f"/admin/jobs/{UNKNOWN}{verb}")
        assert (reply.status, reply.error["code"]) == (404, "not_found")


@in_world()
async def test_all_that_match_are_cancelled(world: World) -> None:
    await world.push("mail", count=3)
    (active,) = await world.fetch("mail")
    (other,) = await world.push("pay")
    body = {"filter": {"queue": "mail"}, "confirm": True}
    reply = await world.call("POST", "/admin/jobs/bulk/cancel", body)
    assert reply.status == 200
    assert reply.body == {
        "action": "cancel",
        "matched": 2,
        "succeeded": 2,
        "failed": 0,
        "errors": [],
    }
    assert (await world.state(active), await world.state(other)) == ("active", "available")


@in_world()
async def test_matching_jobs_in_a_state_that_does_not_allow_it_fail(world: World) -> None:
    (done,) = await world.complete("mail")
    (waiting,) = await world.push("mail")
    body = {"filter": {"queue": "mail", "state": ["completed", "available"]}, "confirm": True}
    reply = await world.call("POST", "/admin/jobs/bulk/delete", body)
    assert reply.body == {
        "action": "delete",
        "matched": 2,
        "succeeded": 1,
        "failed": 1,
        "errors": [],
    }
    assert (await world.state(done), await world.state(waiting)) == (None, "available")


@in_world()
async def test_all_discarded_jobs_are_tried_again(world: World) -> None:
    dead = [await world.bury("mail"), await world.bury("pay")]
    body = {"filter": {"state": "discarded"}, "confirm": True}
    reply = await world.call("POST", "/admin/jobs/bulk/retry", body)
    assert reply.body["succeeded"] == 2
    assert [await world.state(job_id) for job_id in dead] == ["available", "available"]


@pytest.mark.parametrize("command", ["cancel", "retry", "delete"])
def test_nothing_is_done_without_confirmation(command: str) -> None:
    @in_world()
    async def ask(world: World) -> None:
        (waiting,) = await world.push()
        dead = await world.bury("bad")
        for body, field in (
            ({"filter": {}, "confirm": False}, "confirm"),
            ({"filter": {}}, "confirm"),
            ({"filter": {"state": "discarded"}, "confirm": 1}, "confirm"),
            ({"confirm": True}, "filter"),
            ({"confirm": True, "filter": {"state": "gone"}}, "filter.state"),
            ({"confirm": True, "filter": {"state": []}}, "filter.state"),
            ({"confirm": True, "filter": {"meta": {}}}, "filter.meta"),
            ({"confirm": True, "filter": {"created_before": "x"}}, "filter.created_before"),
            ({"confirm": True, "filter": {"job_type": "x"}}, "filter.job_type"),
        ):
            reply = await world.call("POST", f"/admin/jobs/bulk/{command}", body)
            assert (reply.status, reply.error["details"]["field"]) == (400, field), body
        assert (await world.call("POST", f"/admin/jobs/bulk/{command}")).status == 400
        assert (await world.state(waiting), await world.state(dead)) == ("available", "discarded")

    ask()


@in_world()
async def test_filters_reach_every_member_of_a_job(world: World) -> None:
    (first,) = await world.push("mail", type="mail.send", fixed=b'"args":[],"meta":{"a":1,"b":2}')
    world.now_ms += 1_000
    (second,) = await world.push("mail", type="mail.drop", priority=9, fixed=b'"args":[],"meta":{}')
    for given, ids in (
        ({"type": "mail.s*"}, [first]),
        ({"priority": 9}, [second]),
        ({"meta": {"a": 1}}, [first]),
        ({"meta": {"a": 2}}, []),
        ({"created_after": START}, [second]),
        ({"created_before": "2026-02-02T02:40:01Z"}, [first]),
        ({"enqueued_after": START}, [second]),
        ({"enqueued_before": "2026-02-02T02:40:01Z"}, [first]),
    ):
        body = {"filter": {**given, "state": "completed"}, "confirm": True}
        reply = await world.call("POST", "/admin/jobs/bulk/cancel", body)
        assert reply.body["matched"] == 0, given
        body = {"filter": {**given, "state": "available"}, "confirm": True}
        reply = await world.call("POST", "/admin/jobs/bulk/delete", body)
        assert (reply.body["matched"], reply.body["failed"]) == (len(ids), len(ids)), given
    body = {"filter": {"priority": 9}, "confirm": True}
    await world.call("POST", "/admin/jobs/bulk/cancel", body)
    assert (await world.state(first), await world.state(second)) == ("available", "cancelled")
