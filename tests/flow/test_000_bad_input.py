"""Rate limiting (seed 000): what is wrong is refused by the name of its field, and nothing has changed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.flow.world import MINUTE, World, in_world

PERIOD = {"limit": 1, "period": "PT1M"}

POLICIES: list[tuple[Any, str]] = [
    ({}, "rate_limit.key"),
    ({"concurrency": 1}, "rate_limit.key"),
    ({"key": None}, "rate_limit.key"),
    ({"key": ""}, "rate_limit.key"),
    ({"key": "-a"}, "rate_limit.key"),
    ({"key": "a b"}, "rate_limit.key"),
    ({"key": "a/b"}, "rate_limit.key"),
    ({"key": "@t/k"}, "rate_limit.key"),
    ({"key": "ключ"}, "rate_limit.key"),
    ({"key": "a\n"}, "rate_limit.key"),
    ({"key": "a" * 257}, "rate_limit.key"),
    ({"key": 5}, "rate_limit.key"),
    ({"key": "k", "concurrency": -1}, "rate_limit.concurrency"),
    ({"key": "k", "concurrency": 1.5}, "rate_limit.concurrency"),
    ({"key": "k", "concurrency": "5"}, "rate_limit.concurrency"),
    ({"key": "k", "concurrency": True}, "rate_limit.concurrency"),
    ({"key": "k", "rate": {}}, "rate_limit.rate.limit"),
    ({"key": "k", "rate": {"limit": 1}}, "rate_limit.rate.period"),
    ({"key": "k", "rate": {"period": "PT1M"}}, "rate_limit.rate.limit"),
    ({"key": "k", "rate": {"limit": 0, "period": "PT1M"}}, "rate_limit.rate.limit"),
    ({"key": "k", "rate": {"limit": 1, "period": "PT0S"}}, "rate_limit.rate.period"),
    ({"key": "k", "rate": {"limit": 1, "period": "1 minute"}}, "rate_limit.rate.period"),
    ({"key": "k", "rate": {"limit": 1, "period": 60}}, "rate_limit.rate.period"),
    ({"key": "k", "rate": []}, "rate_limit.rate"),
    ({"key": "k", "throttle": {"limit": -1, "period": "PT1M"}}, "rate_limit.throttle.limit"),
    ({"key": "k", "throttle": {"limit": 1, "period": "-PT1M"}}, "rate_limit.throttle.period"),
    ({"key": "k", "on_limit": "explode"}, "rate_limit.on_limit"),
    ({"key": "k", "on_limit": 1}, "rate_limit.on_limit"),
    ({"key": "k", "scope": "planet"}, "rate_limit.scope"),
    ("k", "rate_limit"),
    ([], "rate_limit"),
    ([{"key": str(n)} for n in range(5)], "rate_limit"),
    ([{"key": "k"}, {"key": "k"}], "rate_limit[1].key"),
    ([{"key": "k", "concurrency": 1}, {"key": "l", "rate": {}}], "rate_limit[1].rate.limit"),
]


@pytest.mark.parametrize(("policy", "field"), POLICIES)
@in_world()
async def test_000_6_a_wrong_policy_is_refused_and_registers_nothing(
    world: World, policy: Any, field: str
) -> None:
    await world.limited("k", concurrency=7, rate=PERIOD)
    job = {"type": "a", "args": [], "rate_limit": policy}
    await world.refused("POST", "/jobs", job, field)
    # Nor in a batch, of which the first job was right.
    right = {"type": "a", "args": [], "rate_limit": {"key": "fresh", "concurrency": 1}}
    await world.refused("POST", "/jobs/batch", {"jobs": [right, job]}, field)


@in_world()
async def test_000_6_a_duplicate_or_unwanted_job_registers_nothing(world: World) -> None:
    await world.configure("closed", allowed_job_types=["other.*"])
    unique = {"unique": {"keys": ["args"]}, "rate_limit": {"key": "k", "concurrency": 2}}
    first = await world.push(**unique)
    before = await world.everything()
    unique["rate_limit"] = {"key": "k", "concurrency": 0}
    for more, status in (
        ({}, 409),
        ({"id": first, "unique": None}, 409),
        ({"queue": "closed", "unique": None}, 422),
    ):
        found = await world.enqueue(**{**unique, **more})
        assert found.status == status, found.raw
    assert await world.everything() == before


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "body"),
        ({"expires_at": "+PT1H"}, "body"),
        ({"concurrency": -1}, "body.concurrency"),
        ({"concurrency": "0"}, "body.concurrency"),
        ({"rate": {"limit": 1, "period": "PT0S"}}, "body.rate.period"),
        ({"rate": {"limit": 0, "period": "PT1S"}}, "body.rate.limit"),
        ({"throttle": {"limit": 1}}, "body.throttle.period"),
        ({"concurrency": 0, "expires_at": "yesterday"}, "body.expires_at"),
        ({"concurrency": 0, "expires_at": "2020-01-01T00:00:00Z"}, "body.expires_at"),
        ({"concurrency": 0, "until": "+PT1H"}, "body.until"),
    ],
)
@in_world()
async def test_000_10_2_a_wrong_override_is_refused(world: World, body: Any, field: str) -> None:
    await world.limited(concurrency=1)
    await world.put("/rate-limits/k", {"concurrency": 3})
    await world.refused("PUT", "/rate-limits/k", body, field)


@pytest.mark.parametrize("key", ["-a", "a%20b", "@t", "a" * 257])
@in_world()
async def test_000_10_a_key_that_cannot_be_is_refused_in_a_path(world: World, key: str) -> None:
    for method, body in (("GET", None), ("PUT", {"concurrency": 0}), ("DELETE", None)):
        await world.refused(method, f"/rate-limits/{key}", body, "key")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "body"),
        ({"concurrency": -1}, "body.concurrency"),
        ({"rate": {"limit": 1, "period": "PT0S"}}, "body.rate.period"),
        ({"limit": 0, "period": "PT1S"}, "body.limit"),
        ({"burst": 5}, "body.burst"),
    ],
)
@in_world()
async def test_000_7_2_a_wrong_limit_of_a_queue_is_refused(
    world: World, body: Any, field: str
) -> None:
    await world.put("/admin/queues/q/rate-limit", {"concurrency": 4})
    for queue in ("q", "fresh"):
        await world.refused("PUT", f"/admin/queues/{queue}/rate-limit", body, field)


@pytest.mark.parametrize(
    ("error", "field"),
    [
        ({"rate_limit_until": "soon"}, "error.rate_limit_until"),
        ({"rate_limit_until": 17}, "error.rate_limit_until"),
        ({"rate_limit_until": "+PT1H", "rate_limit_key": "other"}, "error.rate_limit_key"),
    ],
)
@in_world()
async def test_000_9_1_wrong_feedback_is_refused(world: World, error: Any, field: str) -> None:
    await world.limited()
    (job,) = await world.take()
    body = {"job_id": job, "error": {"code": "c", "message": "429", **error}, "requeue": True}
    await world.refused("POST", "/workers/nack", body, field)
    await world.later(MINUTE // 3)
    assert await world.states(job) == ["active"]
