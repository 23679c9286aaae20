"""What jobs came to, for those who enqueued them."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

import msgspec

from headgate.core.errors import BatchTooLarge, InvalidRequest, ResultPruned
from headgate.core.job import Job
from headgate.core.states import COMPLETED, TERMINAL
from headgate.operations import info, results
from headgate.server.context import Context
from headgate.server.roles import EVERYBODY
from headgate.server.route import OWNED, Answer, Request, Route, Stream
from headgate.wire import sse
from headgate.wire.jobs import result_is_over
from headgate.wire.results import EVENTS, ResultAnswer, ResultsAnswer, ResultsRequest, result_json

DEFAULT_WAIT_S = 30.0

_encode = msgspec.json.Encoder().encode


async def look(context: Context, request: Request) -> Answer:
    (job_id,) = request.params
    wait_ms = _wait_ms(context, request)
    if wait_ms is None:
        job = await info.info(context.engine, job_id, request.now_ms)
    else:
        job = await results.ended(
            context.engine, job_id, context.now_ms, wait_ms=wait_ms, gone=request.gone
        )
    _check_kept(job, context.now_ms())
    return Answer(result_json(job))


def _check_kept(job: Job, now_ms: int) -> None:
    if job.state == COMPLETED and result_is_over(job, now_ms):
        raise ResultPruned(
            f"the result of {job.id} was kept for its result_ttl", details={"job_id": job.id}
        )


def _wait_ms(context: Context, request: Request) -> int | None:
    """How long the answer may wait for the job's end; None when it shall not."""
    wait = request.query.get("wait", "false")
    if wait not in {"true", "false"}:
        raise InvalidRequest(field="wait", expected="true or false")
    most = context.settings.limits.wait_ms / 1000
    text = request.query.get("timeout")
    try:
        timeout = min(DEFAULT_WAIT_S, most) if text is None else float(text)
    except ValueError:
        timeout = math.nan
    if not 0 <= timeout <= most:
        raise InvalidRequest(field="timeout", expected=f"0 to {most:g} seconds")
    return int(timeout * 1000) if wait == "true" else None


async def look_at_many(context: Context, request: Request) -> Answer:
    asked: ResultsRequest = request.data
    most = context.settings.limits.batch_items
    if len(asked.ids) > most:
        raise BatchTooLarge(max_batch_size=most)
    found: dict[str, msgspec.Raw] = {}
    missing: list[str] = []
    for job_id in dict.fromkeys(asked.ids):
        job = await context.engine.find(job_id, request.now_ms)
        if job is None or (request.tenant and job.tenant != request.tenant):
            missing.append(job_id)
        elif job.state == COMPLETED and result_is_over(job, request.now_ms):
            found[job_id] = msgspec.Raw(b'{"state":"completed","pruned":true}')
        else:
            found[job_id] = msgspec.Raw(result_json(job, named=False))
    return Answer(_encode({"results": found, "missing": missing}))


async def follow(context: Context, request: Request) -> Stream:
    (job_id,) = request.params
    _check_kept(await info.info(context.engine, job_id, request.now_ms), request.now_ms)
    return Stream(_end(context, job_id))


async def _end(context: Context, job_id: str) -> AsyncIterator[bytes]:
    engine = context.engine
    yield sse.RETRY
    async with aclosing(
        results.changes(engine, job_id, results.ENDS, context.now_ms, sse.HEARTBEAT_S)
    ) as changes:
        async for job in changes:
            if job is None:
                yield sse.HEARTBEAT
            elif job.state in TERMINAL:
                text = sse.event(EVENTS[job.state], result_json(job))
                await engine.settled()
                yield text


ROUTES: Sequence[Route] = (
    Route("GET", "/ojs/v1/jobs/{id}/result", look, EVERYBODY, tag="results", **OWNED,
          summary="The result of a job, now or when it has ended", response=ResultAnswer,
          query={
              "wait": "true: answer when the job has ended.",
              "timeout": "Seconds to wait at most; 30 by default.",
          },
          errors=(400, 404, 408, 410)),
    Route("GET", "/ojs/v1/jobs/{id}/result/stream", follow, EVERYBODY, tag="results", **OWNED,
          summary="The result as a server-sent event, when the job has ended",
          content="text/event-stream", errors=(404, 410, 429)),
    Route("POST", "/ojs/v1/jobs/results", look_at_many, EVERYBODY, tag="results", tenant="needed",
          summary="The results of many jobs", request=ResultsRequest, body="required",
          response=ResultsAnswer, errors=(400, 413)),
)  # fmt: skip
