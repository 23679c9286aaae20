"""What workers do: fetch, ack, nack, beat."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from msgspec import Raw, UnsetType

from headgate.core import queues
from headgate.core.errors import BatchTooLarge, InvalidRequest
from headgate.core.job import Job
from headgate.core.pools import check_pool_name, strategy_at, weights_at
from headgate.core.queues import EMPTY, resolve
from headgate.core.times import SECOND_MS, instant_ms, instant_text
from headgate.engines.contract import Ack, Beat, Fail, Fetch, Report
from headgate.operations import ack, beat, fail, fetch, owners, workers
from headgate.server.answers import answer
from headgate.server.context import Context
from headgate.server.roles import EVERYBODY, WORKERS
from headgate.server.route import Answer, Request, Route
from headgate.wire.exchange import FetchPart
from headgate.wire.jobs import array_json, fetched_json, with_members
from headgate.wire.workers import (
    AckAnswer,
    AckRequest,
    BeatAnswer,
    DeregisterAnswer,
    DeregisterRequest,
    FetchAnswer,
    FetchRequest,
    HealthAnswer,
    HeartbeatAnswer,
    HeartbeatRequest,
    JobAckRequest,
    JobNackRequest,
    NackAnswer,
    NackRequest,
    RegisterAnswer,
    RegisterRequest,
    ack_json,
    failure_of,
    hold_until,
    nack_json,
    value_of,
    why_json,
)

HEARTBEAT_S = 5
"""How often workers shall report."""
MAX_LABELS = 16_384
MOST_EXPLAINED = 20
"""A fetch of more queues has to ask if it wants to know why it found nothing."""

_HEALTH = {
    beat.RUNNING: ("running", 200),
    beat.QUIET: ("draining", 503),
    beat.TERMINATE: ("shutting_down", 503),
}


async def take(context: Context, request: Request) -> Answer:
    asked: FetchRequest = request.data
    fetching, wait_ms = wanted(context, asked, asked.worker_id or "", request.tenant, "")
    if fetching.pool:
        await fetch.check_pool(context.engine, fetching, request.now_ms)
    jobs = await fetch.fetch(
        context.engine, fetching, context.now_us, wait_ms=wait_ms, gone=request.gone
    )
    why = b"" if jobs else await reasons(context, fetching, asked.explain)
    return Answer(b'{"jobs":%b%b}' % (await records(context, jobs), why))


async def reasons(context: Context, fetching: Fetch, explain: bool | None) -> bytes:
    """Why there was nothing, as members of the answer; "" where there is nothing to tell."""
    if explain is False or (explain is None and len(fetching.queues) > MOST_EXPLAINED):
        return b""
    engine = context.engine
    found = await fetch.why(engine, fetching, context.now_us(), explain=explain is True)
    return why_json(found.next_at, found.reasons)


async def records(context: Context, jobs: Sequence[Job]) -> bytes:
    """The jobs as their new worker gets them, with what the last one saved."""
    if not jobs:
        return b"[]"
    now_ms = context.now_ms()
    found = [fetched_json(job, now_ms) for job in jobs]
    saved = [
        (index, job.id)
        for index, job in enumerate(jobs)
        if job.more is not None and job.more.checkpoint_sequence
    ]
    for index, job_id in saved:
        checkpoint = await context.engine.checkpoint(job_id, now_ms)
        if checkpoint is not None:
            found[index] = with_members(found[index], b'"checkpoint":' + checkpoint.state)
    return array_json(found)


def wanted(
    context: Context, asked: FetchRequest | FetchPart, worker: str, tenant: str, path: str
) -> tuple[Fetch, int]:
    """What is asked for, and how long it may wait; `path` leads to it in the body."""
    limits = context.settings.limits
    if len(asked.queues) > limits.fetch_queues:
        raise InvalidRequest(
            field=f"{path}queues", expected=f"at most {limits.fetch_queues} queues"
        )
    count = 1 if asked.count is None else asked.count
    if count > limits.fetch_jobs:
        raise InvalidRequest(field=f"{path}count", expected=f"1 to {limits.fetch_jobs}")
    wait_ms = asked.wait_ms or 0
    if wait_ms > limits.wait_ms:
        raise InvalidRequest(field=f"{path}wait_ms", expected=f"0 to {limits.wait_ms}")
    names = [_queue(name, f"{path}queues[{i}]") for i, name in enumerate(asked.queues)]
    fetching = Fetch(names, count, worker, asked.visibility_timeout_ms or 0, tenant=tenant)
    if asked.pool is not None:
        fetching.pool = check_pool_name(asked.pool, field=f"{path}pool")
    if asked.strategy is not None:
        fetching.strategy = strategy_at(asked.strategy, f"{path}strategy")
        # A queue has one turn, however often it is named.
        fetching.queues = list(dict.fromkeys(names))
    if fetching.strategy == "weighted":
        fetching.weights = weights_at(asked.weights or {}, fetching.queues, f"{path}weights")
    elif asked.weights is not None:
        raise InvalidRequest(
            field=f"{path}weights", expected="absent, or given with the strategy weighted"
        )
    return fetching, wait_ms


def _queue(name: str, field: str) -> str:
    if not _is_queue(name):
        queues.check_name(name, field=field)
    return name


@lru_cache(maxsize=10_000)
def _is_queue(name: str) -> bool:
    try:
        queues.check_name(name)
    except InvalidRequest:
        return False
    return True


async def complete(context: Context, request: Request) -> Answer:
    asked: AckRequest = request.data
    return await _complete(context, request, asked.job_id, asked)


async def complete_by_path(context: Context, request: Request) -> Answer:
    (job_id,) = request.params
    return await _complete(context, request, job_id, request.data or JobAckRequest())


async def _complete(
    context: Context, request: Request, job_id: str, asked: AckRequest | JobAckRequest
) -> Answer:
    await owners.check(context.engine, job_id, request.tenant, request.now_ms)
    given = Ack(job_id, asked.worker_id or "", asked.claim or 0, value_of(asked.result))
    job = await ack.ack(
        context.engine, given, request.now_ms, result_bytes=context.settings.limits.result_bytes
    )
    return Answer(ack_json(job, request.now_ms))


async def give_up(context: Context, request: Request) -> Answer:
    asked: NackRequest = request.data
    return await _give_up(context, request, asked.job_id, asked)


async def give_up_by_path(context: Context, request: Request) -> Answer:
    (job_id,) = request.params
    return await _give_up(context, request, job_id, request.data)


async def _give_up(
    context: Context, request: Request, job_id: str, asked: NackRequest | JobNackRequest
) -> Answer:
    requeue = asked.requeue is True
    now_ms = request.now_ms
    given = Fail(
        job_id,
        failure_of(asked.error, requeue=requeue, retry_after_ms=asked.retry_after_ms),
        asked.worker_id or "",
        asked.claim or 0,
        context.uniform(),
        hold_until(asked.error, now_ms),
    )
    await owners.check(context.engine, job_id, request.tenant, now_ms)
    job = await fail.fail(context.engine, given, now_ms, asked.error.rate_limit_key or "")
    return Answer(nack_json(job, now_ms, requeued=requeue))


async def heartbeat(context: Context, request: Request) -> Answer:
    asked: HeartbeatRequest = request.data
    heard = await _beat(context, request, asked)
    return answer(
        HeartbeatAnswer(
            heard.state,
            heard.state,
            heard.extended,
            heard.cancelled,
            instant_text(request.now_ms),
        )
    )


async def short_heartbeat(context: Context, request: Request) -> Answer:
    heard = await _beat(context, request, request.data)
    return answer(BeatAnswer(True, heard.state))


async def _beat(context: Context, request: Request, asked: HeartbeatRequest) -> Beat:
    job_ids = asked.active_job_ids or []
    if isinstance(asked.active_jobs, list):
        job_ids = [*asked.active_jobs, *job_ids]
    if len(job_ids) > context.settings.limits.fetch_jobs:
        raise BatchTooLarge(max_batch_size=context.settings.limits.fetch_jobs)
    return await beat.beat(
        context.engine,
        _report(asked),
        list(dict.fromkeys(job_ids)),
        asked.visibility_timeout_ms or 0,
        request.now_ms,
        test_hooks=context.settings.test_hooks,
    )


async def register(context: Context, request: Request) -> Answer:
    asked: RegisterRequest = request.data
    report = _report(asked)
    if asked.started_at is not None:
        try:
            report.started_at = instant_ms(asked.started_at)
        except ValueError as error:
            raise InvalidRequest(str(error), field="started_at") from None
    await beat.beat(context.engine, report, (), 0, request.now_ms)
    policy = resolve(await context.engine.default_policy(), EMPTY)
    return answer(
        RegisterAnswer(
            ok=True,
            worker_id=asked.worker_id,
            server_time=instant_text(request.now_ms),
            heartbeat_interval=HEARTBEAT_S,
            heartbeat_timeout=context.settings.heartbeat_timeout_s,
            visibility_timeout_default=policy.visibility_ms // SECOND_MS,
        )
    )


def _report(asked: HeartbeatRequest | RegisterRequest) -> Report:
    return Report(
        worker=asked.worker_id,
        state=None if asked.state is None else beat.state_from(asked.state),
        hostname=asked.hostname,
        pid=asked.pid,
        queues=asked.queues,
        concurrency=asked.concurrency,
        labels=_labels(asked.labels),
        version=asked.version,
        pool=None if asked.pool is None else check_pool_name(asked.pool, field="pool"),
    )


def _labels(given: Raw | UnsetType) -> Raw | None:
    labels = value_of(given)
    if labels is None:
        return None
    if labels[:1] not in (b"{", b"[") or len(labels) > MAX_LABELS:
        raise InvalidRequest(
            field="labels", expected=f"an object or an array of at most {MAX_LABELS} bytes"
        )
    return Raw(labels)


async def deregister(context: Context, request: Request) -> Answer:
    asked: DeregisterRequest = request.data
    requeued = await beat.deregister(context.engine, asked.worker_id, request.now_ms)
    return answer(DeregisterAnswer(True, asked.worker_id, requeued))


async def health(context: Context, request: Request) -> Answer:
    (worker,) = request.params
    view = await workers.look_up(context.engine, worker, request.now_ms)
    state, status = _HEALTH[beat.severest(view.state, view.directive)]
    body = HealthAnswer(
        view.id, state, view.stale, len(view.active_jobs), instant_text(view.last_heartbeat_at)
    )
    return answer(body, 503 if view.stale else status)


_ACK: dict[str, Any] = {"response": AckAnswer, "tenant": "needed", "errors": (400, 404, 409, 413)}
_NACK: dict[str, Any] = {"body": "required", "response": NackAnswer, "tenant": "needed",
                         "errors": (400, 404, 409, 413)}  # fmt: skip

ROUTES: Sequence[Route] = tuple(
    Route(method, f"/ojs/v1{path}", handler, roles, tag="workers", summary=summary, **more)
    for method, path, handler, roles, summary, more in (
        ("POST", "/workers/fetch", take, WORKERS, "Claim jobs, or wait for them",
         {"request": FetchRequest, "body": "required", "response": FetchAnswer,
          "tenant": "needed", "errors": (400,)}),
        ("POST", "/workers/ack", complete, WORKERS, "A job is done",
         {"request": AckRequest, "body": "required", **_ACK}),
        ("POST", "/jobs/{id}/ack", complete_by_path, WORKERS, "A job is done",
         {"request": JobAckRequest, "body": "optional", **_ACK}),
        ("POST", "/workers/nack", give_up, WORKERS, "A job failed, or is given back",
         {"request": NackRequest, **_NACK}),
        ("POST", "/jobs/{id}/nack", give_up_by_path, WORKERS, "A job failed, or is given back",
         {"request": JobNackRequest, **_NACK}),
        ("POST", "/workers/heartbeat", heartbeat, WORKERS, "A worker lives and runs these jobs",
         {"request": HeartbeatRequest, "body": "required", "response": HeartbeatAnswer,
          "errors": (400, 413)}),
        ("POST", "/workers/beat", short_heartbeat, WORKERS, "The same with a short answer",
         {"request": HeartbeatRequest, "body": "required", "response": BeatAnswer,
          "errors": (400, 413)}),
        ("POST", "/workers/register", register, WORKERS, "A worker has started",
         {"request": RegisterRequest, "body": "required", "response": RegisterAnswer,
          "errors": (400,)}),
        ("POST", "/workers/deregister", deregister, WORKERS, "A worker has ended",
         {"request": DeregisterRequest, "body": "required", "response": DeregisterAnswer,
          "errors": (400, 404)}),
        ("GET", "/workers/{id}/health", health, EVERYBODY, "How a worker is",
         {"response": HealthAnswer, "also": (503,), "errors": (404,)}),
    )
)  # fmt: skip
