"""Rate limiting (seed 000), sentence by sentence: keys, queues, and what a fetch does at the limit (7 and 8)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.flow.world import MINUTE, SECOND, World, in_world

ROOT = Path(__file__).parents[2]
LISTS = ("allowed", "rate_limited")


@pytest.mark.parametrize(
    "key", ["api.stripe.com", "tenant:acme-corp", "queue:email", "type:report.generate", "9"]
)
@in_world()
async def test_000_7_1_keys_come_fully_resolved_from_the_client(world: World, key: str) -> None:
    first, second = await world.limited(key, concurrency=1), await world.limited(key)
    assert await world.take() == [first]
    assert await world.key_jobs(key) == ([first], [second])


@in_world()
async def test_000_7_1_a_key_that_looks_like_a_queue_is_not_the_queues_limit(world: World) -> None:
    await world.limited("queue:email", "email", concurrency=1)
    jobs = [await world.push(queue="email") for _ in range(3)]
    assert len(await world.take("email")) == 4
    assert (await world.get("/admin/queues/email/rate-limit")) == {"queue": "email"}
    assert jobs


@pytest.mark.parametrize(("queue", "key", "runs"), [(2, 5, 2), (5, 2, 2), (0, 5, 0), (5, 0, 0)])
@in_world()
async def test_000_7_2_the_most_restrictive_of_queue_and_key_wins(
    world: World, queue: int, key: int, runs: int
) -> None:
    await world.put("/admin/queues/q/rate-limit", {"concurrency": queue})
    jobs = [await world.limited("k", "q", concurrency=key) for _ in range(6)]
    assert await world.take("q") == jobs[:runs]


@in_world()
async def test_000_7_2_a_queues_limit_never_drops_or_puts_off(world: World) -> None:
    await world.put("/admin/queues/q/rate-limit", {"concurrency": 1})
    jobs = [
        await world.limited(str(n), "q", on_limit=on_limit)
        for n, on_limit in enumerate(["wait", "drop", "reschedule"])
    ]
    assert await world.take("q") == jobs[:1]
    assert await world.take("q") == []
    assert await world.states(*jobs[1:]) == ["available", "available"]


@in_world()
async def test_000_8_1_nothing_eligible_is_answered_like_an_empty_queue(world: World) -> None:
    await world.limited(concurrency=0)
    blocked = await world.call("POST", "/workers/fetch", {"queues": ["default"], "explain": False})
    empty = await world.call("POST", "/workers/fetch", {"queues": ["none"], "explain": False})
    assert (blocked.status, blocked.body) == (empty.status, empty.body) == (200, {"jobs": []})


@in_world()
async def test_000_8_2_a_limited_job_does_not_bypass_priority(world: World) -> None:
    holder = await world.limited(concurrency=1, rate=None)
    assert await world.take() == [holder]
    low = await world.push(priority=-5, rate_limit={"key": "k"})
    high = await world.push(priority=50, rate_limit={"key": "k"})
    middle = await world.push(priority=10)
    # The high one is limited: the lower one that is not limited goes.
    assert await world.take() == [middle]
    await world.ack(holder)
    assert await world.take() == [high]
    await world.ack(high)
    assert await world.take() == [low]


@in_world()
async def test_000_8_3_waiting_for_a_limit_counts_for_nothing_else(world: World) -> None:
    holder = await world.limited(concurrency=1)
    retry = {"initial_interval": "PT7S", "jitter": False, "max_attempts": 2}
    job = await world.push(rate_limit={"key": "k"}, retry=retry, visibility_timeout="PT10S")
    body = {"queues": ["default"], "visibility_timeout_ms": 600_000}
    await world.finish("/workers/fetch", body)
    await world.later(9 * MINUTE)
    await world.ack(holder)
    (taken,) = await world.fetch()
    assert (taken["id"], taken["attempt"]) == (job, 1)
    await world.later(10 * SECOND - 1)
    assert await world.states(job) == ["active"]
    failed = await world.nack(job)
    assert (failed["state"], failed["retry_delay_ms"]) == ("retryable", 7_000)
    assert failed["next_attempt_at"] == world.at(7 * SECOND)
    await world.later(7 * SECOND)
    assert await world.take() == [job]


@pytest.mark.parametrize("by", ["admin", "dead letter", "bulk"])
@in_world()
async def test_000_8_3_jobs_that_are_tried_again_by_hand_bring_their_limits_back(
    world: World, by: str
) -> None:
    """The key was forgotten with the last of them."""
    retry = {"max_attempts": 1, "on_exhaustion": "dead_letter"}
    policy = [{"key": "a"}, {"key": "k", "concurrency": 1}]
    jobs = [await world.push(rate_limit=policy, retry=retry) for _ in range(4)]
    for _ in jobs:
        (job,) = await world.take()
        await world.nack(job)
    assert (await world.call("GET", "/rate-limits/k")).status == 404
    match by:
        case "admin":
            for job in jobs:
                await world.finish(f"/admin/jobs/{job}/retry")
        case "dead letter":
            await world.finish("/dead-letter/retry", {"confirm": True, "filter": {}})
        case _:
            await world.finish("/jobs/bulk/retry", {"job_ids": jobs})
    assert (await world.key())["concurrency"]["limit"] == 1
    assert len(await world.take()) == 1
    # What others said of the key meanwhile is not undone.
    await world.limited(concurrency=3)
    ended = (await world.get("/admin/jobs?state=discarded"))["items"]
    assert ended == []
    assert len(await world.take()) == 2


@in_world()
async def test_000_7_a_key_may_be_each_tenants_own(world: World) -> None:
    policy = {"key": "k", "concurrency": 1, "scope": "tenant"}
    jobs = {
        tenant: [await world.push(meta={"tenant_id": tenant}, rate_limit=policy) for _ in range(2)]
        for tenant in ("acme", "other")
    }
    assert await world.take() == [jobs["acme"][0], jobs["other"][0]]
    shown = await world.key("k?tenant=acme")
    assert (shown["tenant"], shown["waiting_count"]) == ("acme", 1)
    assert (await world.call("GET", "/rate-limits/k")).status == 404, "nobody named it globally"
    await world.put("/rate-limits/k?tenant=other", {"concurrency": 2})
    assert await world.take() == [jobs["other"][1]]


@in_world()
async def test_000_7_the_jobs_of_a_key_are_listed_and_cancelled(world: World) -> None:
    jobs = [await world.limited("k", f"q{n % 3}", concurrency=1) for n in range(7)]
    other = await world.limited("other")
    (held,) = await world.take("q0", "q1", "q2")
    page = await world.get("/rate-limits/k/jobs?per_page=3&page=2")
    assert [job["id"] for job in page["rate_limited"]] == jobs[3:6]
    assert page["pagination"] == {"total": 7, "page": 2, "per_page": 3}
    await world.refused("POST", "/rate-limits/k/jobs/cancel", {}, "confirm")
    done = await world.finish("/rate-limits/k/jobs/cancel", {"confirm": True})
    assert (done["total_matched"], done["cancelled"]) == (6, 6)
    assert await world.states(held, *jobs[1:]) == ["active"] + ["cancelled"] * 6
    assert await world.states(other) == ["available"]


@pytest.mark.parametrize("concurrency", [2, 5, 100])
@in_world()
async def test_000_7_who_acts_for_a_tenant_sees_and_cancels_its_jobs_of_a_shared_key_only(
    world: World, concurrency: int
) -> None:
    jobs: dict[str, list[str]] = {"acme": [], "other": []}
    for n in range(9):
        tenant = ("acme", "other", "other")[n % 3]
        policy = {"key": "k", "concurrency": concurrency}
        jobs[tenant].append(await world.push(meta={"tenant_id": tenant}, rate_limit=policy))
    await world.take(count=2)
    allowed, limited = await world.key_jobs()
    for tenant, own in jobs.items():
        pages = [
            await world.call(
                "GET", f"/rate-limits/k/jobs?per_page=2&page={page}", x_ojs_tenant=tenant
            )
            for page in (1, 2, 3, 4)
        ]
        seen = [[job["id"] for p in pages for job in p.body[name]] for name in LISTS]
        assert seen == [[job for job in each if job in own] for each in (allowed, limited)]
        totals = [pages[0].body[f"{name}_total"] for name in LISTS]
        assert totals == [len(each) for each in seen]
        assert pages[0].body["pagination"]["total"] == len(own)
    confirm = {"confirm": True}
    path = "/rate-limits/k/jobs/cancel"
    done = await world.call("POST", path, confirm, x_ojs_tenant="acme")
    assert (done.status, done.body["total_matched"], done.body["cancelled"]) == (200, 2, 2)
    assert await world.states(*jobs["acme"]) == ["active", "cancelled", "cancelled"]
    assert await world.states(*jobs["other"]) == ["active", *["available"] * 5]
    # Nor are the other one's own keys reached.
    scoped = {"key": "k", "scope": "tenant"}
    theirs = await world.push(meta={"tenant_id": "other"}, rate_limit=scoped)
    for method, rest, body in (
        ("GET", "", None),
        ("GET", "/jobs", None),
        ("PUT", "", {"concurrency": 0}),
        ("DELETE", "", None),
        ("POST", "/jobs/cancel", confirm),
    ):
        path = f"/rate-limits/k{rest}?tenant=other"
        await world.refused(method, path, body, "tenant", x_ojs_tenant="acme")
    assert await world.states(theirs) == ["available"]


@pytest.mark.parametrize(
    ("policy", "key", "limits"),
    [
        (
            {"max_per_second": 5},
            "queue:default",
            {"throttle": {"limit": 5, "period": "PT1S"}},
        ),
        (
            {"key": "a", "rate": 5, "period": "minute"},
            "a",
            {"rate": {"limit": 5, "period": "PT1M"}},
        ),
    ],
)
@in_world()
async def test_000_6_older_shapes_are_understood(
    world: World, policy: Any, key: str, limits: dict[str, Any]
) -> None:
    await world.push(rate_limit=policy)
    shown = await world.key(key)
    for name, given in limits.items():
        assert given.items() <= shown[name].items()
