"""What is answered about what happened to a job, and about its relatives."""

from __future__ import annotations

from msgspec import UNSET, Raw, Struct, UnsetType

from headgate.core.job import Job
from headgate.core.times import instant_text
from headgate.core.trail import Change
from headgate.wire.paging import Pagination


class ChangeInfo(Struct):
    """One change of the job's state."""

    at: str
    event: str
    """What led to it: a trigger of the state table, such as push, fetch, fail or retry."""
    state: str
    previous_state: str | UnsetType = UNSET
    """Absent where there was no job before."""
    attempt: int | UnsetType = UNSET
    worker_id: str | UnsetType = UNSET
    by: str | UnsetType = UNSET
    """Who asked for it, where somebody did and is known."""
    reason: str | UnsetType = UNSET
    """Why the job ended or was put off: the reason of its discard or of its cancellation, the key it waits for, the rule that replayed it."""
    times: int | UnsetType = UNSET
    """How often in a row this happened, where that was more than once; `at` is the last time."""
    error: Raw | UnsetType = UNSET
    """The entry in the job's `errors`, as long as that is kept."""


class JobHistory(Struct):
    job_id: str
    state: str
    history: list[ChangeInfo]
    """The oldest first."""
    omitted: int
    """How many changes were too old to be kept; they were the first ones."""
    pagination: Pagination
    deleted_at: str | UnsetType = UNSET
    """When somebody deleted the history last; what happened before is not told."""


class DeletedHistory(Struct):
    deleted: bool
    job_id: str


class Relative(Struct):
    id: str
    type: str
    queue: str
    state: str
    created_at: str
    parent_id: str | UnsetType = UNSET


class LineageAnswer(Struct):
    job_id: str
    ancestors: list[Relative]
    """The parent first, up to 100."""
    complete: bool
    """Whether the line of ancestors was followed to a job without a parent; one that is not kept any more ends it early."""
    relation: str
    """children, family (all that name the same root) or workflow"""
    relatives: list[Relative]
    """In the order of their creation."""
    pagination: Pagination
    """Of the relatives."""
    parent_id: str | UnsetType = UNSET
    root_id: str | UnsetType = UNSET
    workflow_id: str | UnsetType = UNSET
    root: Relative | UnsetType = UNSET
    """Absent where it is not kept, or where nobody knows which it is."""


def change_info(change: Change, errors: dict[tuple[str, int], Raw]) -> ChangeInfo:
    """`errors` are the entries of the job's list, by instant and attempt."""
    at = instant_text(change.at)
    return ChangeInfo(
        at=at,
        event=change.event,
        state=change.state,
        previous_state=change.was or UNSET,
        attempt=change.attempt or UNSET,
        worker_id=change.worker or UNSET,
        by=change.by or UNSET,
        reason=change.reason or UNSET,
        times=change.times if change.times > 1 else UNSET,
        error=errors.get((at, change.attempt), UNSET),
    )


def relative(job: Job, parent_id: str) -> Relative:
    created = instant_text(job.created_at)
    return Relative(job.id, job.type, job.queue, job.state, created, parent_id or UNSET)
