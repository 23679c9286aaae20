from __future__ import annotations

from typing import Any

import pytest

from tests.server.jobs_world import START, START_MS, World, in_world


async def history(world: World, job_id: str, **headers: str) -> Any:
    found = await world.call("GET", f"/jobs/{job_id}/history", **headers)
    assert found.status == 200, found.raw
    return found.body


async def fail(world: World, job_id: str, **error: Any) -> None:
    body = {"job_id": job_id, "error": {"code": "handler_error", "message": "no", **error}}
    assert (await world.call("POST", "/workers/nack", body)).status == 200


@in_world()
async def test_what_happened_to_a_job_is_told_in_order(world: World) -> None:
    retry = {"max_attempts": 2, "initial_interval": "PT1S", "jitter": False}
    job_id = await world.push(retry=retry)
    world.now_ms += 10
    await world.fetch(worker_id="w1")
    world.now_ms += 10
    await fail(world, job_id, type="Disk.full")
    world.now_ms += 1_000
    await world.fetch(worker_id="w2")
    world.now_ms += 10
    await world.call("POST", "/workers/ack", {"job_id": job_id})
    body = await history(world, job_id)
    error = (await world.job(job_id))["errors"][0]
    at = "2026-02-12T10:30:{:06.3f}Z".format
    assert body == {
        "job_id": job_id,
        "state": "completed",
        "omitted": 0,
        "pagination": {
            "total": 6, "limit": 50, "offset": 0, "has_more": False, "next_cursor": None,
        },
        "history": [
            {"at": START, "event": "push", "state": "available"},
            {
                "at": at(0.010), "event": "fetch", "state": "active",
                "previous_state": "available", "attempt": 1, "worker_id": "w1",
            },
            {
                "at": at(0.020), "event": "fail", "state": "retryable",
                "previous_state": "active", "attempt": 1, "worker_id": "w1", "error": error,
            },
            {
                "at": at(1.020), "event": "due", "state": "available",
                "previous_state": "retryable",
            },
            {
                "at": at(1.020), "event": "fetch", "state": "active",
                "previous_state": "available", "attempt": 2, "worker_id": "w2",
            },
            {
                "at": at(1.030), "event": "ack", "state": "completed",
                "previous_state": "active", "attempt": 2, "worker_id": "w2",
            },
        ],
    }  # fmt: skip


@in_world()
async def test_a_history_comes_in_pages(world: World) -> None:
    job_id = await world.push()
    await world.fetch()
    await world.call("POST", "/workers/ack", {"job_id": job_id})
    path = f"/jobs/{job_id}/history?limit=2"
    first = (await world.call("GET", path)).body
    assert [each["event"] for each in first["history"]] == ["push", "fetch"]
    assert first["pagination"]["has_more"]
    rest = await world.call("GET", f"{path}&cursor={first['pagination']['next_cursor']}")
    assert [each["event"] for each in rest.body["history"]] == ["ack"]
    assert not rest.body["pagination"]["has_more"]
    for query, field in (("limit=0", "limit"), ("limit=201", "limit"), ("cursor=x", "cursor")):
        found = await world.call("GET", f"/jobs/{job_id}/history?{query}")
        assert (found.status, found.error["details"]["field"]) == (400, field)


@in_world()
async def test_who_ended_a_job_and_why_is_told(world: World) -> None:
    job_id = await world.push(scheduled_at="+PT1H")
    await world.call("POST", f"/jobs/{job_id}/cancel", {"reason": "not wanted"})
    (_, last) = (await history(world, job_id))["history"]
    assert last == {
        "at": START, "event": "cancel", "state": "cancelled", "previous_state": "scheduled",
        "by": "anonymous", "reason": "not wanted",
    }  # fmt: skip


@in_world()
async def test_a_history_is_deleted_only_when_the_job_has_ended(world: World) -> None:
    job_id = await world.push(retry={"max_attempts": 1})
    path = f"/jobs/{job_id}/history"
    refused = await world.call("DELETE", path)
    assert (refused.status, refused.error["code"]) == (409, "conflict")
    assert refused.error["details"] == {"job_id": job_id, "state": "available"}
    await world.fetch()
    await fail(world, job_id)
    before = await world.job(job_id)
    world.now_ms = START_MS + 1_000
    deleted = await world.call("DELETE", path)
    assert (deleted.status, deleted.body) == (200, {"deleted": True, "job_id": job_id})
    body = await history(world, job_id)
    assert (body["history"], body["pagination"]["total"]) == ([], 0)
    assert body["deleted_at"] == "2026-02-12T10:30:01.000Z"
    assert await world.job(job_id) == before, "the newest error belongs to the job"
    assert (await world.call("DELETE", path)).status == 200
    for method in ("GET", "DELETE"):
        found = await world.call(method, "/jobs/none/history")
        assert (found.status, found.error["details"]) == (404, {"job_id": "none"})


