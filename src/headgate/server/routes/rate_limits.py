"""Keys and their limits: what everybody may know of them, and what operators may do with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from headgate.core.limits import parted
from headgate.operations import bulk, limits, queues
from headgate.server.answers import answer, jobs_raw
from headgate.server.context import Context
from headgate.server.roles import EVERYBODY, OPERATORS
from headgate.server.route import Answer, Request, Route
from headgate.server.routes.admin_tasks import NUMBERED, task_info
from headgate.wire import paging
from headgate.wire.limits import (
    CancelByKey,
    CancelledByKey,
    KeyJobList,
    LiftedLimit,
    QueueRateLimit,
    RateLimit,
    RateLimitList,
    limit_json,
    named,
    queue_limit_json,
)


async def list_keys(context: Context, request: Request) -> Answer:
    page = paging.numbered(request.query)
    views, total = await context.engine.keys(page.limit, page.offset, request.now_ms)
    items = [
        limit_json(view.key, view.state, view.waiting)
        for view in views
        if not request.tenant or parted(view.key)[1] in {"", request.tenant}
    ]
    return answer({"items": items, "pagination": page.pagination(total)})


async def info(context: Context, request: Request) -> Answer:
    view = await limits.look_up(context.engine, _name(request), request.now_ms)
    return answer(limit_json(view.key, view.state, view.waiting))


async def override(context: Context, request: Request) -> Answer:
    view = await limits.override(
        context.engine, _name(request), request.data, request.identity.name, request.now_ms
    )
    return answer(limit_json(view.key, view.state, view.waiting))


async def lift(context: Context, request: Request) -> Answer:
    name = _name(request)
    await limits.lift(context.engine, name, request.identity.name, request.now_ms)
    return answer(LiftedLimit(**named(name), lifted=True))


async def list_jobs(context: Context, request: Request) -> Answer:
    name = _name(request)
    page = paging.numbered(request.query)
    found = await limits.jobs(
        context.engine, name, page.limit, page.offset, request.now_ms, tenant=request.tenant
    )
    return answer(
        KeyJobList(
            **named(name),
            allowed=jobs_raw(found.allowed, request.now_ms),
            rate_limited=jobs_raw(found.rate_limited, request.now_ms),
            allowed_total=found.allowed_total,
            rate_limited_total=found.rate_limited_total,
            pagination=page.pagination(found.allowed_total + found.rate_limited_total),
        )
    )


async def cancel(context: Context, request: Request) -> Answer:
    name = _name(request)
    asked: CancelByKey = request.data
    bulk.check_confirmed(asked.confirm)
    task = await limits.cancel(
        context.engine,
        name,
        asked.states,
        context.new_id,
        request.now_ms,
        tenant=request.tenant,
    )
    body = CancelledByKey(
        **named(name),
        total_matched=task.matched,
        cancelled=task.done,
        skipped=task.skipped,
        task=UNSET if task.finished else task_info(task),
    )
    return answer(body, status=200 if task.finished else 202)


async def limit_queue(context: Context, request: Request) -> Answer:
    (queue,) = request.params
    view = await limits.limit_queue(context.engine, queue, request.data, request.now_ms)
    return answer(queue_limit_json(view.name, view.limits))


async def queue_limit(context: Context, request: Request) -> Answer:
    (queue,) = request.params
    view = await queues.look_up(context.engine, queue, request.now_ms)
    return answer(queue_limit_json(view.name, view.limits))


def _name(request: Request) -> str:
    (key,) = request.params
    return limits.name_of(key, request.query.get("tenant"), request.tenant)


_TENANT = {"tenant": "Whose key it is, where jobs named it with the scope `tenant`."}


def _route(method: str, path: str, handler: Any, roles: frozenset[str], **more: Any) -> Route:
    query = {**_TENANT, **more.pop("query", {})} if "{key}" in path else more.pop("query", {})
    return Route(
        method, f"/ojs/v1/rate-limits{path}", handler, roles, tag="limits", query=query,
        tenant="seen", **more,
    )  # fmt: skip


ROUTES: Sequence[Route] = (
    _route("GET", "", list_keys, EVERYBODY, summary="List the keys, those known longest first",
           response=RateLimitList, query=NUMBERED, errors=(400,)),
    _route("GET", "/{key}", info, EVERYBODY, summary="A key, and how far its limits are used up",
           response=RateLimit, errors=(400, 404)),
    _route("PUT", "/{key}", override, OPERATORS, summary="Put other limits upon a key for a time",
           request=dict[str, Any], body="required", response=RateLimit, errors=(400,)),
    _route("DELETE", "/{key}", lift, OPERATORS, summary="Take back override and hold of a key",
           response=LiftedLimit, errors=(400, 404)),
    _route("GET", "/{key}/jobs", list_jobs, OPERATORS,
           summary="The jobs of a key: which may run, which wait for it",
           response=KeyJobList, query=NUMBERED, errors=(400, 404)),
    _route("POST", "/{key}/jobs/cancel", cancel, OPERATORS, summary="Cancel the jobs of a key",
           request=CancelByKey, body="required", response=CancelledByKey, also=(202,),
           errors=(400, 404)),
    Route("GET", "/ojs/v1/admin/queues/{name}/rate-limit", queue_limit, OPERATORS, tag="admin",
          summary="The limits of a queue as a whole", response=QueueRateLimit, errors=(404,)),
    Route("PUT", "/ojs/v1/admin/queues/{name}/rate-limit", limit_queue, OPERATORS, tag="admin",
          summary="Limit a queue as a whole", request=dict[str, Any], body="required",
          response=QueueRateLimit, errors=(400,)),
)  # fmt: skip
