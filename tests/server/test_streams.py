"""Server-sent events over the whole application."""

from __future__ import annotations

import asyncio
import json
from hashlib import sha256
from typing import Any

from msgspec import Struct

from headgate.server.settings import Token
from tests.server.jobs_world import World, in_world


class Sent(Struct):
    """One server-sent event as a reader takes it apart."""

    kind: str
    data: Any
    id: str = ""


def sent(text: str) -> list[Sent]:
    """The events of a stream so far; comments and the reconnection time are left out."""
    assert text.startswith("retry: 3000\n\n")
    found = []
    for block in text.split("\n\n")[1:-1]:
        if block.startswith(":"):
            continue
        lines = dict(line.split(": ", 1) for line in block.split("\n"))
        assert set(lines) <= {"id", "event", "data"}
        found.append(Sent(lines["event"], json.loads(lines["data"]), lines.get("id", "")))
    return found


@in_world()
async def test_the_events_of_a_job_until_it_has_ended(world: World) -> None:
    job_id = await world.push(queue="mail")
    await world.push(queue="mail")
    reader = world.ask("GET", f"/jobs/{job_id}/events")
    await reader.until("retry")
    await world.fetch("mail")
    await reader.until("job.started")
    await world.call("POST", "/workers/ack", {"job_id": job_id, "result": 7})
    reply = await reader.reply()
    assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream")
    assert reply.headers["cache-control"] == "no-store"
    events = sent(reply.raw.decode())
    assert [event.kind for event in events] == [
        "job.started",
        "job.state_changed",
        "job.completed",
        "job.state_changed",
    ]
    started, moved, completed, ended = events
    assert int(started.id) < int(completed.id)
    assert started.data["specversion"] == "1.0"
    assert started.data["data"]["job_id"] == job_id
    assert completed.data["data"]["result"] == 7
    assert (moved.id, ended.id) == ("", "")
    assert (moved.data["from"], moved.data["to"]) == ("available", "active")
    assert set(ended.data) == {"job_id", "queue", "type", "from", "to", "timestamp"}
    assert (ended.data["from"], ended.data["to"]) == ("active", "completed")


@in_world()
async def test_a_job_that_has_ended_is_told_and_the_stream_closes(world: World) -> None:
    job_id = await world.push()
    await world.call("DELETE", f"/jobs/{job_id}")
    reply = await world.call("GET", f"/jobs/{job_id}/events")
    (event,) = sent(reply.raw.decode())
    assert (event.kind, event.data["to"]) == ("job.state_changed", "cancelled")


@in_world()
async def test_what_nobody_knows_has_no_stream(world: World) -> None:
    for path in ("/jobs/01900000-0000-7000-8000-000000000000/events", "/queues/nowhere/events"):
        reply = await world.call("GET", path)
        assert reply.status == 404
        assert reply.headers["content-type"] == "application/openjobspec+json"
        assert reply.error["code"] == "not_found"


@in_world()
async def test_the_events_of_a_queue_and_of_no_other(world: World) -> None:
    await world.push(queue="mail")
    reader = world.ask("GET", "/queues/mail/events?event_types=job.enqueued,queue.*")
    await reader.until("retry")
    await world.push(queue="pay")
    mine = await world.push(queue="mail")
    await world.fetch("mail")
    await world.call("POST", "/queues/mail/pause")
    events = sent(await reader.until("queue.paused"))
    assert [event.kind for event in events] == ["job.enqueued", "queue.paused"]
    assert events[0].data["subject"] == mine
    reader.leave()


@in_world()
async def test_all_events_with_the_filters_of_the_list(world: World) -> None:
    reader = world.ask("GET", "/events/stream?queues=mail,pay&types=job.*&job_types=a.b")
    await reader.until("retry")
    await world.push(queue="mail", type="a.b")
    await world.push(queue="mail", type="a.c")
    await world.push(queue="other", type="a.b")
    await world.push(queue="pay", type="a.b")
    events = sent(await reader.until('"queue":"pay"'))
    assert [event.data["data"]["queue"] for event in events] == ["mail", "pay"]
    reader.leave()


@in_world()
async def test_a_reader_that_comes_back_misses_nothing(world: World) -> None:
    reader = world.ask("GET", "/events/stream")
    await reader.until("retry")
    await world.push()
    (first,) = sent(await reader.until("job.enqueued"))
    reader.leave()
    await world.push()
    await world.push()
    again = world.ask("GET", "/events/stream", **{"last-event-id": first.id})
    await again.until("retry")
    await world.fetch()
    events = sent(await again.until("job.started"))
    assert [event.kind for event in events] == ["job.enqueued", "job.enqueued", "job.started"]
    numbers = [int(event.id) for event in events]
    assert numbers == sorted(set(numbers))
    assert min(numbers) > int(first.id)
    again.leave()
    from_query = world.ask("GET", f"/events/stream?last_event_id={first.id}")
    assert sent(await from_query.until("job.started")) == events
    from_query.leave()


