"""Queues: what everybody may know of them, and what operators may do with them."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from headgate.core.queues import PAUSED, resolved_json
from headgate.core.states import ACTIVE, AVAILABLE, PENDING, RETRYABLE, SCHEDULED, STATES, TERMINAL
from headgate.core.times import instant_text
from headgate.engines.contract import QueueView
from headgate.operations import queues
from headgate.server.answers import answer
from headgate.server.context import Context
from headgate.server.roles import ADMINS, EVERYBODY, OPERATORS
from headgate.server.route import Answer, Request, Route
from headgate.server.routes.admin_tasks import task_info
from headgate.server.tenancy import queue_seen
from headgate.wire import paging
from headgate.wire.queues import (
    CreatedQueue,
    CreateQueue,
    DeletedQueue,
    DeleteQueue,
    Drained,
    Fullest,
    Paused,
    PausedFace,
    PriorityStats,
    QueueFace,
    QueueInfo,
    QueueList,
    QueueStats,
    QueueStatsAnswer,
    QueueSummary,
    TodaysStats,
)

_LIVE = tuple(state for state in STATES if state not in TERMINAL)


async def list_queues(context: Context, request: Request) -> Answer:
    part = paging.window(request.query)
    views = await context.engine.queues(request.now_ms)
    shown = views[part.offset : part.offset + part.limit]
    return answer(
        QueueList([_summary(view) for view in shown], paging.pagination(part, len(views)))
    )


async def create(context: Context, request: Request) -> Answer:
    asked: CreateQueue = request.data
    view = await queues.create(
        context.engine,
        asked.name,
        asked.config or {},
        request.now_ms,
        strict=context.settings.strict_queues,
    )
    created = instant_text(view.created_at)
    return answer(
        CreatedQueue(view.name, view.state, resolved_json(view.resolved), created), status=201
    )


async def info(context: Context, request: Request) -> Answer:
    (name,) = request.params
    view = await queue_seen(context, request, name)
    counts = view.counts
    return answer(
        QueueInfo(
            name=view.name,
            state=view.state,
            config=resolved_json(view.resolved),
            stats=TodaysStats(
                depth=depth(counts),
                available=counts[AVAILABLE],
                active=counts[ACTIVE],
                retryable=counts[RETRYABLE],
                scheduled=counts[SCHEDULED],
                pending=counts[PENDING],
                completed_today=view.rates.completed_today,
                failed_today=view.rates.failed_today,
            ),
            created_at=instant_text(view.created_at),
            updated_at=instant_text(view.updated_at),
            queue=_face(view),
        )
    )


async def configure(context: Context, request: Request) -> Answer:
    (name,) = request.params
    found = await queues.configure(
        context.engine,
        name,
        request.data,
        request.now_ms,
        strict=context.settings.strict_queues,
    )
    return answer(resolved_json(found))


async def configuration(context: Context, request: Request) -> Answer:
    (name,) = request.params
    return answer(resolved_json(await queues.configuration(context.engine, name, request.now_ms)))


async def delete(context: Context, request: Request) -> Answer:
    (name,) = request.params
    asked: DeleteQueue = request.data or DeleteQueue()
    strategy = asked.strategy or request.query.get("strategy")
    target = asked.target_queue or request.query.get("target_queue")
    now_ms = request.now_ms
    left, task = await queues.delete(
        context.engine, name, strategy, target, context.new_id(now_ms), now_ms
    )
    body = DeletedQueue(
        name,
        strategy or "",
        jobs_affected=left.affected,
        state=left.state,
        target_queue=target or UNSET,
        task=UNSET if task is None else task_info(task),
    )
    return answer(body, status=202)


async def drain(context: Context, request: Request) -> Answer:
    (name,) = request.params
    view = await queues.drain(context.engine, name, request.identity.name, request.now_ms)
    if view is None:
        return answer(Drained(PausedFace(name, False), "deleted", 0))
    return answer(Drained(PausedFace(name, is_paused(view)), view.state, depth(view.counts)))


async def stats(context: Context, request: Request) -> Answer:
    (name,) = request.params
    view = await queue_seen(context, request, name)
    rates = view.rates
    bounds = view.resolved.bounds
    load = view.load
    return answer(
        QueueStatsAnswer(
            queue=_face(view),
            stats=QueueStats(
                queue=view.name,
                depth=depth(view.counts),
                **view.counts,
                completed_last_hour=rates.completed_last_hour,
                failed_last_hour=rates.failed_last_hour,
                avg_duration_ms=rates.avg_duration_ms,
                avg_wait_ms=rates.avg_wait_ms,
                throughput_per_second=rates.completed_last_minute / 60,
                bytes=view.bytes,
                parked=view.parked,
                max_depth=bounds.max_depth or UNSET,
                max_size=bounds.max_size or UNSET,
                max_size_bytes=bounds.max_size_bytes or UNSET,
                bound=UNSET if load is None else Fullest(load.measure, load.depth, load.bound),
                pressure=UNSET if load is None else load.pressure,
                oldest_available_at=at(view.oldest_available_at),
                oldest_available_age_ms=_age(view.oldest_available_at, request.now_ms),
                oldest_runnable_at=at(view.oldest_runnable_at),
                oldest_runnable_age_ms=_age(view.oldest_runnable_at, request.now_ms),
            ),
            status=view.state,
            computed_at=instant_text(request.now_ms),
        )
    )


async def pause(context: Context, request: Request) -> Answer:
    (name,) = request.params
    view = await queues.pause(context.engine, name, request.identity.name, request.now_ms)
    return answer(
        Paused(PausedFace(name, True), view.state, paused_at=instant_text(view.paused_at))
    )


async def resume(context: Context, request: Request) -> Answer:
    (name,) = request.params
    view = await queues.resume(context.engine, name, request.identity.name, request.now_ms)
    return answer(
        Paused(PausedFace(name, False), view.state, resumed_at=instant_text(request.now_ms))
    )


async def priority_stats(context: Context, request: Request) -> Answer:
    (name,) = request.params
    tenant = request.tenant or None
    counts = await queues.by_priority(context.engine, name, request.now_ms, tenant)
    by_name = {str(priority): count for priority, count in counts.items()}
    return answer(PriorityStats(name, by_name, sum(counts.values())))


def depth(counts: dict[str, int]) -> int:
    """How many jobs have not ended, active ones included."""
    return sum(counts[state] for state in _LIVE)


def is_paused(view: QueueView) -> bool:
    """A queue that is draining may be paused too."""
    return view.state == PAUSED or bool(view.paused_at)


def at(ms: int) -> str | UnsetType:
    return instant_text(ms) if ms else UNSET


def _age(since_ms: int, now_ms: int) -> int | UnsetType:
    return max(0, now_ms - since_ms) if since_ms else UNSET


def _face(view: QueueView) -> QueueFace:
    return QueueFace(name=view.name, paused=is_paused(view), **view.counts)


def _summary(view: QueueView) -> QueueSummary:
    return QueueSummary(
        view.name,
        view.state,
        view.state,
        instant_text(view.created_at),
        resolved_json(view.resolved),
    )


DELETION = {
    "strategy": "What becomes of jobs that wait: `reject` refuses because of them, "
    "`discard` ends them, `move` takes them to another queue.",
    "target_queue": "Where the strategy `move` takes them.",
}


def _route(method: str, path: str, handler: Any, roles: frozenset[str], **more: Any) -> Route:
    return Route(method, f"/ojs/v1{path}", handler, roles, tag="queues", **more)


ROUTES = (
    _route("GET", "/queues", list_queues, EVERYBODY, summary="List the queues",
           response=QueueList, query=paging.PARTS, errors=(400,)),
    _route("POST", "/queues", create, OPERATORS, summary="Create a queue",
           request=CreateQueue, body="required", response=CreatedQueue, status=201,
           errors=(400, 409, 422)),
    _route("GET", "/queues/{name}", info, EVERYBODY, summary="Look at a queue",
           response=QueueInfo, tenant="seen", errors=(404,)),
    _route("DELETE", "/queues/{name}", delete, ADMINS, summary="Delete a queue",
           request=DeleteQueue, body="optional", response=DeletedQueue, status=202,
           query=DELETION,
           errors=(400, 404, 409)),
    _route("GET", "/queues/{name}/config", configuration, EVERYBODY,
           summary="What holds for a queue; `_default` names the default policy",
           response=dict[str, Any], errors=(404,)),
    _route("PUT", "/queues/{name}/config", configure, OPERATORS,
           summary="Change the configuration of a queue, or of `_default`",
           request=dict[str, Any], body="required", response=dict[str, Any], errors=(400, 422)),
    _route("GET", "/queues/{name}/stats", stats, EVERYBODY, summary="The jobs of a queue, counted",
           response=QueueStatsAnswer, tenant="seen", errors=(404,)),
    _route("POST", "/queues/{name}/pause", pause, OPERATORS,
           summary="Give out no more jobs of a queue", body="optional", response=Paused,
           errors=(400,)),
    _route("POST", "/queues/{name}/resume", resume, OPERATORS,
           summary="End a pause, or call off draining", body="optional", response=Paused,
           errors=(400,)),
    _route("POST", "/queues/{name}/drain", drain, ADMINS,
           summary="Take no new jobs and be deleted when the last one has ended", body="optional",
           response=Drained, errors=(404, 409)),
    _route("GET", "/queues/{name}/priority-stats", priority_stats, EVERYBODY,
           summary="The available jobs of a queue per priority", response=PriorityStats,
           tenant="seen", errors=(404,)),
)  # fmt: skip
