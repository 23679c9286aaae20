"""EXPLAIN: why a job stands where it stands, in members for programs and in sentences for people.

The sentences name the numbers, the jobs and the requests that whoever is woken at night needs next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from headgate.core.job import Job, More
from headgate.core.limits import plainly, queue_key, tenant_key
from headgate.core.states import AVAILABLE, TERMINAL
from headgate.engines.contract import Barrier, Engine, Explanation
from headgate.operations import remedies
from headgate.operations.barriers import said, when
from headgate.operations.outcomes import no_job
from headgate.operations.remedies import About

FARTHEST: Final = 10_000
"""No place in line is counted beyond this one."""


class Reason(Struct):
    """A barrier in words."""

    barrier: Barrier
    summary: str
    remedy: str = ""
    """What would end it; "" where time alone does."""


class Told(Struct):
    """An explanation, in words as well."""

    explanation: Explanation
    barriers: list[Reason]
    summary: list[str]


async def explain(engine: Engine, job_id: str, now_ms: int, tenant: str = "") -> Told:
    """Where it is told to a tenant, the jobs of others are not named."""
    found = await engine.explain(job_id, now_ms)
    if found is None:
        raise no_job(job_id)
    reasons = []
    for each in found.barriers:
        barrier = _named_plainly(each)
        if tenant:
            barrier.holders = await _own(engine, barrier.holders, tenant, now_ms)
        about = await _about(engine, barrier, found.job, now_ms)
        summary = said(barrier, found.job, about, now_ms)
        reasons.append(Reason(barrier, summary, remedies.remedy(barrier, found.job, about)))
    return Told(found, reasons, sentences(found, reasons, now_ms))


async def _own(engine: Engine, job_ids: Sequence[str], tenant: str, now_ms: int) -> Sequence[str]:
    """Those of these jobs that are the tenant's."""
    jobs = [await engine.find(job_id, now_ms) for job_id in job_ids]
    return [job.id for job in jobs if job is not None and job.tenant == tenant]


async def _about(engine: Engine, barrier: Barrier, job: Job, now_ms: int) -> About:
    """What else is known of what stands in the way."""
    about = About()
    if barrier.scope == "key":
        key = await engine.key(barrier.name, now_ms)
        if key is not None:
            about.limits = key.state.limits
            override = key.state.override
            if override is not None and barrier.kind in override.members:
                about.override = override
    elif barrier.kind == "maintenance":
        about.maintenance = engine.maintenance
    elif barrier.kind == "rate":
        about.limits = engine.settings(job.queue).limits
    elif barrier.kind == "no_consumers":
        about.pools = [
            view.pool.name
            for view in await engine.pools(now_ms)
            if view.pool.isolated and job.queue in view.pool.queues
        ]
    return about


def sentences(found: Explanation, reasons: Sequence[Reason], now_ms: int) -> list[str]:
    """The state first, then what is in the way, then what to do about it."""
    job = found.job
    told = [_standing(job, now_ms)]
    if job.state not in TERMINAL and job.more is not None and job.more.origin:
        told.append(_origin(job, job.more, now_ms))
    if job.state == AVAILABLE:
        told.append(_line(found, any(_is_gate(each.barrier) for each in reasons)))
    told += [each.summary for each in reasons]
    told += dict.fromkeys(each.remedy for each in reasons if each.remedy)
    if job.state == AVAILABLE and not reasons:
        told.append(_free(found))
    return told


def place_text(place: int) -> str:
    return f"{FARTHEST:,}+" if place >= FARTHEST else f"{place:,}"


def _standing(job: Job, now_ms: int) -> str:
    attempts = f"attempt {job.attempt} of {job.max_attempts}"
    match job.state:
        case "available":
            text = f"The job is available in the queue {job.queue} since {when(job.enqueued_at, now_ms)}."
        case "active":
            by = f" by the worker {job.worker}" if job.worker else ""
            text = (
                f"The job runs{by} since {when(job.started_at, now_ms)}, {attempts}; "
                f"its reservation ends at {when(job.visible_until, now_ms)} unless it is renewed."
            )
        case "pending":
            text = "The job waits until somebody activates it."
        case "scheduled":
            text = f"The job is scheduled for {when(job.due_at, now_ms)}."
            if job.more is not None and job.more.postponed_by:
                text += f" The key {plainly(job.more.postponed_by)} was closed and put it off."
        case "retryable":
            text = f"The job failed, {attempts}, and is tried again at {when(job.due_at, now_ms)}."
        case _:
            text = f"The job is {job.state} since {when(job.finished_at, now_ms)}: it has ended."
    return text + _why_ended(job)


def _why_ended(job: Job) -> str:
    if job.state in TERMINAL and job.more is not None and job.more.reason:
        return f" The reason was: {job.more.reason}."
    return ""


def _origin(job: Job, more: More, now_ms: int) -> str:
    attempts = "1 attempt" if more.buried_attempts == 1 else f"{more.buried_attempts} attempts"
    text = (
        f"It is a dead letter: it left the queue {more.origin} at {when(more.buried_at, now_ms)} "
        f"after {attempts} ({more.buried_for})."
    )
    if job.state == AVAILABLE:
        text += f" POST /ojs/v1/dead-letter/{job.id}/retry returns it there."
    return text


def _line(found: Explanation, gated: bool) -> str:
    place = found.place
    if place < 0:
        return "It stands in no line."
    ahead = {0: "no job", 1: "1 job"}.get(place, f"{place_text(place)} jobs")
    return f"{ahead[0].upper()}{ahead[1:]} of its queue would be taken before it" + (
        " if nothing were in the way." if gated else "."
    )


def _free(found: Explanation) -> str:
    if not found.place:
        return f"Nothing is in its way: the next fetch of the queue {found.job.queue} takes it."
    return "Nothing is in its way but those before it: workers fetch them first."


def _is_gate(barrier: Barrier) -> bool:
    return barrier.kind in {"hold", "concurrency", "rate", "throttle", "paused", "maintenance"}


def _named_plainly(barrier: Barrier) -> Barrier:
    """The gates of queues and tenants have names that only the engine needs."""
    name = barrier.name.removeprefix(queue_key("")).removeprefix(tenant_key(""))
    return msgspec.structs.replace(barrier, name=name)
