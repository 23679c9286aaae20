"""Dead letters: jobs that used up their attempts and were kept for a look and another try."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Struct

from headgate.core.times import duration_text, instant_text
from headgate.engines.contract import Page, Query, Task
from headgate.operations import bulk, dead_letter
from headgate.operations.bulk import Selection
from headgate.operations.dead_letter import Override
from headgate.server.answers import answer, job_raw, jobs_raw
from headgate.server.context import Context
from headgate.server.roles import OPERATORS
from headgate.server.route import OWNED, Answer, Request, Route
from headgate.server.routes.admin_tasks import task_info
from headgate.server.tenancy import restricted
from headgate.wire import paging
from headgate.wire.bulk import Deleted, Retried
from headgate.wire.dead_letter import DeadLetterRetention, DeadLetterStats, DeletedDeadLetter
from headgate.wire.job_lists import JobAnswer, JobList, ReplayedJob

MOST = 100
"""How many dead letters one answer lists."""


class Retry(Struct):
    override: Override | None = None


async def list_jobs(context: Context, request: Request) -> Answer:
    part = paging.window(request.query, most=MOST)
    page = Page(part.limit, part.offset, sort="finished_at", newest_first=True)
    found = await context.engine.find_all(query_from(request), page, request.now_ms)
    return answer(
        JobList(jobs_raw(found.jobs, request.now_ms), paging.pagination(part, found.total))
    )


async def info(context: Context, request: Request) -> Answer:
    (job_id,) = request.params
    job = await dead_letter.look_up(context.engine, job_id, request.now_ms)
    return answer(JobAnswer(job_raw(job, request.now_ms)))


async def retry(context: Context, request: Request) -> Answer:
    (job_id,) = request.params
    asked: Retry = request.data or Retry()
    job = await dead_letter.try_again(
        context.engine,
        job_id,
        asked.override,
        request.now_ms,
        meta_bytes=context.settings.limits.meta_bytes,
        strict=context.settings.strict_queues,
        by=request.identity.name,
    )
    at = instant_text(job.enqueued_at)
    return answer(ReplayedJob(job_raw(job, request.now_ms), re_enqueued_at=at))


async def delete(context: Context, request: Request) -> Answer:
    (job_id,) = request.params
    await dead_letter.delete(context.engine, job_id, request.identity.name, request.now_ms)
    return answer(DeletedDeadLetter(deleted=True, job_id=job_id))


async def retry_selected(context: Context, request: Request) -> Answer:
    task = await start(context, request, "retry")
    rest = UNSET if task.finished else task_info(task)
    body = Retried(task.matched, task.skipped, [], task.done, rest)
    return answer(body, status=200 if task.finished else 202)


async def delete_selected(context: Context, request: Request) -> Answer:
    task = await start(context, request, "delete")
    rest = UNSET if task.finished else task_info(task)
    body = Deleted(task.matched, task.skipped, [], task.done, rest)
    return answer(body, status=200 if task.finished else 202)


async def stats(context: Context, request: Request) -> Answer:
    found = await context.engine.dead_letter_stats(request.now_ms, request.tenant or None)
    return answer(
        DeadLetterStats(
            total=found.total,
            by_queue=found.by_queue,
            by_error_type=found.by_error_type,
            retention=DeadLetterRetention(
                max_age=duration_text(found.kept_ms),
                max_count=found.most,
                next_prune_at=instant_text(found.next_prune_at),
            ),
            oldest_at=instant_text(found.oldest_at) if found.oldest_at else UNSET,
            newest_at=instant_text(found.newest_at) if found.newest_at else UNSET,
        )
    )


def query_from(request: Request) -> Query:
    """The dead letters that the query string asks for."""
    query = request.query
    found = Query(
        queue=query.get("queue"),
        type=query.get("type"),
        error_type=query.get("error_type"),
        dead=True,
    )
    return restricted(found, request)


async def start(context: Context, request: Request, command: bulk.Command) -> Task:
    """Carry out the command on the dead letters that the body, or else the query string, selects."""
    asked: Selection | None = request.data
    if asked is None:
        bulk.check_confirmed(request.query.get("confirm") == "true")
        query = query_from(request)
    else:
        query = restricted(bulk.confirmed(asked, dead=True), request)
    return await bulk.start(context.engine, command, query, context.new_id, request.now_ms)


FILTERS = {
    "queue": "Only in this queue or from it.",
    "type": "Only of this type, or with a prefix that ends in `*`.",
    "error_type": "Only with this type in their newest error.",
}
CONFIRMED = {**FILTERS, "confirm": "`true`, or nothing is done."}
_PARTS = {
    **FILTERS,
    "limit": f"How many, up to {MOST}; {paging.LIMIT} by default.",
    "cursor": "`next_cursor` of the answer before.",
    "offset": "How many to leave out, instead of a cursor.",
}


def _route(method: str, path: str, handler: Any, roles: frozenset[str], **more: Any) -> Route:
    return Route(method, f"/ojs/v1/dead-letter{path}", handler, roles, tag="dead-letter", **more)


ROUTES: Sequence[Route] = (
    _route("GET", "", list_jobs, OPERATORS, summary="List the dead letters, the newest first",
           response=JobList, query=_PARTS, tenant="needed", errors=(400,)),
    _route("GET", "/stats", stats, OPERATORS, summary="The dead letters, counted",
           response=DeadLetterStats, tenant="needed"),
    _route("GET", "/{id}", info, OPERATORS, summary="Look at a dead letter",
           response=JobAnswer, **OWNED, errors=(404,)),
    _route("POST", "/{id}/retry", retry, OPERATORS, summary="Try a dead letter again",
           request=Retry, body="optional", response=ReplayedJob, **OWNED,
           errors=(400, 404, 409, 413, 422)),
    _route("DELETE", "/{id}", delete, OPERATORS, summary="Forget a dead letter",
           response=DeletedDeadLetter, **OWNED, errors=(404, 409)),
    _route("POST", "/retry", retry_selected, OPERATORS, summary="Try many dead letters again",
           request=Selection, body="required", response=Retried, also=(202,), tenant="needed",
           errors=(400,)),
    _route("DELETE", "", delete_selected, OPERATORS, summary="Forget many dead letters",
           request=Selection, body="optional", response=Deleted, also=(202,),
           query=CONFIRMED, tenant="needed", errors=(400,)),
)  # fmt: skip
