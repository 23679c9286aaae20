"""A whole server whose time stands still until it is moved, as producers, workers and operators meet it.

Everything goes through HTTP; only time and restarts are the test's own.
"""

from __future__ import annotations

import asyncio
import inspect
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from headgate.core.times import instant_text
from headgate.engines.local.engine import LocalEngine
from headgate.ids import uuid7
from headgate.server.app import Application
from headgate.server.context import Context
from headgate.server.routes import ROUTES
from headgate.server.settings import Settings
from headgate.wire.manifest import EXTENSIONS
from tests.server import jobs_world
from tests.server.admin_world import Reply
from tests.server.jobs_world import START, START_MS
from tests.server.test_metrics import samples

__all__ = ["START", "World", "in_world"]

SECOND = 1_000
MINUTE = 60 * SECOND


class World(jobs_world.World):
    def __init__(self, engine: LocalEngine, settings: Settings, path: str) -> None:
        super().__init__(engine, settings)
        self._settings = settings
        self._path = path
        self._serve(engine)

    def _serve(self, engine: LocalEngine) -> None:
        self.engine = engine
        self.context = Context(
            engine=engine,
            settings=self._settings,
            now_ms=lambda: self.now_ms,
            new_id=uuid7,
            uniform=lambda: 0.5,
            started_at=self.now_ms,
        )
        engine.listen(self.context.metrics.observe)
        self.app = Application(self.context, ROUTES, EXTENSIONS)

    # time and restarts

    async def later(self, ms: int) -> None:
        """So much later; what was due by then has happened."""
        self.now_ms += ms
        await self.engine.tick(self.now_ms)

    async def gone(self, *job_ids: str) -> None:
        """These are forgotten within a few seconds."""
        until = self.now_ms + 5_000
        while True:
            found = [(await self.call("GET", f"/jobs/{job_id}")).status for job_id in job_ids]
            if set(found) == {404}:
                return
            # Pruning runs beside requests: time goes on when it has done what was due.
            if self.engine.next_due() > self.now_ms:
                assert self.now_ms < until, "they are still there"
                await self.later(2)
            await asyncio.sleep(0.002)

    def at(self, ms: int) -> str:
        """The instant so many milliseconds from now."""
        return instant_text(self.now_ms + ms)

    async def restart(self, ms: int = 0) -> None:
        """Stop the server and start it again on the same file, so much later."""
        await self.engine.close()
        self.now_ms += ms
        self._serve(await opened(self._path, self.now_ms, self._settings))

    # producers and workers

    async def enqueue(self, **members: Any) -> Reply:
        return await self.call("POST", "/jobs", {"type": "test.echo", "args": [], **members})

    async def limited(self, key: str = "k", /, queue: str = "default", **policy: Any) -> str:
        """A job that passes this key; its id."""
        return await self.push(queue=queue, rate_limit={"key": key, **policy})

    async def take(self, *queues: str, count: int = 100, **asked: Any) -> list[str]:
        """The ids of the jobs that a worker gets now."""
        body = {"queues": list(queues or ("default",)), "count": count, **asked}
        found = await self.call("POST", "/workers/fetch", body)
        assert found.status == 200, found.raw
        return [job["id"] for job in found.body["jobs"]]

    async def ack(self, *job_ids: str) -> None:
        for job_id in job_ids:
            found = await self.call("POST", "/workers/ack", {"job_id": job_id})
            assert found.status == 200, found.raw

    async def nack(self, job_id: str, *, requeue: bool = False, **error: Any) -> Any:
        told = {"code": "handler_error", "message": "it broke", **error}
        body = {"job_id": job_id, "error": told, "requeue": requeue}
        found = await self.call("POST", "/workers/nack", body)
        assert found.status == 200, found.raw
        return found.body

    async def run(self, *queues: str, count: int = 100, **asked: Any) -> list[str]:
        """Take jobs and complete them at once."""
        taken = await self.take(*queues, count=count, **asked)
        await self.ack(*taken)
        return taken

    async def finish(self, path: str, body: Any = None, method: str = "POST") -> Any:
        """A request that must succeed; its answer."""
        found = await self.call(method, path, body)
        assert found.status < 300, found.raw
        return found.body

    async def states(self, *job_ids: str) -> list[str]:
        return [(await self.job(job_id))["state"] for job_id in job_ids]

    # operators

    async def get(self, path: str) -> Any:
        return await self.finish(path, method="GET")

    async def put(self, path: str, body: Any) -> Any:
        return await self.finish(path, body, method="PUT")

    async def configure(self, queue: str, **config: Any) -> Any:
        return await self.put(f"/admin/queues/{queue}/config", config)

    async def key(self, key: str = "k") -> Any:
        return await self.get(f"/rate-limits/{key}")

    async def key_jobs(self, key: str = "k") -> tuple[list[str], list[str]]:
        """Which jobs the key allows, and which wait for it."""
        found = await self.get(f"/rate-limits/{key}/jobs?per_page=100")
        return (
            [job["id"] for job in found["allowed"]],
            [job["id"] for job in found["rate_limited"]],
        )

    async def stats(self, queue: str = "default") -> Any:
        return (await self.get(f"/queues/{queue}/stats"))["stats"]

    async def events(self, *kinds: str) -> list[Any]:
        """What was told of these kinds so far: the data of each event, with its type."""
        found = await self.get(f"/events?limit=1000&types={','.join(kinds)}")
        assert not found["has_more"]
        return [{"type": event["type"], **event["data"]} for event in found["events"]]

    async def samples(self) -> dict[str, float]:
        found = await self.call("GET", "//metrics")
        assert found.status == 200
        return samples(found.raw.decode())

    async def everything(self) -> Any:
        """All that can be seen of jobs, keys, queues, pools, tenants and events."""
        names = [queue["name"] for queue in (await self.get("/queues?limit=200"))["queues"]]
        paths = [
            "/admin/jobs?per_page=100",
            "/rate-limits?per_page=100",
            "/admin/queues?per_page=100",
            "/admin/pools?per_page=100",
            "/admin/tenants?per_page=100",
            "/queues/_default/config",
            "/events?limit=1000",
            *(f"/queues/{name}" for name in names),
        ]
        return {path: await self.get(path) for path in paths}

    async def refused(
        self, method: str, path: str, body: Any, field: str, status: int = 400, **headers: str
    ) -> Any:
        """A request that is refused because of this field, and changes nothing; its error."""
        before = await self.everything()
        found = await self.call(method, path, body, **headers)
        assert found.status == status, found.raw
        assert found.error["details"]["field"] == field, found.raw
        assert await self.everything() == before
        return found.error


