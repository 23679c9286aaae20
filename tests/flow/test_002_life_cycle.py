"""Queue configuration (seed 002, 5): what enters a queue by other ways than an enqueue, and life cycles that cross."""

from __future__ import annotations

from typing import Any

import pytest

from tests.flow.test_002_dead_letters import bury
from tests.flow.world import SECOND, World, in_world


async def names(world: World) -> set[str]:
    return {queue["name"] for queue in (await world.get("/queues"))["queues"]}


async def delete(world: World, queue: str, strategy: str = "discard", **more: str) -> Any:
    return await world.finish(f"/queues/{queue}", {"strategy": strategy, **more}, method="DELETE")


RETRIES: list[tuple[str, Any]] = [
    ("/admin/jobs/{}/retry", None),
    ("/dead-letter/{}/retry", None),
    ("/admin/dead-letter/{}/retry", None),
    ("/jobs/bulk/retry", {"job_ids": ["{}"]}),
    ("/jobs/bulk/retry", {"filter": {"type": "test.echo"}}),
    ("/admin/jobs/bulk/retry", {"filter": {}, "confirm": True}),
    ("/dead-letter/retry", {"filter": {}, "confirm": True}),
    ("/admin/dead-letter/retry", {"filter": {}, "confirm": True}),
]


def about(path: str, body: Any, job: str) -> tuple[str, Any]:
    if body is not None and "job_ids" in body:
        body = {"job_ids": [job]}
    return path.format(job), body


@pytest.mark.parametrize(("path", "body"), RETRIES)
@pytest.mark.parametrize("buried", [True, False])
@in_world(strict_queues=True)
async def test_002_5_2_in_strict_mode_no_retry_creates_a_queue(
    world: World, path: str, body: Any, buried: bool
) -> None:
    for queue in ("mail", "graves"):
        await world.finish("/queues", {"name": queue})
    if buried:
        await world.configure("mail", dead_letter_queue="graves")
    job = await bury(world)
    await delete(world, "mail", "reject")
    before = await world.job(job)
    found = await world.call("POST", *about(path, body, job))
    if "{}" in path:
        assert (found.status, found.error["code"]) == (404, "QUEUE_NOT_FOUND")
    elif body and "job_ids" in body:
        assert found.body["items"][0]["reason"] in {"queue_not_found", "state_available"}
    assert await names(world) == {"default", "graves"}
    assert await world.job(job) == before
    await world.finish("/queues", {"name": "mail"})
    # Jobs that wait in a queue for dead letters are there for requests about dead letters.
    if not buried or "dead-letter" in path:
        assert (await world.call("POST", *about(path, body, job))).status == 200
        assert await world.take("mail") == [job]


@pytest.mark.parametrize("path", ["/dead-letter/{}/retry", "/admin/dead-letter/{}/retry"])
@in_world()
async def test_002_5_1_a_draining_queue_takes_no_dead_letter_of_another(
    world: World, path: str
) -> None:
    await world.push(queue="leaving")
    await world.finish("/queues/leaving/drain")
    job = await bury(world)
    body = {"override": {"queue": "leaving"}}
    found = await world.call("POST", path.format(job), body)
    assert (found.status, found.error["code"]) == (422, "queue_paused")
    assert (await world.stats("leaving"))["depth"] == 1
    assert await world.states(job) == ["discarded"]
    # Its own jobs may be tried again there.
    await world.finish("/queues/leaving/resume")
    own = await bury(world, "other")
    await world.push(queue="other")
    await world.finish("/queues/other/drain")
    await world.finish(path.format(own))
    assert (await world.stats("other"))["available"] == 2


@in_world()
async def test_002_5_1_a_pause_does_not_end_draining_and_a_resume_ends_both(world: World) -> None:
    job = await world.push(queue="q")
    await world.finish("/queues/q/drain")
    paused = await world.finish("/queues/q/pause")
    assert (paused["queue"]["paused"], paused["status"]) == (True, "draining")
    assert (await world.enqueue(queue="q")).status == 422
    fetched = await world.call("POST", "/workers/fetch", {"queues": ["q"]})
    assert fetched.body == {"jobs": [], "reasons": {"q": "paused"}}
    assert (await world.call("POST", "/queues", {"name": "q"})).status == 409
    await world.finish("/queues/q/resume")
    assert (await world.get("/queues/q"))["state"] == "active"
    assert await world.run("q") == [job]
    assert "q" in await names(world)


@in_world()
async def test_002_5_3_a_paused_queue_can_be_deleted_and_comes_back_unpaused(
    world: World,
) -> None:
    await world.push(queue="q")
    await world.finish("/queues/q/pause")
    await delete(world, "q")
    again = await world.push(queue="q")
    assert (await world.get("/queues/q"))["state"] == "active"
    assert await world.take("q") == [again]


