from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate.core.gates import LimitsChange, Rate
from headgate.core.limits import Use
from headgate.core.retry import Failure
from headgate.engines.contract import Ack, Fail
from tests.server.admin_world import START, World, in_world

MINUTE_US = 60_000_000


def use(key: str = "api", concurrency: int | None = None, **more: Any) -> Use:
    scope = more.pop("scope", "global")
    if concurrency is not None:
        more["concurrency"] = concurrency
    return Use(key, scope, change=LimitsChange(**more))


@in_world()
async def test_a_key_shows_the_limits_that_it_has_and_how_far_they_are_used_up(
    world: World,
) -> None:
    await world.push(count=3, uses=[use(concurrency=2, rate=Rate(100, MINUTE_US))])
    await world.fetch(count=3)
    reply = await world.call("GET", "/rate-limits/api")
    assert reply.status == 200
    assert reply.body == {
        "key": "api",
        "concurrency": {"limit": 2, "active": 2, "available": 0},
        "rate": {
            "limit": 100,
            "period": "PT1M",
            "current_count": 2,
            "window_resets_at": "2026-02-02T02:41:00.000Z",
        },
        "waiting_count": 1,
    }


@in_world()
async def test_a_throttle_says_when_the_next_start_is(world: World) -> None:
    await world.push(count=2, uses=[use(throttle=Rate(2, 1_000_000))])
    await world.fetch(count=2)
    body = (await world.call("GET", "/rate-limits/api")).body
    assert body["throttle"] == {
        "limit": 2,
        "period": "PT1S",
        "next_allowed_at": "2026-02-02T02:40:00.500Z",
    }
    assert "concurrency" not in body


@in_world()
async def test_keys_that_nobody_knows(world: World) -> None:
    for method, path in (
        ("GET", "/rate-limits/api"),
        ("DELETE", "/rate-limits/api"),
        ("GET", "/rate-limits/api/jobs"),
        ("GET", "/rate-limits/api?tenant=acme"),
    ):
        reply = await world.call(method, path)
        assert (reply.status, reply.error["code"]) == (404, "not_found"), path
    reply = await world.call("POST", "/rate-limits/api/jobs/cancel", {"confirm": True})
    assert reply.status == 404


@in_world()
async def test_a_key_is_forgotten_with_its_last_job(world: World) -> None:
    (job_id,) = await world.push(uses=[use(concurrency=1)])
    await world.fetch()
    await world.engine.ack([Ack(job_id)], world.now_ms)
    assert (await world.call("GET", "/rate-limits/api")).status == 404


@in_world()
async def test_an_override_holds_until_it_ends(world: World) -> None:
    await world.push(uses=[use(concurrency=5)])
    body = {"concurrency": 0, "expires_at": "+PT1M"}
    reply = await world.call("PUT", "/rate-limits/api", body)
    assert reply.status == 200
    assert reply.body == {
        "key": "api",
        "concurrency": {"limit": 0, "active": 0, "available": 0},
        "waiting_count": 1,
        "override": {"concurrency": 0, "expires_at": "2026-02-02T02:41:00.000Z"},
    }
    assert await world.fetch() == []
    world.now_ms += 60_000
    assert (await world.call("GET", "/rate-limits/api")).body == {
        "key": "api",
        "concurrency": {"limit": 5, "active": 0, "available": 5},
        "waiting_count": 0,
    }
    assert len(await world.fetch()) == 1


@in_world()
async def test_an_override_needs_no_jobs_and_null_lifts_a_limit(world: World) -> None:
    reply = await world.call("PUT", "/rate-limits/api", {"concurrency": None, "rate": None})
    assert (reply.status, reply.body["override"]) == (200, {"concurrency": None, "rate": None})
    await world.push(count=3, uses=[use(concurrency=1)])
    assert len(await world.fetch(count=3)) == 3


