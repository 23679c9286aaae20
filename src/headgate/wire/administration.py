"""What is answered about workers and the system as a whole."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from headgate.wire.paging import NumberedPagination
from headgate.wire.queues import Throughput


class WorkerInfo(Struct):
    id: str
    hostname: str
    pid: int
    state: str
    """running, quiet, terminate, or stale when it has been silent for too long"""
    directive: str
    """The state that it is told to take."""
    queues: list[str]
    concurrency: int
    active_jobs: int
    active_job_ids: list[str]
    started_at: str
    last_heartbeat_at: str
    version: str
    pool: str
    metadata: Raw
    """Its labels."""


class WorkerSummary(Struct):
    total: int
    running: int
    quiet: int
    stale: int


class WorkerList(Struct):
    items: list[WorkerInfo]
    summary: WorkerSummary
    pagination: NumberedPagination


class RemovedWorker(Struct):
    deleted: bool
    id: str
    jobs_requeued: int


class SystemStats(Struct):
    queues: int
    workers: int
    jobs: dict[str, int]
    throughput: Throughput
    uptime_seconds: int


class HistoryPoint(Struct):
    timestamp: str
    enqueued: int
    completed: int
    failed: int


class History(Struct):
    period: str
    data: list[HistoryPoint]
    queue: str | UnsetType = UNSET


class Backend(Struct):
    type: str
    status: str
    latency_ms: float
    """Of the last commit."""


class QueueHealth(Struct):
    active: int
    paused: int


class WorkerHealth(Struct):
    connected: int
    stale: int


class MaintenanceRequest(Struct, forbid_unknown_fields=True):
    enabled: bool
    reason: Annotated[str, Meta(max_length=1_000)] | None = None
    """Shown to everybody who asks why nothing runs."""
    estimated_duration: str | None = None
    """An ISO 8601 duration; it is told and ends nothing."""


class MaintenanceAnswer(Struct):
    maintenance: bool
    reason: str | UnsetType = UNSET
    enabled_at: str | UnsetType = UNSET
    estimated_end: str | UnsetType = UNSET


class Health(Struct):
    status: str
    """ok, or degraded when the store cannot be used."""
    version: str
    uptime_seconds: int
    backend: Backend
    queues: QueueHealth | UnsetType = UNSET
    workers: WorkerHealth | UnsetType = UNSET
    maintenance: MaintenanceAnswer | UnsetType = UNSET
    """There while no jobs are given out."""


class Readiness(Struct):
    status: str
    """ready or unavailable"""


class ResetAnswer(Struct):
    reset: bool
