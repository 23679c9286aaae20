"""The eight job states and every way from one to another, as data.

`TRANSITIONS` is complete: what it does not list is refused and leaves the job unchanged.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final, NamedTuple

SCHEDULED: Final = "scheduled"
AVAILABLE: Final = "available"
PENDING: Final = "pending"
ACTIVE: Final = "active"
RETRYABLE: Final = "retryable"
COMPLETED: Final = "completed"
CANCELLED: Final = "cancelled"
DISCARDED: Final = "discarded"

STATES: Final = (
    SCHEDULED,
    AVAILABLE,
    PENDING,
    ACTIVE,
    RETRYABLE,
    COMPLETED,
    CANCELLED,
    DISCARDED,
)
TERMINAL: Final = frozenset({COMPLETED, CANCELLED, DISCARDED})

NEW: Final = ""
"""Stands for a job that does not exist yet."""

PUSH: Final = "push"
DUE: Final = "due"
ACTIVATE: Final = "activate"
FETCH: Final = "fetch"
ACK: Final = "ack"
FAIL: Final = "fail"
REQUEUE: Final = "requeue"
DEAD_LETTER: Final = "dead_letter"
VISIBILITY_EXPIRY: Final = "visibility_expiry"
TIMEOUT: Final = "timeout"
WORKER_DEATH: Final = "worker_death"
CANCEL: Final = "cancel"
EXPIRE: Final = "expire"
DROP: Final = "drop"
OVERFLOW: Final = "overflow"
RESCHEDULE: Final = "reschedule"
QUEUE_DELETED: Final = "queue_deleted"
TOTAL_TIMEOUT: Final = "total_timeout"
RETRY: Final = "retry"


class Transition(NamedTuple):
    """One allowed step, and what it does to the job besides."""

    source: str
    trigger: str
    target: str
    effects: str


TRANSITIONS: Final = (
    Transition(NEW, PUSH, AVAILABLE, "created_at and enqueued_at are now"),
    Transition(NEW, PUSH, SCHEDULED, "scheduled_at lies ahead; enqueued_at waits for it"),
    Transition(NEW, PUSH, PENDING, "held until activated, even when scheduled_at is given"),
    Transition(SCHEDULED, DUE, AVAILABLE, "enqueued_at is now"),
    Transition(PENDING, ACTIVATE, AVAILABLE, "activated_at and enqueued_at are now"),
    Transition(AVAILABLE, FETCH, ACTIVE, "attempt + 1, started_at, worker_id, a deadline"),
    Transition(ACTIVE, ACK, COMPLETED, "completed_at, result; error is removed"),
    Transition(ACTIVE, FAIL, RETRYABLE, "error is appended, next_attempt_at"),
    Transition(ACTIVE, FAIL, DISCARDED, "error is appended, discarded_at, completed_at"),
    Transition(ACTIVE, REQUEUE, AVAILABLE, "the attempt is not charged, the place is kept"),
    Transition(ACTIVE, REQUEUE, RETRYABLE, "the attempt is not charged, next_attempt_at as asked"),
    Transition(ACTIVE, VISIBILITY_EXPIRY, AVAILABLE, "error visibility_timeout, place kept"),
    Transition(ACTIVE, VISIBILITY_EXPIRY, DISCARDED, "the same with no attempt left"),
    Transition(ACTIVE, TIMEOUT, RETRYABLE, "error timeout, next_attempt_at"),
    Transition(ACTIVE, TIMEOUT, DISCARDED, "the same with no attempt left"),
    Transition(ACTIVE, WORKER_DEATH, AVAILABLE, "error worker_death"),
    Transition(ACTIVE, WORKER_DEATH, DISCARDED, "the same with no attempt left"),
    Transition(ACTIVE, DEAD_LETTER, AVAILABLE, "exhausted: moved to the dead letter queue"),
    Transition(RETRYABLE, DUE, AVAILABLE, "goes to the end of its line"),
    Transition(RETRYABLE, TOTAL_TIMEOUT, DISCARDED, "error total_timeout"),
    Transition(RETRYABLE, RETRY, AVAILABLE, "on an operator's word, before its delay is over"),
    *(
        Transition(state, CANCEL, CANCELLED, "cancelled_at; an active job's worker is told")
        for state in STATES
        if state not in TERMINAL
    ),
    *(
        Transition(state, EXPIRE, DISCARDED, "error expired or enqueue_ttl_expired")
        for state in (SCHEDULED, AVAILABLE, PENDING)
    ),
    Transition(AVAILABLE, DROP, DISCARDED, "error rate_limited"),
    Transition(AVAILABLE, OVERFLOW, DISCARDED, "error overflow"),
    Transition(AVAILABLE, RESCHEDULE, SCHEDULED, "scheduled_at is the expected opening"),
    *(
        Transition(state, QUEUE_DELETED, DISCARDED, "error queue_deleted")
        for state in (SCHEDULED, AVAILABLE, PENDING, RETRYABLE)
    ),
    Transition(DISCARDED, RETRY, AVAILABLE, "attempt 0, new enqueued_at, history kept"),
)

_TARGETS: Final[dict[tuple[str, str], tuple[str, ...]]] = {}
for _step in TRANSITIONS:
    _key = (_step.source, _step.trigger)
    _TARGETS[_key] = (*_TARGETS.get(_key, ()), _step.target)


def allowed(state: str, trigger: str) -> tuple[str, ...]:
    """Give the states that `trigger` may lead to from `state`; none when it is refused."""
    return _TARGETS.get((state, trigger), ())


def mermaid() -> str:
    """Draw the table as a Mermaid state diagram, one arrow per pair of states."""
    arrows: dict[tuple[str, str], list[str]] = defaultdict(list)
    for step in TRANSITIONS:
        arrows[step.source or "[*]", step.target].append(step.trigger)
    lines = [
        f"    {source} --> {target}: {', '.join(triggers)}"
        for (source, target), triggers in arrows.items()
    ]
    ends = [f"    {state} --> [*]" for state in STATES if state in TERMINAL]
    return "\n".join(["stateDiagram-v2", *lines, *ends]) + "\n"
