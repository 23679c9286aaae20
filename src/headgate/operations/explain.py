"""EXPLAIN: why a job stands where it stands, in members for programs and in sentences for people.

The sentences name the numbers, the jobs and the requests that whoever is woken at night needs next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from headgate.core.job import Job
from headgate.core.limits import queue_key, tenant_key
from headgate.core.states import AVAILABLE, TERMINAL
from headgate.core.times import instant_text
from headgate.engines.contract import Barrier, Engine, Explanation, KeyView
from headgate.operations import remedies
from headgate.operations.outcomes import no_job

FARTHEST: Final = 10_000
"""No place in line is counted beyond this one."""

_DAY_S: Final = 86_400


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


async def explain(engine: Engine, job_id: str, now_ms: int) -> Told:
    found = await engine.explain(job_id, now_ms)
    if found is None:
        raise no_job(job_id)
    reasons = []
    for barrier in map(_named_plainly, found.barriers):
        key = await engine.key(barrier.name, now_ms) if barrier.scope == "key" else None
        reasons.append(reason(barrier, found.job, key, now_ms))
    return Told(found, reasons, sentences(found, reasons, now_ms))


def sentences(found: Explanation, reasons: Sequence[Reason], now_ms: int) -> list[str]:
    """The state first, then what is in the way, then what to do about it."""
    job = found.job
    told = [_standing(job, now_ms)]
    if job.state == AVAILABLE:
        told.append(_line(found, any(_is_gate(each.barrier) for each in reasons)))
    told += [each.summary for each in reasons]
    told += dict.fromkeys(each.remedy for each in reasons if each.remedy)
    if job.state == AVAILABLE and not reasons:
        told.append(_free(found))
    return told


def place_text(place: int) -> str:
    return f"{FARTHEST:,}+" if place >= FARTHEST else f"{place:,}"


def reason(barrier: Barrier, job: Job, key: KeyView | None, now_ms: int) -> Reason:
    summary = _said(barrier, job, now_ms)
    if key is not None and key.state.override is not None and barrier.kind != "hold":
        until = key.state.override.expires_at
        summary += (
            f" An operator's override says so{f' until {_at(until, now_ms)}' if until else ''}."
        )
    return Reason(barrier, summary, remedies.remedy(barrier, job))


def _standing(job: Job, now_ms: int) -> str:
    attempts = f"attempt {job.attempt} of {job.max_attempts}"
    match job.state:
        case "available":
            text = f"The job is available in the queue {job.queue} since {_at(job.enqueued_at, now_ms)}."
        case "active":
            by = f" by the worker {job.worker}" if job.worker else ""
            text = (
                f"The job runs{by} since {_at(job.started_at, now_ms)}, {attempts}; "
                f"its reservation ends at {_at(job.visible_until, now_ms)} unless it is renewed."
            )
        case "pending":
            text = "The job waits until somebody activates it."
        case "scheduled":
            text = f"The job is scheduled for {_at(job.due_at, now_ms)}."
            if job.more is not None and job.more.postponed_by:
                text += f" The key {job.more.postponed_by} was closed and put it off."
        case "retryable":
            text = f"The job failed, {attempts}, and is tried again at {_at(job.due_at, now_ms)}."
        case _:
            text = f"The job is {job.state} since {_at(job.finished_at, now_ms)}: it has ended."
    return text + _why_ended(job)


def _why_ended(job: Job) -> str:
    if job.state in TERMINAL and job.more is not None and job.more.reason:
        return f" The reason was: {job.more.reason}."
    return ""


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
    return barrier.kind in {"hold", "concurrency", "rate", "throttle", "paused"}


def _said(barrier: Barrier, job: Job, now_ms: int) -> str:
    say = _SENTENCES.get(barrier.kind)
    if say is None:
        return f"{barrier.kind} of the {barrier.scope} {barrier.name} keeps it from running."
    return say(barrier, job, now_ms)


def _held(barrier: Barrier, _job: Job, now_ms: int) -> str:
    why = f" ({barrier.reason})" if barrier.reason else ""
    return f"{_whose(barrier)} is held until {_opening(barrier, now_ms)}{why}."


def _concurrency(barrier: Barrier, _job: Job, _now_ms: int) -> str:
    if barrier.limit == 0:
        return f"{_whose(barrier)} has the concurrency 0: none of its jobs may run."
    held = ", ".join(barrier.holders)
    more = barrier.current - len(barrier.holders)
    by = f" by {held}" + (f" and {more} more" if more > 0 else "") if held else ""
    return (
        f"{_whose(barrier)} lets {barrier.limit} run at a time and "
        f"{barrier.current} {'is' if barrier.current == 1 else 'are'} held{by}."
    )


def _rate(barrier: Barrier, _job: Job, now_ms: int) -> str:
    return (
        f"{_whose(barrier)} lets {barrier.limit} start in its window and {barrier.current} have "
        f"started; the next may at {_opening(barrier, now_ms)}."
    )


def _throttle(barrier: Barrier, _job: Job, now_ms: int) -> str:
    return f"{_whose(barrier)} spaces its starts; the next may at {_opening(barrier, now_ms)}."


def _paused(barrier: Barrier, _job: Job, _now_ms: int) -> str:
    return f"The queue {barrier.name} is paused: it gives out no jobs."


def _pool(barrier: Barrier, _job: Job, _now_ms: int) -> str:
    return (
        f"The pool {barrier.name} runs {barrier.current} of the {barrier.limit} jobs that it may."
    )


def _isolated(barrier: Barrier, job: Job, _now_ms: int) -> str:
    return (
        f"The queue {job.queue} is served to workers of the pool {barrier.name} only, "
        "which is isolated."
    )


def _no_consumers(_barrier: Barrier, job: Job, _now_ms: int) -> str:
    return (
        f"Nobody fetches from the queue {job.queue}: no worker serves it and no fetch waits for it."
    )


def _due(barrier: Barrier, _job: Job, now_ms: int) -> str:
    return f"It becomes available at {_opening(barrier, now_ms)}."


def _inactive(_barrier: Barrier, _job: Job, _now_ms: int) -> str:
    return "It is pending and takes no part until it is activated."


def _outranked(barrier: Barrier, job: Job, _now_ms: int) -> str:
    some = f"{barrier.current:,} jobs" if barrier.current else "Jobs"
    return f"{some} of a higher priority than its {job.priority} are taken first."


_SENTENCES: Final[dict[str, Callable[[Barrier, Job, int], str]]] = {
    "hold": _held,
    "concurrency": _concurrency,
    "rate": _rate,
    "throttle": _throttle,
    "paused": _paused,
    "pool": _pool,
    "isolated": _isolated,
    "no_consumers": _no_consumers,
    "scheduled": _due,
    "retry": _due,
    "pending": _inactive,
    "priority": _outranked,
}


def _named_plainly(barrier: Barrier) -> Barrier:
    """The gates of queues and tenants have names that only the engine needs."""
    name = barrier.name.removeprefix(queue_key("")).removeprefix(tenant_key(""))
    return msgspec.structs.replace(barrier, name=name)


def _whose(barrier: Barrier) -> str:
    tenant, separator, key = barrier.name.removeprefix("@").partition("/")
    if barrier.scope == "key" and separator:
        return f"The key {key} of the tenant {tenant}"
    return f"The {barrier.scope} {barrier.name}"


def _opening(barrier: Barrier, now_ms: int) -> str:
    return _at(barrier.opens_at, now_ms) if barrier.opens_at else "an unknown time"


def _at(at_ms: int, now_ms: int) -> str:
    """An instant, and how far it is: nobody subtracts times of day at night."""
    return f"{instant_text(at_ms)} ({_distance(at_ms - now_ms)})"


def _distance(ms: int) -> str:
    s = round(abs(ms) / 1000)
    if s < 1:
        return "now"
    days, rest = divmod(s, _DAY_S)
    hours, rest = divmod(rest, 3600)
    minutes, seconds = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")]
    shown = " ".join([f"{n} {unit}" for n, unit in parts if n][:2])
    return f"in {shown}" if ms > 0 else f"{shown} ago"
