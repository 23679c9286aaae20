"""Backpressure (seed 001), sentence by sentence: bounds, answers, other extensions (6 to 9).

Section 8 is about client libraries and not about the server.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from headgate import runtime
from headgate.server.settings import Settings
from tests.flow.test_001_required import breathe
from tests.flow.world import MINUTE, SECOND, World, chosen, in_world

JOB = {"type": "a", "args": [], "queue": "q"}


@in_world()
async def test_001_6_1_the_first_bound_that_is_reached_acts(world: World) -> None:
    await world.push(queue="q", args=["x" * 1_000])
    one = (await world.stats("q"))["bytes"]
    await world.configure("q", backpressure={"max_depth": 3, "max_size_bytes": 2 * one + 600})
    await world.push(queue="q", args=["x" * 1_000])
    by_bytes = await world.call("POST", "/jobs", {**JOB, "args": ["x" * 1_000]})
    assert (by_bytes.status, by_bytes.error["measure"]) == (429, "bytes")
    await world.push(queue="q")
    by_depth = await world.call("POST", "/jobs", JOB)
    assert (by_depth.status, by_depth.error["measure"], by_depth.error["bound"]) == (
        429,
        "jobs",
        3,
    )


@in_world()
async def test_001_6_2_the_defaults(world: World) -> None:
    shown = await world.configure("q", backpressure={"max_depth": 10})
    assert shown["backpressure"] == {
        "max_depth": 10,
        "strategy": "reject",
        "warning_threshold": 0.8,
    }


@pytest.mark.parametrize("bounds", [{"max_depth": 0}, {"max_size_bytes": 0}])
@in_world()
async def test_001_6_2_zero_means_unbounded(world: World, bounds: dict[str, int]) -> None:
    await world.configure("q", backpressure={"max_depth": 1})
    await world.configure("q", backpressure={"max_depth": None, **bounds})
    for _ in range(5):
        await world.push(queue="q")


@in_world()
async def test_001_6_3_a_queue_without_a_configuration_is_unbounded(world: World) -> None:
    for _ in range(3):
        await world.finish("/jobs/batch", {"jobs": [JOB] * 1_000})
    stats = await world.stats("q")
    assert stats["depth"] == 3_000
    assert "bound" not in stats


def test_001_6_3_a_starting_server_warns_of_queues_without_bounds(
    tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def started() -> str:
        caplog.clear()
        app = runtime.application(Settings(store=f"sqlite:///{tmp_path}/jobs.db"))
        async with runtime.alive(app.context):
            engine, now = app.context.engine, app.context.now_ms()
            for name in ("bounded", "default"):
                await engine.configure(name, {"backpressure": {"max_depth": 5}}, now)
            await engine.create_queue("free", {}, now)
        return "\n".join(r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING)

    assert "default" in asyncio.run(started())
    second = asyncio.run(started())
    assert "free" in second
    assert "bounded" not in second.replace("unbounded", "")
    assert "default" not in second


@in_world()
async def test_001_7_1_the_rejection_says_all_about_itself(world: World) -> None:
    await world.configure("q", backpressure={"max_depth": 2})
    for _ in range(2):
        await world.push(queue="q")
    found = await world.call("POST", "/jobs", JOB)
    assert (found.status, found.headers["retry-after"].isdigit()) == (429, True)
    assert chosen(found.error, "code", "queue", "depth", "bound", "strategy") == {
        "code": "QUEUE_FULL",
        "queue": "q",
        "depth": 2,
        "bound": 2,
        "strategy": "reject",
    }
    assert "q" in found.error["message"]
    assert "2" in found.error["message"]


@in_world()
async def test_001_7_3_the_pressure_lies_between_0_and_1_whatever_came_in_besides(
    world: World,
) -> None:
    for _ in range(6):
        await world.push(queue="q")
    await world.configure("q", backpressure={"max_depth": 3, "strategy": "drop_oldest"})
    found = await world.call("POST", "/jobs", JOB)
    assert found.status == 201
    assert float(found.headers["x-ojs-queue-pressure"]) == 1.0
    assert (await world.stats("q"))["depth"] == 3


@in_world()
async def test_001_9_1_a_rate_limit_and_a_bound_work_side_by_side(world: World) -> None:
    await world.configure(
        "q", rate_limit={"limit": 2, "period": "PT1M"}, backpressure={"max_depth": 3}
    )
    done: list[str] = []
    refused = 0
    for _ in range(20):
        refused += (await world.call("POST", "/jobs", JOB)).status == 429
        done += await world.run("q")
        await world.later(6 * SECOND)
    assert len(done) == 4
    assert refused == 20 - 4 - 3


@in_world()
async def test_001_9_2_one_tenants_burst_is_refused_and_nobody_elses_job(world: World) -> None:
    await world.put(
        "/admin/tenants/acme-corp",
        {"tenant_id": "acme-corp", "limits": {"max_queue_depth": 5}},
    )
    tenants = ["acme-corp"] * 8 + ["other"] * 8
    replies = [
        await world.call("POST", "/jobs", {**JOB, "meta": {"tenant_id": tenant}})
        for tenant in tenants
    ]
    assert [reply.status for reply in replies] == [201] * 5 + [429] * 3 + [201] * 8
    error = replies[5].error
    assert (error["code"], error["limit"], error["maximum"]) == (
        "TENANT_LIMIT_EXCEEDED",
        "max_queue_depth",
        5,
    )
    assert int(replies[5].headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    ("limits", "job"),
    [
        ({"max_queue_depth": 3}, {}),
        ({"max_scheduled": 3}, {"scheduled_at": "+PT1H"}),
        ({"max_enqueue_rate": {"limit": 3, "period": "PT1M"}}, {}),
    ],
)
@in_world()
async def test_001_9_2_a_batch_that_is_more_than_its_tenant_may_ever_have_is_not_worth_a_retry(
    world: World, limits: dict[str, Any], job: dict[str, Any]
) -> None:
    await world.put("/admin/tenants/acme", {"limits": limits})
    own = {**JOB, **job, "meta": {"tenant_id": "acme"}}
    await world.push(**own)
    for size, retryable in ((3, True), (4, False)):
        found = await world.call("POST", "/jobs/batch", {"jobs": [own] * size})
        assert (found.status, found.error["code"]) == (429, "TENANT_LIMIT_EXCEEDED")
        assert (found.error["retryable"], found.error["maximum"]) == (retryable, 3)
        assert int(found.headers["retry-after"]) >= 1
    assert (await world.stats("q"))["depth"] == 1


@pytest.mark.parametrize("strategy", ["reject", "block", "drop_oldest"])
@in_world()
async def test_001_9_3_a_batch_is_never_accepted_in_part(world: World, strategy: str) -> None:
    await world.configure("q", backpressure={"max_depth": 5, "strategy": strategy})
    before = [await world.push(queue="q") for _ in range(3)]
    batch = {"jobs": [{**JOB, "args": [n]} for n in range(4)]}
    client = world.ask("POST", "/jobs/batch", batch, ojs_block_timeout="30")
    await breathe()
    depth = (await world.stats("q"))["depth"]
    match strategy:
        case "reject":
            assert ((await client.reply()).status, depth) == (429, 3)
        case "drop_oldest":
            assert ((await client.reply()).status, depth) == (201, 5)
            assert await world.states(*before) == ["discarded", "discarded", "available"]
        case _:
            assert depth == 3
            await world.run("q", count=1)
            await breathe()
            assert client.sent == [], "there is room for three of four"
            await world.run("q", count=1)
            assert (await client.reply()).status == 201
            assert (await world.stats("q"))["depth"] == 5


@pytest.mark.parametrize("strategy", ["reject", "block", "drop_oldest"])
@in_world()
async def test_001_9_3_a_batch_larger_than_the_queue_is_refused_at_once(
    world: World, strategy: str
) -> None:
    await world.configure("q", backpressure={"max_depth": 2, "strategy": strategy})
    first = await world.push(queue="q")
    found = await world.call("POST", "/jobs/batch", {"jobs": [JOB] * 3}, ojs_block_timeout="60")
    assert (found.status, found.error["retryable"]) == (429, False)
    assert await world.states(first) == ["available"]
    await world.later(MINUTE)


@pytest.mark.parametrize("first", ["duplicate", "newcomer"])
@pytest.mark.parametrize("bound", [1, 2])
@in_world()
async def test_001_9_3_a_duplicate_whose_twin_is_dropped_for_its_batch_does_not_enter(
    world: World, first: str, bound: int
) -> None:
    await world.configure("q", backpressure={"max_depth": bound, "strategy": "drop_oldest"})
    unique = {**JOB, "type": "u", "unique": {"keys": ["type"], "on_conflict": "ignore"}}
    twin = (await world.call("POST", "/jobs", unique)).body["job"]["id"]
    batch = [unique, *[JOB] * bound]
    if first == "newcomer":
        batch.reverse()
    found = await world.call("POST", "/jobs/batch", {"jobs": batch})
    assert found.status == 201
    place = batch.index(unique)
    assert found.body["deduplicated"] == [place]
    assert found.body["jobs"][place]["id"] == twin
    assert await world.states(twin) == ["discarded"]
    assert (await world.stats("q"))["depth"] == bound
