from __future__ import annotations

from typing import Any

import pytest

from headgate.core.retry import Failure
from headgate.engines.contract import Ack, Fail
from tests.server.admin_world import START, World, in_world

PLAIN = {"fairness_weight": 1, "priority_boost": 0}


@in_world()
async def test_a_tenant_gets_limits_and_loses_them(world: World) -> None:
    limits = {"max_concurrency": 3, "max_enqueue_rate": {"limit": 9, "period": "PT1M"}}
    created = await world.call("PUT", "/admin/tenants/acme", {"limits": limits})
    assert created.status == 201
    assert created.body["tenant_id"] == "acme"
    assert created.body["limits"] == {**PLAIN, **limits}
    assert created.body["created_at"] == START
    assert created.body["total_jobs"] == 0
    other = {"tenant_id": "acme", "limits": {"max_scheduled": 1}}
    replaced = await world.call("PUT", "/admin/tenants/acme", other)
    assert replaced.status == 200
    assert replaced.body["limits"] == {**PLAIN, "max_scheduled": 1}
    changed = await world.call("PUT", "/admin/tenants/acme/limits", {"fairness_weight": 5})
    assert changed.status == 200
    assert changed.body["limits"] == {**PLAIN, "max_scheduled": 1, "fairness_weight": 5}
    assert (await world.call("GET", "/admin/tenants/acme")).body == changed.body
    cleared = await world.call("PUT", "/admin/tenants/acme/limits", {"max_scheduled": None})
    assert cleared.body["limits"] == {**PLAIN, "fairness_weight": 5}
    gone = await world.call("DELETE", "/admin/tenants/acme")
    assert (gone.status, gone.body) == (200, {"deleted": True, "tenant_id": "acme"})
    assert (await world.call("DELETE", "/admin/tenants/acme")).status == 404


@pytest.mark.parametrize("path", ["", "/stats", "/jobs"])
def test_a_tenant_that_nobody_knows(path: str) -> None:
    @in_world()
    async def ask(world: World) -> None:
        reply = await world.call("GET", f"/admin/tenants/acme{path}")
        assert (reply.status, reply.error["details"]) == (404, {"tenant_id": "acme"})

    ask()


@in_world()
async def test_the_first_limits_may_come_one_by_one(world: World) -> None:
    reply = await world.call("PUT", "/admin/tenants/acme/limits", {"max_concurrency": 1})
    assert (reply.status, reply.body["limits"]["max_concurrency"]) == (201, 1)


@pytest.mark.parametrize(
    ("tenant", "path", "body", "field"),
    [
        ("acme", "", {"limits": {"max_concurrency": -1}}, "body.limits.max_concurrency"),
        ("acme", "", {"limits": {"max": 1}}, "body.limits.max"),
        ("acme", "", {"limits": 3}, "body.limits"),
        ("acme", "", {"max_concurrency": 1}, "body.max_concurrency"),
        ("acme", "", {"tenant_id": "bolt"}, "body.tenant_id"),
        ("acme", "/limits", {"fairness_weight": 0}, "body.fairness_weight"),
        ("acme", "/limits", {"max_enqueue_rate": {"limit": 1}}, "body.max_enqueue_rate.period"),
        ("a%20b", "", {}, "id"),
        ("_default", "/limits", {"max_concurrency": 1}, "id"),
    ],
)
def test_limits_that_cannot_be(tenant: str, path: str, body: Any, field: str) -> None:
    @in_world()
    async def ask(world: World) -> None:
        reply = await world.call("PUT", f"/admin/tenants/{tenant}{path}", body)
        assert (reply.status, reply.error["details"]["field"]) == (400, field)
        assert (await world.call("GET", "/admin/tenants")).body["items"] == []

    ask()


@in_world()
async def test_tenants_are_listed_with_their_live_jobs(world: World) -> None:
    await world.push(tenant="bolt", count=2)
    await world.fetch()
    await world.call("PUT", "/admin/tenants/acme", {"limits": {"max_concurrency": 1}})
    body = (await world.call("GET", "/admin/tenants")).body
    acme, bolt = (item for item in body["items"] if item["tenant_id"] != "_default")
    assert (acme["tenant_id"], acme["total_jobs"]) == ("acme", 0)
    assert (bolt["tenant_id"], bolt["total_jobs"]) == ("bolt", 2)
    assert (bolt["jobs"]["available"], bolt["jobs"]["active"]) == (1, 1)
    assert "created_at" not in bolt
    assert body["pagination"]["total"] == len(body["items"])


