"""What happened, oldest first, as far back as events are kept."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw

from headgate.engines.contract import Interest
from headgate.server.answers import answer
from headgate.server.context import Context
from headgate.server.roles import OPERATORS
from headgate.server.route import Answer, Request, Route
from headgate.wire import paging
from headgate.wire.events import EventList, event_json
from headgate.wire.jobs import array_json

LIMIT = 100
MOST = 1_000


def source(context: Context) -> str:
    """Who says so: this server."""
    return f"ojs://headgate/server/{context.settings.instance}"


def interest_of(request: Request) -> Interest:
    """Which events the query string asks for."""
    return Interest(
        queues=names_of(request, "queues"),
        job_types=names_of(request, "job_types"),
        kinds=names_of(request, "types"),
        tenant=request.tenant,
    )


async def list_events(context: Context, request: Request) -> Answer:
    after = paging.whole(request.query, "after", default=0)
    limit = paging.whole(request.query, "limit", default=LIMIT, least=1, most=MOST)
    found = await context.engine.events(after, limit, interest_of(request), request.now_ms)
    who = source(context)
    records = Raw(array_json(event_json(event, who) for event in found.events))
    return answer(EventList(records, str(found.cursor), found.has_more))


def names_of(request: Request, name: str) -> Sequence[str]:
    return tuple(part for part in request.query.get(name, "").split(",") if part)


ROUTES: Sequence[Route] = (
    Route("GET", "/ojs/v1/events", list_events, OPERATORS, tag="events", summary="List events",
          query={
              "types": "Only these, separated by commas: exact, `job.*` or `*`.",
              "queues": "Only of these queues, separated by commas.",
              "job_types": "Only about jobs of these types, separated by commas.",
              "after": "`cursor` of the answer before.",
              "limit": f"How many, up to {MOST}; {LIMIT} by default.",
          },
          response=EventList, tenant="seen", errors=(400,)),
)  # fmt: skip
