"""How far a job has come, and what its worker saved on the way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

from msgspec import Raw

from headgate.core.errors import InvalidRequest, TooLarge
from headgate.core.states import TERMINAL
from headgate.operations import checkpoint, info, progress, results
from headgate.server.answers import answer
from headgate.server.context import Context
from headgate.server.roles import EVERYBODY, WORKERS
from headgate.server.route import OWNED, Answer, Request, Route, Stream
from headgate.wire import sse
from headgate.wire.progress import (
    CheckpointAnswer,
    CheckpointRequest,
    DroppedCheckpoint,
    ProgressAnswer,
    ProgressRequest,
    checkpoint_json,
    progress_json,
)
from headgate.wire.results import EVENTS, result_json
from headgate.wire.workers import value_of

_SHOWN = ("job.progress", "job.started", "job.retrying", *results.ENDS)


async def report(context: Context, request: Request) -> Answer:
    (job_id,) = request.params
    asked: ProgressRequest = request.data
    data = value_of(asked.data)
    if asked.progress is None and data is None:
        raise InvalidRequest(field="progress", expected="given, or data, or both")
    limits = context.settings.limits
    if data is not None and len(data) > limits.progress_bytes:
        raise TooLarge(field="data", expected=f"at most {limits.progress_bytes} bytes")
    saved = value_of(asked.checkpoint)
    engine, now_ms = context.engine, request.now_ms
    if saved is not None:
        checkpoint.check(saved, limits.checkpoint_bytes)
        job = await info.info(engine, job_id, now_ms)
        if job.state not in TERMINAL:
            await engine.save_checkpoint(job_id, saved, now_ms)
    job = await progress.report(
        engine, job_id, asked.progress, None if data is None else Raw(data), asked.message, now_ms
    )
    return Answer(progress_json(job.id, job.state, progress.progress_of(job)))


async def look(context: Context, request: Request) -> Answer:
    (job_id,) = request.params
    job = await info.info(context.engine, job_id, request.now_ms)
    return Answer(progress_json(job.id, job.state, progress.progress_of(job)))


async def follow(context: Context, request: Request) -> Stream:
    (job_id,) = request.params
    await info.info(context.engine, job_id, request.now_ms)
    return Stream(_changes(context, job_id))


async def _changes(context: Context, job_id: str) -> AsyncIterator[bytes]:
    engine = context.engine
    yield sse.RETRY
    shown = b""
    async with aclosing(
        results.changes(engine, job_id, _SHOWN, context.now_ms, sse.HEARTBEAT_S)
    ) as changes:
        async for job in changes:
            if job is None:
                yield sse.HEARTBEAT
                continue
            known = progress.progress_of(job)
            text = b""
            if known.updated_at:
                found = progress_json(job.id, job.state, known)
                text = sse.event("progress", found) if found != shown else b""
                shown = found
            if job.state in TERMINAL:
                text += sse.event(EVENTS[job.state], result_json(job))
            if text:
                await engine.settled()
                yield text


async def save(context: Context, request: Request) -> Answer:
    (job_id,) = request.params
    asked: CheckpointRequest = request.data
    saved = await checkpoint.save(
        context.engine,
        job_id,
        bytes(asked.state),
        request.now_ms,
        checkpoint_bytes=context.settings.limits.checkpoint_bytes,
    )
    return Answer(checkpoint_json(job_id, saved.state, saved.sequence, saved.saved_at))


async def look_back(context: Context, request: Request) -> Answer:
    (job_id,) = request.params
    saved = await checkpoint.look_up(context.engine, job_id, request.now_ms)
    return Answer(checkpoint_json(job_id, saved.state, saved.sequence, saved.saved_at))


async def drop(context: Context, request: Request) -> Answer:
    (job_id,) = request.params
    await checkpoint.drop(context.engine, job_id, request.now_ms)
    return answer(DroppedCheckpoint(True, job_id))


_PROGRESS = "/ojs/v1/jobs/{id}/progress"
_CHECKPOINT = "/ojs/v1/jobs/{id}/checkpoint"

ROUTES: Sequence[Route] = (
    Route("PUT", _PROGRESS, report, WORKERS, tag="progress", **OWNED, summary="Report progress",
          request=ProgressRequest, body="required", response=ProgressAnswer,
          errors=(400, 404, 413)),
    Route("GET", _PROGRESS, look, EVERYBODY, tag="progress", **OWNED, summary="How far a job has come",
          response=ProgressAnswer, errors=(404,)),
    Route("GET", f"{_PROGRESS}/stream", follow, EVERYBODY, tag="progress", **OWNED,
          summary="Progress as server-sent events, until the job has ended",
          content="text/event-stream", errors=(404, 429)),
    *(
        Route(method, _CHECKPOINT, save, WORKERS, tag="progress", **OWNED, summary="Save a checkpoint",
              request=CheckpointRequest, body="required", response=CheckpointAnswer,
              errors=(400, 404, 409, 413))
        for method in ("PUT", "POST")
    ),
    Route("GET", _CHECKPOINT, look_back, EVERYBODY, tag="progress", **OWNED,
          summary="The last checkpoint", response=CheckpointAnswer, errors=(404,)),
    Route("DELETE", _CHECKPOINT, drop, WORKERS, tag="progress", **OWNED, summary="Forget the checkpoint",
          response=DroppedCheckpoint, errors=(404,)),
)  # fmt: skip
