from __future__ import annotations

import pytest

from tests.server.admin_world import World, in_world


@in_world()
async def test_the_whole_system_in_numbers(world: World) -> None:
    await world.complete("mail", count=2)
    await world.bury("pay")
    await world.push("mail", count=3)
    await world.fetch("mail", worker="w")
    await world.beat("w")
    world.now_ms += 5_999
    reply = await world.call("GET", "/admin/stats")
    assert reply.status == 200
    assert reply.body == {
        "queues": 3,
        "workers": 1,
        "jobs": {
            "scheduled": 0,
            "available": 2,
            "pending": 0,
            "active": 1,
            "retryable": 0,
            "completed": 2,
            "cancelled": 0,
            "discarded": 1,
        },
        "throughput": {"processed_per_minute": 2, "failed_per_minute": 1},
        "uptime_seconds": 5,
    }


@in_world()
async def test_history_by_the_minute(world: World) -> None:
    await world.complete("mail", count=2)
    world.now_ms += 60_000
    await world.bury("pay")
    reply = await world.call("GET", "/admin/stats/history")
    assert reply.status == 200
    assert reply.body == {
        "period": "1m",
        "data": [
            {"timestamp": "2026-02-02T02:40:00.000Z", "enqueued": 2, "completed": 2, "failed": 0},
            {"timestamp": "2026-02-02T02:41:00.000Z", "enqueued": 1, "completed": 0, "failed": 1},
        ],
    }


@in_world()
async def test_history_of_one_queue_in_a_span(world: World) -> None:
    await world.complete("mail")
    world.now_ms += 120_000
    await world.complete("mail")
    await world.complete("pay")
    body = (await world.call("GET", "/admin/stats/history?queue=mail&period=1h")).body
    assert body == {
        "period": "1h",
        "data": [
            {"timestamp": "2026-02-02T02:00:00.000Z", "enqueued": 2, "completed": 2, "failed": 0}
        ],
        "queue": "mail",
    }
    span = "since=2026-02-02T02:40:30Z&until=2026-02-02T02:41:00Z"
    body = (await world.call("GET", f"/admin/stats/history?{span}")).body
    assert [point["enqueued"] for point in body["data"]] == [1]


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ("period=1w", 400, "period"),
        ("since=now", 400, "since"),
        ("until=now", 400, "until"),
        ("since=2027-01-01T00:00:00Z", 400, "since"),
        ("since=2026-01-01T00:00:00Z", 400, "since"),
        ("queue=nowhere", 404, None),
    ],
)
def test_history_that_cannot_be_asked_for(query: str, status: int, field: str | None) -> None:
    @in_world()
    async def ask(world: World) -> None:
        reply = await world.call("GET", f"/admin/stats/history?{query}")
        assert (reply.status, reply.error["details"].get("field")) == (status, field)

    ask()
