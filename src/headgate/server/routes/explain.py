"""Why a job stands where it stands."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from headgate.core.limits import parted, plainly
from headgate.core.times import instant_text
from headgate.engines.contract import Barrier
from headgate.operations import explain
from headgate.server.answers import answer
from headgate.server.context import Context
from headgate.server.roles import EVERYBODY
from headgate.server.route import OWNED, Answer, Request, Route
from headgate.wire.explain import BarrierInfo, ExplainAnswer

_LIMITED = frozenset({"concurrency", "rate", "throttle", "pool"})


async def look(context: Context, request: Request) -> Answer:
    (job_id,) = request.params
    told = await explain.explain(context.engine, job_id, request.now_ms, request.tenant)
    found = told.explanation
    job = found.job
    in_line = found.place >= 0
    return answer(
        ExplainAnswer(
            job_id=job.id,
            type=job.type,
            queue=job.queue,
            state=job.state,
            priority=job.priority,
            attempt=job.attempt,
            consumers=found.consumers,
            barriers=[_barrier(each, request.now_ms) for each in told.barriers],
            summary=told.summary,
            computed_at=instant_text(request.now_ms),
            place=explain.place_text(found.place) if in_line else UNSET,
            ahead=found.place if in_line else UNSET,
            tenant_id=job.tenant or UNSET,
            worker_id=job.worker or UNSET,
        )
    )


def _barrier(reason: explain.Reason, now_ms: int) -> BarrierInfo:
    barrier = reason.barrier
    name, tenant = parted(barrier.name) if barrier.scope == "key" else (barrier.name, "")
    limited = barrier.kind in _LIMITED
    opens_at = barrier.opens_at
    return BarrierInfo(
        kind=barrier.kind,
        scope=barrier.scope,
        summary=reason.summary,
        name=name or UNSET,
        tenant=tenant or UNSET,
        limit=barrier.limit if limited else UNSET,
        current=barrier.current if limited or barrier.current else UNSET,
        holders=list(barrier.holders) if barrier.holders else UNSET,
        opens_at=instant_text(opens_at) if opens_at else UNSET,
        opens_in_ms=max(0, opens_at - now_ms) if opens_at else UNSET,
        reason=_reason(barrier) or UNSET,
        remedy=reason.remedy or UNSET,
    )


def _reason(barrier: Barrier) -> str:
    # What put a job off is a key; anything else is somebody's own words.
    return plainly(barrier.reason) if barrier.kind == "scheduled" else barrier.reason


ROUTES: Sequence[Route] = (
    Route("GET", "/ojs/v1/jobs/{id}/explain", look, EVERYBODY, tag="jobs", **OWNED,
          summary="Why a job stands where it stands", response=ExplainAnswer, errors=(404,)),
)  # fmt: skip
