"""Barriers in words, and instants as somebody reads them who is in a hurry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headgate.core.job import Job
from headgate.core.limits import plainly
from headgate.core.times import duration_text, instant_text
from headgate.engines.contract import Barrier
from headgate.operations.remedies import About

_DAY_S: Final = 86_400


def said(barrier: Barrier, job: Job, about: About, now_ms: int) -> str:
    say = _SENTENCES.get(barrier.kind)
    if say is None:
        return f"{barrier.kind} of the {barrier.scope} {barrier.name} keeps it from running."
    text = say(barrier, job, about, now_ms)
    if about.override is not None:
        until = about.override.expires_at
        text += (
            f" An operator's override says so{f' until {when(until, now_ms)}' if until else ''}."
        )
    return text


def _held(barrier: Barrier, _job: Job, _about: About, now_ms: int) -> str:
    why = f" ({barrier.reason})" if barrier.reason else ""
    return f"{_whose(barrier)} is held until {_opening(barrier, now_ms)}{why}."


def _concurrency(barrier: Barrier, _job: Job, _about: About, _now_ms: int) -> str:
    if barrier.limit == 0:
        return f"{_whose(barrier)} has the concurrency 0: none of its jobs may run."
    held = ", ".join(barrier.holders)
    more = barrier.current - len(barrier.holders)
    by = f" by {held}" + (f" and {more} more" if more > 0 else "") if held else ""
    return (
        f"{_whose(barrier)} lets {barrier.limit} run at a time and "
        f"{barrier.current} {'is' if barrier.current == 1 else 'are'} held{by}."
    )


def _rate(barrier: Barrier, _job: Job, about: About, now_ms: int) -> str:
    rate = None if about.limits is None else about.limits.rate
    window = "its window" if rate is None else f"any {duration_text(rate.period_us // 1_000)}"
    return (
        f"{_whose(barrier)} lets {barrier.limit} start in {window} and {barrier.current} "
        f"{'has' if barrier.current == 1 else 'have'} started; "
        f"the next may at {_opening(barrier, now_ms)}."
    )


def _throttle(barrier: Barrier, _job: Job, _about: About, now_ms: int) -> str:
    return f"{_whose(barrier)} spaces its starts; the next may at {_opening(barrier, now_ms)}."


def _maintenance(barrier: Barrier, _job: Job, about: About, now_ms: int) -> str:
    known = about.maintenance
    text = "The server is in maintenance"
    if known is not None:
        text += f" since {when(known.enabled_at, now_ms)}"
        if known.estimated_end:
            text += f", which is meant to end at {when(known.estimated_end, now_ms)}"
    why = f" ({barrier.reason})" if barrier.reason else ""
    return f"{text}{why}: no job is given out and none becomes due."


def _paused(barrier: Barrier, _job: Job, _about: About, _now_ms: int) -> str:
    return f"The queue {barrier.name} is paused: it gives out no jobs."


def _pool(barrier: Barrier, _job: Job, _about: About, _now_ms: int) -> str:
    return (
        f"The pool {barrier.name} runs {barrier.current} of the {barrier.limit} jobs that it may."
    )


def _isolated(barrier: Barrier, job: Job, _about: About, _now_ms: int) -> str:
    return (
        f"The queue {job.queue} is served to workers of the pool {barrier.name} only, "
        "which is isolated."
    )


def _no_consumers(_barrier: Barrier, job: Job, about: About, _now_ms: int) -> str:
    if about.pools:
        return (
            f"The queue {job.queue} is served to the isolated pool {' or '.join(about.pools)} "
            "only, and no worker of it is there."
        )
    return (
        f"Nobody fetches from the queue {job.queue}: no worker serves it and no fetch waits for it."
    )


def _due(barrier: Barrier, _job: Job, _about: About, now_ms: int) -> str:
    return f"It becomes available at {_opening(barrier, now_ms)}."


def _inactive(_barrier: Barrier, _job: Job, _about: About, _now_ms: int) -> str:
    return "It is pending and takes no part until it is activated."


def _outranked(barrier: Barrier, job: Job, _about: About, _now_ms: int) -> str:
    some = f"{barrier.current:,} jobs" if barrier.current else "Jobs"
    return f"{some} of a higher priority than its {job.priority} are taken first."


_SENTENCES: Final[dict[str, Callable[[Barrier, Job, About, int], str]]] = {
    "maintenance": _maintenance,
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


def _whose(barrier: Barrier) -> str:
    return f"The {barrier.scope} {plainly(barrier.name)}"


def _opening(barrier: Barrier, now_ms: int) -> str:
    return when(barrier.opens_at, now_ms) if barrier.opens_at else "an unknown time"


def when(at_ms: int, now_ms: int) -> str:
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
