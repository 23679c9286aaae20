"""Drives an ASGI application by hand: no server, no sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from headgate.server.app import Application
from headgate.server.context import Context
from headgate.server.route import Answer, Request, Route
from headgate.server.settings import Settings

JSON = "application/openjobspec+json"
NOW_MS = 1_770_000_000_000
ANYBODY: frozenset[str] = frozenset()


class ToyEngine:
    """As much of an engine as the application itself touches."""

    def __init__(self) -> None:
        self.settled_calls = 0
        self.failure: Exception | None = None

    async def settled(self) -> None:
        self.settled_calls += 1
        if self.failure is not None:
            raise self.failure


class Reply:
    def __init__(self) -> None:
        self.status = 0
        self.headers: list[tuple[str, str]] = []
        self.body = b""
        self.complete = False

    def header(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key == name]
        assert len(found) <= 1, f"{name} came twice"
        return found[0] if found else None

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        return self.json["error"]


class Exchange:
    """One request as the server side of ASGI sees it; the test plays the client."""

    def __init__(
        self,
        method: str = "GET",
        path: str = "/",
        body: bytes | Sequence[bytes] = b"",
        headers: dict[str, str] | None = None,
        query: str = "",
        root_path: str = "",
        *,
        raw_path: bool = True,
        ends: bool = True,
    ) -> None:
        pieces = [body] if isinstance(body, bytes) else list(body)
        given = {key.lower(): value for key, value in (headers or {}).items()}
        if isinstance(body, bytes) and body:
            given.setdefault("content-type", JSON)
            given.setdefault("content-length", str(len(body)))
        self.scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "root_path": root_path,
            "headers": [(key.encode(), value.encode("latin-1")) for key, value in given.items()],
        }
        if raw_path:
            self.scope["raw_path"] = path.encode()
        self.incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        for number, piece in enumerate(pieces, 1):
            more = number < len(pieces) or not ends
            self.incoming.put_nowait({"type": "http.request", "body": piece, "more_body": more})
        self.reply = Reply()
        self.wrote = asyncio.Event()

    def disconnect(self) -> None:
        self.incoming.put_nowait({"type": "http.disconnect"})

    async def receive(self) -> dict[str, Any]:
        return await self.incoming.get()

    async def send(self, message: Any) -> None:
        reply = self.reply
        if message["type"] == "http.response.start":
            assert reply.status == 0
            reply.status = message["status"]
            reply.headers = [(k.decode(), v.decode()) for k, v in message["headers"]]
            assert all(key == key.lower() for key, _ in reply.headers)
        else:
            assert message["type"] == "http.response.body"
            assert reply.status != 0
            assert not reply.complete
            reply.body += message.get("body", b"")
            reply.complete = not message.get("more_body", False)
        self.wrote.set()

    async def run(self, app: Application) -> Reply:
        await app(self.scope, self.receive, self.send)
        return self.reply


def call(app: Application, method: str = "GET", path: str = "/", **rest: Any) -> Reply:
    """One request from start to end, in an event loop of its own."""

    async def run() -> Reply:
        exchange = Exchange(method, path, **rest)
        reply = await exchange.run(app)
        assert reply.complete
        return reply

    return asyncio.run(run())


def make_app(
    *routes: Route,
    settings: Settings | None = None,
    engine: Any = None,
    extensions: frozenset[str] = frozenset(),
    life: Any = None,
    now_ms: Callable[[], int] = lambda: NOW_MS,
) -> Application:
    toy: Any = ToyEngine() if engine is None else engine
    context = Context(toy, settings or Settings(), now_ms, lambda now: f"id-{now}", lambda: 0.5)
    return Application(context, routes, extensions, life)


def route(
    method: str,
    path: str,
    handler: Callable[[Context, Request], Awaitable[Any]] | None = None,
    roles: frozenset[str] = ANYBODY,
    **rest: Any,
) -> Route:
    return Route(method, path, handler or echo, roles, **rest)


async def echo(_context: Context, request: Request) -> Answer:
    """Tells what arrived."""
    found = {
        "method": request.method,
        "params": request.params,
        "query": dict(request.query),
        "body": request.body.decode(),
        "data": None if request.data is None else str(request.data),
        "caller": request.identity.name,
    }
    return Answer(json.dumps(found).encode())
