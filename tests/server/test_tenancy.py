"""Requests that come from a tenant: whose jobs they make, and whose they see."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.server.routes import ROUTES
from tests.server.admin_world import Reply
from tests.server.jobs_world import World, in_world

JOB = {"type": "a", "args": [], "queue": "q"}
MINE: dict[str, str] = {"x_ojs_tenant": "acme"}
THEIRS: dict[str, str] = {"x_ojs_tenant": "other"}
ERROR = {"code": "c", "message": "m"}


async def enqueue(world: World, tenant: str = "acme", **members: Any) -> str:
    body = {**JOB, **members}
    found = await world.call("POST", "/jobs", body, **({"x_ojs_tenant": tenant} if tenant else {}))
    assert found.status == 201, found.raw
    job_id: str = found.body["job"]["id"]
    return job_id


def ids(reply: Reply, name: str = "jobs") -> set[str]:
    return {job["id"] for job in reply.body[name]}


@pytest.mark.parametrize("header", ["x_ojs_tenant", "x_ojs_tenant_id"])
def test_the_tenant_of_a_request_is_that_of_its_jobs(header: str) -> None:
    @in_world()
    async def test(world: World) -> None:
        named = {header: "acme"}
        one = await world.call("POST", "/jobs", JOB, **named)
        many = await world.call("POST", "/jobs/batch", {"jobs": [JOB, JOB]}, **named)
        each = await world.call("POST", "/jobs/bulk", {"jobs": [JOB]}, **named)
        jobs = [one.body["job"], *many.body["jobs"], each.body["items"][0]["job"]]
        assert [job["meta"] for job in jobs] == [{"tenant_id": "acme"}] * 4
        assert (await world.job(jobs[0]["id"]))["meta"] == {"tenant_id": "acme"}

    test()


@in_world()
async def test_without_a_tenant_nothing_is_written_into_meta(world: World) -> None:
    assert (await world.job(await enqueue(world, "")))["meta"] == {}


@in_world()
async def test_header_and_job_must_not_disagree(world: World) -> None:
    bad = {**JOB, "meta": {"tenant_id": "other"}}
    one = await world.call("POST", "/jobs", bad, **MINE)
    many = await world.call("POST", "/jobs/batch", {"jobs": [JOB, bad]}, **MINE)
    each = await world.call("POST", "/jobs/bulk", {"jobs": [JOB, bad]}, **MINE)
    assert (one.status, many.status, each.status) == (400, 400, 207)
    errors = [one.error, many.error, each.body["items"][1]["error"]]
    assert {error["details"]["field"] for error in errors} == {"meta.tenant_id"}
    assert many.error["details"]["index"] == 1
    same = {**JOB, "meta": {"tenant_id": "acme", "a": 1}}
    assert (await world.call("POST", "/jobs", same, **MINE)).status == 201


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ({"x_ojs_tenant": ""}, "X-OJS-Tenant"),
        ({"x_ojs_tenant": "a b"}, "X-OJS-Tenant"),
        ({"x_ojs_tenant": "_default"}, "X-OJS-Tenant"),
        ({"x_ojs_tenant_id": "-"}, "X-OJS-Tenant"),
        ({"x_ojs_tenant": "a" * 257}, "X-OJS-Tenant"),
        ({"x_ojs_tenant": "a", "x_ojs_tenant_id": "b"}, "X-OJS-Tenant-ID"),
    ],
)
def test_what_names_no_tenant_is_refused(headers: dict[str, str], field: str) -> None:
    @in_world()
    async def test(world: World) -> None:
        for method, path, body in (
            ("POST", "/jobs", JOB),
            ("POST", "/workers/fetch", {"queues": ["q"]}),
            ("GET", "/jobs/x", None),
        ):
            found = await world.call(method, path, body, **headers)
            assert (found.status, found.error["details"]["field"]) == (400, field)
        assert (await world.call("GET", "/health", **headers)).status == 200

    test()


@in_world()
async def test_a_fetch_gets_the_jobs_of_its_tenant_only(world: World) -> None:
    theirs, mine = await enqueue(world, "other"), await enqueue(world)
    nobodys = await enqueue(world, "")
    body = {"queues": ["q"], "count": 5}
    assert ids(await world.call("POST", "/workers/fetch", body, **MINE)) == {mine}
    exchange = {"worker_id": "w", "fetch": body}
    assert ids(await world.call("POST", "/workers/exchange", exchange, **THEIRS)) == {theirs}
    assert ids(await world.call("POST", "/workers/fetch", body)) == {nobodys}


JOB_ROUTES = [
    (route.method, route.path.removeprefix("/ojs/v1"))
    for route in ROUTES
    if route.owned and not route.path.endswith(("/stream", "/events"))
]
BODIES: dict[str, Any] = {
    "PATCH": {"priority": 5},
    "PUT": {"progress": 0.5, "state": 1},
    "POST": {"state": 1},
}


def test_every_request_about_one_job_asks_whose_it_is() -> None:
    paths = {path for _, path in JOB_ROUTES}
    assert {"/jobs/{id}", "/jobs/{id}/result", "/jobs/{id}/checkpoint"} <= paths
    named = [route for route in ROUTES if "jobs/{id}" in route.path or "letter/{id}" in route.path]
    assert [r.path for r in named if not r.owned and not r.path.endswith("ack")] == []


@pytest.mark.parametrize(("method", "path"), JOB_ROUTES)
def test_a_job_of_another_tenant_does_not_exist(method: str, path: str) -> None:
    @in_world()
    async def test(world: World) -> None:
        job_id = await enqueue(world)
        before = await world.job(job_id)
        place = path.replace("{id}", job_id)
        found = await world.call(method, place, BODIES.get(method), **THEIRS)
        missing = await world.call(method, path.replace("{id}", "x"), BODIES.get(method), **THEIRS)
        assert (found.status, found.error["code"]) == (404, "not_found")
        assert found.error["message"].replace(job_id, "x") == missing.error["message"]
        assert await world.job(job_id) == before

    test()


@in_world()
async def test_its_own_jobs_a_tenant_sees_and_changes(world: World) -> None:
    job_id = await enqueue(world)
    assert (await world.call("GET", f"/jobs/{job_id}", **MINE)).status == 200
    changed = await world.call("PATCH", f"/jobs/{job_id}", {"priority": 5}, **MINE)
    assert changed.body["priority"] == 5
    assert (await world.call("DELETE", f"/jobs/{job_id}", **MINE)).status == 200
    assert (await world.job(job_id))["state"] == "cancelled"


@pytest.mark.parametrize("verb", ["ack", "nack"])
def test_only_its_own_tenant_answers_for_a_job(verb: str) -> None:
    @in_world()
    async def test(world: World) -> None:
        job_id = await enqueue(world)
        await world.fetch("q")
        body = {"error": ERROR}
        for path, more in (
            (f"/workers/{verb}", {"job_id": job_id}),
            (f"/jobs/{job_id}/{verb}", {}),
        ):
            found = await world.call("POST", path, {**body, **more}, **THEIRS)
            assert (found.status, found.error["code"]) == (404, "not_found")
        assert (await world.job(job_id))["state"] == "active"
        found = await world.call("POST", f"/workers/{verb}", {**body, "job_id": job_id}, **MINE)
        assert found.status == 200

    test()


@in_world()
async def test_in_an_exchange_each_item_is_asked_whose_it_is(world: World) -> None:
    mine = [await enqueue(world) for _ in range(3)]
    theirs = [await enqueue(world, "other") for _ in range(3)]
    await world.fetch("q", count=6, worker_id="w")
    body = {
        "worker_id": "w",
        "acks": [{"job_id": theirs[0]}, {"job_id": mine[0]}],
        "nacks": [{"job_id": mine[1], "error": ERROR}, {"job_id": theirs[1], "error": ERROR}],
        "extend": [theirs[2], mine[2]],
    }
    found = await world.call("POST", "/workers/exchange", body, **MINE)
    assert found.status == 200, found.raw
    for name, own in (("acks", [0, 1]), ("nacks", [1, 0]), ("extend", [0, 1])):
        assert [int("error" not in item) for item in found.body[name]] == own, name
        (refused,) = (item["error"] for item in found.body[name] if "error" in item)
        assert refused["code"] == "not_found"
    assert [(await world.job(job_id))["state"] for job_id in theirs] == ["active"] * 3
    assert [(await world.job(job_id))["state"] for job_id in mine] == [
        "completed",
        "retryable",
        "active",
    ]


@in_world()
async def test_results_of_others_are_missing(world: World) -> None:
    mine, theirs = await enqueue(world), await enqueue(world, "other")
    found = await world.call("POST", "/jobs/results", {"ids": [mine, theirs]}, **MINE)
    assert (set(found.body["results"]), found.body["missing"]) == ({mine}, [theirs])


@in_world()
async def test_commands_for_many_jobs_reach_those_of_the_tenant(world: World) -> None:
    mine, theirs = await enqueue(world), await enqueue(world, "other")
    listed = await world.call("POST", "/jobs/bulk/cancel", {"job_ids": [mine, theirs]}, **MINE)
    assert [item["status"] for item in listed.body["items"]] == ["cancelled", "skipped"]
    assert listed.body["items"][1]["reason"] == "not_found"
    again = await enqueue(world)
    matched = await world.call("POST", "/jobs/bulk/cancel", {"filter": {"queue": "q"}}, **MINE)
    assert matched.body["cancelled"] == 1
    assert (await world.job(again))["state"] == "cancelled"
    assert (await world.job(theirs))["state"] == "available"


@in_world()
async def test_equal_keys_of_two_tenants_are_two_requests(world: World) -> None:
    found = [
        await world.call("POST", "/jobs/bulk", {"jobs": [JOB]}, idempotency_key="k", **headers)
        for headers in (MINE, THEIRS, {}, MINE)
    ]
    made = [reply.body["items"][0]["job"]["id"] for reply in found]
    assert made[0] == made[3]
    assert len(set(made)) == 3


@in_world()
async def test_lists_show_the_jobs_of_the_tenant(world: World) -> None:
    retry = {"max_attempts": 1, "on_exhaustion": "dead_letter"}
    mine, theirs = await enqueue(world, retry=retry), await enqueue(world, "other", retry=retry)
    assert ids(await world.call("GET", "/admin/jobs", **MINE), "items") == {mine}
    assert ids(await world.call("GET", "/admin/jobs"), "items") == {mine, theirs}
    for job in await world.fetch("q", count=2):
        await world.call("POST", "/workers/nack", {"job_id": job["id"], "error": ERROR})
    assert ids(await world.call("GET", "/dead-letter", **MINE)) == {mine}
    assert ids(await world.call("GET", "/admin/dead-letter", **THEIRS), "items") == {theirs}
    assert ids(await world.call("GET", "/dead-letter")) == {mine, theirs}
    deleted = await world.call("DELETE", "/dead-letter?confirm=true", **MINE)
    assert deleted.body["deleted"] == 1
    assert ids(await world.call("GET", "/dead-letter")) == {theirs}


@in_world()
async def test_queues_count_the_jobs_of_the_tenant(world: World) -> None:
    await enqueue(world)
    for _ in range(2):
        await enqueue(world, "other")
    await enqueue(world, "")
    for headers, count in ((MINE, 1), (THEIRS, 2), ({}, 4)):
        info = await world.call("GET", "/queues/q", **headers)
        stats = await world.call("GET", "/queues/q/stats", **headers)
        assert info.body["stats"]["available"] == info.body["queue"]["available"] == count
        assert stats.body["stats"]["depth"] == stats.body["queue"]["available"] == count


@in_world(strict_tenants=True)
async def test_a_strict_server_insists_on_a_tenant(world: World) -> None:
    found = await world.call("POST", "/jobs", JOB)
    assert (found.status, found.error["details"]["field"]) == (400, "meta.tenant_id")
    own = {**JOB, "meta": {"tenant_id": "acme"}}
    assert (await world.call("POST", "/jobs", own)).status == 201
    many = await world.call("POST", "/jobs/batch", {"jobs": [own, JOB]})
    assert (many.status, many.error["details"]["index"]) == (400, 1)
    job_id = await enqueue(world)
    for method, path, body in (
        ("POST", "/workers/fetch", {"queues": ["q"]}),
        ("POST", "/workers/exchange", {"worker_id": "w"}),
        ("POST", "/workers/ack", {"job_id": job_id}),
        ("GET", f"/jobs/{job_id}", None),
        ("GET", "/dead-letter", None),
    ):
        found = await world.call(method, path, body)
        assert (found.status, found.error["details"]["field"]) == (400, "X-OJS-Tenant")
    wanted = {"queues": ["q"], "count": 5}
    fetched = await world.call("POST", "/workers/fetch", wanted, **MINE)
    assert len(fetched.body["jobs"]) == 2
    # Administration sees all tenants.
    assert len((await world.call("GET", "/admin/jobs")).body["items"]) == 2
    assert (await world.call("GET", f"/admin/jobs/{job_id}")).status == 200
    assert (await world.call("POST", "/workers/heartbeat", {"worker_id": "w"})).status == 200
