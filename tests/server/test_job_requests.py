"""Whatever is sent to the routes of jobs and workers, the answer is an OJS answer and never a failure."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.job import Job
from headgate.core.states import ACTIVE, TERMINAL
from headgate.engines.local.engine import LocalEngine
from headgate.server.routes import batch, jobs, progress, results, workers
from headgate.server.settings import Limits, Settings
from tests.server.jobs_world import START_MS, World

JOB = "01900000-0000-7000-8000-000000000001"
PATHS = [
    (route.method, route.path.removeprefix("/ojs/v1").replace("{id}", JOB))
    for module in (jobs, batch, workers, progress, results)
    for route in module.ROUTES
    if not route.path.endswith("/stream")
]
NAMES = st.sampled_from(
    ["type", "args", "id", "queue", "options", "meta", "retry", "unique", "scheduled_at", "ids",
     "expires_at", "timeout_ms", "visibility_timeout_ms", "jobs", "job_id", "worker_id", "claim",
     "result", "error", "requeue", "code", "message", "details", "backtrace", "queues", "count",
     "active_jobs", "labels", "state", "acks", "nacks", "extend", "fetch", "progress", "data",
     "checkpoint", "priority", "reason", "atomicity", "started_at", "max_attempts", "keys",
     "rate_limit", "key", "concurrency", "rate", "throttle", "limit", "period", "on_limit", "scope",
     "tenant_id", "pool", "strategy", "weights", "explain", "rate_limit_until", "rate_limit_key"]
)  # fmt: skip
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.sampled_from(["", JOB, "q", "w", "running", "a.b", "+PT1S", "PT1S", "partial", "args"])
    | st.text(max_size=4)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(NAMES | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=8,
)
FILLED = st.fixed_dictionaries(
    {},
    optional={
        "type": st.just("a.b"),
        "args": st.lists(VALUES, max_size=2),
        "queues": st.just(["q"]),
        "job_id": st.just(JOB),
        "worker_id": st.just("w"),
        "error": st.fixed_dictionaries(
            {"code": st.just("c"), "message": st.text(max_size=3)},
            optional={"details": st.dictionaries(st.text(max_size=3), VALUES, max_size=2)},
        ),
        "jobs": st.lists(
            st.fixed_dictionaries(
                {"type": st.just("a"), "args": st.just([])},
                optional={"options": st.dictionaries(NAMES, VALUES, max_size=3)},
            ),
            max_size=3,
        ),
        "options": st.dictionaries(NAMES, VALUES, max_size=3),
        "retry": st.dictionaries(NAMES, VALUES, max_size=3),
        "progress": st.floats(),
        "rate_limit": st.dictionaries(NAMES, VALUES, max_size=3).map(
            lambda more: {"key": "k", **more}
        ),
    },
)
REQUESTS = st.lists(
    st.tuples(
        st.sampled_from(PATHS),
        st.builds(lambda a, b: {**a, **b}, FILLED, st.dictionaries(NAMES, VALUES, max_size=3)),
        st.integers(0, 40_000),
    ),
    max_size=8,
)


async def send_all(requests: list[tuple[tuple[str, str], Any, int]]) -> None:
    engine = await LocalEngine.open(":memory:", now_ms=START_MS, elapsed_s=lambda: 0.0)
    try:
        world = World(engine, Settings(limits=Limits(wait_ms=1)))
        await world.push(id=JOB, queue="q")
        await world.fetch("q", worker_id="w")
        for (method, path), body, later_ms in requests:
            found = await world.call(method, path, msgspec.json.encode(body))
            assert found.status < 500, (method, path, body, found.raw)
            assert found.headers["ojs-version"] == "1.0"
            if found.status >= 400 and found.status != 422:
                assert found.error["message"]
            assert isinstance(found.body, dict)
            engine._tables.check()
            world.now_ms += later_ms
        for job in list(engine._tables.jobs.values()):
            shown = await world.job(job.id)
            check(job, shown)
    finally:
        await engine.close()


def check(job: Job, shown: dict[str, Any]) -> None:
    assert (shown["id"], shown["state"]) == (job.id, job.state)
    assert None not in [shown[name] for name in ("queue", "type", "args", "meta", "created_at")]
    assert (job.state == ACTIVE) <= ("started_at" in shown)
    ended = {"completed_at", "cancelled_at", "discarded_at"} & set(shown)
    assert bool(ended) == (job.state in TERMINAL)


@settings(max_examples=150)
@given(REQUESTS)
def test_any_request_is_answered(requests: list[tuple[tuple[str, str], Any, int]]) -> None:
    asyncio.run(send_all(requests))