@in_world()
async def test_what_a_tenant_has_and_of_what_it_is_entitled_to(world: World) -> None:
    limits = {
        "max_concurrency": 10, "max_queue_depth": 50, "max_scheduled": 5, "fairness_weight": 3,
        "max_enqueue_rate": {"limit": 100, "period": "PT1M"},
    }  # fmt: skip
    await world.call("PUT", "/admin/tenants/acme", {"limits": limits})
    await world.push("a", tenant="acme", count=4)
    await world.push("b", tenant="acme", count=2)
    await world.push("b", tenant="acme", state="scheduled", due_at=world.now_ms + 60_000)
    await world.push("a", tenant="bolt")
    done, failed, *_ = await world.fetch("a", 5)
    await world.engine.ack([Ack(done)], world.now_ms)
    broken = Failure("handler_error", "no", "X", retryable=False)
    await world.engine.fail([Fail(failed, broken)], world.now_ms)
    body = (await world.call("GET", "/admin/tenants/acme/stats")).body
    assert (body["tenant_id"], body["total_jobs"]) == ("acme", 7)
    counts = body["jobs"]
    assert {state: n for state, n in counts.items() if n} == {
        "available": 2, "active": 2, "scheduled": 1, "completed": 1, "discarded": 1,
    }  # fmt: skip
    assert body["throughput"] == {"processed_per_minute": 1, "failed_per_minute": 1}
    assert body["limits"] == {
        "max_concurrency": {"limit": 10, "current": 2},
        "max_enqueue_rate": {"limit": 100, "current": 7, "period": "PT1M"},
        "max_queue_depth": {"limit": 50, "current": 3, "queue": "b"},
        "max_scheduled": {"limit": 5, "current": 1},
    }
    assert body["fairness"] == {
        "weight": 3,
        "effective_share": 0.75,
        "actual_share": pytest.approx(2 / 3),
    }
    world.now_ms += 60_000
    later = (await world.call("GET", "/admin/tenants/acme/stats")).body
    assert later["throughput"] == {"processed_per_minute": 0, "failed_per_minute": 0}
    assert later["limits"]["max_enqueue_rate"]["current"] == 0


@in_world()
async def test_a_tenant_without_limits_has_statistics_too(world: World) -> None:
    (job_id,) = await world.push(tenant="acme")
    await world.fetch()
    await world.engine.ack([Ack(job_id)], world.now_ms)
    body = (await world.call("GET", "/admin/tenants/acme/stats")).body
    assert (body["total_jobs"], body["limits"]) == (1, {})
    assert body["fairness"]["weight"] == 1


@in_world()
async def test_the_jobs_of_a_tenant_are_listed(world: World) -> None:
    ids = await world.push(tenant="acme", count=3)
    await world.push(tenant="bolt")
    (first,) = await world.fetch()
    body = (await world.call("GET", "/admin/tenants/acme/jobs?per_page=2")).body
    assert body["pagination"] == {"total": 3, "page": 1, "per_page": 2}
    rest = (await world.call("GET", "/admin/tenants/acme/jobs?per_page=2&page=2")).body
    assert {item["id"] for item in body["items"] + rest["items"]} == set(ids)
    active = (await world.call("GET", "/admin/tenants/acme/jobs?state=active")).body
    assert [item["id"] for item in active["items"]] == [first]
    none = (await world.call("GET", "/admin/tenants/acme/jobs?queue=other")).body
    assert none["items"] == []
    wrong = await world.call("GET", "/admin/tenants/acme/jobs?state=done")
    assert (wrong.status, wrong.error["details"]["field"]) == (400, "state")


@in_world()
async def test_jobs_that_name_no_tenant_have_a_share_too(world: World) -> None:
    await world.push(tenant="acme", count=2)
    await world.push()
    await world.fetch(count=3)
    body = (await world.call("GET", "/admin/tenants/acme/stats")).body
    assert body["fairness"] == {
        "weight": 1,
        "effective_share": 0.5,
        "actual_share": pytest.approx(2 / 3),
    }
