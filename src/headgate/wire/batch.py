"""Many jobs in one request."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from headgate.wire.shapes import JobRecord


class Batch(Struct):
    """All of them or none."""

    jobs: list[Raw]


class BatchAnswer(Struct):
    jobs: list[JobRecord]
    count: int
    deduplicated: list[int] | UnsetType = UNSET
    """Which items existed, where their producer wants those instead."""


class BulkEnqueue(Struct):
    jobs: list[Raw]
    atomicity: Literal["partial", "atomic"] | None = None
    """partial, the default: what one job refuses does not stop the rest"""
    idempotency_key: str | None = None
    """Instead of the header of this name, which wins."""


class BulkEnqueueItem(Struct):
    index: int
    status: Literal["created", "duplicate", "failed"]
    job: JobRecord | UnsetType = UNSET
    error: dict[str, Any] | UnsetType = UNSET


class BulkEnqueueAnswer(Struct):
    total: int
    succeeded: int
    failed: int
    items: list[BulkEnqueueItem]
