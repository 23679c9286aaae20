"""Many jobs in one request: all or none, or each on its own."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from headgate.core.envelope import Envelope
from headgate.core.errors import BatchTooLarge, InvalidRequest, OjsError
from headgate.engines.contract import Duplicate, Pushed
from headgate.operations import bulk_push, idempotency, push
from headgate.server import backpressure, envelopes, quotas
from headgate.server.context import Context
from headgate.server.roles import PRODUCERS
from headgate.server.route import Answer, Request, Route
from headgate.wire.batch import Batch, BatchAnswer, BulkEnqueue, BulkEnqueueAnswer
from headgate.wire.jobs import array_json, job_json
from headgate.wire.shapes import BatchShape, BulkShape

_encode = msgspec.json.Encoder().encode


async def enqueue(context: Context, request: Request) -> Answer:
    tenants = {request.tenant}
    try:
        outcomes = await _enqueue_all(context, request, tenants)
    except OjsError as refusal:
        refusal.headers.update(quotas.told(context, tenants))
        raise
    records = array_json([job_json(outcome.job, request.now_ms) for outcome in outcomes])
    known = [index for index, outcome in enumerate(outcomes) if isinstance(outcome, Duplicate)]
    more = b',"deduplicated":%b' % _encode(known) if known else b""
    return Answer(
        b'{"jobs":%b,"count":%d%b}' % (records, len(outcomes), more),
        201,
        [*backpressure.warnings(outcomes), *quotas.headers(context, tenants)],
    )


async def _enqueue_all(
    context: Context, request: Request, tenants: set[str]
) -> list[Pushed | Duplicate]:
    """Adds to `tenants` whose jobs these are."""
    asked: Batch = request.data
    block_ms = backpressure.block_ms(request)
    _check_size(context, asked.jobs)
    read = []
    for index, item in enumerate(asked.jobs):
        try:
            read.append(envelopes.read(context, request, item))
        except OjsError as error:
            raise push.at_index(error, index) from None
    tenants.update(envelope.tenant for envelope in read)
    return await push.push_all(
        context.engine,
        read,
        envelopes.producer(context, request),
        context.now_ms,
        context.new_id,
        block_ms=block_ms,
        gone=request.gone,
    )


async def enqueue_each(context: Context, request: Request) -> Answer:
    """As `partial` or `atomic`; with an idempotency key at most once."""
    asked: BulkEnqueue = request.data
    key = request.header(b"idempotency-key")
    if key is None:
        key = asked.idempotency_key
    if key is None:
        return await _enqueue_each(context, request, asked)
    idempotency.check_key(key, "idempotency_key")
    engine = context.engine
    scope = idempotency.scope_of("bulk.enqueue", request.identity.name, request.tenant)
    kept = await idempotency.recall(engine, scope, key, request.body, request.now_ms)
    if kept is not None:
        return Answer(kept[3:], int(kept[:3]), [_size(asked)])
    found = await _enqueue_each(context, request, asked)
    first = b"%03d%b" % (found.status, found.body)
    await idempotency.remember(engine, scope, key, request.body, first, request.now_ms)
    return found


async def _enqueue_each(context: Context, request: Request, asked: BulkEnqueue) -> Answer:
    _check_size(context, asked.jobs)
    read: list[Envelope | OjsError] = []
    for item in asked.jobs:
        try:
            read.append(envelopes.read(context, request, item))
        except OjsError as error:
            read.append(error)
    outcomes = await bulk_push.push_each(
        context.engine,
        read,
        envelopes.producer(context, request),
        request.now_ms,
        context.new_id,
        atomic=asked.atomicity == "atomic",
    )
    items = [_item(index, outcome, request) for index, outcome in enumerate(outcomes)]
    failed = sum(isinstance(outcome, OjsError) for outcome in outcomes)
    total = len(outcomes)
    body = b'{"total":%d,"succeeded":%d,"failed":%d,"items":%b}' % (
        total, total - failed, failed, array_json(items),
    )  # fmt: skip
    status = 422 if failed == total else 201
    if failed != total and not all(isinstance(outcome, Pushed) for outcome in outcomes):
        status = 207
    tenants = {each.tenant for each in read if isinstance(each, Envelope)} | {request.tenant}
    headers = [_size(asked), *backpressure.warnings(outcomes), *quotas.headers(context, tenants)]
    return Answer(body, status, headers)


def _item(index: int, outcome: Pushed | Duplicate | OjsError, request: Request) -> bytes:
    if isinstance(outcome, OjsError):
        status = b"duplicate" if outcome.code == "duplicate" else b"failed"
        error = outcome.body(request.request_id)["error"]
        return b'{"index":%d,"status":"%b","error":%b}' % (index, status, _encode(error))
    status = b"duplicate" if isinstance(outcome, Duplicate) else b"created"
    record = job_json(outcome.job, request.now_ms)
    return b'{"index":%d,"status":"%b","job":%b}' % (index, status, record)


def _check_size(context: Context, jobs: Sequence[Raw]) -> None:
    most = context.settings.limits.batch_items
    if not jobs:
        raise InvalidRequest(field="jobs", expected="at least one job")
    if len(jobs) > most:
        raise BatchTooLarge(max_batch_size=most)


def _size(asked: BulkEnqueue) -> tuple[bytes, bytes]:
    return (b"x-ojs-batch-size", b"%d" % len(asked.jobs))


ROUTES: Sequence[Route] = (
    Route("POST", "/ojs/v1/jobs/batch", enqueue, PRODUCERS, tag="bulk",
          summary="Enqueue many jobs, all or none", request=Batch, shape=BatchShape, body="required", many=True,
          response=BatchAnswer, status=201, headers=backpressure.MAY_WAIT, sends={**backpressure.WARNINGS, **quotas.SENDS},
          tenant="seen", errors=(400, 403, 404, 409, 413, 415, 422, 429)),
    Route("POST", "/ojs/v1/jobs/bulk", enqueue_each, PRODUCERS, tag="bulk",
          summary="Enqueue many jobs, each on its own or all at once", request=BulkEnqueue, shape=BulkShape,
          body="required", many=True, response=BulkEnqueueAnswer, status=201, also=(207, 422),
          sends={**backpressure.WARNINGS, **quotas.SENDS}, tenant="seen",
          errors=(400, 409, 413, 415, 422)),
)  # fmt: skip
