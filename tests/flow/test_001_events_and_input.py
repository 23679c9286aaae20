"""Backpressure (seed 001), sentence by sentence: events, metrics, examples (10, 13), and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.flow.test_001_required import breathe
from tests.flow.world import World, chosen, in_world

JOB = {"type": "a", "args": [], "queue": "q"}
PRESSURES = ("backpressure.warning", "backpressure.cleared")


@in_world()
async def test_001_10_1_crossing_the_threshold_is_told_once_each_way(world: World) -> None:
    await world.configure("q", backpressure={"max_depth": 5, "warning_threshold": 0.6})
    for _ in range(2):
        await world.push(queue="q")
    assert await world.events(*PRESSURES) == []
    for _ in range(3):
        await world.push(queue="q")
    assert chosen(await world.events(*PRESSURES), "type", "queue", "depth", "bound") == [
        {"type": "backpressure.warning", "queue": "q", "depth": 3, "bound": 5}
    ]
    await world.run("q", count=2)
    assert len(await world.events(*PRESSURES)) == 1
    await world.run("q", count=1)
    assert chosen((await world.events(*PRESSURES))[1], "type", "queue", "depth", "bound") == {
        "type": "backpressure.cleared",
        "queue": "q",
        "depth": 2,
        "bound": 5,
    }
    await world.push(queue="q")
    assert [told["type"] for told in await world.events(*PRESSURES)] == [*PRESSURES, PRESSURES[0]]


@pytest.mark.parametrize(
    ("config", "measure"),
    [
        ({"backpressure": {"max_depth": 1}}, "jobs"),
        ({"max_size": 1}, "active_included"),
        ({"max_size_bytes": 400}, "bytes"),
    ],
)
@in_world()
async def test_001_10_1_events_say_in_what_depth_and_bound_are_counted(
    world: World, config: Any, measure: str
) -> None:
    await world.configure("q", **config)
    await world.push(queue="q", args=["x" * 150])
    bytes_now = (await world.stats("q"))["bytes"]
    assert (await world.call("POST", "/jobs", {**JOB, "args": ["x" * 150]})).status == 429
    await world.run("q")
    told = await world.events("backpressure.*", "queue.full")
    depth, bound = (bytes_now, 400) if measure == "bytes" else (1, 1)
    full = {"queue": "q", "depth": depth, "bound": bound, "measure": measure}
    expected = [{"type": "backpressure.warning", **full}]
    if measure != "bytes":
        expected.append({"type": "queue.full", **full})
    expected += [
        {"type": "backpressure.rejected", **full},
        {"type": "backpressure.cleared", **full, "depth": 0},
    ]
    assert chosen(told, "type", "queue", "depth", "bound", "measure") == expected


@in_world()
async def test_001_10_1_each_rejection_is_told_with_its_job_type(world: World) -> None:
    await world.configure("q", backpressure={"max_depth": 1})
    await world.push(queue="q")
    await world.enqueue(queue="q", type="a.one")
    batch = {"jobs": [{**JOB, "type": "b.two"}, {**JOB, "type": "c.three"}]}
    assert (await world.call("POST", "/jobs/batch", batch)).status == 429
    told = await world.events("backpressure.rejected")
    assert chosen(told, "queue", "depth", "bound", "job_type") == [
        {"queue": "q", "depth": 1, "bound": 1, "job_type": "a.one"},
        {"queue": "q", "depth": 1, "bound": 1, "job_type": "b.two"},
    ]


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("end", ["enters", "time is up", "leaves", "queue rejects"])
@in_world()
async def test_001_10_1_a_blocked_enqueue_is_a_rejection_only_when_it_is_refused(
    world: World, end: str, size: int
) -> None:
    await world.configure("q", backpressure={"max_depth": 2, "strategy": "block"})
    await world.finish("/jobs/batch", {"jobs": [JOB] * 2})
    body = {**JOB, "type": "b.one"} if size == 1 else {"jobs": [{**JOB, "type": "b.one"}] * 2}
    path = "/jobs" if size == 1 else "/jobs/batch"
    timeout = "0.05" if end == "time is up" else "30"
    waiting = world.ask("POST", path, body, ojs_block_timeout=timeout)
    await breathe()
    assert await world.events("backpressure.rejected") == [], "it waits"
    match end:
        case "enters":
            await world.run("q", count=2)
        case "leaves":
            waiting.leave()
        case "queue rejects":
            await world.configure("q", overflow_policy="reject")
        case _:
            pass
    status = (await waiting.reply()).status
    told = await world.events("backpressure.rejected")
    refused = end in {"time is up", "queue rejects"}
    if end != "leaves":
        assert status == (429 if refused else 201)
    assert chosen(told, "queue", "depth", "bound", "job_type") == [
        {"queue": "q", "depth": 2, "bound": 2, "job_type": "b.one"}
    ] * int(refused)
    found = await world.samples()
    assert found.get('ojs_backpressure_rejected_total{queue="q"}', 0) == int(refused)


@in_world()
async def test_001_10_1_every_dropped_job_is_told(world: World) -> None:
    await world.configure("q", backpressure={"max_depth": 3, "strategy": "drop_oldest"})
    old = [await world.push(queue="q", type=f"t.n{n}") for n in range(3)]
    await world.finish("/jobs/batch", {"jobs": [JOB] * 2})
    told = await world.events("backpressure.dropped")
    assert chosen(told, "queue", "job_id", "job_type") == [
        {"queue": "q", "job_id": old[0], "job_type": "t.n0"},
        {"queue": "q", "job_id": old[1], "job_type": "t.n1"},
    ]


@in_world()
async def test_001_10_2_the_metrics_have_their_names_and_labels(world: World) -> None:
    await world.configure("r", backpressure={"max_depth": 2})
    await world.configure("d", backpressure={"max_depth": 1, "strategy": "drop_oldest"})
    await world.configure("b", backpressure={"max_depth": 1, "strategy": "block"})
    for queue in ("r", "d", "b"):
        for _ in range(4):
            await world.enqueue(queue=queue)
    waiting = world.ask("POST", "/jobs", {**JOB, "queue": "b"}, ojs_block_timeout="60")
    await breathe()
    found = await world.samples()
    assert found['ojs_backpressure_rejected_total{queue="r"}'] == 2
    assert found['ojs_backpressure_dropped_total{queue="d"}'] == 3
    assert found['ojs_backpressure_pressure{queue="r"}'] == 1
    assert found['ojs_backpressure_blocked{queue="b"}'] == 1
    assert found['ojs_queue_overflow_count_total{queue="r",policy="reject"}'] == 2
    assert found['ojs_queue_overflow_count_total{queue="d",policy="drop_oldest"}'] == 3
    assert 'ojs_queue_overflow_count_total{queue="b",policy="reject"}' not in found
    assert found['ojs_queue_overflow_count_total{queue="b",policy="block"}'] == 3
    await world.run("b", count=1)
    assert (await waiting.reply()).status == 201


@in_world()
async def test_001_13_the_examples_are_taken_as_they_stand(world: World) -> None:
    email = {"max_depth": 100_000, "strategy": "reject", "warning_threshold": 0.8}
    assert (await world.configure("email", backpressure=email))["backpressure"] == email
    notes = {"max_depth": 10_000, "strategy": "drop_oldest"}
    shown = (await world.configure("notifications", backpressure=notes))["backpressure"]
    assert shown == {**notes, "warning_threshold": 0.8}


WRONG: list[tuple[Any, str]] = [
    ({"max_depth": -1}, "config.backpressure.max_depth"),
    ({"max_depth": 1.5}, "config.backpressure.max_depth"),
    ({"max_depth": "50000"}, "config.backpressure.max_depth"),
    ({"max_depth": True}, "config.backpressure.max_depth"),
    ({"max_size_bytes": -5}, "config.backpressure.max_size_bytes"),
    ({"strategy": "drop_newest"}, "config.backpressure.strategy"),
    ({"strategy": 1}, "config.backpressure.strategy"),
    ({"max_depth": 5, "strategy": ""}, "config.backpressure.strategy"),
    ({"warning_threshold": 1.1}, "config.backpressure.warning_threshold"),
    ({"warning_threshold": -0.1}, "config.backpressure.warning_threshold"),
    ({"warning_threshold": "0.8"}, "config.backpressure.warning_threshold"),
    ({"max_deepth": 5}, "config.backpressure.max_deepth"),
    (5, "config.backpressure"),
]


@pytest.mark.parametrize(("capacity", "field"), WRONG)
@pytest.mark.parametrize("path", ["/admin/queues/q/config", "/queues/q/config"])
@in_world()
async def test_001_6_2_wrong_bounds_are_refused(
    world: World, path: str, capacity: Any, field: str
) -> None:
    await world.configure("q", backpressure={"max_depth": 7, "strategy": "block"})
    await world.refused("PUT", path, {"backpressure": capacity}, field)
    # Nor is anything beside it taken.
    await world.refused("PUT", path, {"concurrency": 3, "backpressure": capacity}, field)


@pytest.mark.parametrize(
    "given", ["soon", "-1", "-0", "61", "60.001", "nan", "inf", "1e1", "", "+1", ".5", "5.", "0x1"]
)
@in_world()
async def test_001_5_2_a_wrong_timeout_is_refused(world: World, given: str) -> None:
    await world.configure("q", backpressure={"max_depth": 1, "strategy": "block"})
    await world.push(queue="q")
    for path, body in (("/jobs", JOB), ("/jobs/batch", {"jobs": [JOB]})):
        await world.refused("POST", path, body, "OJS-Block-Timeout", ojs_block_timeout=given)
