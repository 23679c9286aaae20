"""Queues for operators: counts of every state, throughput, purging."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from headgate.core.errors import InvalidRequest
from headgate.core.queues import resolved_json
from headgate.core.states import CANCELLED, COMPLETED, DISCARDED, STATES
from headgate.core.times import duration_ms, instant_text
from headgate.engines.contract import Query, QueueView
from headgate.operations import bulk, queues
from headgate.operations.filters import instant
from headgate.server.answers import answer
from headgate.server.context import Context
from headgate.server.roles import ADMINS, OPERATORS
from headgate.server.route import Answer, Request, Route
from headgate.server.routes import queues as plain
from headgate.server.routes.admin_tasks import NUMBERED, task_info
from headgate.server.tenancy import queue_seen, queues_seen, restricted
from headgate.wire import paging
from headgate.wire.queues import (
    AdminDrained,
    AdminPaused,
    AdminQueue,
    AdminQueueList,
    DeletedQueue,
    DeleteQueue,
    Latency,
    Purge,
    Purged,
    Throughput,
)

_ENDED = (COMPLETED, DISCARDED, CANCELLED)


async def list_queues(context: Context, request: Request) -> Answer:
    page = paging.numbered(request.query)
    views = await context.engine.queues(request.now_ms)
    shown = await queues_seen(context, request, views[page.offset : page.offset + page.limit])
    return answer(AdminQueueList([_queue(view) for view in shown], page.pagination(len(views))))


async def info(context: Context, request: Request) -> Answer:
    (name,) = request.params
    found = _queue(await queue_seen(context, request, name))
    found.configuration = resolved_json(
        await queues.configuration(context.engine, name, request.now_ms)
    )
    return answer(found)


async def pause(context: Context, request: Request) -> Answer:
    (name,) = request.params
    view = await queues.pause(context.engine, name, request.identity.name, request.now_ms)
    return answer(AdminPaused(name, True, view.state, paused_at=instant_text(view.paused_at)))


async def resume(context: Context, request: Request) -> Answer:
    (name,) = request.params
    view = await queues.resume(context.engine, name, request.identity.name, request.now_ms)
    return answer(AdminPaused(name, False, view.state, resumed_at=instant_text(request.now_ms)))


async def drain(context: Context, request: Request) -> Answer:
    (name,) = request.params
    view = await queues.drain(context.engine, name, request.identity.name, request.now_ms)
    if view is None:
        return answer(AdminDrained(name, False, "deleted", 0))
    return answer(AdminDrained(name, plain.is_paused(view), view.state, plain.depth(view.counts)))


async def purge(context: Context, request: Request) -> Answer:
    """Forget jobs of a queue; those that have not ended are cancelled first."""
    (name,) = request.params
    asked = _purge_of(request)
    bulk.check_confirmed(asked.confirm)
    states = tuple(asked.states) if asked.states else _ENDED
    for state in states:
        if state not in STATES:
            raise InvalidRequest(field="states", expected="out of " + ", ".join(STATES))
    until = _older_than(asked.older_than, request.now_ms)
    await queues.look_up(context.engine, name, request.now_ms)
    query = restricted(Query(queue=name, states=states, created_until=until), request)
    task = await bulk.start(context.engine, "purge", query, context.new_id, request.now_ms)
    rest = UNSET if task.finished else task_info(task)
    return answer(Purged(task.done, list(states), rest), status=200 if task.finished else 202)


def _purge_of(request: Request) -> Purge:
    asked: Purge = request.data or Purge()
    query = request.query
    if asked.confirm is None and query.get("confirm") == "true":
        asked.confirm = True
    if asked.states is None and "states" in query:
        asked.states = query["states"].split(",")
    if asked.older_than is None:
        asked.older_than = query.get("older_than")
    return asked


def _older_than(text: str | None, now_ms: int) -> int | None:
    """The instant before which a job must have been created."""
    if text is None:
        return None
    if not text.startswith("P"):
        return instant(text, "older_than")
    try:
        return now_ms - duration_ms(text)
    except ValueError:
        raise InvalidRequest(
            field="older_than", expected="an ISO 8601 duration such as P7D, or a timestamp"
        ) from None


def _queue(view: QueueView) -> AdminQueue:
    rates = view.rates
    return AdminQueue(
        name=view.name,
        state=view.state,
        counts=view.counts,
        throughput=Throughput(rates.completed_last_minute, rates.failed_last_minute),
        latency_ms=Latency(*rates.latencies()),
        paused=plain.is_paused(view),
        created_at=instant_text(view.created_at),
        paused_at=plain.at(view.paused_at),
        oldest_available_at=plain.at(view.oldest_available_at),
        oldest_runnable_at=plain.at(view.oldest_runnable_at),
        pressure=UNSET if view.load is None else view.load.pressure,
        parked=view.parked,
    )


def _route(method: str, path: str, handler: Any, roles: frozenset[str], **more: Any) -> Route:
    return Route(method, f"/ojs/v1/admin/queues{path}", handler, roles, tag="admin", **more)


ROUTES: Sequence[Route] = (
    _route("GET", "", list_queues, OPERATORS, summary="List the queues with their load",
           response=AdminQueueList, query=NUMBERED, tenant="seen", errors=(400,)),
    _route("GET", "/{name}", info, OPERATORS, summary="Look at a queue and its load",
           response=AdminQueue, tenant="seen", errors=(404,)),
    _route("GET", "/{name}/config", plain.configuration, OPERATORS,
           summary="What holds for a queue", response=dict[str, Any], errors=(404,)),
    _route("PUT", "/{name}/config", plain.configure, OPERATORS,
           summary="Change the configuration of a queue", request=dict[str, Any], body="required",
           response=dict[str, Any], errors=(400, 422)),
    _route("POST", "/{name}/pause", pause, OPERATORS, summary="Give out no more jobs of a queue",
           body="optional", response=AdminPaused, errors=(400,)),
    _route("POST", "/{name}/resume", resume, OPERATORS, summary="End a pause, or call off draining",
           body="optional", response=AdminPaused, errors=(400,)),
    _route("POST", "/{name}/drain", drain, ADMINS,
           summary="Take no new jobs and be deleted when the last one has ended", body="optional",
           response=AdminDrained, errors=(404, 409)),
    _route("DELETE", "/{name}", plain.delete, ADMINS, summary="Delete a queue",
           request=DeleteQueue, body="optional", response=DeletedQueue, status=202,
           query=plain.DELETION, errors=(400, 404, 409)),
    _route("DELETE", "/{name}/jobs", purge, ADMINS, summary="Forget jobs of a queue", tenant="seen",
           request=Purge, body="optional", response=Purged, also=(202,),
           query={
               "confirm": "`true`, or nothing is done.",
               "states": "Which jobs, separated by commas; finished ones by default.",
               "older_than": "A duration since their creation, or an instant before which it was.",
           },
           errors=(400, 404)),
)  # fmt: skip