@in_world()
async def test_002_5_3_a_move_takes_every_waiting_job_as_it_is_and_in_order(world: World) -> None:
    jobs = {}
    for priority in (0, 5):
        jobs[f"available {priority}"] = await world.push(queue="q", priority=priority)
    jobs["scheduled"] = await world.push(queue="q", scheduled_at="+PT10S")
    jobs["pending"] = await world.push(queue="q", pending=True)
    jobs["retryable"] = await world.push(
        queue="q", priority=9, retry={"initial_interval": "PT10S", "jitter": False}
    )
    assert await world.take("q", count=1) == [jobs["retryable"]]
    await world.nack(jobs["retryable"])
    await world.finish("/queues", {"name": "target"})
    deleted = await delete(world, "q", "move", target_queue="target")
    assert (deleted["state"], deleted["jobs_affected"]) == ("deleted", 5)
    assert "q" not in await names(world)
    for name, job in jobs.items():
        shown = await world.job(job)
        assert (shown["state"], shown["queue"]) == (name.split()[0], "target")
    assert await world.take("target") == [jobs["available 5"], jobs["available 0"]]
    await world.later(10 * SECOND)
    assert await world.take("target") == [jobs["retryable"], jobs["scheduled"]]
    await world.finish(f"/jobs/{jobs['pending']}/activate")
    assert await world.take("target") == [jobs["pending"]]


@in_world()
async def test_002_5_3_what_comes_back_late_follows_through_a_chain_of_moves(
    world: World,
) -> None:
    first, second = await world.push(queue="a"), await world.push(queue="b")
    assert await world.take("a", "b") == [first, second]
    for queue in ("b", "c"):
        await world.call("POST", "/queues", {"name": queue})
    await delete(world, "a", "move", target_queue="b")
    await delete(world, "b", "move", target_queue="c")
    for job in (first, second):
        await world.nack(job, requeue=True)
    assert [(await world.job(job))["queue"] for job in (first, second)] == ["c", "c"]
    assert await names(world) == {"default", "c"}
    assert await world.take("c") == [first, second]


@in_world()
async def test_002_5_3_moves_cannot_go_in_a_circle(world: World) -> None:
    job = await world.push(queue="a")
    await world.take("a")
    await world.finish("/queues", {"name": "b"})
    await world.push(queue="b")
    await delete(world, "a", "move", target_queue="b")
    await world.refused(
        "DELETE", "/queues/b", {"strategy": "move", "target_queue": "a"}, "target_queue"
    )
    await world.ack(job)
    assert await names(world) == {"default", "b"}


@in_world()
async def test_002_5_3_another_strategy_may_take_the_place_of_the_first(world: World) -> None:
    job = await world.push(queue="q")
    await world.take("q")
    await delete(world, "q", "discard")
    await delete(world, "q", "move", target_queue="default")
    await world.nack(job, requeue=True)
    assert (await world.job(job))["queue"] == "default"
    assert await names(world) == {"default"}


DOORS: list[tuple[str, str, Any, bool]] = [
    ("POST", "/jobs", {"type": "a", "args": [], "queue": "new"}, True),
    ("POST", "/jobs/batch", {"jobs": [{"type": "a", "args": [], "queue": "new"}]}, True),
    ("POST", "/jobs/bulk", {"jobs": [{"type": "a", "args": [], "queue": "new"}]}, True),
    ("PUT", "/queues/new/config", {}, True),
    ("PUT", "/admin/queues/new/config", {"concurrency": 1}, True),
    ("PUT", "/admin/queues/new/rate-limit", {"concurrency": 1}, True),
    ("POST", "/queues/new/pause", None, True),
    ("POST", "/admin/queues/new/pause", None, True),
    ("POST", "/queues/new/resume", None, True),
    ("POST", "/queues", {"name": "new"}, True),
    ("GET", "/queues/new", None, False),
    ("GET", "/queues/new/config", None, False),
    ("GET", "/queues/new/stats", None, False),
    ("POST", "/queues/new/drain", None, False),
    ("DELETE", "/queues/new", {"strategy": "discard"}, False),
    ("POST", "/workers/fetch", {"queues": ["new"]}, False),
    ("POST", "/workers/fetch", {"queues": ["new"], "strategy": "round-robin"}, False),
    ("POST", "/workers/register", {"worker_id": "w", "queues": ["new"]}, False),
    ("PUT", "/admin/pools/p", {"queues": ["new"]}, False),
    ("PUT", "/queues/default/config", {"dead_letter_queue": "new"}, False),
    ("POST", "/jobs", {"type": "UPPER", "args": [], "queue": "new"}, False),
    ("PUT", "/queues/new/config", {"concurrency": -1}, False),
]


@pytest.mark.parametrize(("method", "path", "body", "creates"), DOORS)
@in_world()
async def test_002_5_2_what_creates_a_queue_and_what_does_not(
    world: World, method: str, path: str, body: Any, creates: bool
) -> None:
    await world.call(method, path, body)
    assert ("new" in await names(world)) == creates
    explicit = await world.events("queue.created")
    assert [event["queue"] for event in explicit] == (["new"] if path == "/queues" else [])
    counted = (await world.samples())["ojs_queue_created_count_total"]
    assert counted == (1 if creates else 0)