def chosen(data: Any, *names: str) -> Any:
    """Only these members of a record, or of each of many."""
    if isinstance(data, list):
        return [chosen(item, *names) for item in data]
    return {name: data[name] for name in names}


async def opened(path: str, now_ms: int, settings: Settings) -> LocalEngine:
    return await LocalEngine.open(
        path,
        now_ms=now_ms,
        elapsed_s=lambda: 0.0,
        durability="normal",
        strict_queues=settings.strict_queues,
        heartbeat_timeout_ms=settings.heartbeat_timeout_s * 1000,
    )


def in_world(
    *, file: bool = False, **settings: Any
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Run an async test with a world of its own, its first parameter; with `file` it can be restarted."""

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        async def live(given: dict[str, Any]) -> None:
            with tempfile.TemporaryDirectory() as directory:
                path = str(Path(directory) / "jobs.db") if file else ":memory:"
                chosen_settings = Settings(**settings)
                world = World(await opened(path, START_MS, chosen_settings), chosen_settings, path)
                try:
                    async with asyncio.timeout(60):
                        await test(world, **given)
                finally:
                    await world.engine.close()

        def run(**given: Any) -> None:
            asyncio.run(live(given))

        signature = inspect.signature(test)
        others = list(signature.parameters.values())[1:]
        run.__name__ = test.__name__
        run.__doc__ = test.__doc__
        run.__module__ = test.__module__
        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return run

    return decorate
