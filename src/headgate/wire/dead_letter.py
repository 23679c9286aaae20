"""What is answered about dead letters besides the jobs themselves."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType


class DeletedDeadLetter(Struct):
    deleted: bool
    job_id: str


class DeadLetterRetention(Struct):
    """Of those that stand in no queue of their own; for the others their queue's configuration says it."""

    max_age: str
    max_count: int
    next_prune_at: str
    """When the server next looks for what is kept no longer."""


class DeadLetterStats(Struct):
    total: int
    by_queue: dict[str, int]
    by_error_type: dict[str, int]
    retention: DeadLetterRetention
    oldest_at: str | UnsetType = UNSET
    newest_at: str | UnsetType = UNSET
