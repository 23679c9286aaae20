"""HTTP/1.1 for uvicorn, driving the application without ASGI in between.

What one connection may cost is bounded: the bytes of its headers and bodies, the time it takes to send them, the time it may be idle, the answers that it has not taken yet.
Requests are answered in the order in which they came; while one is answered and another waits, nothing more is read.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any

import httptools
import uvicorn
from uvicorn.server import ServerState

from headgate.core.errors import (
    BackendError,
    BackendUnavailable,
    HeadersTooLarge,
    InvalidRequest,
    MethodNotAllowed,
    OjsError,
    RequestTimeout,
)
from headgate.server import bodies
from headgate.server.app import Application
from headgate.server.deadlines import Deadlines
from headgate.server.heads import Heads
from headgate.server.route import Answer, Request, Stream

_SLICE = 16 << 10
"""Parsed at once: what pipelined requests in it may pile up before the rest has to wait."""
_SKIPPED_BYTES = 64 << 10
"""A refused body up to this size is read and dropped, so that the connection stays usable."""
_LINGER_S = 2.0
"""How long a client may take to read that it was refused before the connection is torn down."""

_heads = Heads()
_log = logging.getLogger(__name__)


class HttpProtocol(asyncio.Protocol):
    """One connection."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        app = config.loaded_app
        if not isinstance(app, Application):
            raise TypeError("this protocol serves a headgate Application and nothing around it")
        self._app: Application = app
        self._limits = app.limits
        self._loop = _loop or asyncio.get_running_loop()
        self._connections: set[Any] = server_state.connections
        self._parser: Any = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport

        self._task: asyncio.Task[None] | None = None
        self._waiting: deque[tuple[Request, bytes, bool]] = deque()
        """Read but not yet begun: request, body, whether the connection outlives it."""
        self._held = b""
        """Received but not yet parsed."""
        self._askers: set[asyncio.Future[None]] = set()
        self._writable: asyncio.Future[None] | None = None
        self._paused = False
        self._lost = False
        self._last = False
        """The server stops: no requests after those that were read."""
        self._deaf = False
        """Whatever still comes is dropped: the last answer is out or due."""

        # What is being read.
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._in_head = False
        self._head_bytes = 0
        self._fed = 0
        self._request: Request | None = None
        self._old = False
        self._keep = True
        self._body: bytes | bytearray = b""
        self._body_bytes = 0
        self._body_seen = 0
        self._around_bytes = 0
        self._body_timed = False

        self._deadlines = Deadlines(self._loop, self._too_slow, self._cut)

    # What the transport and the server call

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._transport.set_write_buffer_limits(high=self._limits.outgoing_bytes)
        self._connections.add(self)
        self._deadlines.send_within(self._limits.header_timeout_s)
        if len(self._connections) > self._limits.connections:
            self._reject(BackendUnavailable("as many connections are open as may be"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._connections.discard(self)
        self._deadlines.stop()
        self._abandon()
        self._drop_waiting()
        for asker in self._askers:
            if not asker.done():
                asker.set_result(None)
        self.resume_writing()
        self._parser = None

    def eof_received(self) -> None:
        """The client is gone, or sends no more and is not heard any longer either."""

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        if self._held or self._waiting:
            self._held += data
        elif len(data) <= _SLICE:
            self._feed(data)
            if self._waiting:
                self._pause_or_resume()
        else:
            self._parse(data)

    def pause_writing(self) -> None:
        if self._writable is None:
            self._writable = self._loop.create_future()
            self._deadlines.take_within(self._limits.body_timeout_s)

    def resume_writing(self) -> None:
        if self._writable is not None:
            if not self._writable.done():
                self._writable.set_result(None)
            self._writable = None
            self._deadlines.taken()
            self._advance()

    def shutdown(self) -> None:
        """The server stops: end now if idle, else with the answers that are due."""
        self._last = True
        if self._task is None and not self._waiting:
            self._transport.close()

    def cut_off(self) -> None:
        """The server waits no longer."""
        if self._task is not None:
            self._task.cancel()
        self._cut()

    # What the parser calls

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = []
        self._in_head = True
        self._head_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # what follows a chunked body is dropped
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._in_head = False
        parser = self._parser
        if self._last or self._deaf or parser.should_upgrade():
            return
        self._old = parser.get_http_version() == "1.0"
        self._keep = not self._old and parser.should_keep_alive()
        self._body_bytes = 0
        self._body_seen = 0
        self._around_bytes = 0
        self._body_timed = False
        path, _, query = self._url.partition(b"?")
        if not path.startswith(b"/") and path != b"*":
            path, query = _absolute(self._url)
        self._request = request = self._app.open(
            parser.get_method().decode("ascii"), path.decode("latin-1"), query, self._headers
        )
        request.gone = self._gone
        if self._head_bytes + self._fed > self._limits.header_bytes:
            size = len(self._url) + sum(len(n) + len(v) + 4 for n, v in self._headers)
            if size > self._limits.header_bytes:
                self._refuse_late(request, self._headers_too_large())

    def on_body(self, body: bytes) -> None:
        request = self._request
        if request is None:
            return
        self._body_bytes += len(body)
        if request.answer is not None:
            return
        if self._body_bytes > self._limits.body_bytes:
            self._refuse_late(request, bodies.too_large(self._limits))
        elif not self._body:
            self._body = body
        else:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += body

    def on_message_complete(self) -> None:
        request = self._request
        if request is None:
            return
        self._request = None
        self._deadlines.sent()
        body = bytes(self._body)
        self._body = b""
        self._begin(request, body, keep=self._keep)

    # Reading

    def _parse(self, data: bytes) -> None:
        """Feed the parser until a request has to wait for the one before it."""
        for start in range(0, len(data), _SLICE):
            if self._deaf or self._lost:
                return
            if self._waiting:
                self._held = data[start:]
                break
            self._feed(data[start : start + _SLICE])
        if self._waiting:
            self._pause_or_resume()

    def _feed(self, data: bytes) -> None:
        self._fed = len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._without_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserInvalidMethodError:
            self._unknown_method()
        except httptools.HttpParserCallbackError as error:
            _log.error("a request could not be begun", exc_info=error.__context__ or error)
            self._reject(BackendError())
        except httptools.HttpParserError:
            self._reject(InvalidRequest("this is not an HTTP/1.1 request that can be read"))
        else:
            if self._in_head:
                self._wait_for_head()
            elif self._request is not None:
                self._wait_for_body(self._request)

    def _without_upgrade(self, rest: bytes) -> None:
        """No other protocol is spoken here, so the request is read as if it had not asked for one.

        The parser has taken what follows the headers for that other protocol; it may be the body.
        """
        method = self._parser.get_method()
        if method == b"CONNECT":
            self._unknown_method()
            return
        lines = [b"%s %s HTTP/%s" % (method, self._url, self._parser.get_http_version().encode())]
        for name, value in self._headers:
            if name == b"connection":
                tokens = [token.strip() for token in value.split(b",")]
                others = b", ".join(token for token in tokens if token.lower() != b"upgrade")
                lines.append(b"connection: " + others)
            elif name != b"upgrade":
                lines.append(b"%s: %s" % (name, value))
        self._parser = httptools.HttpRequestParser(self)
        self._feed(b"\r\n".join([*lines, b"", rest]))

    def _unknown_method(self) -> None:
        self._reject(MethodNotAllowed("the method is not known here", allow=self._app.methods))

    def _wait_for_head(self) -> None:
        begun = self._head_bytes == 0
        # The parser gathers an unfinished header by itself, so what it was fed is counted.
        self._head_bytes += self._fed
        if self._head_bytes > self._limits.header_bytes + _SLICE:
            self._reject(self._headers_too_large())
        elif begun:
            self._deadlines.send_within(self._limits.header_timeout_s)

    def _wait_for_body(self, request: Request) -> None:
        # The parser gathers an unfinished trailer by itself and reads on for as long as an extension of a chunk goes on.
        if self._body_bytes > self._body_seen:
            self._body_seen = self._body_bytes
            self._around_bytes = 0
        else:
            self._around_bytes += self._fed
            if self._around_bytes > self._limits.header_bytes + _SLICE:
                self._reject(self._headers_too_large())
                return
        if request.answer is not None:
            length = request.header(b"content-length")
            if self._body_bytes > _SKIPPED_BYTES or (length and int(length) > _SKIPPED_BYTES):
                self._deaf = True
                self._request = None
                self._begin(request, b"", keep=False)
                return
        if not self._body_timed:
            self._body_timed = True
            self._deadlines.send_within(self._limits.body_timeout_s)
            # Told to go on, unless an answer is under way that it could be taken for a part of.
            if request.header(b"expect") == "100-continue" and self._task is None:
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _refuse_late(self, request: Request, error: OjsError) -> None:
        request.answer = self._app.late(request, error)
        self._body = b""

    def _reject(self, error: OjsError) -> None:
        """Answer what cannot be read any further, after the requests before it, and hear no more."""
        self._deaf = True
        self._held = b""
        self._deadlines.sent()
        self._abandon()
        self._begin(self._app.refuse(error), b"", keep=False)

    def _abandon(self) -> None:
        if self._request is not None:
            self._app.close(self._request, 499)
            self._request = None
            self._body = b""

    def _drop_waiting(self) -> None:
        while self._waiting:
            self._app.close(self._waiting.popleft()[0], 499)

    def _headers_too_large(self) -> HeadersTooLarge:
        limit = self._limits.header_bytes
        return HeadersTooLarge(
            f"the headers are larger than {limit} bytes", details={"max_bytes": limit}
        )

    def _pause_or_resume(self) -> None:
        """Read on only when nothing waits that was read before."""
        pause = bool(self._waiting or self._held) and not self._deaf
        if pause == self._paused or self._transport.is_closing():
            return
        self._paused = pause
        if pause:
            self._deadlines.sent()
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
            if self._in_head:
                self._deadlines.send_within(self._limits.header_timeout_s)
            elif self._request is not None:
                self._deadlines.send_within(self._limits.body_timeout_s)

    # Answering

    def _begin(self, request: Request, body: bytes, *, keep: bool) -> None:
        if (
            request.answer is None
            and self._task is None
            and self._writable is None
            and not self._waiting
        ):
            self._task = self._loop.create_task(self._run(request, body, keep))
        else:
            self._waiting.append((request, body, keep))
            self._advance()

    def _advance(self) -> None:
        """Begin what waits for its turn, then read on."""
        while self._task is None and self._writable is None and not self._lost:
            if self._waiting:
                request, body, keep = self._waiting.popleft()
                if request.answer is None:
                    self._task = self._loop.create_task(self._run(request, body, keep))
                else:
                    self._write(request, request.answer, keep=keep)
                    self._app.close(request, request.answer.status)
            elif self._held:
                held, self._held = self._held, b""
                self._parse(held)
            else:
                if self._last:
                    self._transport.close()
                elif not (self._in_head or self._request or self._deaf):
                    self._deadlines.send_within(self._limits.idle_timeout_s)
                break
        if self._paused:
            self._pause_or_resume()

    async def _run(self, request: Request, body: bytes, keep: bool) -> None:
        status = 499
        try:
            answer = await self._app.finish(request, body)
            if isinstance(answer, Stream):
                status = 200
                await self._stream(request, answer, keep=keep)
            elif not self._lost:
                status = answer.status
                self._write(request, answer, keep=keep)
        except Exception:  # noqa: BLE001 - a connection without its answer must not stay open
            _log.exception("an answer could not be written")
            self._transport.abort()
        finally:
            self._task = None
            self._app.close(request, status)
            self._advance()

    def _write(self, request: Request, answer: Answer, *, keep: bool) -> None:
        if self._last and not self._waiting and not self._held:
            keep = False
        head = _heads.answer(request, answer, keep=keep)
        self._transport.write(head if request.method == "HEAD" else head + answer.body)
        if not keep:
            self._end()

    async def _stream(self, request: Request, stream: Stream, *, keep: bool) -> None:
        chunked = not self._old
        write = self._chunk if chunked else self._piece
        if not self._lost:
            self._transport.write(_heads.stream(request, stream, chunked=chunked, keep=keep))
        whole = await self._app.pump(request, stream, write)
        if self._lost:
            return
        if not whole:
            self._transport.abort()
            return
        if chunked:
            self._transport.write(b"0\r\n\r\n")
        if not keep or self._last:
            self._end()

    async def _chunk(self, chunk: bytes) -> None:
        if chunk:  # an empty one would say that the stream ends
            await self._piece(b"%x\r\n%s\r\n" % (len(chunk), chunk))

    async def _piece(self, piece: bytes) -> None:
        if self._lost:
            raise ConnectionResetError
        self._transport.write(piece)
        if self._writable is not None:
            await asyncio.wait({self._writable})

    def _end(self) -> None:
        """The last answer is out.

        Closing while the client still sends would destroy the answer on its way; so then only our side is closed, and what comes is dropped for a while.
        """
        self._held = b""
        self._drop_waiting()
        if self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size():
            self._deadlines.take_within(self._limits.body_timeout_s)
        if not self._deaf or not self._transport.can_write_eof():
            self._deaf = True
            self._transport.close()
            return
        self._transport.write_eof()
        self._pause_or_resume()
        self._deadlines.send_within(_LINGER_S)

    async def _gone(self) -> None:
        if self._lost:
            return
        asker = self._app.waiter()
        self._askers.add(asker)
        try:
            await asker
        finally:
            self._askers.discard(asker)
            asker.cancel()

    def _too_slow(self) -> None:
        """The client did not send in time what it had begun, or what it was awaited to."""
        if not self._deaf and (self._in_head or self._request is not None):
            self._reject(RequestTimeout("the request did not arrive in time"))
        else:
            self._cut()

    def _cut(self) -> None:
        self._deaf = True
        self._drop_waiting()
        self._transport.abort()


def _absolute(url: bytes) -> tuple[bytes, bytes]:
    """Path and query of `http://host/path?query`; what cannot be read is a path that nothing has."""
    try:
        parsed = httptools.parse_url(url)
    except httptools.HttpParserInvalidURLError:
        return b"", b""
    return parsed.path or b"/", parsed.query or b""
