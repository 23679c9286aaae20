"""What happens to every request, whatever route it takes.

Two callers drive it with the same three calls: `open` when the headers are there, `finish` when the body is, `close` when the answer is out.
`protocol.py` is the fast one; `app.py` makes it mountable anywhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from headgate.core.errors import (
    BackendError,
    ExtensionUnsupported,
    InvalidPayload,
    InvalidRequest,
    OjsError,
    PermissionDenied,
    RateLimited,
    Unsupported,
)
from headgate.operations import owners
from headgate.server import bodies, tenancy
from headgate.server.auth import ANONYMOUS, Gatekeeper
from headgate.server.context import Context
from headgate.server.cors import Cors, preflight
from headgate.server.route import Answer, Request, Route, Stream
from headgate.server.routing import Endpoint, Router

Headers = list[tuple[bytes, bytes]]

SPEC = b"1.0"
JSON = b"application/openjobspec+json"
STREAM_GRACE_S = 1.0
"""How long streams may say goodbye when the server stops."""

_READ = frozenset(
    {
        b"access-control-request-method",
        b"origin",
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"ojs-block-timeout",
        b"ojs-requires-extension",
        b"ojs-version",
        b"x-request-id",
        *tenancy.HEADERS,
    }
)
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_NO_QUERY: dict[str, str] = {}
_MAX_PARAMETERS = 1_000

_log = logging.getLogger(__name__)
_access = logging.getLogger("headgate.access")


class Pipeline:
    """Routes, admits, decodes, answers; never raises to the caller that drives it."""

    def __init__(
        self, context: Context, routes: Sequence[Route], extensions: frozenset[str] = frozenset()
    ) -> None:
        self.context = context
        self.limits = context.settings.limits
        self.draining = False
        self.in_flight = 0
        """Opened and not yet closed."""
        self.streams = 0
        self.methods = tuple(sorted({route.method for route in routes} | {"HEAD", "OPTIONS"}))
        self._router = Router(routes)
        self._fixed = self._router.fixed
        self._keeper = Gatekeeper(context.settings.tokens)
        self._extensions = extensions
        self._strict_tenants = context.settings.strict_tenants
        self._cors = Cors(context.settings.cors_origins)
        self._answers_pages = bool(context.settings.cors_origins)
        self._keyless = not context.settings.tokens
        self._access_log = context.settings.access_log
        self._waiting: set[asyncio.Future[None]] = set()
        self._pumps: set[asyncio.Task[None]] = set()

    # A request

    def open(self, method: str, path: str, query: bytes, headers: Headers) -> Request:
        """Decide all that can be decided without the body; `path` is as sent, percent-encoded.

        A request that was refused carries its answer already.
        """
        self.in_flight += 1
        found = {name: value for name, value in headers if name in _READ}
        now_ms = self.context.now_ms()
        request = Request(
            (), _NO_QUERY, headers, b"", None, ANONYMOUS, self._id(found, now_ms), now_ms, _forever
        )
        request.method = method
        request.path = path
        try:
            if self._answers_pages:
                request.cors = self._cors.told(found.get(b"origin"))
            self._admit(request, query, found)
        except OjsError as refusal:
            request.answer = _refusal(refusal, request.request_id)
        return request

    def refuse(self, error: OjsError, method: str = "", path: str = "") -> Request:
        """A request that could not even be read, with its answer."""
        self.in_flight += 1
        now_ms = self.context.now_ms()
        request = Request(
            (), _NO_QUERY, (), b"", None, ANONYMOUS, self._id({}, now_ms), now_ms, _forever
        )
        request.method = method
        request.path = path
        request.answer = _refusal(error, request.request_id)
        return request

    async def finish(self, request: Request, body: bytes) -> Answer | Stream:
        """Let the route's handler answer, and wait until what it observed is durable."""
        if request.answer is not None:
            return request.answer
        endpoint: Endpoint = request.endpoint
        try:
            if endpoint.body:
                self._read(request, body)
        except OjsError as refusal:
            return _refusal(refusal, request.request_id)
        answer: Answer | Stream
        try:
            try:
                if endpoint.owned and request.tenant:
                    job_id = request.params[0]
                    await owners.check(self.context.engine, job_id, request.tenant, request.now_ms)
                answer = await endpoint.handler(self.context, request)
            except OjsError as refusal:
                answer = _refusal(refusal, request.request_id)
            if endpoint.durable:
                await self.context.engine.settled()
        except OjsError as refusal:
            return _refusal(refusal, request.request_id)
        except Exception:  # noqa: BLE001 - a fault in one handler must not reach another request
            _log.exception(
                "%s %s failed",
                request.method,
                endpoint.route.path,
                extra={"request_id": request.request_id},
            )
            return _refusal(BackendError(), request.request_id)
        for _, value in answer.headers:
            if b"\n" in value or b"\r" in value:
                _log.error("a header of %s %s breaks lines", request.method, endpoint.route.path)
                answer.headers = []
                break
        if isinstance(answer, Stream):
            return await self._stream_or_refusal(request, answer)
        return answer

    def close(self, request: Request, status: int) -> None:
        """The answer is out, or its reader gone; every opened request is closed once."""
        self.in_flight -= 1
        if request.streaming:
            self.streams -= 1
        if self._access_log:
            _access.info(
                "%s %s %d",
                request.method,
                request.path,
                status,
                extra={
                    "request_id": request.request_id,
                    "caller": request.identity.name,
                    "duration_ms": self.context.now_ms() - request.now_ms,
                },
            )

    def late(self, request: Request, error: OjsError) -> Answer:
        """The answer to a request that went wrong after it was opened."""
        return _refusal(error, request.request_id)

    # Waiting and streaming

    def waiter(self) -> asyncio.Future[None]:
        """A future that is done when the server stops; whoever asked may end it earlier."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.draining:
            future.set_result(None)
        else:
            self._waiting.add(future)
            future.add_done_callback(self._waiting.discard)
        return future

    def drain(self) -> None:
        """Nobody waits any longer: parked requests answer with what they have, streams say goodbye."""
        self.draining = True
        for future in list(self._waiting):
            if not future.done():
                future.set_result(None)

    async def pump(
        self, request: Request, stream: Stream, write: Callable[[bytes], Awaitable[None]]
    ) -> bool:
        """Write chunks until they end, the reader is gone or the server stops; false if they broke off."""
        pumping = asyncio.create_task(_copy(stream.chunks, write))
        leaving = asyncio.ensure_future(request.gone())
        try:
            await asyncio.wait({pumping, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not pumping.done() and self.draining:
                await asyncio.wait({pumping}, timeout=STREAM_GRACE_S)
        finally:
            pumping.cancel()
            leaving.cancel()
            await asyncio.gather(pumping, leaving, return_exceptions=True)
            await stream.chunks.aclose()
        if pumping.cancelled() or (error := pumping.exception()) is None:
            return True
        if not isinstance(error, ConnectionError):
            _log.error(
                "the stream at %s broke off",
                request.path,
                exc_info=error,
                extra={"request_id": request.request_id},
            )
        return False

    # Steps

    def _id(self, found: dict[bytes, bytes], now_ms: int) -> str:
        given = found.get(b"x-request-id")
        if given is not None and 0 < len(given) <= 200 and given.isascii():
            text = given.decode("ascii")
            if text.isprintable():
                return text
        return "req_" + self.context.new_id(now_ms)

    def _admit(self, request: Request, query: bytes, found: dict[bytes, bytes]) -> None:
        method = request.method
        place = self._fixed.get(request.path)
        if place is None:
            place, request.params = self._router.find(request.path)
        if method == "OPTIONS" and "OPTIONS" not in place.endpoints:
            request.answer = Answer(
                b"", 204, [(b"allow", ", ".join(place.allow).encode())], content_type=b""
            )
            if len(request.cors) > 1 and b"access-control-request-method" in found:
                request.answer.headers += preflight(place.allow)
            return
        endpoint = place.endpoint(method)
        if not endpoint.open and self.in_flight > self.limits.in_flight:
            raise RateLimited("the server is answering as many requests as it may")
        request.endpoint = endpoint
        request.identity = self._keeper.admit(found.get(b"authorization"), endpoint.roles)
        if found:
            request.known = found
            self._check_headers(request, endpoint, found)
        if endpoint.tenant:
            if not tenancy.HEADERS.isdisjoint(found):
                request.tenant = tenancy.tenant_of(found)
            if self._strict_tenants and endpoint.tenant > 1 and not request.tenant:
                raise tenancy.missing()
        if query:
            request.raw_query = query
            request.query = _parameters(query)

    def _check_headers(
        self, request: Request, endpoint: Endpoint, found: dict[bytes, bytes]
    ) -> None:
        version = found.get(b"ojs-version")
        if version is not None and version != SPEC:
            raise Unsupported(
                f"OJS version {version[:20].decode('latin-1')!r} is not spoken here",
                field="OJS-Version",
                expected=SPEC.decode(),
            )
        origin = found.get(b"origin")
        if origin is not None and self._keyless and request.method not in _SAFE:
            host = next((value for name, value in request.headers if name == b"host"), b"")
            if not self._cors.admits(origin, host):
                raise PermissionDenied(
                    "a page of another origin may not change anything here",
                    details={"field": "Origin", "expected": "one of the setting cors_origins"},
                )
        wanted = found.get(b"ojs-requires-extension")
        if wanted is not None:
            for name in wanted.decode("latin-1").split(","):
                if name.strip() not in self._extensions:
                    raise ExtensionUnsupported(
                        f"the extension {name.strip()[:200]!r} is not supported here",
                        field="OJS-Requires-Extension",
                    )
        length = found.get(b"content-length")
        if length is not None:
            if not length.isdigit():
                raise InvalidRequest(field="Content-Length", expected="a number")
            if len(length) > 15 or int(length) > self.limits.body_bytes:
                raise bodies.too_large(self.limits)
        if endpoint.body:
            kind = found.get(b"content-type")
            if kind is not None and length != b"0":
                bodies.check_type(kind)
            coding = found.get(b"content-encoding")
            if coding is not None:
                request.coding = bodies.check_coding(coding)

    def _read(self, request: Request, body: bytes) -> None:
        endpoint: Endpoint = request.endpoint
        if request.coding is not None and body:
            body = bodies.expand(body, self.limits)
        if not body:
            if endpoint.body == 1:
                return
            raise InvalidPayload("the body is empty, but must be a JSON object")
        bodies.check_shape(body, self.limits, many=endpoint.many)
        request.body = body
        if endpoint.decode is not None:
            request.data = bodies.decode(endpoint.decode, body)

    async def _stream_or_refusal(self, request: Request, stream: Stream) -> Answer | Stream:
        if request.method == "HEAD":
            await stream.chunks.aclose()
            return Answer(b"", 200, stream.headers, stream.content_type)
        if self.streams < self.limits.streams:
            self.streams += 1
            request.streaming = True
            return stream
        await stream.chunks.aclose()
        refusal = RateLimited("as many event streams are open as may be", retry_after_s=5)
        return _refusal(refusal, request.request_id)


def common_headers(request: Request, content_type: bytes) -> Headers:
    """What every answer carries."""
    headers = [(b"ojs-version", SPEC), (b"x-request-id", request.request_id.encode())]
    if content_type:
        headers.append((b"content-type", content_type))
    headers += request.cors
    return headers


def _refusal(error: OjsError, request_id: str) -> Answer:
    return Answer(
        msgspec.json.encode(error.body(request_id)),
        error.status,
        [(name.lower().encode(), value.encode()) for name, value in error.headers.items()],
    )


def _parameters(query: bytes) -> dict[str, str]:
    try:
        return dict(
            parse_qsl(
                query.decode("ascii"),
                keep_blank_values=True,
                errors="strict",
                max_num_fields=_MAX_PARAMETERS,
            )
        )
    except ValueError as error:
        raise InvalidRequest(f"the query cannot be read: {error}", field="query") from None


async def _copy(chunks: Any, write: Callable[[bytes], Awaitable[None]]) -> None:
    async for chunk in chunks:
        await write(chunk)


async def _forever() -> None:
    await asyncio.get_running_loop().create_future()
