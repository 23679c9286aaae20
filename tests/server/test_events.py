from __future__ import annotations

import pytest

from headgate.engines.contract import Ack
from tests.server.admin_world import START, World, in_world


@in_world()
async def test_a_completed_job_leaves_its_events(world: World) -> None:
    (job_id,) = await world.push("mail", type="mail.send", priority=5)
    await world.fetch("mail", worker="w")
    world.now_ms += 1_500
    await world.engine.ack([Ack(job_id, result=b'{"ok":true}')], world.now_ms)
    body = (await world.call("GET", "/events")).body
    assert [event["type"] for event in body["events"]] == [
        "job.enqueued",
        "job.started",
        "job.completed",
    ]
    about = {"job_id": job_id, "job_type": "mail.send", "queue": "mail"}
    enqueued, started, completed = body["events"]
    assert enqueued == {
        "specversion": "1.0",
        "id": enqueued["id"],
        "type": "job.enqueued",
        "source": "ojs://headgate/server/main",
        "time": START,
        "subject": job_id,
        "data": {**about, "state": "available", "timestamp": START, "priority": 5},
    }
    assert started["data"] == {
        **about,
        "state": "active",
        "timestamp": START,
        "worker_id": "w",
        "attempt": 1,
        "wait_ms": 0,
        "pool": "default",
    }
    assert completed["data"] == {
        **about,
        "state": "completed",
        "timestamp": "2026-02-02T02:40:01.500Z",
        "duration_ms": 1_500,
        "attempt": 1,
        "result": {"ok": True},
    }
    assert body["has_more"] is False
    ids = [event["id"] for event in body["events"]]
    assert len(set(ids)) == 3
    again = (await world.call("GET", "/events")).body
    assert [event["id"] for event in again["events"]] == ids


@in_world()
async def test_events_are_read_in_pages(world: World) -> None:
    ids = await world.push(count=5)
    seen: list[str] = []
    after = "0"
    for more in (True, True, False):
        body = (await world.call("GET", f"/events?after={after}&limit=2")).body
        assert body["has_more"] is more
        seen += [event["subject"] for event in body["events"]]
        after = body["cursor"]
    assert seen == ids
    (late,) = await world.push()
    body = (await world.call("GET", f"/events?after={after}")).body
    assert [event["subject"] for event in body["events"]] == [late]


@in_world()
async def test_events_are_filtered(world: World) -> None:
    (mail,) = await world.push("mail", type="mail.send")
    (pay,) = await world.push("pay", type="pay.out")
    await world.fetch("pay")
    await world.call("POST", "/queues/mail/pause")
    for query, subjects in (
        ("types=job.enqueued", [mail, pay]),
        ("types=job.started", [pay]),
        ("types=job.*", [mail, pay, pay]),
        ("types=queue.paused,job.started", [pay, "mail"]),
        ("types=*", [mail, pay, pay, "mail"]),
        ("queues=mail", [mail, "mail"]),
        ("queues=mail,pay&types=job.enqueued", [mail, pay]),
        ("job_types=pay.out", [pay, pay]),
        ("types=job.enqueued&queues=pay&job_types=mail.send", []),
        ("types=", [mail, pay, pay, "mail"]),
    ):
        body = (await world.call("GET", f"/events?{query}")).body
        assert [event["subject"] for event in body["events"]] == subjects, query


@in_world()
async def test_events_of_queues_and_workers_say_what_they_are_about(world: World) -> None:
    await world.call("POST", "/queues", {"name": "mail"})
    await world.call("POST", "/queues/mail/pause")
    await world.beat("w", queues=["mail"], concurrency=3)
    created, paused, started = (await world.call("GET", "/events")).body["events"]
    assert created["subject"] == "mail"
    assert created["data"] == {"queue": "mail", "timestamp": START}
    assert paused["data"] == {"queue": "mail", "timestamp": START, "paused_by": "anonymous"}
    assert started["type"] == "worker.started"
    assert started["data"] == {
        "worker_id": "w",
        "timestamp": START,
        "queues": ["mail"],
        "concurrency": 3,
    }


@in_world()
async def test_instants_are_instants_on_the_wire(world: World) -> None:
    (job_id,) = await world.push()
    await world.fetch(worker="w")
    await world.beat("w", job_id)
    body = (await world.call("GET", "/events?types=job.heartbeat")).body
    assert body["events"][0]["data"]["visible_until"] == "2026-02-02T02:40:30.000Z"


@in_world()
async def test_progress_is_a_percentage_in_events(world: World) -> None:
    (job_id,) = await world.push()
    await world.fetch()
    await world.engine.progress(job_id, 0.29, None, "on it", world.now_ms)
    (event,) = (await world.call("GET", "/events?types=job.progress")).body["events"]
    assert event["data"]["progress_percent"] == 29
    assert event["data"]["progress_message"] == "on it"
    assert "progress" not in event["data"]


@in_world(instance="blue-1")
async def test_the_source_names_this_server(world: World) -> None:
    await world.push()
    (event,) = (await world.call("GET", "/events")).body["events"]
    assert event["source"] == "ojs://headgate/server/blue-1"


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("after=x", "after"),
        ("after=-1", "after"),
        ("after=9999999999999999999999", "after"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
    ],
)
def test_pages_that_cannot_be_asked_for(query: str, field: str) -> None:
    @in_world()
    async def ask(world: World) -> None:
        reply = await world.call("GET", f"/events?{query}")
        assert (reply.status, reply.error["details"]["field"]) == (400, field)

    ask()