@in_world()
async def test_the_cursor_of_the_list_leads_into_the_stream(world: World) -> None:
    await world.push()
    listed = (await world.call("GET", "/events")).body
    late = await world.push()
    reader = world.ask("GET", f"/events/stream?last_event_id={listed['cursor']}")
    (event,) = sent(await reader.until("job.enqueued"))
    assert event.data["subject"] == late
    reader.leave()


@in_world()
async def test_a_gap_is_told(world: World) -> None:
    await world.push()
    reader = world.ask("GET", "/events/stream", **{"last-event-id": "123456789"})
    gap, left = sent(await reader.until("job.enqueued"))
    assert (gap.kind, gap.id, gap.data["last_event_id"]) == ("system.gap", "", "123456789")
    assert left.kind == "job.enqueued"
    reader.leave()


@in_world()
async def test_ids_that_no_event_can_have(world: World) -> None:
    for text in ("evt_1", "-1", "1.5", "9" * 20, "\u0661"):
        sent_as = text.encode().decode("latin-1")
        reply = await world.call("GET", "/events/stream", **{"last-event-id": sent_as})
        assert (reply.status, reply.error["details"]["field"]) == (400, "Last-Event-ID")


@in_world()
async def test_streams_say_goodbye_when_the_server_stops(world: World) -> None:
    job_id = await world.push(queue="mail")
    readers = [
        world.ask("GET", path)
        for path in (f"/jobs/{job_id}/events", "/queues/mail/events", "/events/stream")
    ]
    for reader in readers:
        await reader.until("retry")
    world.app.drain()
    for reader in readers:
        reply = await asyncio.wait_for(reader.reply(), 5)
        assert [event.kind for event in sent(reply.raw.decode())] == ["server.shutdown"]
    assert world.app.streams == 0


@in_world()
async def test_a_reader_that_leaves_frees_its_stream(world: World) -> None:
    reader = world.ask("GET", "/events/stream")
    await reader.until("retry")
    assert world.app.streams == 1
    reader.leave()
    await reader.reply()
    assert world.app.streams == 0


@in_world()
async def test_extensions_that_the_manifest_claims_may_be_required(world: World) -> None:
    claimed = (await world.call("GET", "/ojs/manifest")).body["extensions"]["official"]
    for each in claimed:
        reply = await world.call("GET", "/queues", ojs_requires_extension=each["uri"])
        assert reply.status == 200
    every = ", ".join(each["uri"] for each in claimed)
    assert (await world.call("GET", "/queues", ojs_requires_extension=every)).status == 200
    refused = await world.call("GET", "/queues", ojs_requires_extension=f"{every},urn:ojs:ext:x")
    assert (refused.status, refused.error["code"]) == (422, "EXTENSION_NOT_SUPPORTED")


@in_world()
async def test_a_job_of_another_tenant_is_neither_followed_nor_explained(world: World) -> None:
    job_id = await world.push(meta={"tenant_id": "acme"})
    for path in (f"/jobs/{job_id}/events", f"/jobs/{job_id}/explain"):
        refused = await world.call("GET", path, x_ojs_tenant="bolt")
        assert (refused.status, refused.error["code"]) == (404, "not_found")
    own = await world.call("GET", f"/jobs/{job_id}/explain", x_ojs_tenant="acme")
    assert (own.status, own.body["tenant_id"]) == (200, "acme")


@in_world()
async def test_a_stream_is_answered_without_a_body_to_head(world: World) -> None:
    reply = await world.call("HEAD", "/events/stream")
    assert (reply.status, reply.raw) == (200, b"")
    assert world.app.streams == 0


def test_only_operators_follow_what_is_not_one_job() -> None:
    token = Token("shop", ("producer",), sha256(b"secret").hexdigest())

    @in_world(tokens=(token,))
    async def ask(world: World) -> None:
        for path, status in (
            ("/events/stream", 403),
            ("/queues/default/events", 403),
            ("/rate-limits", 200),
            ("/rate-limits/k/jobs", 403),
            ("/admin/pools", 403),
            ("/admin/tenants", 403),
            ("/jobs/none/explain", 404),
        ):
            reply = await world.call("GET", path, authorization="Bearer secret")
            assert reply.status == status, path
        for method, path in (
            ("PUT", "/rate-limits/k"),
            ("DELETE", "/rate-limits/k"),
            ("PUT", "/admin/queues/q/rate-limit"),
            ("POST", "/queues/q/drain"),
        ):
            reply = await world.call(
                method, path, {"concurrency": 1}, authorization="Bearer secret"
            )
            assert reply.status == 403, path

    ask()
