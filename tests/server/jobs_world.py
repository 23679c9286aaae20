"""All routes over an engine in memory; time stands still until it is moved, and clients may leave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from headgate.engines.local.engine import LocalEngine
from headgate.ids import uuid7
from headgate.server.app import Application
from headgate.server.context import Context
from headgate.server.routes import ROUTES
from headgate.server.settings import Settings
from headgate.wire.manifest import EXTENSIONS
from tests.server.admin_world import Reply

START_MS = 1_770_892_200_000
START = "2026-02-12T10:30:00.000Z"


class Client:
    """One request as its client sees it."""

    def __init__(self, app: Application, method: str, path: str, body: Any, headers: Any) -> None:
        target, _, query = path.partition("?")
        if target.startswith("//"):
            target = target[1:]
        elif not target.startswith("/ojs"):
            target = f"/ojs/v1{target}"
        content = b"" if body is None else body
        if not isinstance(content, bytes):
            content = msgspec.json.encode(body)
        self.sent: list[Any] = []
        self.news = asyncio.Event()
        self._incoming: asyncio.Queue[Any] = asyncio.Queue()
        self._incoming.put_nowait({"type": "http.request", "body": content, "more_body": False})
        scope = {
            "type": "http",
            "method": method,
            "path": target,
            "raw_path": target.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "root_path": "",
        }
        self._task = asyncio.ensure_future(app(scope, self._incoming.get, self._send))

    async def _send(self, message: Any) -> None:
        self.sent.append(message)
        self.news.set()

    def leave(self) -> None:
        self._incoming.put_nowait({"type": "http.disconnect"})

    async def reply(self) -> Reply:
        """The whole answer."""
        await self._task
        headers = {n.decode(): v.decode() for n, v in self.sent[0]["headers"]}
        raw = b"".join(message.get("body", b"") for message in self.sent[1:])
        return Reply(self.sent[0]["status"], headers, raw)

    async def until(self, text: str) -> str:
        """What came so far, once this is part of it."""
        while True:
            found = b"".join(message.get("body", b"") for message in self.sent[1:]).decode()
            if text in found:
                return found
            self.news.clear()
            await self.news.wait()


class World:
    def __init__(self, engine: LocalEngine, settings: Settings) -> None:
        self.now_ms = START_MS
        self.engine = engine
        context = Context(
            engine=engine,
            settings=settings,
            now_ms=lambda: self.now_ms,
            new_id=uuid7,
            uniform=lambda: 0.5,
        )
        self.app = Application(context, ROUTES, EXTENSIONS)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Client:
        """Begin a request; underscores in names of headers stand for dashes."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return Client(self.app, method, path, body, named)

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        return await self.ask(method, path, body, **headers).reply()

    async def push(self, **members: Any) -> str:
        found = await self.call("POST", "/jobs", {"type": "test.echo", "args": [], **members})
        assert found.status == 201, found.raw
        job_id: str = found.body["job"]["id"]
        return job_id

    async def fetch(self, queue: str = "default", **members: Any) -> list[Any]:
        found = await self.call("POST", "/workers/fetch", {"queues": [queue], **members})
        assert found.status == 200, found.raw
        jobs: list[Any] = found.body["jobs"]
        return jobs

    async def job(self, job_id: str) -> Any:
        found = await self.call("GET", f"/jobs/{job_id}")
        assert found.status == 200, found.raw
        return found.body["job"]


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
        return run

    return decorate
