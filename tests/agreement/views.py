"""What can be observed of a job, a queue or a worker, in one form for the model and for engines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, assert_never

import msgspec

from headgate.core.job import Job, More
from headgate.core.times import instant_ms
from headgate.engines import contract
from headgate.engines.contract import (
    Done,
    Draining,
    Duplicate,
    Held,
    IdTaken,
    Missing,
    NotHolder,
    Outcome,
    Pushed,
    PushOutcome,
    QueueView,
    Unwanted,
    WorkerView,
    WrongState,
)
from tests.model import Entry, ErrorEntry, Event, Model, Said

View = dict[str, Any]

PLAIN = (
    "id", "type", "queue", "priority", "created_at", "max_attempts", "timeout_ms", "visibility_ms",
    "expires_at", "retry", "unique", "tenant", "fixed", "state", "attempt", "claim", "enqueued_at",
    "started_at", "finished_at", "worker", "result", "dead",
)  # fmt: skip
"""Members of a job that have one name and form in both."""
RARE = (
    "reason", "retry_delay_ms", "activated_at", "cancelled_while_active", "expires_as",
    "give_up_at", "stall_ms", "re_enqueued_at",
)  # fmt: skip

KINDS = frozenset(
    {
        "job.enqueued", "job.scheduled", "job.started", "job.heartbeat", "job.completed",
        "job.failed", "job.retrying", "job.discarded", "job.dead_lettered", "job.cancelled",
        "job.expired", "priority.changed", "queue.created", "queue.deleted", "queue.paused",
        "queue.resumed", "worker.started", "worker.quiet", "worker.stopped",
    }
)  # fmt: skip
"""The events that the model tells of; engines may tell of more."""


def of_job(job: Job) -> View:
    more = job.more if job.more is not None else More(errors=[])
    view = {name: getattr(job, name) for name in PLAIN}
    view |= {name: getattr(more, name) for name in RARE}
    view["due_at"] = job.due_at if job.state in ("scheduled", "retryable") else 0
    view["visible_until"] = job.visible_until if job.state == "active" else 0
    view["errors"] = [of_error(msgspec.json.decode(entry)) for entry in more.errors]
    view["progress"] = (
        more.progress,
        more.progress_data,
        more.progress_message,
        more.progress_at,
    )
    view["checkpoint"] = more.checkpoint_sequence
    return view


def of_error(entry: dict[str, Any]) -> ErrorEntry:
    at = instant_ms(entry["occurred_at"])
    return ErrorEntry(entry["attempt"], entry["code"], entry["type"], at)


def of_entry(job: Entry) -> View:
    view = {name: getattr(job, name) for name in (*PLAIN, *RARE)}
    view["due_at"] = job.due_at if job.state in ("scheduled", "retryable") else 0
    view["visible_until"] = job.visible_until if job.state == "active" else 0
    view["errors"] = job.errors
    view["progress"] = tuple(job.progress)
    view["checkpoint"] = job.checkpoint.sequence if job.checkpoint else 0
    return view


def assert_same(found: list[View], expected: list[View]) -> None:
    """The same jobs in the same order; says which members differ and nothing else."""
    assert [job["id"] for job in found] == [job["id"] for job in expected]
    for job, right in zip(found, expected, strict=True):
        wrong = {name: (value, right[name]) for name, value in job.items() if value != right[name]}
        assert not wrong, f"{job['id']} is (found, expected): {wrong}"


def of_push(outcome: PushOutcome) -> Said:
    match outcome:
        case Pushed(job, replaced):
            return Said("Pushed", job.id, (replaced,))
        case Duplicate(job, unique_key, ignore):
            return Said("Duplicate", job.id, (unique_key, ignore))
        case IdTaken(job_id):
            return Said("IdTaken", job_id)
        case Held():
            return Said("Held", "")
        case Draining(queue) | Unwanted(queue):
            return Said(type(outcome).__name__, "", (queue,))
        case _:
            assert_never(outcome)


def of_outcome(outcome: Outcome) -> Said:
    match outcome:
        case Done(job):
            return Said("Done", job.id, (job.state,))
        case Missing(job_id):
            return Said("Missing", job_id)
        case WrongState(job):
            return Said("WrongState", job.id, (job.state,))
        case NotHolder(job, held_by, claim):
            return Said("NotHolder", job.id, (held_by, claim))
        case _:
            assert_never(outcome)


def of_events(events: Iterable[contract.Event]) -> list[Event]:
    return [
        Event(event.kind, event.at_ms, event.subject, event.state)
        for event in events
        if event.kind in KINDS
    ]


def of_queue(queue: QueueView) -> View:
    return {
        "name": queue.name,
        "paused": queue.state == "paused",
        "paused_at": queue.paused_at,
        "created_at": queue.created_at,
        "visibility_ms": queue.resolved.visibility_ms,
        "counts": {state: jobs for state, jobs in queue.counts.items() if jobs},
    }


def of_queues(model: Model) -> list[View]:
    return [
        {
            "name": name,
            "paused": name in model.state.paused,
            "paused_at": queue.paused_at,
            "created_at": queue.created_at,
            "visibility_ms": model.visibility_ms(name),
            "counts": model.counts(name),
        }
        for name, queue in sorted(model.state.queues.items())
    ]


def of_worker(worker: WorkerView) -> View:
    return {
        "id": worker.id,
        "state": worker.state,
        "directive": worker.directive,
        "last_heartbeat_at": worker.last_heartbeat_at,
        "active_jobs": sorted(worker.active_jobs),
    }


def of_workers(model: Model) -> list[View]:
    return [
        {
            "id": name,
            "state": worker.state,
            "directive": model.state.directives.get(name, "running"),
            "last_heartbeat_at": worker.beat_at,
            "active_jobs": sorted(job.id for job in model.held_by(name)),
        }
        for name, worker in sorted(model.state.workers.items())
    ]
