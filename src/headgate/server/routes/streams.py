"""Events as server-sent events: of a job, of a queue, of everything."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

from headgate.core.errors import InvalidRequest
from headgate.core.times import instant_text
from headgate.engines.contract import Event, Interest
from headgate.operations import following, info, queues
from headgate.operations.following import Changed, Gap, Piece, Present, Quiet, Stopping
from headgate.server.context import Context
from headgate.server.roles import EVERYBODY, OPERATORS
from headgate.server.route import OWNED, Request, Route, Stream
from headgate.server.routes.events import names_of, source
from headgate.wire import sse
from headgate.wire.events import event_json

_HEADERS = [(b"cache-control", b"no-store")]
_MOST_DIGITS = 18


async def of_job(context: Context, request: Request) -> Stream:
    (job_id,) = request.params
    await info.info(context.engine, job_id, request.now_ms)
    pieces = following.follow_job(
        context.engine,
        job_id,
        names_of(request, "event_types"),
        context.now_ms,
        after=_last_seen(request),
        quiet_s=sse.HEARTBEAT_S,
        gone=request.gone,
    )
    return Stream(_written(context, pieces), _HEADERS)


async def of_queue(context: Context, request: Request) -> Stream:
    (name,) = request.params
    await queues.look_up(context.engine, name, request.now_ms)
    kinds = names_of(request, "event_types")
    interest = Interest(queues=(name,), kinds=kinds, tenant=request.tenant)
    return _stream(context, request, interest)


async def of_all(context: Context, request: Request) -> Stream:
    interest = Interest(
        queues=names_of(request, "queues"),
        job_types=names_of(request, "job_types"),
        kinds=(*names_of(request, "event_types"), *names_of(request, "types")),
        tenant=request.tenant,
    )
    return _stream(context, request, interest)


def _stream(context: Context, request: Request, interest: Interest) -> Stream:
    pieces = following.follow(
        context.engine,
        interest,
        context.now_ms,
        after=_last_seen(request),
        quiet_s=sse.HEARTBEAT_S,
        gone=request.gone,
    )
    return Stream(_written(context, pieces), _HEADERS)


async def _written(context: Context, pieces: AsyncGenerator[Piece, None]) -> AsyncIterator[bytes]:
    who = source(context)
    # Sent when the stream misses nothing any longer, so that its reader may rely on that.
    first = sse.RETRY
    async with aclosing(pieces):
        async for piece in pieces:
            text = first + _text(piece, who, context.now_ms())
            first = b""
            if text:
                yield text
    if first:
        yield first


def _text(piece: Piece, who: str, now_ms: int) -> bytes:
    now = instant_text(now_ms)
    match piece:
        case Event(kind=following.DROPPED):
            return sse.notice(piece.kind, {**(piece.data or {}), "timestamp": now})
        case Event():
            return sse.event(piece.kind, event_json(piece, who), piece.number)
        case Gap(after):
            return sse.notice("system.gap", {"last_event_id": str(after), "timestamp": now})
        case Quiet():
            return sse.HEARTBEAT
        case Stopping():
            return sse.notice("server.shutdown", {"timestamp": now})
        case Changed():
            return sse.notice(following.STATE_CHANGED, _change(piece))
        case Present():
            return b""


def _change(piece: Changed) -> dict[str, str]:
    found = {"job_id": piece.job_id, "queue": piece.queue, "type": piece.job_type}
    if piece.before:
        found["from"] = piece.before
    return found | {"to": piece.after, "timestamp": instant_text(piece.at_ms)}


def _last_seen(request: Request) -> int | None:
    """The number of the last event that the reader saw; None when it asks for none before now."""
    text = request.header(b"last-event-id") or request.query.get("last_event_id")
    if not text:
        return None
    if len(text) > _MOST_DIGITS or not text.isascii() or not text.isdecimal():
        raise InvalidRequest(field="Last-Event-ID", expected="the id of an earlier event")
    return int(text)


_QUERY = {
    "event_types": "Only these, separated by commas: exact, `job.*` or `*`.",
    "last_event_id": "As the header Last-Event-ID: first show what came after this event.",
}


ROUTES: Sequence[Route] = (
    Route("GET", "/ojs/v1/events/stream", of_all, OPERATORS, tag="events",
          summary="All events as server-sent events", content="text/event-stream", tenant="seen",
          query={
              **_QUERY,
              "queues": "Only of these queues, separated by commas.",
              "job_types": "Only about jobs of these types, separated by commas.",
          },
          errors=(400, 429)),
    Route("GET", "/ojs/v1/queues/{name}/events", of_queue, OPERATORS, tag="events",
          summary="The events of a queue as server-sent events", content="text/event-stream",
          query=_QUERY, tenant="seen", errors=(400, 404, 429)),
    Route("GET", "/ojs/v1/jobs/{id}/events", of_job, EVERYBODY, tag="events", **OWNED,
          summary="The events of a job as server-sent events, until it has ended",
          content="text/event-stream", query=_QUERY, errors=(400, 404, 429)),
)  # fmt: skip
