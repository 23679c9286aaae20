"""What is answered about why a job stands where it stands."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType


class BarrierInfo(Struct):
    """Something that keeps the job from running now."""

    kind: str
    """hold, concurrency, rate or throttle; paused, pool, isolated, no_consumers, scheduled, retry, pending, priority"""
    scope: str
    """What it belongs to: key, queue, tenant, pool, job"""
    summary: str
    name: str | UnsetType = UNSET
    tenant: str | UnsetType = UNSET
    """Whose key it is; absent where it is everybody's."""
    limit: int | UnsetType = UNSET
    current: int | UnsetType = UNSET
    holders: list[str] | UnsetType = UNSET
    """The first few of the jobs that hold a slot, longest first."""
    opens_at: str | UnsetType = UNSET
    """When it is over if nothing else happens; absent when nobody knows."""
    opens_in_ms: int | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    remedy: str | UnsetType = UNSET
    """What would end it sooner."""


class ExplainAnswer(Struct):
    job_id: str
    type: str
    queue: str
    state: str
    priority: int
    attempt: int
    consumers: int
    """Fetches that wait for its queue and workers that serve it."""
    barriers: list[BarrierInfo]
    summary: list[str]
    """All of this in sentences."""
    computed_at: str
    place: str | UnsetType = UNSET
    """How many would be taken before it if nothing were in the way, up to `10,000+`; absent where it stands in no line."""
    ahead: int | UnsetType = UNSET
    """The same as a number, 10,000 at most."""
    tenant_id: str | UnsetType = UNSET
    worker_id: str | UnsetType = UNSET
