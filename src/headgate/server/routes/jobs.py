"""One job: enqueue it, look at it, change what may be changed, end it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from headgate.core.errors import InvalidRequest, OjsError
from headgate.core.job import Job
from headgate.core.states import TERMINAL
from headgate.core.times import instant_text
from headgate.engines.contract import Done, Duplicate
from headgate.operations import activate, cancel, info, push, reprioritize
from headgate.operations.reprioritize import Reprioritized
from headgate.server import backpressure, envelopes, quotas
from headgate.server.answers import answer
from headgate.server.context import Context
from headgate.server.roles import EVERYBODY, OPERATORS, PRODUCERS
from headgate.server.route import OWNED, Answer, Request, Route
from headgate.wire.envelope import MAX_PRIORITY
from headgate.wire.jobs import job_json, with_members
from headgate.wire.shapes import JobRecord, JobRequest

MAX_REASON = 1_024
RETRY_AFTER = (b"retry-after", b"1")


class JobAnswer(Struct):
    job: JobRecord


class PushAnswer(Struct):
    job: JobRecord
    deduplicated: bool | UnsetType = UNSET
    """True when an equal job existed and its producer wants that one instead."""


class ChangedAnswer(Struct):
    id: str
    job_id: str
    state: str
    previous_state: str
    job: JobRecord
    cancelled_at: str | UnsetType = UNSET


class CancelRequest(Struct):
    reason: Annotated[str, Meta(max_length=MAX_REASON)] | None = None


class PatchRequest(Struct):
    priority: Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)]


async def enqueue(context: Context, request: Request) -> Answer:
    tenant = request.tenant
    try:
        block_ms = backpressure.block_ms(request)
        envelope = envelopes.read(context, request, request.body)
        tenant = envelope.tenant
        outcome = await push.push(
            context.engine,
            envelope,
            envelopes.producer(context, request),
            context.now_ms,
            context.new_id,
            block_ms=block_ms,
            gone=request.gone,
        )
    except OjsError as refusal:
        refusal.headers.update(quotas.told(context, (tenant,)))
        raise
    record = job_json(outcome.job, request.now_ms)
    headers = quotas.headers(context, (tenant,)) if tenant else []
    if isinstance(outcome, Duplicate):
        return Answer(b'{"job":%b,"deduplicated":true}' % record, headers=headers)
    headers.append((b"location", location(outcome.job)))
    if outcome.load is not None:
        headers += backpressure.warnings((outcome,))
    return Answer(b'{"job":%b}' % record, 201, headers)


def location(job: Job) -> bytes:
    return b"/ojs/v1/jobs/" + job.id.encode()


async def look(context: Context, request: Request) -> Answer:
    (job_id,) = request.params
    job = await info.info(context.engine, job_id, request.now_ms)
    headers = [] if job.state in TERMINAL else [RETRY_AFTER]
    return Answer(b'{"job":%b}' % job_json(job, request.now_ms), headers=headers)


async def end(context: Context, request: Request) -> Answer:
    (job_id,) = request.params
    asked: CancelRequest | None = request.data
    reason = (asked.reason if asked is not None else None) or request.query.get("reason", "")
    if len(reason) > MAX_REASON:
        raise InvalidRequest(field="reason", expected=f"at most {MAX_REASON} characters")
    name = request.identity.name
    return _changed(
        await cancel.cancel(context.engine, job_id, name, reason, request.now_ms), request
    )


async def set_free(context: Context, request: Request) -> Answer:
    (job_id,) = request.params
    return _changed(await activate.activate(context.engine, job_id, request.now_ms), request)


def _changed(outcome: Done, request: Request) -> Answer:
    """The job, with the state that it was in before, inside and beside it."""
    job = outcome.job
    previous = b'"previous_state":"%b"' % outcome.previous_state.encode()
    flat = f'{{"id":"{job.id}","job_id":"{job.id}","state":"{job.state}",'
    if job.state in TERMINAL:
        flat += f'"cancelled_at":"{instant_text(job.finished_at)}",'
    record = with_members(job_json(job, request.now_ms), previous)
    return Answer(b'%b%b,"job":%b}' % (flat.encode(), previous, record))


async def change(context: Context, request: Request) -> Answer:
    (job_id,) = request.params
    asked: PatchRequest = request.data
    return answer(
        await reprioritize.reprioritize(context.engine, job_id, asked.priority, request.now_ms)
    )


_CANCEL: dict[str, Any] = {
    "request": CancelRequest,
    "body": "optional",
    "response": ChangedAnswer,
    "query": {"reason": "Why, for the event; a body may say it as well."},
    **OWNED,
    "errors": (400, 404, 409),
}

ROUTES: Sequence[Route] = (
    Route("POST", "/ojs/v1/jobs", enqueue, PRODUCERS, summary="Enqueue a job",
          shape=JobRequest, body="required", response=PushAnswer, status=201, also=(200,),
          headers=backpressure.MAY_WAIT, sends={**backpressure.WARNINGS, **quotas.SENDS}, tenant="seen",
          errors=(400, 403, 404, 409, 413, 415, 422, 429)),
    Route("GET", "/ojs/v1/jobs/{id}", look, EVERYBODY, summary="Look at a job",
          response=JobAnswer, **OWNED, errors=(404,)),
    Route("DELETE", "/ojs/v1/jobs/{id}", end, OPERATORS, summary="Cancel a job", **_CANCEL),
    Route("POST", "/ojs/v1/jobs/{id}/cancel", end, OPERATORS, summary="Cancel a job", **_CANCEL),
    Route("POST", "/ojs/v1/jobs/{id}/activate", set_free, PRODUCERS,
          summary="Let a pending job run", body="optional", response=ChangedAnswer,
          **OWNED, errors=(400, 404, 409)),
    Route("PATCH", "/ojs/v1/jobs/{id}", change, OPERATORS,
          summary="Change the priority of a job that waits", request=PatchRequest,
          body="required", response=Reprioritized, **OWNED, errors=(400, 404, 409)),
)  # fmt: skip
