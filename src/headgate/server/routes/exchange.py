"""Acks, nacks, a heartbeat and a fetch in one round trip."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headgate.core.errors import BatchTooLarge, OjsError
from headgate.core.times import SECOND_MS, instant_text
from headgate.engines.contract import Ack, Extend, Fail, Report
from headgate.operations import beat, exchange, fetch
from headgate.operations.exchange import Answered, Asked
from headgate.server.context import Context
from headgate.server.roles import WORKERS
from headgate.server.route import Answer, Request, Route
from headgate.server.routes.workers import reasons, records, wanted
from headgate.wire.exchange import ExchangeAnswer, ExchangeRequest, answered_json
from headgate.wire.jobs import array_json
from headgate.wire.workers import failure_of, hold_until, value_of

_encode = msgspec.json.Encoder().encode


async def trade(context: Context, request: Request) -> Answer:
    asked = _asked(context, request)
    engine = context.engine
    if asked.fetch is not None and asked.fetch.pool:
        await fetch.check_pool(engine, asked.fetch, request.now_ms, "fetch.pool")
    done = await exchange.answer(
        engine,
        asked,
        request.now_ms,
        result_bytes=context.settings.limits.result_bytes,
        test_hooks=context.settings.test_hooks,
    )
    request_id = request.request_id
    parts = [
        b'{"acks":%b,' % _items(done.acks, [one.job_id for one in asked.acks], request_id),
        b'"nacks":%b,' % _items(done.fails, [one.job_id for one in asked.fails], request_id),
        b'"extend":%b,' % _items(done.extends, [one.job_id for one in asked.extends], request_id),
    ]
    jobs = await exchange.fetch(engine, asked, context.now_us, request.gone)
    found = await records(context, jobs)
    if asked.fetch is not None and not jobs:
        found += await reasons(context, asked.fetch, request.data.fetch.explain)
    state = done.beat.state.encode()
    parts.append(
        b'"state":"%b","directive":"%b","cancelled_jobs":%b,"server_time":"%b","jobs":%b}'
        % (
            state,
            state,
            _encode(done.beat.cancelled),
            instant_text(context.now_ms()).encode(),
            found,
        )
    )
    return Answer(b"".join(parts))


def _asked(context: Context, request: Request) -> Asked:
    given: ExchangeRequest = request.data
    most = context.settings.limits.fetch_jobs
    worker = given.worker_id
    acks, nacks, extend = given.acks or (), given.nacks or (), given.extend or ()
    for items in (acks, nacks, extend):
        if len(items) > most:
            raise BatchTooLarge(max_batch_size=most)
    state = None if given.state is None else beat.state_from(given.state)
    asked = Asked(
        Report(worker, state),
        [Ack(one.job_id, worker, one.claim or 0, value_of(one.result)) for one in acks],
        [
            Fail(
                one.job_id,
                failure_of(
                    one.error,
                    requeue=one.requeue is True,
                    retry_after_ms=one.retry_after_ms,
                    field=f"nacks[{index}].error",
                ),
                worker,
                one.claim or 0,
                context.uniform(),
                hold_until(one.error, request.now_ms, field=f"nacks[{index}].error"),
            )
            for index, one in enumerate(nacks)
        ],
        [
            Extend(one) if isinstance(one, str) else Extend(one.job_id, one.claim or 0)
            for one in extend
        ],
        given.visibility_timeout_ms or 0,
        tenant=request.tenant,
        hold_keys={
            index: one.error.rate_limit_key
            for index, one in enumerate(nacks)
            if one.error.rate_limit_key
        },
    )
    if given.fetch is not None:
        asked.fetch, wait_ms = wanted(context, given.fetch, worker, request.tenant, "fetch.")
        asked.report.pool = asked.fetch.pool or None
        # The exchange was a sign of life; the next one has to come before the worker is given up.
        asked.wait_ms = min(wait_ms, context.settings.heartbeat_timeout_s * SECOND_MS // 2)
    return asked


def _items(found: Sequence[Answered | OjsError], job_ids: Sequence[str], request_id: str) -> bytes:
    return array_json(
        [
            b'{"job_id":%b,"error":%b}' % (_encode(job_id), _encode(one.body(request_id)["error"]))
            if isinstance(one, OjsError)
            else answered_json(one)
            for one, job_id in zip(found, job_ids, strict=True)
        ]
    )


ROUTES: Sequence[Route] = (
    Route("POST", "/ojs/v1/workers/exchange", trade, WORKERS, tag="workers",
          summary="Acks, nacks, a heartbeat and a fetch in one round trip",
          request=ExchangeRequest, body="required", response=ExchangeAnswer, many=True, tenant="needed",
          errors=(400, 413)),
)  # fmt: skip