@in_world()
async def test_lifting_takes_back_override_and_hold(world: World) -> None:
    (job_id, _) = await world.push(count=2, uses=[use(concurrency=5)])
    await world.call("PUT", "/rate-limits/api", {"concurrency": 1})
    await world.fetch()
    failure = Failure("rate_limited", "429", requeue=True)
    until = world.now_ms + 60_000
    await world.engine.fail([Fail(job_id, failure, hold_until=until)], world.now_ms)
    held = (await world.call("GET", "/rate-limits/api")).body
    assert held["hold"] == {"until": "2026-02-02T02:41:00.000Z", "reason": "429"}
    assert await world.fetch(count=2) == []
    reply = await world.call("DELETE", "/rate-limits/api")
    assert (reply.status, reply.body) == (200, {"key": "api", "lifted": True})
    body = (await world.call("GET", "/rate-limits/api")).body
    assert {"hold", "override"}.isdisjoint(body)
    assert body["concurrency"]["limit"] == 5
    assert len(await world.fetch(count=2)) == 2


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "body"),
        ({"expires_at": "+PT1M"}, "body"),
        ({"concurrency": -1}, "body.concurrency"),
        ({"concurrency": "1"}, "body.concurrency"),
        ({"rate": {"limit": 1}}, "body.rate.period"),
        ({"rate": {"limit": 0, "period": "PT1S"}}, "body.rate.limit"),
        ({"throttle": {"limit": 1, "period": "PT0S"}}, "body.throttle.period"),
        ({"concurrency": 1, "expires_at": "2026-02-02T02:40:00Z"}, "body.expires_at"),
        ({"concurrency": 1, "expires_at": "soon"}, "body.expires_at"),
        ({"concurrency": 1, "burst": 2}, "body.burst"),
    ],
)
def test_overrides_that_cannot_be(body: Any, field: str) -> None:
    @in_world()
    async def ask(world: World) -> None:
        await world.push(uses=[use(concurrency=5)])
        before = (await world.call("GET", "/rate-limits/api")).body
        reply = await world.call("PUT", "/rate-limits/api", body)
        assert (reply.status, reply.error["details"]["field"]) == (400, field)
        assert (await world.call("GET", "/rate-limits/api")).body == before

    ask()


@in_world()
async def test_names_that_no_key_can_have(world: World) -> None:
    for path, field in (
        ("/rate-limits/-api", "key"),
        ("/rate-limits/a%2Fb", "key"),
        ("/rate-limits/%40acme%2Fapi", "key"),
        (f"/rate-limits/{'x' * 257}", "key"),
        ("/rate-limits/api?tenant=", "tenant"),
        ("/rate-limits/api?tenant=a%20b", "tenant"),
    ):
        reply = await world.call("GET", path)
        assert (reply.status, reply.error["details"]["field"]) == (400, field), path


@in_world()
async def test_a_tenants_own_key_is_no_other_ones(world: World) -> None:
    own = use(scope="tenant", concurrency=1)
    await world.push(count=2, uses=[own], tenant="acme")
    await world.push(uses=[own], tenant="bolt")
    await world.push(uses=[own])
    await world.push(uses=[use(concurrency=7)])
    body = (await world.call("GET", "/rate-limits/api?tenant=acme")).body
    assert (body["key"], body["tenant"], body["waiting_count"]) == ("api", "acme", 1)
    nobodys = (await world.call("GET", "/rate-limits/api?tenant=_default")).body
    assert (nobodys["tenant"], nobodys["concurrency"]["limit"]) == ("_default", 1)
    everybodys = (await world.call("GET", "/rate-limits/api")).body
    assert "tenant" not in everybodys
    assert everybodys["concurrency"]["limit"] == 7
    await world.call("PUT", "/rate-limits/api?tenant=acme", {"concurrency": 0})
    listed = (await world.call("GET", "/rate-limits")).body
    shown = [
        (item["key"], item.get("tenant"), item["concurrency"]["limit"]) for item in listed["items"]
    ]
    assert shown == [
        ("api", "acme", 0),
        ("api", "bolt", 1),
        ("api", "_default", 1),
        ("api", None, 7),
    ]


