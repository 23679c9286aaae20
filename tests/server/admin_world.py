"""A whole server in memory whose time stands still until it is moved."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from headgate.core.job import Job
from headgate.core.limits import Use, full_key
from headgate.core.retry import Failure, RetryPolicy
from headgate.engines.contract import Ack, Draft, Fail, Fetch, Report
from headgate.engines.local.engine import LocalEngine
from headgate.ids import uuid7
from headgate.server.app import Application
from headgate.server.context import Context
from headgate.server.route import Route
from headgate.server.routes import (
    admin_dead_letter,
    admin_jobs,
    admin_pools,
    admin_queues,
    admin_stats,
    admin_tasks,
    admin_tenants,
    admin_workers,
    bulk,
    dead_letter,
    events,
    explain,
    queues,
    rate_limits,
    system,
)
from headgate.server.settings import Settings

START_MS = 1_770_000_000_000
"""2026-02-02T02:40:00.000Z"""
START = "2026-02-02T02:40:00.000Z"

MODULES = (
    admin_dead_letter, admin_jobs, admin_pools, admin_queues, admin_stats, admin_tasks,
    admin_tenants, admin_workers, bulk, dead_letter, events, explain, queues, rate_limits, system,
)  # fmt: skip
ROUTES: tuple[Route, ...] = tuple(route for module in MODULES for route in module.ROUTES)


class Reply(msgspec.Struct):
    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return msgspec.json.decode(self.raw)

    @property
    def error(self) -> Any:
        return self.body["error"]


class World:
    def __init__(self, engine: LocalEngine, settings: Settings) -> None:
        self.now_ms = START_MS
        self.engine = engine
        self.context = Context(
            engine=engine,
            settings=settings,
            now_ms=lambda: self.now_ms,
            new_id=uuid7,
            uniform=lambda: 0.5,
            started_at=START_MS,
        )
        engine.listen(self.context.metrics.observe)
        self._app = Application(self.context, ROUTES)
        self._numbers = itertools.count(1)

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        token: str = "",
    ) -> Reply:
        """One request; the path is below /ojs/v1 unless it begins with two slashes."""
        target, _, query = path.partition("?")
        target = target[1:] if target.startswith("//") else f"/ojs/v1{target}"
        sent = {"content-type": "application/json", **(headers or {})}
        if token:
            sent["authorization"] = f"Bearer {token}"
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        if body is None:
            content = b""
            del sent["content-type"]
        messages = iter([{"type": "http.request", "body": content, "more_body": False}])
        written: list[Any] = []

        async def receive() -> Any:
            message = next(messages, None)
            if message is None:
                await asyncio.get_running_loop().create_future()
            return message

        async def send(message: Any) -> None:
            written.append(message)

        scope = {
            "type": "http",
            "method": method,
            "path": target,
            "raw_path": target.encode(),
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in sent.items()],
            "root_path": "",
        }
        await self._app(scope, receive, send)
        found = {name.decode(): value.decode() for name, value in written[0]["headers"]}
        raw = b"".join(message.get("body", b"") for message in written[1:])
        return Reply(written[0]["status"], found, raw)

    async def push(
        self,
        queue: str = "default",
        *,
        type: str = "test.echo",  # noqa: A002
        fixed: bytes = b'"args":[1],"meta":{}',
        count: int = 1,
        uses: Sequence[Use] = (),
        **more: Any,
    ) -> list[str]:
        """Jobs that are available at once, if their keys let them; their ids."""
        drafts = []
        tenant = more.get("tenant", "")
        keys = tuple((full_key(use.key, use.scope, tenant), use.on_limit) for use in uses)
        for _ in range(count):
            job_id = f"01900000-0000-7000-8000-{next(self._numbers):012x}"
            priority = more.pop("priority", 0)
            job = Job(job_id, type, queue, priority, fixed, self.now_ms, keys=keys, **more)
            drafts.append(Draft(job, uses=uses))
            more["priority"] = priority
        await self.engine.push(drafts, self.now_ms)
        return [draft.job.id for draft in drafts]

    async def fetch(self, queue: str = "default", count: int = 1, worker: str = "") -> list[str]:
        jobs = await self.engine.fetch(Fetch((queue,), count, worker), self.now_ms)
        return [job.id for job in jobs]

    async def complete(self, queue: str = "default", count: int = 1) -> list[str]:
        """Push and carry out."""
        await self.push(queue, count=count)
        ids = await self.fetch(queue, count)
        await self.engine.ack([Ack(job_id) for job_id in ids], self.now_ms)
        return ids

    async def bury(self, queue: str = "default", *, error_type: str = "Broken", **more: Any) -> str:
        """A dead letter; its id."""
        policy = RetryPolicy(max_attempts=1, on_exhaustion="dead_letter")
        (job_id,) = await self.push(queue, retry=policy, max_attempts=1, **more)
        assert await self.fetch(queue) == [job_id]
        failure = Failure("handler_error", "it broke", error_type)
        await self.engine.fail([Fail(job_id, failure)], self.now_ms)
        return job_id

    async def beat(self, worker: str, *jobs: str, **more: Any) -> None:
        await self.engine.beat(Report(worker, **more), jobs, 0, self.now_ms)

    async def state(self, job_id: str) -> str | None:
        job = await self.engine.find(job_id, self.now_ms)
        return None if job is None else job.state


def in_world(
    **settings: Any,
) -> Callable[[Callable[[World], Awaitable[None]]], Callable[[], None]]:
    """Run an async test with a world of its own."""

    def decorate(test: Callable[[World], Awaitable[None]]) -> Callable[[], None]:
        async def live() -> None:
            engine = await LocalEngine.open(":memory:", now_ms=START_MS, elapsed_s=lambda: 0.0)
            try:
                await test(World(engine, Settings(**settings)))
            finally:
                await engine.close()

        def run() -> None:
            asyncio.run(live())

        run.__name__ = test.__name__
        run.__doc__ = test.__doc__
        return run

    return decorate
