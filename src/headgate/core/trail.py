"""What happened to one job, in order: every change of its state, when, by whom, and why.

Most of it follows from what the job says anyway, so a job that is enqueued, fetched and acked keeps no record of it.
Only what would be forgotten is written down, in a short list beside the job: attempts that ended otherwise than in success, delays that were over, ends, and new beginnings.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from headgate.core.job import WAS_SCHEDULED, Job, More, Step
from headgate.core.states import (
    ACK,
    ACTIVATE,
    ACTIVE,
    AVAILABLE,
    CANCEL,
    CANCELLED,
    COMPLETED,
    DROP,
    DUE,
    EXPIRE,
    FAIL,
    FETCH,
    NEW,
    OVERFLOW,
    PENDING,
    PUSH,
    QUEUE_DELETED,
    REQUEUE,
    RESCHEDULE,
    SCHEDULED,
    TOTAL_TIMEOUT,
)

MOST: Final = 100
"""How many steps are kept written down; the oldest go first."""

NEVER_BEFORE: Final = -1
"""Stands for the first time of a job that came into its line only by a retry."""

_TURNS: Final = (REQUEUE, RESCHEDULE)
"""What may happen to a job over and over: a row of the same is kept as one, with how often it happened."""

_ENDS: Final = {
    "expired": EXPIRE,
    "enqueue_ttl_expired": EXPIRE,
    "rate_limited": DROP,
    "overflow": OVERFLOW,
    "queue_deleted": QUEUE_DELETED,
    "total_timeout": TOTAL_TIMEOUT,
}
"""By the reason of a discard: what led to it where no attempt did."""


class Change(Struct):
    """One change of state, as it is told."""

    at: int
    event: str
    """The trigger of the state table."""
    was: str
    state: str
    attempt: int = 0
    worker: str = ""
    by: str = ""
    reason: str = ""
    times: int = 1
    """How often in a row this happened, the last time at `at`."""


def trigger_of(reason: str) -> str:
    """What led to a discard, by its reason."""
    return _ENDS.get(reason, FAIL)


def write(job: Job, step: Step) -> None:
    """Append a step; the same one again, with nothing but a delay between, is counted instead."""
    more = job.rare()
    if job.due_at == WAS_SCHEDULED:
        # It may be needed for another instant from now on.
        more.was_scheduled = True
    trail = more.trail
    if step.event in _TURNS:
        back = 2 if trail and trail[-1].event == DUE else 1
        if len(trail) >= back and _is_same(trail[-back], step):
            step.times += trail[-back].times
            del trail[-back:]
    trail.append(step)
    if len(trail) > MOST:
        del trail[0]
        more.trail_lost += 1


def _is_same(one: Step, other: Step) -> bool:
    return (one.event, one.was, one.state, one.reason) == (
        other.event,
        other.was,
        other.state,
        other.reason,
    )


def attempt_over(job: Job, event: str, state: str, reason: str, at: int, by: str = "") -> None:
    """An attempt ends, and not by an ack; the job still says who ran it."""
    write(job, Step(event, ACTIVE, state, at, job.started_at, job.attempt, job.worker, by, reason))


def ended(job: Job, event: str, state: str, reason: str, at: int, by: str = "") -> None:
    """The job ends, and not by an ack; it is still in the state before."""
    if job.state == ACTIVE:
        attempt_over(job, event, state, reason, at, by)
    else:
        write(job, Step(event, job.state, state, at, by=by, reason=reason))


def forget(more: More, at: int) -> None:
    """Let the history begin anew: what happened so far is told to nobody any more."""
    more.trail = []
    more.trail_lost = 0
    more.forgotten_at = at


def enqueued_again(job: Job) -> None:
    """The job is about to be enqueued once more: keep when that happened first."""
    more = job.rare()
    more.first_enqueued_at = more.first_enqueued_at or job.enqueued_at or NEVER_BEFORE


def history(job: Job) -> list[Change]:
    """All that is known, the oldest first."""
    more = job.more if job.more is not None else _NOTHING
    changes = list(_beginning(job, more)) if not more.forgotten_at else []
    for step in more.trail:
        changes += _told(step)
    # What was forgotten of a job that had ended stays forgotten, unless it began anew.
    if job.state in (ACTIVE, COMPLETED) and (more.trail or not more.forgotten_at):
        changes.append(
            Change(job.started_at, FETCH, AVAILABLE, ACTIVE, job.attempt, job.worker),
        )
        if job.state == COMPLETED:
            changes.append(Change(job.finished_at, ACK, ACTIVE, COMPLETED, job.attempt, job.worker))
    elif job.finished_at and not more.trail and not more.forgotten_at:
        # It ended before there were trails: how it came to that, nobody knows any more.
        event = CANCEL if job.state == CANCELLED else trigger_of(more.reason)
        changes.append(Change(job.finished_at, event, "", job.state, reason=more.reason))
    return changes


_NOTHING: Final = More(errors=[])


def _beginning(job: Job, more: More) -> Iterator[Change]:
    """How it came in, and into its line for the first time."""
    first_at = more.first_enqueued_at or job.enqueued_at
    if first_at <= 0:
        start = more.trail[0].was if more.trail else job.state
    elif more.activated_at:
        start = PENDING
    elif more.was_scheduled or job.due_at == WAS_SCHEDULED:
        start = SCHEDULED
    else:
        start = AVAILABLE
    if more.trail_lost:
        return
    yield Change(job.created_at, PUSH, NEW, start)
    if first_at > 0 and start != AVAILABLE:
        yield Change(first_at, ACTIVATE if start == PENDING else DUE, start, AVAILABLE)


def _told(step: Step) -> Iterator[Change]:
    if step.began:
        yield Change(step.began, FETCH, AVAILABLE, ACTIVE, step.attempt, step.worker)
    yield Change(
        step.at,
        step.event,
        step.was,
        step.state,
        step.attempt,
        step.worker,
        step.by,
        step.reason,
        step.times,
    )
