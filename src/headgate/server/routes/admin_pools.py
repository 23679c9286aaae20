"""Pools of workers, and who got how much of all dispatches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headgate.core.pools import pool_json
from headgate.engines.contract import PoolView
from headgate.operations import pools
from headgate.server.answers import answer
from headgate.server.context import Context
from headgate.server.roles import OPERATORS
from headgate.server.route import Answer, Request, Route
from headgate.server.routes.admin_tasks import NUMBERED
from headgate.wire import paging
from headgate.wire.pools import (
    DeletedPool,
    PoolAnswer,
    PoolList,
    QueueDispatches,
    SchedulingFigures,
    SchedulingStats,
)

WINDOW = "PT1M"


async def list_pools(context: Context, request: Request) -> Answer:
    page = paging.numbered(request.query)
    views = await context.engine.pools(request.now_ms)
    items = [_pool(view) for view in views[page.offset : page.offset + page.limit]]
    return answer({"items": items, "pagination": page.pagination(len(views))})


async def info(context: Context, request: Request) -> Answer:
    (name,) = request.params
    return answer({"pool": _pool(await pools.look_up(context.engine, name, request.now_ms))})


async def put(context: Context, request: Request) -> Answer:
    (name,) = request.params
    view, fresh = await pools.put(context.engine, name, request.data, request.now_ms)
    return answer({"pool": _pool(view)}, status=201 if fresh else 200)


async def delete(context: Context, request: Request) -> Answer:
    (name,) = request.params
    await pools.delete(context.engine, name, request.now_ms)
    return answer(DeletedPool(deleted=True, name=name))


async def stats(context: Context, request: Request) -> Answer:
    found = await context.engine.dispatches(request.now_ms)
    total = sum(each.last_minute for each in found)
    queues = [
        QueueDispatches(
            name=each.queue,
            dispatch_count_1m=each.last_minute,
            dispatch_ratio_1m=each.last_minute / total if total else 0.0,
            avg_wait_ms=each.avg_wait_ms,
            active_jobs=each.active_jobs,
        )
        for each in found
    ]
    figures = SchedulingFigures(queues, total, WINDOW)
    return answer(SchedulingStats(queues, total, WINDOW, stats=figures))


def _pool(view: PoolView) -> dict[str, Any]:
    return pool_json(view.pool) | {
        "active_workers": view.active_workers,
        "active_jobs": view.active_jobs,
    }


def _route(method: str, path: str, handler: Any, **more: Any) -> Route:
    return Route(method, f"/ojs/v1/admin{path}", handler, OPERATORS, tag="admin", **more)


ROUTES: Sequence[Route] = (
    _route("GET", "/pools", list_pools, summary="List the pools", response=PoolList,
           query=NUMBERED, errors=(400,)),
    _route("GET", "/pools/{name}", info, summary="Look at a pool", response=PoolAnswer,
           errors=(404,)),
    _route("PUT", "/pools/{name}", put, summary="Create or replace a pool",
           request=dict[str, Any], body="required", response=PoolAnswer, also=(201,),
           errors=(400,)),
    _route("DELETE", "/pools/{name}", delete, summary="Delete a pool; its workers stay",
           response=DeletedPool, errors=(404,)),
    _route("GET", "/scheduling/stats", stats, summary="Who got how much of all dispatches lately",
           response=SchedulingStats),
)  # fmt: skip