@in_world()
async def test_keys_are_listed_in_pages_those_known_longest_first(world: World) -> None:
    for n in range(5):
        await world.push(uses=[use(f"k{n}", concurrency=n)])
    body = (await world.call("GET", "/rate-limits?per_page=2&page=2")).body
    assert [item["key"] for item in body["items"]] == ["k2", "k3"]
    assert body["pagination"] == {"total": 5, "page": 2, "per_page": 2}
    assert (await world.call("GET", "/rate-limits?page=0")).status == 400


@in_world()
async def test_the_gates_of_queues_and_tenants_are_no_keys(world: World) -> None:
    await world.call("PUT", "/queues/mail/config", {"concurrency": 1})
    await world.call("PUT", "/admin/tenants/acme", {"limits": {"max_concurrency": 1}})
    await world.push("mail", tenant="acme", count=2)
    await world.fetch("mail", 2)
    assert (await world.call("GET", "/rate-limits")).body["items"] == []


@in_world()
async def test_three_jobs_that_share_two_places(world: World) -> None:
    a, b, c = await world.push(count=3, uses=[use("reports", 2)])

    async def shown() -> tuple[list[str], list[str]]:
        body = (await world.call("GET", "/rate-limits/reports/jobs")).body
        assert body["allowed_total"] == len(body["allowed"])
        assert body["rate_limited_total"] == len(body["rate_limited"])
        return [j["id"] for j in body["allowed"]], [j["id"] for j in body["rate_limited"]]

    assert await shown() == ([a, b], [c])
    assert await world.fetch(count=3) == [a, b]
    assert await shown() == ([a, b], [c])
    await world.engine.ack([Ack(a)], world.now_ms)
    assert await shown() == ([b, c], [])
    assert await world.fetch(count=3) == [c]


@in_world()
async def test_the_jobs_of_a_key_come_in_pages(world: World) -> None:
    ids = await world.push(count=5, uses=[use(concurrency=2)])
    body = (await world.call("GET", "/rate-limits/api/jobs?per_page=3")).body
    assert [j["id"] for j in body["allowed"]] == ids[:2]
    assert [j["id"] for j in body["rate_limited"]] == ids[2:3]
    assert (body["allowed_total"], body["rate_limited_total"]) == (2, 3)
    assert body["pagination"] == {"total": 5, "page": 1, "per_page": 3}
    rest = (await world.call("GET", "/rate-limits/api/jobs?per_page=3&page=2")).body
    assert rest["allowed"] == []
    assert [j["id"] for j in rest["rate_limited"]] == ids[3:]


@in_world()
async def test_jobs_are_cancelled_by_key(world: World) -> None:
    ids = await world.push(count=3, uses=[use(concurrency=1)])
    (other,) = await world.push(uses=[use("other", 1)])
    (running,) = await world.fetch()
    reply = await world.call("POST", "/rate-limits/api/jobs/cancel", {"confirm": True})
    assert reply.status == 200
    assert reply.body == {"key": "api", "total_matched": 2, "cancelled": 2, "skipped": 0}
    states = [await world.state(job_id) for job_id in [*ids, other]]
    assert states == ["active", "cancelled", "cancelled", "available"]
    body = {"confirm": True, "states": ["active"]}
    reply = await world.call("POST", "/rate-limits/api/jobs/cancel", body)
    assert reply.body["cancelled"] == 1
    assert await world.state(running) == "cancelled"


@in_world()
async def test_cancelling_by_key_is_refused(world: World) -> None:
    (job_id,) = await world.push(uses=[use(concurrency=1)])
    for body, field in (
        ({}, "confirm"),
        ({"confirm": False}, "confirm"),
        ({"confirm": True, "states": []}, "states"),
        ({"confirm": True, "states": ["completed"]}, "states"),
        ({"confirm": True, "states": ["done"]}, "states"),
    ):
        reply = await world.call("POST", "/rate-limits/api/jobs/cancel", body)
        assert (reply.status, reply.error["details"]["field"]) == (400, field), body
    assert await world.state(job_id) == "available"


