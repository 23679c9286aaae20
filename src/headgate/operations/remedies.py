"""What somebody can do about a barrier: the request that would end it."""

from __future__ import annotations

from headgate.core.job import Job
from headgate.engines.contract import Barrier


def remedy(barrier: Barrier, job: Job) -> str:
    """One sentence; "" where time alone ends it."""
    match barrier.kind:
        case "hold":
            return f"DELETE {_of(barrier)} lifts the hold." if barrier.scope == "key" else ""
        case "concurrency" | "rate" | "throttle":
            return _of_limit(barrier)
        case "paused":
            return f"POST /ojs/v1/queues/{barrier.name}/resume lets it give out jobs again."
        case "pool":
            return f"PUT /ojs/v1/admin/pools/{barrier.name} can give the pool a higher concurrency."
        case "isolated" | "no_consumers":
            of = f" of the pool {barrier.name}" if barrier.kind == "isolated" else ""
            return f"Start a worker{of} that serves the queue {job.queue}."
        case "pending":
            return f"POST /ojs/v1/jobs/{job.id}/activate lets it run."
        case "scheduled":
            return ""
        case "retry":
            return f"POST /ojs/v1/admin/jobs/{job.id}/retry makes it due at once."
        case "priority":
            return f"PATCH /ojs/v1/jobs/{job.id} can give it another priority."
        case _:
            return ""


def _of_limit(barrier: Barrier) -> str:
    if barrier.scope == "key":
        change = f"PUT {_of(barrier)} overrides the limit"
        if barrier.limit == 0:
            change = f"DELETE {_of(barrier)} lifts an override, PUT puts another one"
    else:
        change = f"PUT {_of(barrier)} changes the limit"
    if barrier.kind != "concurrency" or not barrier.holders:
        return f"{change}."
    return (
        f"{change}; if a holder is stuck, POST /ojs/v1/jobs/{barrier.holders[0]}/cancel "
        "frees its place."
    )


def _of(barrier: Barrier) -> str:
    """Where the limits of this scope are changed."""
    match barrier.scope:
        case "queue":
            return f"/ojs/v1/admin/queues/{barrier.name}/rate-limit"
        case "tenant":
            return f"/ojs/v1/admin/tenants/{barrier.name}/limits"
        case _:
            tenant, separator, key = barrier.name.removeprefix("@").partition("/")
            if barrier.name.startswith("@") and separator:
                return f"/ojs/v1/rate-limits/{key}?tenant={tenant}"
            return f"/ojs/v1/rate-limits/{barrier.name}"
