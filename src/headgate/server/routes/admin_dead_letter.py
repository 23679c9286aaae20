"""Dead letters in the manner of the administrative lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headgate.engines.contract import Page
from headgate.operations import dead_letter as operations
from headgate.operations.bulk import Selection
from headgate.server.answers import answer, jobs_raw
from headgate.server.context import Context
from headgate.server.roles import OPERATORS
from headgate.server.route import Answer, Request, Route
from headgate.server.routes import dead_letter
from headgate.server.routes.admin_jobs import bulk_answer
from headgate.server.routes.admin_tasks import NUMBERED
from headgate.wire import paging
from headgate.wire.bulk import AdminBulk
from headgate.wire.dead_letter import DeadLetterStats
from headgate.wire.job_lists import JobAnswer, JobItems, ReplayedJob


async def list_jobs(context: Context, request: Request) -> Answer:
    page = paging.numbered(request.query)
    found = await context.engine.find_all(
        dead_letter.query_from(request),
        Page(page.limit, page.offset, sort="finished_at", newest_first=True),
        request.now_ms,
    )
    return answer(JobItems(jobs_raw(found.jobs, request.now_ms), page.pagination(found.total)))


async def delete(context: Context, request: Request) -> Answer:
    (job_id,) = request.params
    await operations.delete(context.engine, job_id, request.identity.name, request.now_ms)
    return Answer(b"", 204)


async def retry_selected(context: Context, request: Request) -> Answer:
    return bulk_answer("retry", await dead_letter.start(context, request, "retry"))


async def delete_selected(context: Context, request: Request) -> Answer:
    return bulk_answer("delete", await dead_letter.start(context, request, "delete"))


def _route(method: str, path: str, handler: Any, **more: Any) -> Route:
    return Route(
        method,
        f"/ojs/v1/admin/dead-letter{path}",
        handler,
        OPERATORS,
        tag="admin",
        tenant="seen",
        **more,
    )


ROUTES: Sequence[Route] = (
    _route("GET", "", list_jobs, summary="List the dead letters, the newest first",
           response=JobItems, query={**dead_letter.FILTERS, **NUMBERED}, errors=(400,)),
    _route("GET", "/stats", dead_letter.stats, summary="The dead letters, counted",
           response=DeadLetterStats),
    _route("GET", "/{id}", dead_letter.info, summary="Look at a dead letter",
           response=JobAnswer, owned=True, errors=(404,)),
    _route("POST", "/{id}/retry", dead_letter.retry, summary="Try a dead letter again",
           request=dead_letter.Retry, body="optional", response=ReplayedJob, owned=True,
           errors=(400, 404, 409, 413, 422)),
    _route("DELETE", "/{id}", delete, summary="Forget a dead letter", status=204, owned=True,
           errors=(404, 409)),
    _route("POST", "/retry", retry_selected, summary="Try many dead letters again",
           request=Selection, body="required", response=AdminBulk, errors=(400,)),
    _route("DELETE", "", delete_selected, summary="Forget many dead letters",
           request=Selection, body="optional", response=AdminBulk,
           query=dead_letter.CONFIRMED, errors=(400,)),
)  # fmt: skip