@in_world()
async def test_cancelling_many_jobs_goes_on_as_a_task(world: World) -> None:
    await world.push(count=1_001, uses=[use(concurrency=1)])
    reply = await world.call("POST", "/rate-limits/api/jobs/cancel", {"confirm": True})
    assert (reply.status, reply.body["total_matched"]) == (202, 1_001)
    task = reply.body["task"]
    while not task["finished"]:
        await asyncio.sleep(0)
        task = (await world.call("GET", f"/admin/tasks/{task['id']}")).body["task"]
    assert task["done"] == 1_001
    assert (await world.call("GET", "/rate-limits/api")).status == 404


@in_world()
async def test_jobs_are_listed_by_key_and_by_tenant(world: World) -> None:
    (one,) = await world.push(uses=[use(concurrency=1)], tenant="acme")
    (own,) = await world.push(uses=[use(scope="tenant", concurrency=1)], tenant="acme")
    (other,) = await world.push(uses=[use(concurrency=1)])
    for query, ids in (
        ("key=api", {one, other}),
        ("key=api&tenant=acme", {one}),
        ("key=api&scope=tenant&tenant=acme", {own}),
        ("tenant=acme", {one, own}),
        ("tenant=_default", {other}),
        ("key=none", set()),
    ):
        items = (await world.call("GET", f"/admin/jobs?{query}")).body["items"]
        assert {item["id"] for item in items} == ids, query
    for query, field in (
        ("key=-", "key"),
        ("key=api&scope=mine", "scope"),
        ("key=api&scope=tenant", "tenant"),
        ("tenant=a%20b", "tenant"),
    ):
        reply = await world.call("GET", f"/admin/jobs?{query}")
        assert (reply.status, reply.error["details"]["field"]) == (400, field), query


@in_world()
async def test_jobs_are_cancelled_by_a_filter_with_a_key(world: World) -> None:
    (one,) = await world.push(uses=[use(concurrency=1)])
    (other,) = await world.push()
    reply = await world.call("POST", "/jobs/bulk/cancel", {"filter": {"key": "api"}})
    assert reply.body["cancelled"] == 1
    assert (await world.state(one), await world.state(other)) == ("cancelled", "available")


@in_world()
async def test_a_queue_is_limited_as_a_whole(world: World) -> None:
    body = {"concurrency": 2, "rate": {"limit": 1_000, "period": "PT1H"}}
    reply = await world.call("PUT", "/admin/queues/mail/rate-limit", body)
    assert reply.status == 200
    assert reply.body == {
        "queue": "mail",
        "concurrency": {"limit": 2, "active": 0, "available": 2},
        "rate": {
            "limit": 1_000,
            "period": "PT1H",
            "current_count": 0,
            "window_resets_at": START,
        },
    }
    await world.push("mail", count=3)
    assert len(await world.fetch("mail", 3)) == 2
    shown = (await world.call("GET", "/admin/queues/mail/rate-limit")).body
    assert shown["concurrency"] == {"limit": 2, "active": 2, "available": 0}
    assert shown["rate"]["current_count"] == 2
    config = (await world.call("GET", "/queues/mail/config")).body
    assert config["concurrency"] == 2
    assert config["rate_limit"] == {"rate": {"limit": 1_000, "period": "PT1H"}}
    changed = await world.call("PUT", "/admin/queues/mail/rate-limit", {"concurrency": None})
    assert "concurrency" not in changed.body
    assert changed.body["rate"]["limit"] == 1_000
    assert len(await world.fetch("mail", 3)) == 1


@in_world()
async def test_limits_of_a_queue_that_cannot_be(world: World) -> None:
    for path, body, field in (
        ("mail", {}, "body"),
        ("mail", {"concurrency": -1}, "body.concurrency"),
        ("mail", {"rate": {"limit": 0, "period": "PT1H"}}, "body.rate.limit"),
        ("mail", {"max": 1}, "body.max"),
        ("_default", {"concurrency": 1}, "name"),
    ):
        reply = await world.call("PUT", f"/admin/queues/{path}/rate-limit", body)
        assert (reply.status, reply.error["details"]["field"]) == (400, field), body
    assert (await world.call("GET", "/admin/queues/mail/rate-limit")).status == 404
    plain = await world.call("GET", "/admin/queues/default/rate-limit")
    assert (plain.status, plain.body) == (200, {"queue": "default"})
