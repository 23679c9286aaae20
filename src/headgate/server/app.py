"""The application as an ASGI 3 callable: it runs under any server and can be mounted in any application."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any
from urllib.parse import quote

from headgate.core.errors import OjsError, RequestTimeout
from headgate.server import bodies
from headgate.server.context import Context
from headgate.server.openapi import described
from headgate.server.pipeline import Pipeline, common_headers
from headgate.server.route import Answer, Request, Route, Stream

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Life = Callable[[Context], AbstractAsyncContextManager[None]]


class Application(Pipeline):
    """Answers HTTP and lifespan messages.

    `life` is entered when the server starts and left when it stops: it may complete the context.
    """

    def __init__(
        self,
        context: Context,
        routes: Sequence[Route],
        extensions: frozenset[str] = frozenset(),
        life: Life | None = None,
    ) -> None:
        super().__init__(context, [*routes, described(routes)], extensions)
        self._life = life

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await _Exchange(self, receive, send).answer(scope)
            case "lifespan":
                await self._live(receive, send)
            case "websocket":
                await receive()
                await send({"type": "websocket.close", "code": 1000})
            case other:
                raise ValueError(f"ASGI scope {other!r} is not known")

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        life = None if self._life is None else self._life(self.context)
        if life is not None:
            try:
                await life.__aenter__()
            except Exception as error:
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                raise
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self.drain()
        if life is not None:
            await life.__aexit__(None, None, None)
        await send({"type": "lifespan.shutdown.complete"})


class _Left(Exception):
    """The client left before it had sent everything."""


class _Exchange:
    """One request under ASGI."""

    def __init__(self, app: Application, receive: Receive, send: Send) -> None:
        self._app = app
        self._receive = receive
        self._send = send
        self._listening: asyncio.Task[None] | None = None

    async def answer(self, scope: Message) -> None:
        app = self._app
        request = app.open(
            scope["method"], _path(scope), scope.get("query_string", b""), list(scope["headers"])
        )
        request.gone = self._gone
        status = 499
        try:
            answer = request.answer or await app.finish(request, await self._body())
            status = await self._write(request, answer)
        except _Left:
            pass
        except OjsError as error:
            late = app.late(request, error)
            status = await self._write(request, late)
        finally:
            app.close(request, status)
            if self._listening is not None:
                self._listening.cancel()
                await asyncio.gather(self._listening, return_exceptions=True)

    async def _body(self) -> bytes:
        limits = self._app.limits
        pieces: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(limits.body_timeout_s):
                while True:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise _Left
                    piece = message.get("body", b"")
                    size += len(piece)
                    if size > limits.body_bytes:
                        raise bodies.too_large(limits)
                    if not message.get("more_body", False):
                        return piece if not pieces else b"".join([*pieces, piece])
                    pieces.append(piece)
        except TimeoutError:
            raise RequestTimeout("the body did not arrive in time") from None

    async def _write(self, request: Request, answer: Answer | Stream) -> int:
        headers = [*common_headers(request, answer.content_type), *answer.headers]
        if isinstance(answer, Stream):
            await self._start(200, headers)
            if await self._app.pump(request, answer, self._chunk):
                await self._send({"type": "http.response.body", "body": b""})
            return 200
        if answer.status != 204:
            headers.append((b"content-length", str(len(answer.body)).encode()))
        await self._start(answer.status, headers)
        body = b"" if request.method == "HEAD" else answer.body
        await self._send({"type": "http.response.body", "body": body})
        return answer.status

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _chunk(self, chunk: bytes) -> None:
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def _gone(self) -> None:
        # Whoever waits asks here, but the server allows one reader only.
        if self._listening is None:
            self._listening = asyncio.create_task(self._until_disconnected())
        stopping = self._app.waiter()
        try:
            await asyncio.wait({self._listening, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()

    async def _until_disconnected(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


def _path(scope: Message) -> str:
    """The path below the mount, as it was sent."""
    sent = scope.get("raw_path")
    path = sent.decode("latin-1") if sent else quote(scope["path"])
    root = quote(scope.get("root_path", ""))
    return str(path.removeprefix(root)) if root else str(path)
