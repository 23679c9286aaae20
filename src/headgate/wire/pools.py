"""What is answered about pools and scheduling."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from headgate.wire.paging import NumberedPagination


class StarvationPrevention(Struct):
    enabled: bool
    rotation_interval: str
    min_dispatch_ratio: float


class PoolInfo(Struct):
    name: str
    queues: list[str]
    strategy: str
    isolated: bool
    starvation_prevention: StarvationPrevention
    active_workers: int
    """Workers of this pool that are alive."""
    active_jobs: int
    """Jobs that they hold."""
    concurrency: int | UnsetType = UNSET
    weights: dict[str, int] | UnsetType = UNSET
    tenant_fairness: dict[str, Any] | UnsetType = UNSET


class PoolList(Struct):
    items: list[PoolInfo]
    pagination: NumberedPagination


class PoolAnswer(Struct):
    pool: PoolInfo


class DeletedPool(Struct):
    deleted: bool
    name: str


class QueueDispatches(Struct):
    name: str
    dispatch_count_1m: int
    dispatch_ratio_1m: float
    """Of all dispatches of the last minute."""
    avg_wait_ms: float
    """From available to started, of these dispatches."""
    active_jobs: int


class SchedulingFigures(Struct):
    queues: list[QueueDispatches]
    total_dispatches: int
    window: str


class SchedulingStats(Struct):
    queues: list[QueueDispatches]
    total_dispatches: int
    window: str
    stats: SchedulingFigures
    """The same again."""
