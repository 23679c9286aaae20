"""What somebody can do about a barrier: the request that would end it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from headgate.core.gates import Limits, Override
from headgate.core.job import Job
from headgate.core.limits import parted
from headgate.engines.contract import Barrier, Maintenance


class About(Struct):
    """What else is known of a barrier."""

    limits: Limits | None = None
    """Of the key or queue that it belongs to."""
    override: Override | None = None
    """Where it is an operator who limits the key so."""
    pools: Sequence[str] = ()
    """Isolated ones that keep the queue for themselves."""
    maintenance: Maintenance | None = None


def remedy(barrier: Barrier, job: Job, about: About) -> str:
    """One sentence; "" where time alone ends it."""
    match barrier.kind:
        case "hold":
            return f"DELETE {_of(barrier)} lifts the hold." if barrier.scope == "key" else ""
        case "concurrency" | "rate" | "throttle":
            return _of_limit(barrier, about)
        case "maintenance":
            return 'POST /ojs/v1/admin/system/maintenance {"enabled": false} ends the maintenance.'
        case "paused":
            return f"POST /ojs/v1/queues/{barrier.name}/resume lets it give out jobs again."
        case "pool":
            return f"PUT /ojs/v1/admin/pools/{barrier.name} can give the pool a higher concurrency."
        case "isolated" | "no_consumers":
            pools = [barrier.name] if barrier.kind == "isolated" else about.pools
            if pools:
                return f"Start a worker of the pool {' or '.join(pools)}."
            return f"Start a worker that serves the queue {job.queue}."
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


def _of_limit(barrier: Barrier, about: About) -> str:
    if about.override is not None:
        change = f"DELETE {_of(barrier)} lifts the override"
    else:
        verb = "overrides" if barrier.scope == "key" else "changes"
        change = f"PUT {_of(barrier)} {verb} the limit"
    if barrier.kind != "concurrency" or not barrier.limit or not barrier.holders:
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
            key, tenant = parted(barrier.name)
            return f"/ojs/v1/rate-limits/{key}" + (f"?tenant={tenant}" if tenant else "")
