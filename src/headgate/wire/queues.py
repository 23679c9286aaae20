"""What is asked about queues over HTTP, and what is answered."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from headgate.wire.bulk import TaskInfo
from headgate.wire.paging import NumberedPagination, Pagination


class CreateQueue(Struct):
    name: str
    config: dict[str, Any] | None = None


class DeleteQueue(Struct):
    strategy: str | None = None
    """reject, discard or move"""
    target_queue: str | None = None


class Purge(Struct):
    confirm: bool | None = None
    states: list[str] | None = None
    """Those of finished jobs where it is absent."""
    older_than: str | None = None
    """An ISO 8601 duration since the job was created, or the instant before which it was."""


class QueueSummary(Struct):
    name: str
    status: str
    state: str
    created_at: str
    config: dict[str, Any]


class QueueList(Struct):
    queues: list[QueueSummary]
    pagination: Pagination


class CreatedQueue(Struct):
    name: str
    state: str
    config: dict[str, Any]
    created_at: str


class QueueFace(Struct):
    """A queue as an object with its jobs per state."""

    name: str
    paused: bool
    available: int
    active: int
    scheduled: int
    retryable: int
    pending: int
    completed: int
    discarded: int
    cancelled: int


class TodaysStats(Struct):
    depth: int
    """Jobs that have not ended, active ones included."""
    available: int
    active: int
    retryable: int
    scheduled: int
    pending: int
    completed_today: int
    failed_today: int


class QueueInfo(Struct):
    name: str
    state: str
    config: dict[str, Any]
    stats: TodaysStats
    created_at: str
    updated_at: str
    queue: QueueFace


class Fullest(Struct):
    """The tightest bound of a queue, and how far it is used up."""

    measure: str
    """jobs, active_included or bytes"""
    depth: int
    bound: int


class QueueStats(Struct):
    queue: str
    depth: int
    """Jobs that have not ended, active ones included."""
    available: int
    active: int
    scheduled: int
    retryable: int
    pending: int
    completed: int
    discarded: int
    cancelled: int
    completed_last_hour: int
    failed_last_hour: int
    avg_duration_ms: float
    avg_wait_ms: float
    throughput_per_second: float
    """Of completed jobs, over the last minute."""
    bytes: int
    """Of all jobs that have not ended."""
    parked: int
    """Producers that wait for room."""
    max_depth: int | UnsetType = UNSET
    """The bound on jobs that wait, active ones not counted."""
    max_size: int | UnsetType = UNSET
    """The bound on jobs, active ones counted."""
    max_size_bytes: int | UnsetType = UNSET
    bound: Fullest | UnsetType = UNSET
    pressure: float | UnsetType = UNSET
    """How full it is by that bound, from 0 to 1."""
    oldest_available_at: str | UnsetType = UNSET
    """Since when the oldest of those jobs waits that are available."""
    oldest_available_age_ms: int | UnsetType = UNSET
    oldest_runnable_at: str | UnsetType = UNSET
    """Since when the oldest of those jobs waits that nothing but a free worker keeps from running."""
    oldest_runnable_age_ms: int | UnsetType = UNSET


class QueueStatsAnswer(Struct):
    queue: QueueFace
    stats: QueueStats
    status: str
    computed_at: str


class PausedFace(Struct):
    name: str
    paused: bool


class Paused(Struct):
    queue: PausedFace
    status: str
    paused_at: str | UnsetType = UNSET
    resumed_at: str | UnsetType = UNSET


class Drained(Struct):
    queue: PausedFace
    status: str
    """draining, or deleted when it was empty"""
    unfinished_jobs: int
    """It is deleted when these have ended; resuming it before calls that off."""


class PriorityStats(Struct):
    queue: str
    counts_by_priority: dict[str, int]
    """Available jobs, the highest priority first."""
    total: int


class DeletedQueue(Struct):
    queue: str
    strategy: str
    jobs_affected: int
    """Jobs that are discarded or moved because of it."""
    state: str
    """deleted, or draining while active jobs run or the rest is carried out"""
    target_queue: str | UnsetType = UNSET
    task: TaskInfo | UnsetType = UNSET
    """Where the rest can be followed; absent when nothing is left to do."""


class Throughput(Struct):
    processed_per_minute: int
    failed_per_minute: int


class Latency(Struct):
    p50: float
    p95: float
    p99: float


class AdminQueue(Struct, omit_defaults=True):
    name: str
    state: str
    counts: dict[str, int]
    throughput: Throughput
    latency_ms: Latency
    paused: bool
    created_at: str
    paused_at: str | UnsetType = UNSET
    oldest_available_at: str | UnsetType = UNSET
    oldest_runnable_at: str | UnsetType = UNSET
    """Since when the oldest of those jobs waits that nothing but a free worker keeps from running."""
    pressure: float | UnsetType = UNSET
    """How full it is by its tightest bound, from 0 to 1."""
    parked: int = 0
    """Producers that wait for room."""
    configuration: dict[str, Any] | UnsetType = UNSET
    """What holds for the queue; only in the answer about one queue."""


class AdminQueueList(Struct):
    items: list[AdminQueue]
    pagination: NumberedPagination


class AdminPaused(Struct):
    name: str
    paused: bool
    state: str
    paused_at: str | UnsetType = UNSET
    resumed_at: str | UnsetType = UNSET


class AdminDrained(Struct):
    name: str
    paused: bool
    state: str
    """draining, or deleted when it was empty"""
    unfinished_jobs: int


class Purged(Struct):
    purged_count: int
    states: list[str]
    task: TaskInfo | UnsetType = UNSET
    """Where the rest can be followed; absent when nothing is left to do."""
