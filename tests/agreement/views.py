"""What can be observed of a job, a queue or a worker, in one form for the model and for engines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, assert_never

import msgspec

from headgate.core import trail
from headgate.core.job import Job, More
from headgate.core.pools import Pool
from headgate.core.tenants import TenantLimits
from headgate.core.times import instant_ms
from headgate.engines import contract
from headgate.engines.contract import (
    Done,
    Draining,
    Duplicate,
    Full,
    Held,
    IdTaken,
    KeyJobs,
    KeyView,
    Left,
    Missing,
    NotEmpty,
    NotHolder,
    Outcome,
    PoolView,
    Pushed,
    PushOutcome,
    QueueView,
    TenantFull,
    TenantView,
    Unwanted,
    WorkerView,
    WrongState,
)
from tests.model import Entry, ErrorEntry, Event, Model, Past, Said

View = dict[str, Any]

PLAIN = (
    "id", "type", "queue", "priority", "created_at", "max_attempts", "timeout_ms", "visibility_ms",
    "expires_at", "retry", "unique", "tenant", "keys", "fixed", "state", "attempt", "claim",
    "enqueued_at", "started_at", "finished_at", "worker", "pool", "result", "dead",
)  # fmt: skip
"""Members of a job that have one name and form in both."""
RARE = (
    "reason", "retry_delay_ms", "deferrals", "activated_at", "cancelled_while_active", "expires_as",
    "give_up_at", "stall_ms", "re_enqueued_at", "postponed_by", "origin", "buried_at",
    "buried_for", "buried_attempts",
)  # fmt: skip

KINDS = frozenset(
    {
        "job.enqueued", "job.scheduled", "job.started", "job.heartbeat", "job.completed",
        "job.failed", "job.retrying", "job.retry_exhausted", "job.discarded", "job.dead_lettered", "job.cancelled",
        "job.expired", "dead_letter.replayed", "priority.changed", "queue.created", "queue.deleted", "queue.paused",
        "queue.resumed", "worker.started", "worker.quiet", "worker.stopped",
    }
)  # fmt: skip
"""The events about jobs, queues and workers that the model tells of, in its order; engines may tell of more."""
FLOW_KINDS = {
    "backpressure.warning": ("bound",),
    "backpressure.cleared": ("bound",),
    "backpressure.rejected": ("depth", "bound"),
    "backpressure.dropped": ("queue",),
    "queue.full": (),
    "queue.overflow": ("queue",),
    "rate_limit.dropped": ("key",),
    "rate_limit.dynamic_adjusted": ("until",),
    "maintenance.started": ("reason",),
    "maintenance.ended": (),
}
"""What is told of flow besides, and the members in which model and engine agree."""
NOTICED_KINDS = ("backpressure.warning", "backpressure.cleared", "queue.full")
"""Of these the instant does not matter: they are noticed when a step is over."""
TOLD_KINDS = ("rate_limit.exceeded", "rate_limit.released")
"""Of these it matters that they are told in this step, of this key and this queue."""


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
    view["replays"] = more.replays
    view["history"] = [tuple(getattr(c, name) for name in Past._fields) for c in trail.history(job)]
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
    view["replays"] = job.replays
    view["history"] = squeezed(job.past)
    return view


def squeezed(past: list[Past]) -> list[Past]:
    """With turns that repeat themselves told once: the last time, and how often it was."""
    found: list[Past] = []
    for change in past:
        found.append(change)
        if change.event not in ("requeue", "reschedule"):
            continue
        length = 2 if change.event == "requeue" else 1
        before = found[:-length]
        if before and before[-1].event == "due":
            before.pop()
        if before and before[-1][1:4] + before[-1][7:8] == change[1:4] + change[7:8]:
            times = before[-1].times + 1
            found = [*before[:-length], *found[-length:-1], change._replace(times=times)]
    return found


def assert_same(found: list[View], expected: list[View], by: str = "id") -> None:
    """The same things in the same order; says which members differ and nothing else."""
    assert [thing[by] for thing in found] == [thing[by] for thing in expected]
    for thing, right in zip(found, expected, strict=True):
        wrong = {name: (v, right[name]) for name, v in thing.items() if v != right[name]}
        assert not wrong, f"{thing[by]} is (found, expected): {wrong}"


def of_push(outcome: PushOutcome) -> Said:
    match outcome:
        case Pushed(job, replaced, load):
            return Said("Pushed", job.id, (replaced, load))
        case Full(queue, load, strategy, never):
            return Said("Full", "", (queue, load, strategy, never))
        case TenantFull(tenant, limit, current, maximum):
            return Said("TenantFull", "", (tenant, limit, current, maximum))
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
        case Draining(queue) | Unwanted(queue):
            return Said(type(outcome).__name__, "", (queue,))
        case _:
            assert_never(outcome)


def of_events(events: Iterable[contract.Event]) -> list[Event]:
    return [
        Event(event.kind, event.at_ms, event.subject, event.state)
        for event in events
        if event.kind in KINDS
    ]


def of_flow_events(events: Iterable[contract.Event]) -> Counter[Event]:
    found: Counter[Event] = Counter()
    for event in events:
        data = event.data or {}
        if event.kind in FLOW_KINDS:
            subject = data["job_id"] if event.kind == "rate_limit.dropped" else event.subject
            members = tuple(data[name] for name in FLOW_KINDS[event.kind])
            at_ms = 0 if event.kind in NOTICED_KINDS else event.at_ms
            found[Event(event.kind, at_ms, subject, "", members)] += 1
        elif event.kind in TOLD_KINDS:
            found[Event(event.kind, 0, data["key"], "", (event.queue,))] += 1
    return found


def of_told(model: Model) -> tuple[list[Event], Counter[Event]]:
    """What the model told of jobs, queues and workers, and of flow."""
    found: Counter[Event] = Counter()
    plain = []
    for event in model.state.events:
        if event.kind in KINDS:
            plain.append(event)
        else:
            timeless = event.kind in TOLD_KINDS or event.kind in NOTICED_KINDS
            found[event._replace(at=0) if timeless else event] += 1
    return plain, found


def of_queue(queue: QueueView) -> View:
    return {
        "name": queue.name,
        "state": queue.state,
        "paused_at": queue.paused_at,
        "created_at": queue.created_at,
        "resolved": queue.resolved,
        "counts": {state: jobs for state, jobs in queue.counts.items() if jobs},
        "load": queue.load,
        "bytes": queue.bytes,
        "limits": queue.limits,
        "oldest_available_at": queue.oldest_available_at,
        "oldest_runnable_at": queue.oldest_runnable_at,
        "parked": queue.parked,
    }


def of_queues(model: Model) -> list[View]:
    now_us = model.state.now_us
    return [
        {
            "name": name,
            "state": "draining" if queue.draining else "paused" if queue.paused else "active",
            "paused_at": queue.paused_at,
            "created_at": queue.created_at,
            "resolved": model.settings(name),
            "counts": model.counts(name),
            "load": model.load(name),
            "bytes": model.depth(name).bytes,
            "limits": None if queue.gate is None else queue.gate.state(now_us),
            "oldest_available_at": model.oldest_at(model.available(name)),
            "oldest_runnable_at": model.oldest_runnable_at(name),
            "parked": len(model.in_line(name)),
        }
        for name, queue in sorted(model.state.queues.items())
    ]


def of_key(key: KeyView, jobs: KeyJobs) -> View:
    assert (len(jobs.allowed), len(jobs.rate_limited)) == (
        jobs.allowed_total,
        jobs.rate_limited_total,
    )
    return {
        "key": key.key,
        "state": key.state,
        "waiting": key.waiting,
        "allowed": [job.id for job in jobs.allowed],
        "rate_limited": [job.id for job in jobs.rate_limited],
    }


def of_keys(model: Model) -> list[View]:
    found = []
    for key, gate in model.state.gates.items():
        allowed, limited = model.key_jobs(key)
        found.append(
            {
                "key": key,
                "state": gate.state(model.state.now_us),
                "waiting": len(limited),
                "allowed": [job.id for job in allowed],
                "rate_limited": [job.id for job in limited],
            }
        )
    return found


def of_tenant(tenant: TenantView) -> View:
    return {
        "id": tenant.id,
        "limits": tenant.limits,
        "known_at": tenant.known_at,
        "counts": {state: jobs for state, jobs in tenant.counts.items() if jobs},
    }


def of_tenants(model: Model) -> list[View]:
    found = []
    for name, counts in sorted(model.tenant_counts().items()):
        known = model.state.tenants.get(name)
        limits = TenantLimits() if known is None else known.limits
        known_at = 0 if known is None else known.known_at
        found.append({"id": name, "limits": limits, "known_at": known_at, "counts": counts})
    return found


def of_pool(pool: PoolView) -> tuple[Pool, int]:
    return pool.pool, pool.active_jobs


def of_pools(model: Model) -> list[tuple[Pool, int]]:
    return [
        (state.pool, sum(job.pool == name for job in model.active()))
        for name, state in sorted(model.pools.items())
    ]


def of_removal(outcome: Left | NotEmpty | None) -> Said | None:
    match outcome:
        case None:
            return None
        case Left(state, affected):
            return Said("Left", "", (state, affected))
        case NotEmpty(unfinished):
            return Said("NotEmpty", "", (unfinished,))


def of_worker(worker: WorkerView) -> View:
    return {
        "id": worker.id,
        "state": worker.state,
        "directive": worker.directive,
        "pool": worker.pool,
        "concurrency": worker.concurrency,
        "last_heartbeat_at": worker.last_heartbeat_at,
        "active_jobs": sorted(worker.active_jobs),
    }


def of_workers(model: Model) -> list[View]:
    return [
        {
            "id": name,
            "state": worker.state,
            "directive": model.state.directives.get(name, "running"),
            "pool": worker.pool,
            "concurrency": worker.concurrency,
            "last_heartbeat_at": worker.beat_at,
            "active_jobs": sorted(job.id for job in model.held_by(name)),
        }
        for name, worker in sorted(model.state.workers.items())
    ]
