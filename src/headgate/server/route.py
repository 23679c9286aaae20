"""What a route is: the single source for routing, decoding, authorisation and the OpenAPI document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from headgate.server.auth import Identity
from headgate.server.context import Context

_NONE: Mapping[bytes, bytes] = {}


class Request:
    """One request as a handler sees it: everything decoded that the route asked for."""

    __slots__ = (
        "answer",
        "body",
        "coding",
        "cors",
        "data",
        "endpoint",
        "gone",
        "headers",
        "identity",
        "known",
        "method",
        "now_ms",
        "params",
        "path",
        "query",
        "raw_query",
        "request_id",
        "streaming",
        "tenant",
    )

    def __init__(
        self,
        params: tuple[str, ...],
        query: Mapping[str, str],
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
        data: Any,
        identity: Identity,
        request_id: str,
        now_ms: int,
        gone: Callable[[], Awaitable[None]],
    ) -> None:
        self.params = params
        """Path parameters in the order of the path."""
        self.query = query
        self.raw_query = b""
        self.headers = headers
        """As the server got them: lower-case names."""
        self.body = body
        """Decompressed; empty where the route takes none."""
        self.data = data
        """The body decoded into the route's request struct; None where it names none or none came."""
        self.identity = identity
        self.request_id = request_id
        self.now_ms = now_ms
        self.gone = gone
        """Returns when nobody should wait any longer: the client has disconnected or the server is stopping.

        Only handlers that wait call it. What they then answer reaches the client if it is still there.
        """

        self.known: Mapping[bytes, bytes] = _NONE
        """Those headers that the server gives a meaning, by name."""
        self.tenant = ""
        """Whom the request comes from; "" where it does not say, or where the route does not ask."""

        # The application's own.
        self.cors: Sequence[tuple[bytes, bytes]] = ()
        """What a browser is told that shows a page of another origin."""
        self.method = ""
        self.path = ""
        self.coding: bytes | None = None
        self.endpoint: Any = None
        self.answer: Answer | None = None
        """Decided before the body was read: a refusal."""
        self.streaming = False

    def header(self, name: bytes) -> str | None:
        for key, value in self.headers:
            if key == name:
                return value.decode("latin-1")
        return None


class Answer(Struct):
    """What a handler gives back; the application adds the headers that every answer carries."""

    body: bytes
    status: int = 200
    headers: list[tuple[bytes, bytes]] = []
    content_type: bytes = b"application/openjobspec+json"


class Stream(Struct):
    """An answer that goes on: server-sent events, one chunk at a time."""

    chunks: Any
    """An async generator of bytes. It may be closed before it was started, so what it holds it must acquire itself."""
    headers: list[tuple[bytes, bytes]] = []
    content_type: bytes = b"text/event-stream"


Tenancy: TypeAlias = Literal["ignored", "seen", "needed"]
"""What a route makes of the tenant that a request names; where it is needed, a strict server refuses requests that name none."""

Handler = Callable[[Context, Request], Awaitable[Answer | Stream]]


class Route(Struct, frozen=True):
    method: str
    path: str
    """`/ojs/v1/jobs/{id}`: parameters are whole segments."""
    handler: Handler
    roles: frozenset[str]
    """Who may call it; empty means everybody, without a token."""
    summary: str = ""
    request: Any = None
    """The struct of the body; None leaves the bytes to the handler (or there is no body)."""
    shape: Any = None
    """What the body looks like, for the document, where `request` does not say it all."""
    body: str = "none"
    """none, optional or required."""
    response: Any = None
    """The struct of the successful answer's body, for the document."""
    status: int = 200
    also: tuple[int, ...] = ()
    """Other statuses that come with the body of `response`, for the document."""
    content: str = "application/openjobspec+json"
    """The type of the successful answer, for the document."""
    query: Mapping[str, str] = {}
    """Query parameters and what they mean, for the document."""
    headers: Mapping[str, str] = {}
    """Headers of the request that mean something here only, for the document."""
    sends: Mapping[str, str] = {}
    """Headers that a successful answer may carry, for the document."""
    tenant: Tenancy = "ignored"
    owned: bool = False
    """The path names a job: where the request names a tenant, only the jobs of that one exist."""
    errors: tuple[int, ...] = ()
    durable: bool = True
    """Answer only when what the handler observed is durable. Health and metrics need not wait."""
    tag: str = "jobs"
    many: bool = False
    """The body holds many jobs: what limits the number of keys in one body holds for each of them."""


OWNED: dict[str, Any] = {"tenant": "needed", "owned": True}
"""For routes that are about one job."""
