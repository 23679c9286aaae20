"""What is answered about commands for many jobs at once."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from headgate.wire.paging import NumberedPagination


class TaskInfo(Struct):
    """A command that touches many jobs and is carried out in slices."""

    id: str
    kind: str
    matched: int
    done: int
    skipped: int
    finished: bool


class TaskAnswer(Struct):
    task: TaskInfo


class TaskList(Struct):
    items: list[TaskInfo]
    pagination: NumberedPagination


class BulkItem(Struct):
    index: int
    job_id: str
    status: str
    """cancelled, retried, deleted or skipped"""
    reason: str | UnsetType = UNSET
    """Why it was skipped."""


class Cancelled(Struct):
    total_matched: int
    skipped: int
    items: list[BulkItem]
    cancelled: int
    task: TaskInfo | UnsetType = UNSET
    """Where the rest can be followed; absent when nothing is left to do."""


class Retried(Struct):
    total_matched: int
    skipped: int
    items: list[BulkItem]
    retried: int
    task: TaskInfo | UnsetType = UNSET


class Deleted(Struct):
    total_matched: int
    skipped: int
    items: list[BulkItem]
    deleted: int
    task: TaskInfo | UnsetType = UNSET


class AdminBulk(Struct):
    """The outcome of a command for all jobs that match."""

    action: str
    matched: int
    succeeded: int
    failed: int
    """Matching jobs whose state does not allow it."""
    errors: list[str]
    task: TaskInfo | UnsetType = UNSET
    """Where the rest can be followed; absent when nothing is left to do."""
