"""What the document says of answers that are written as plain objects."""

from __future__ import annotations

from typing import Any

import msgspec

from headgate.core.gates import LimitsChange, Rate
from headgate.core.limits import Use
from headgate.core.retry import Failure
from headgate.engines.contract import Fail
from headgate.wire.limits import QueueRateLimit, RateLimit, RateLimitList
from headgate.wire.pools import PoolAnswer, PoolList
from tests.server.admin_world import World, in_world

LIMITS = {
    "concurrency": 2,
    "rate": {"limit": 5, "period": "PT1M"},
    "throttle": {"limit": 5, "period": "PT1S"},
}


def fits(body: Any, shape: Any) -> bool:
    """Whether the body has the shape, and no member that the shape does not know."""
    return bool(msgspec.to_builtins(msgspec.convert(body, shape)) == body)


@in_world()
async def test_answers_about_limits_look_as_the_document_says(world: World) -> None:
    second_us = 1_000_000
    change = LimitsChange(3, Rate(9, 60 * second_us), Rate(9, second_us))
    (job_id,) = await world.push(uses=[Use("api", "tenant", change=change)], tenant="acme")
    assert fits((await world.call("GET", "/rate-limits")).body, RateLimitList)
    await world.fetch()
    failure = Failure("rate_limited", "429", requeue=True)
    until = world.now_ms + 60_000
    await world.engine.fail([Fail(job_id, failure, hold_until=until)], world.now_ms)
    body = (await world.call("PUT", "/rate-limits/api?tenant=acme", LIMITS)).body
    assert set(body) == set(RateLimit.__struct_fields__)
    assert fits(body, RateLimit)
    assert fits((await world.call("GET", "/rate-limits")).body, RateLimitList)
    limited = (await world.call("PUT", "/admin/queues/q/rate-limit", LIMITS)).body
    assert set(limited) == set(QueueRateLimit.__struct_fields__)
    assert fits(limited, QueueRateLimit)


@in_world()
async def test_answers_about_pools_look_as_the_document_says(world: World) -> None:
    whole = {
        "queues": ["a", "b"],
        "strategy": "weighted",
        "weights": {"a": 2},
        "concurrency": 3,
        "tenant_fairness": {"enabled": True, "weights": {"acme": 2}},
    }
    for name, body in (("whole", whole), ("bare", {"queues": ["a"]})):
        assert fits((await world.call("PUT", f"/admin/pools/{name}", body)).body, PoolAnswer)
    assert fits((await world.call("GET", "/admin/pools")).body, PoolList)
