"""Jobs for operators: lists with filters, one job in full, cancelling and retrying."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from headgate.core.errors import InvalidRequest
from headgate.core.job import Job
from headgate.core.retry import policy_json
from headgate.core.states import CANCELLED, COMPLETED, RETRYABLE, SCHEDULED
from headgate.core.times import instant_text
from headgate.engines.contract import Page, Query, Task
from headgate.operations import bulk
from headgate.operations.bulk import Command, Selection
from headgate.operations.filters import JobFilter, instant, query_of
from headgate.operations.outcomes import done, no_job
from headgate.server.answers import answer, job_raw, jobs_raw
from headgate.server.context import Context
from headgate.server.roles import OPERATORS
from headgate.server.route import Answer, Handler, Request, Route
from headgate.server.routes.admin_tasks import NUMBERED, task_info
from headgate.server.routes.bulk import STATES
from headgate.server.tenancy import restricted
from headgate.wire import paging
from headgate.wire.bulk import AdminBulk
from headgate.wire.job_lists import ChangedJob, JobItems
from headgate.wire.jobs import job_json, with_members

_SORTS = ("created_at", "enqueued_at", "started_at", "finished_at", "priority")
_ORDERS = ("asc", "desc")
_DUE = {SCHEDULED: "scheduled_at", RETRYABLE: "next_attempt_at"}
_END = {COMPLETED: "completed_at", CANCELLED: "cancelled_at"}


async def list_jobs(context: Context, request: Request) -> Answer:
    page = paging.numbered(request.query)
    found = await context.engine.find_all(
        restricted(_query(request.query), request),
        Page(
            page.limit,
            page.offset,
            sort=_one_of(request.query, "sort", _SORTS, "created_at"),
            newest_first=_one_of(request.query, "order", _ORDERS, "desc") == "desc",
        ),
        request.now_ms,
    )
    return answer(JobItems(jobs_raw(found.jobs, request.now_ms), page.pagination(found.total)))


async def info(context: Context, request: Request) -> Answer:
    (job_id,) = request.params
    job = await context.engine.find(job_id, request.now_ms)
    if job is None:
        raise no_job(job_id)
    more: dict[str, Any] = {"retry_policy": policy_json(job.retry), "metadata": _timestamps(job)}
    if job.more is None or not job.more.errors:
        more["errors"] = []
    members = msgspec.json.encode(more)[1:-1]
    return Answer(with_members(job_json(job, request.now_ms), members))


def one(command: Command) -> Handler:
    """What carries out this command on one job."""

    async def carry_out(context: Context, request: Request) -> Answer:
        (job_id,) = request.params
        by = request.identity.name
        outcome = await bulk.carry_out(context.engine, command, job_id, by, request.now_ms)
        changed = done(outcome, command)
        return answer(ChangedJob(job_raw(changed.job, request.now_ms), changed.previous_state))

    return carry_out


def selected(command: Command) -> Handler:
    """What carries out this command on all jobs that match."""

    async def carry_out(context: Context, request: Request) -> Answer:
        query = restricted(bulk.confirmed(request.data, states=STATES[command]), request)
        task = await bulk.start(context.engine, command, query, context.new_id, request.now_ms)
        return bulk_answer(command, task)

    return carry_out


def bulk_answer(command: Command, task: Task) -> Answer:
    body = AdminBulk(
        action=command,
        matched=task.matched,
        succeeded=task.done,
        failed=task.skipped,
        errors=[],
        task=UNSET if task.finished else task_info(task),
    )
    return answer(body, status=200 if task.finished else 202)


def _query(query: Mapping[str, str]) -> Query:
    states = query.get("state")
    asked = JobFilter(
        queue=query.get("queue"),
        type=query.get("type"),
        state=states.split(",") if states else None,
        error_type=query.get("error_type"),
        key=query.get("key"),
        scope=query.get("scope"),
        tenant=query.get("tenant"),
    )
    found = query_of(asked, path="")
    found.created_from = instant(query.get("since"), "since")
    found.created_until = instant(query.get("until"), "until")
    return found


def _one_of(query: Mapping[str, str], name: str, known: Sequence[str], default: str) -> str:
    value = query.get(name) or default
    if value not in known:
        raise InvalidRequest(field=name, expected="one of " + ", ".join(known))
    return value


def _timestamps(job: Job) -> dict[str, str]:
    found = {
        "created_at": job.created_at,
        "enqueued_at": job.enqueued_at,
        "started_at": job.started_at,
        "expires_at": job.expires_at,
        "visible_until": job.visible_until,
    }
    if job.state in _DUE:
        found[_DUE[job.state]] = job.due_at
    if job.finished_at:
        found[_END.get(job.state, "discarded_at")] = job.finished_at
    return {name: instant_text(ms) for name, ms in found.items() if ms}


def _route(method: str, path: str, handler: Any, **more: Any) -> Route:
    return Route(
        method, f"/ojs/v1/admin/jobs{path}", handler, OPERATORS, tag="admin", tenant="seen", **more
    )


def _many(command: Command, summary: str) -> Route:
    return _route("POST", f"/bulk/{command}", selected(command), summary=summary, also=(202,),
                  request=Selection, body="required", response=AdminBulk,
                  errors=(400,))  # fmt: skip


ROUTES: Sequence[Route] = (
    _route("GET", "", list_jobs, summary="List jobs", response=JobItems,
           query={
               "queue": "Only of this queue.",
               "state": "Only in these states, separated by commas.",
               "type": "Only of this type, or with a prefix that ends in `*`.",
               "error_type": "Only with this type in their newest error.",
               "since": "Only created at this instant or later.",
               "until": "Only created before this instant.",
               "sort": "One of " + ", ".join(_SORTS) + "; `created_at` by default.",
               "order": "`desc` (default) or `asc`.",
               **NUMBERED,
           },
           errors=(400,)),
    _route("GET", "/{id}", info, summary="Look at a job in full", response=dict[str, Any], owned=True,
           errors=(404,)),
    _route("POST", "/{id}/cancel", one("cancel"), summary="Cancel a job", body="optional",
           response=ChangedJob, owned=True, errors=(404, 409)),
    _route("POST", "/{id}/retry", one("retry"), summary="Try a job again", body="optional",
           response=ChangedJob, owned=True, errors=(404, 409)),
    _many("cancel", "Cancel all jobs that match"),
    _many("retry", "Try all jobs that match again"),
    _many("delete", "Forget all finished jobs that match"),
)  # fmt: skip
