"""What is answered about dead letters besides the jobs themselves."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType


class DeletedDeadLetter(Struct):
    deleted: bool
    job_id: str


class DeadLetterStats(Struct):
    total: int
    by_queue: dict[str, int]
    by_error_type: dict[str, int]
    oldest_at: str | UnsetType = UNSET
    newest_at: str | UnsetType = UNSET