@in_world()
async def test_whom_a_job_comes_from_and_who_comes_from_it(world: World) -> None:
    root = await world.push(workflow_id="flow")
    child = await world.push(parent_id=root, root_id=root, workflow_id="flow")
    world.now_ms += 1
    grandchild = await world.push(parent_id=child, root_id=root)
    other = await world.push(parent_id=child, root_id=root)
    body = (await world.call("GET", f"/jobs/{grandchild}/lineage")).body
    assert [each["id"] for each in body["ancestors"]] == [child, root]
    assert (body["complete"], body["parent_id"], body["root_id"]) == (True, child, root)
    assert body["root"] == {
        "id": root, "type": "test.echo", "queue": "default", "state": "available",
        "created_at": START,
    }  # fmt: skip
    assert (body["relation"], body["relatives"]) == ("children", [])
    body = (await world.call("GET", f"/jobs/{child}/lineage?limit=1")).body
    assert [each["id"] for each in body["relatives"]] == [grandchild]
    assert body["relatives"][0]["parent_id"] == child
    more = f"/jobs/{child}/lineage?limit=1&cursor={body['pagination']['next_cursor']}"
    assert [each["id"] for each in (await world.call("GET", more)).body["relatives"]] == [other]
    for relation, expected in (
        ("family", [child, grandchild, other]),
        ("workflow", [root, child]),
    ):
        body = (await world.call("GET", f"/jobs/{root}/lineage?relation={relation}")).body
        assert [each["id"] for each in body["relatives"]] == expected
        assert (body["root"]["id"], body["ancestors"]) == (root, [])
    body = (await world.call("GET", f"/jobs/{grandchild}/lineage?relation=workflow")).body
    assert body["relatives"] == []
    refused = await world.call("GET", f"/jobs/{root}/lineage?relation=friends")
    assert (refused.status, refused.error["details"]["field"]) == (400, "relation")
    assert (await world.call("GET", "/jobs/none/lineage")).status == 404


@in_world()
async def test_a_line_that_breaks_off_or_goes_round_says_so(world: World) -> None:
    orphan = await world.push(parent_id="01900000-0000-7000-8000-00000000dead")
    body = (await world.call("GET", f"/jobs/{orphan}/lineage")).body
    assert (body["ancestors"], body["complete"], "root" in body) == ([], False, False)
    first, second = (f"01900000-0000-7000-8000-{n:012x}" for n in (1, 2))
    await world.push(id=first, parent_id=second)
    await world.push(id=second, parent_id=first)
    body = (await world.call("GET", f"/jobs/{first}/lineage")).body
    assert ([each["id"] for each in body["ancestors"]], body["complete"]) == ([second], False)
    own = "01900000-0000-7000-8000-000000000003"
    await world.push(id=own, parent_id=own)
    body = (await world.call("GET", f"/jobs/{own}/lineage")).body
    assert (body["ancestors"], body["complete"]) == ([], False)


@in_world()
async def test_relatives_of_other_tenants_do_not_exist(world: World) -> None:
    theirs = await world.push(meta={"tenant_id": "b"})
    mine = await world.push(parent_id=theirs, root_id=theirs, meta={"tenant_id": "a"})
    child = await world.push(parent_id=mine, root_id=theirs, meta={"tenant_id": "a"})
    await world.push(parent_id=mine, root_id=theirs, meta={"tenant_id": "b"})
    path = f"/jobs/{mine}/lineage"
    body = (await world.call("GET", path, x_ojs_tenant="a")).body
    assert (body["ancestors"], body["complete"], "root" in body) == ([], False, False)
    assert [each["id"] for each in body["relatives"]] == [child]
    assert body["pagination"]["total"] == 1
    everything = (await world.call("GET", path)).body
    assert (everything["pagination"]["total"], everything["root"]["id"]) == (2, theirs)
    for what in ("history", "lineage"):
        found = await world.call("GET", f"/jobs/{mine}/{what}", x_ojs_tenant="b")
        assert found.status == 404


@pytest.mark.parametrize("what", ["history", "lineage"])
def test_what_a_client_may_not_know(what: str) -> None:
    from headgate.server.routes import ROUTES

    found = {r.method: r for r in ROUTES if r.path == f"/ojs/v1/jobs/{{id}}/{what}"}
    assert all(route.owned for route in found.values())
    assert "worker" in found["GET"].roles
    if what == "history":
        assert found["DELETE"].roles == {"operator", "admin"}
