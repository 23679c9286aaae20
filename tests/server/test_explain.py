from __future__ import annotations

from headgate.core.gates import LimitsChange, Rate
from headgate.core.limits import Use
from headgate.core.retry import Failure
from headgate.engines.contract import Fail
from tests.server.admin_world import START, World, in_world


def use(key: str = "api", scope: str = "global", **limits: object) -> Use:
    return Use(key, scope, change=LimitsChange(**limits))  # type: ignore[arg-type]


@in_world()
async def test_a_job_that_nobody_knows(world: World) -> None:
    reply = await world.call("GET", "/jobs/none/explain")
    assert (reply.status, reply.error["details"]) == (404, {"job_id": "none"})


@in_world()
async def test_a_job_behind_a_full_key(world: World) -> None:
    running, waiting = await world.push(count=2, uses=[use(concurrency=1)])
    await world.fetch(worker="w")
    await world.beat("w", running, queues=["default"])
    body = (await world.call("GET", f"/jobs/{waiting}/explain")).body
    assert (body["job_id"], body["state"], body["queue"]) == (waiting, "available", "default")
    assert (body["place"], body["ahead"]) == ("0", 0)
    assert body["consumers"] == 1
    assert body["computed_at"] == START
    (barrier,) = body["barriers"]
    assert barrier == {
        "kind": "concurrency",
        "scope": "key",
        "name": "api",
        "limit": 1,
        "current": 1,
        "holders": [running],
        "summary": f"The key api lets 1 run at a time and 1 is held by {running}.",
        "remedy": "PUT /ojs/v1/rate-limits/api overrides the limit; if a holder is stuck, "
        f"POST /ojs/v1/jobs/{running}/cancel frees its place.",
    }
    assert barrier["summary"] in body["summary"]
    assert barrier["remedy"] in body["summary"]


@in_world()
async def test_a_window_says_when_it_opens(world: World) -> None:
    _, waiting = await world.push(count=2, uses=[use(rate=Rate(1, 60_000_000))])
    await world.fetch()
    world.now_ms += 15_000
    body = (await world.call("GET", f"/jobs/{waiting}/explain")).body
    (barrier,) = [each for each in body["barriers"] if each["kind"] == "rate"]
    assert (barrier["limit"], barrier["current"]) == (1, 1)
    assert barrier["opens_at"] == "2026-02-02T02:41:00.000Z"
    assert barrier["opens_in_ms"] == 45_000


@in_world()
async def test_every_closed_gate_is_named(world: World) -> None:
    await world.call("PUT", "/queues/mail/config", {"concurrency": 1})
    await world.call("PUT", "/admin/tenants/acme", {"limits": {"max_concurrency": 1}})
    uses = [use("a", concurrency=1), use("b", "tenant", concurrency=1)]
    first, waiting = await world.push("mail", count=2, uses=uses, tenant="acme")
    await world.fetch("mail")
    body = (await world.call("GET", f"/jobs/{waiting}/explain")).body
    found = {
        (each["scope"], each["name"], each.get("tenant"))
        for each in body["barriers"]
        if each["kind"] == "concurrency"
    }
    assert found == {
        ("key", "a", None),
        ("key", "b", "acme"),
        ("queue", "mail", None),
        ("tenant", "acme", None),
    }
    assert all(
        each["holders"] == [first] for each in body["barriers"] if each["kind"] == "concurrency"
    )
    assert body["tenant_id"] == "acme"


@in_world()
async def test_a_hold_names_its_reason(world: World) -> None:
    (job_id,) = await world.push(uses=[use(concurrency=5)])
    await world.fetch()
    failure = Failure("rate_limited", "429 from the bank", requeue=True)
    until = world.now_ms + 60_000
    await world.engine.fail([Fail(job_id, failure, hold_until=until)], world.now_ms)
    body = (await world.call("GET", f"/jobs/{job_id}/explain")).body
    (hold,) = [each for each in body["barriers"] if each["kind"] == "hold"]
    assert (hold["name"], hold["reason"]) == ("api", "429 from the bank")
    assert hold["opens_at"] == "2026-02-02T02:41:00.000Z"


@in_world()
async def test_a_paused_queue_and_nobody_to_fetch(world: World) -> None:
    await world.call("POST", "/queues/mail/pause")
    (job_id,) = await world.push("mail")
    body = (await world.call("GET", f"/jobs/{job_id}/explain")).body
    kinds = [each["kind"] for each in body["barriers"]]
    assert {"paused", "no_consumers"} <= set(kinds)
    assert body["consumers"] == 0


@in_world()
async def test_a_free_job_knows_its_place(world: World) -> None:
    ids = await world.push(count=3)
    await world.beat("w", queues=["default"])
    body = (await world.call("GET", f"/jobs/{ids[2]}/explain")).body
    assert (body["place"], body["ahead"]) == ("2", 2)
    assert body["barriers"] == []
    assert body["summary"][-1].startswith("Nothing is in its way but those before it")


@in_world()
async def test_jobs_that_are_in_no_line(world: World) -> None:
    (scheduled,) = await world.push(state="scheduled", due_at=world.now_ms + 60_000)
    (pending,) = await world.push(state="pending")
    (done,) = await world.complete("other")
    for job_id, words in (
        (scheduled, "scheduled for 2026-02-02T02:41:00.000Z (in 1 min)"),
        (pending, "until somebody activates it"),
        (done, "is completed since"),
    ):
        body = (await world.call("GET", f"/jobs/{job_id}/explain")).body
        assert words in body["summary"][0]
        assert "place" not in body
