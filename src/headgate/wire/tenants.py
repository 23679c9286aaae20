"""What is answered about tenants."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from headgate.wire.paging import NumberedPagination
from headgate.wire.queues import Throughput


class TenantInfo(Struct):
    tenant_id: str
    jobs: dict[str, int]
    """Live jobs per state."""
    total_jobs: int
    """Of these."""
    limits: dict[str, Any]
    created_at: str | UnsetType = UNSET
    """When its limits were first set; absent where it is only known by its jobs."""


class TenantList(Struct):
    items: list[TenantInfo]
    pagination: NumberedPagination


class DeletedTenant(Struct):
    deleted: bool
    """Its limits are gone; its jobs stay."""
    tenant_id: str


class LimitUse(Struct):
    limit: int
    current: int
    queue: str | UnsetType = UNSET
    """Where the limit holds for each queue by itself: the fullest."""
    period: str | UnsetType = UNSET


class FairShare(Struct):
    weight: int
    effective_share: float
    """Its weight among all tenants that have jobs: its due part while all of them have something to fetch."""
    actual_share: float
    """Its part of all jobs that run now."""


class TenantStats(Struct):
    tenant_id: str
    total_jobs: int
    """All that are kept, those that have ended included."""
    jobs: dict[str, int]
    throughput: Throughput
    """Of the last minute: jobs completed, and jobs discarded."""
    limits: dict[str, LimitUse]
    fairness: FairShare
    noisy: list[str]
    """In which respects it takes so much that others may feel it: depth, rate, active, errors."""
    computed_at: str
