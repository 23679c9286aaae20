"""Workers for operators: who is there, and sending one away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Raw

from headgate.core.times import instant_text
from headgate.engines.contract import WorkerView
from headgate.operations import workers
from headgate.server.answers import answer
from headgate.server.context import Context
from headgate.server.roles import OPERATORS
from headgate.server.route import Answer, Request, Route
from headgate.server.routes.admin_tasks import NUMBERED
from headgate.wire import paging
from headgate.wire.administration import RemovedWorker, WorkerInfo, WorkerList, WorkerSummary

_STALE = "stale"


async def list_workers(context: Context, request: Request) -> Answer:
    page = paging.numbered(request.query)
    views = await context.engine.workers(request.now_ms)
    shown = views[page.offset : page.offset + page.limit]
    states = [_state(view) for view in views]
    summary = WorkerSummary(
        len(views), states.count("running"), states.count("quiet"), states.count(_STALE)
    )
    items = [_worker(view) for view in shown]
    return answer(WorkerList(items, summary, page.pagination(len(views))))


async def info(context: Context, request: Request) -> Answer:
    (worker,) = request.params
    return answer(_worker(await workers.look_up(context.engine, worker, request.now_ms)))


async def quiet(context: Context, request: Request) -> Answer:
    """The worker learns of it with its next heartbeat; it gets no more jobs from now on."""
    (worker,) = request.params
    return answer(_worker(await workers.quiet(context.engine, worker, request.now_ms)))


async def remove(context: Context, request: Request) -> Answer:
    (worker,) = request.params
    requeued = await workers.remove_stale(context.engine, worker, request.now_ms)
    return answer(RemovedWorker(deleted=True, id=worker, jobs_requeued=requeued))


def _state(view: WorkerView) -> str:
    return _STALE if view.stale else view.state


def _worker(view: WorkerView) -> WorkerInfo:
    return WorkerInfo(
        id=view.id,
        hostname=view.hostname,
        pid=view.pid,
        state=_state(view),
        directive=view.directive,
        queues=list(view.queues),
        concurrency=view.concurrency,
        active_jobs=len(view.active_jobs),
        active_job_ids=view.active_jobs,
        started_at=instant_text(view.started_at),
        last_heartbeat_at=instant_text(view.last_heartbeat_at),
        version=view.version,
        pool=view.pool,
        metadata=view.labels or Raw(b"{}"),
    )


def _route(method: str, path: str, handler: Any, **more: Any) -> Route:
    return Route(method, f"/ojs/v1/admin/workers{path}", handler, OPERATORS, tag="admin", **more)


ROUTES: Sequence[Route] = (
    _route("GET", "", list_workers, summary="List the workers", response=WorkerList,
           query=NUMBERED, errors=(400,)),
    _route("GET", "/{id}", info, summary="Look at a worker", response=WorkerInfo, errors=(404,)),
    _route("POST", "/{id}/quiet", quiet, summary="Tell a worker to take no more jobs",
           body="optional", response=WorkerInfo, errors=(404,)),
    _route("DELETE", "/{id}", remove, summary="Forget a worker that has gone silent",
           response=RemovedWorker, errors=(404, 409)),
)  # fmt: skip
