"""Fetches that name pools and strategies or find nothing, nacks that hold keys, jobs with limits."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.core.pools import Pool
from tests.server.admin_world import Reply
from tests.server.jobs_world import World, in_world

AFTER_90_S = "2026-02-12T10:31:30.000Z"


async def nack(world: World, job_id: str, requeue: bool = False, **error: Any) -> Reply:
    body = {
        "job_id": job_id,
        "error": {"code": "c", "message": "429", **error},
        "requeue": requeue,
    }
    return await world.call("POST", "/workers/nack", body)


def limited(key: str = "stripe", **policy: Any) -> dict[str, Any]:
    return {"rate_limit": {"key": key, **policy}}


@in_world()
async def test_a_closed_key_keeps_its_other_jobs_waiting(world: World) -> None:
    first = await world.push(**limited(concurrency=1))
    second = await world.push(**limited())
    free = await world.push()
    shown = await world.job(first)
    assert shown["rate_limit"] == {"key": "stripe", "concurrency": 1}
    assert [job["id"] for job in await world.fetch(count=5)] == [first, free]
    assert (await world.job(second))["state"] == "available"
    await world.call("POST", "/workers/ack", {"job_id": first})
    assert [job["id"] for job in await world.fetch(count=5)] == [second]


@in_world()
async def test_a_refused_limit_registers_and_enqueues_nothing(world: World) -> None:
    body = {"type": "a", "args": [], "rate_limit": [{"key": "a", "concurrency": 0}, {"key": "/"}]}
    found = await world.call("POST", "/jobs", body)
    assert (found.status, found.error["details"]["field"]) == (400, "rate_limit[1].key")
    job_id = await world.push(**limited("a"))
    assert [job["id"] for job in await world.fetch()] == [job_id]


@in_world()
async def test_a_tenants_own_key_is_no_other_tenants(world: World) -> None:
    body = {"type": "a", "args": [], **limited(concurrency=1, scope="tenant")}
    for tenant in ("acme", "other", "acme"):
        await world.call("POST", "/jobs", body, x_ojs_tenant=tenant)
    tenants = [job["meta"]["tenant_id"] for job in await world.fetch(count=5)]
    assert tenants == ["acme", "other"]


# Feedback


@pytest.mark.parametrize("requeue", [False, True])
@pytest.mark.parametrize("by", ["nack", "path", "exchange"])
def test_a_nack_holds_the_key_of_its_job(by: str, requeue: bool) -> None:
    @in_world()
    async def test(world: World) -> None:
        job_id = await world.push(retry={"initial_interval": "PT1S", "jitter": False}, **limited())
        other = await world.push(**limited())
        await world.fetch(worker_id="w")
        error = {"code": "c", "message": "slow down", "rate_limit_until": "+PT90S"}
        item = {"job_id": job_id, "error": error, "requeue": requeue}
        if by == "exchange":
            body = {"worker_id": "w", "nacks": [item], "fetch": {"queues": ["default"]}}
            found = await world.call("POST", "/workers/exchange", body)
            assert found.body["jobs"] == []
            assert found.body["next_at"] <= AFTER_90_S
        else:
            path = "/workers/nack" if by == "nack" else f"/jobs/{job_id}/nack"
            found = await world.call("POST", path, item)
        assert found.status == 200, found.raw
        world.now_ms += 89_999
        assert await world.fetch(count=5) == []
        world.now_ms += 1
        assert {job["id"] for job in await world.fetch(count=5)} == {job_id, other}

    test()


@in_world()
async def test_the_past_holds_nothing(world: World) -> None:
    job_id, other = await world.push(**limited()), await world.push(**limited())
    await world.fetch()
    found = await nack(world, job_id, requeue=True, rate_limit_until="2026-02-12T10:30:00Z")
    assert found.body["state"] == "available"
    assert [job["id"] for job in await world.fetch(count=5)] == [job_id, other]


@in_world()
async def test_a_nack_may_say_which_key_it_holds(world: World) -> None:
    both = {"rate_limit": [{"key": "stripe"}, {"key": "db"}]}
    job_id = await world.push(**both)
    stripe, db = await world.push(**limited()), await world.push(**limited("db"))
    await world.fetch()
    found = await nack(world, job_id, True, rate_limit_until="+PT90S", rate_limit_key="db")
    assert found.status == 200
    assert [job["id"] for job in await world.fetch(count=5)] == [stripe]
    await world.call("POST", "/workers/ack", {"job_id": stripe})
    world.now_ms += 90_000
    assert {job["id"] for job in await world.fetch(count=5)} == {job_id, db}


@pytest.mark.parametrize(
    ("error", "field"),
    [
        ({"rate_limit_until": "soon"}, "error.rate_limit_until"),
        ({"rate_limit_until": 5}, "error.rate_limit_until"),
        ({"rate_limit_until": "2026-02-12T10:30:00"}, "error.rate_limit_until"),
        ({"rate_limit_until": "+PT9S", "rate_limit_key": "other"}, "error.rate_limit_key"),
        ({"rate_limit_key": "other"}, "error.rate_limit_key"),
    ],
)
def test_a_wrong_hold_is_refused_and_the_job_stays_active(error: Any, field: str) -> None:
    @in_world()
    async def test(world: World) -> None:
        job_id = await world.push(**limited())
        await world.fetch(worker_id="w")
        found = await nack(world, job_id, **error)
        assert (found.status, found.error["details"]["field"]) == (400, field)
        item = {"job_id": job_id, "error": {"code": "c", "message": "m", **error}}
        body = {"worker_id": "w", "nacks": [item]}
        traded = await world.call("POST", "/workers/exchange", body)
        if field.endswith("key"):
            (answered,) = traded.body["nacks"]
            refused = answered["error"]
        else:
            assert traded.status == 400
            refused = traded.error
        assert refused["details"]["field"] == f"nacks[0].{field}"
        assert (await world.job(job_id))["state"] == "active"

    test()


# Dead letters in a queue of their own


@pytest.mark.parametrize("by", ["nack", "exchange"])
def test_a_nack_says_that_its_job_is_a_dead_letter_now(by: str) -> None:
    @in_world()
    async def test(world: World) -> None:
        config = {"dead_letter_queue": "buried"}
        await world.call("PUT", "/admin/queues/mail/config", config)
        job_id = await world.push(queue="mail", retry={"max_attempts": 1})
        await world.fetch("mail", worker_id="w")
        world.now_ms += 1_000
        item = {"job_id": job_id, "error": {"code": "c", "message": "m"}}
        if by == "nack":
            answered = (await world.call("POST", "/workers/nack", item)).body
            assert answered["discarded_at"] == "2026-02-12T10:30:01.000Z"
        else:
            body = {"worker_id": "w", "nacks": [item]}
            (answered,) = (await world.call("POST", "/workers/exchange", body)).body["nacks"]
            assert answered["finished_at"] == "2026-02-12T10:30:01.000Z"
        assert (answered["state"], answered["dead_letter_queue"]) == ("discarded", "buried")
        assert (answered["attempt"], answered["max_attempts"]) == (1, 1)
        job = await world.job(job_id)
        assert (job["state"], job["queue"], job["attempt"]) == ("available", "buried", 0)
        assert job["dead_letter"].keys() == {"original_queue", "attempts", "reason", "at"}
        assert job["dead_letter"]["original_queue"] == "mail"
        assert (job["dead_letter"]["attempts"], job["error"]["code"]) == (1, "c")
        # Who takes it and gives it back is told so.
        await world.fetch("buried")
        given_back = await nack(world, job_id, requeue=True)
        assert given_back.body["state"] == "available"
        assert "dead_letter_queue" not in given_back.body

    test()


@pytest.mark.parametrize("path", ["/dead-letter", "/admin/dead-letter"])
def test_a_dead_letter_that_waits_in_its_queue_can_be_forgotten(path: str) -> None:
    @in_world()
    async def test(world: World) -> None:
        await world.call("PUT", "/admin/queues/mail/config", {"dead_letter_queue": "buried"})
        ids = [await world.push(queue="mail", retry={"max_attempts": 1}) for _ in range(2)]
        await world.fetch("mail", count=2)
        for job_id in ids:
            await nack(world, job_id)
        (taken,) = await world.fetch("buried")
        refused = await world.call("DELETE", f"{path}/{taken['id']}")
        assert (refused.status, refused.error["code"]) == (409, "conflict")
        (waits,) = set(ids) - {taken["id"]}
        assert (await world.call("DELETE", f"{path}/{waits}")).status in (200, 204)
        assert (await world.call("GET", f"/jobs/{waits}")).status == 404
        assert await world.fetch("buried") == []

    test()


# Pools and strategies


async def fill(world: World, *queues: str) -> None:
    for queue in queues:
        await world.push(queue=queue)


async def order(world: World, **asked: Any) -> list[str]:
    found = await world.call("POST", "/workers/fetch", {"count": 10, **asked})
    assert found.status == 200, found.raw
    return [job["queue"] for job in found.body["jobs"]]


@in_world()
async def test_a_fetch_may_name_how_queues_take_turns(world: World) -> None:
    queues = ["a", "b"]
    await fill(world, "a", "a", "a", "b", "b", "b")
    assert await order(world, queues=queues, count=2) == ["a", "a"]
    found = await order(world, queues=queues, strategy="round-robin", count=2)
    assert sorted(found) == ["a", "b"]
    await fill(world, *["a", "b"] * 6)
    weights = {"b": 3}
    found = await order(world, queues=queues, strategy="weighted", weights=weights, count=4)
    assert sorted(found) == ["a", "b", "b", "b"]


@in_world()
async def test_where_the_server_knows_the_pool_its_settings_hold(world: World) -> None:
    await world.engine.set_pool(Pool("mailers", ("b",), (1,), "strict"), world.now_ms)
    await fill(world, "a", "b")
    assert await order(world, queues=["a"], pool="mailers") == ["b"]
    assert await order(world, queues=["a"], pool="unknown") == ["a"]


@in_world()
async def test_a_worker_is_in_one_pool(world: World) -> None:
    body = {"worker_id": "w", "queues": ["a"], "pool": "mailers"}
    assert (await world.call("POST", "/workers/register", body)).status == 200
    job_id = await world.push(queue="a")
    found = await world.call("POST", "/workers/fetch", {**body, "pool": "other"})
    assert (found.status, found.error["details"]["field"]) == (400, "pool")
    exchange = {"worker_id": "w", "fetch": {"queues": ["a"], "pool": "other"}}
    found = await world.call("POST", "/workers/exchange", exchange)
    assert (found.status, found.error["details"]["field"]) == (400, "fetch.pool")
    assert (await world.job(job_id))["attempt"] == 0
    found = await world.call("POST", "/workers/fetch", body)
    assert [job["id"] for job in found.body["jobs"]] == [job_id]


@in_world()
async def test_an_exchange_registers_its_worker_in_the_pool_that_it_names(world: World) -> None:
    exchange = {"worker_id": "w", "fetch": {"queues": ["a"], "pool": "mailers"}}
    for _ in range(2):
        assert (await world.call("POST", "/workers/exchange", exchange)).status == 200
    view = await world.engine.worker("w", world.now_ms)
    assert view is not None
    assert view.pool == "mailers"


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"pool": ""}, "pool"),
        ({"pool": "a b"}, "pool"),
        ({"pool": 5}, "pool"),
        ({"strategy": "random"}, "strategy"),
        ({"strategy": ""}, "strategy"),
        ({"strategy": "weighted", "weights": {"a": 0}}, "weights.a"),
        ({"strategy": "weighted", "weights": {"a": -1}}, "weights.a"),
        ({"strategy": "weighted", "weights": {"a": 10_001}}, "weights.a"),
        ({"strategy": "weighted", "weights": {"a": 1.5}}, "weights"),
        ({"strategy": "weighted", "weights": {"other": 1}}, "weights.other"),
        ({"strategy": "weighted", "weights": [1]}, "weights"),
        ({"strategy": "strict", "weights": {"a": 1}}, "weights"),
        ({"weights": {"a": 1}}, "weights"),
        ({"explain": "yes"}, "explain"),
    ],
)
def test_a_wrong_wish_is_refused(asked: Any, field: str) -> None:
    @in_world()
    async def test(world: World) -> None:
        await world.push(queue="a")
        body = {"queues": ["a"], **asked}
        for path, sent, prefix in (
            ("/workers/fetch", body, ""),
            ("/workers/exchange", {"worker_id": "w", "fetch": body}, "fetch."),
        ):
            found = await world.call("POST", path, sent)
            assert found.status == 400, found.raw
            assert found.error["details"]["field"].startswith(f"{prefix}{field}")
        assert len(await world.fetch("a")) == 1

    test()


# Why there was nothing


async def empty(world: World, *queues: str, **asked: Any) -> Any:
    body = {"queues": list(queues), **asked}
    found = await world.call("POST", "/workers/fetch", body)
    assert (found.status, found.body["jobs"]) == (200, [])
    exchange = await world.call("POST", "/workers/exchange", {"worker_id": "w", "fetch": body})
    told = {name: value for name, value in found.body.items() if name != "jobs"}
    assert {name: exchange.body[name] for name in told} == told
    return told


@in_world()
async def test_an_idle_fetch_is_told_nothing_unless_it_asks(world: World) -> None:
    await world.call("POST", "/queues", {"name": "idle"})
    assert await empty(world, "idle", "nowhere") == {}
    assert await empty(world, "idle", "nowhere", explain=True) == {
        "reasons": {"idle": "empty", "nowhere": "unknown"}
    }


@in_world()
async def test_an_empty_fetch_says_why_and_when(world: World) -> None:
    job_id = await world.push(queue="mail", **limited())
    await world.push(queue="mail", **limited())
    await world.push(queue="stopped")
    await world.call("POST", "/queues/stopped/pause")
    await world.fetch("mail")
    await nack(world, job_id, requeue=True, rate_limit_until="+PT90S")
    assert await empty(world, "mail", "stopped", "nowhere") == {
        "next_at": AFTER_90_S,
        "reasons": {"mail": "blocked", "stopped": "paused"},
    }
    assert await empty(world, "mail", explain=False) == {}


@in_world()
async def test_a_fetch_of_many_queues_is_told_only_when_it_asks(world: World) -> None:
    await world.call("POST", "/queues/q0/pause")
    names = [f"q{n}" for n in range(21)]
    assert await empty(world, *names) == {}
    assert (await empty(world, *names, explain=True))["reasons"]["q0"] == "paused"
    assert await empty(world, *names[:20]) == {"reasons": {"q0": "paused"}}
