"""What is answered about replay rules."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from headgate.wire.bulk import TaskInfo
from headgate.wire.paging import Pagination


class ReplayFilter(Struct):
    queue: str | UnsetType = UNSET
    """The queue from which the dead letter came."""
    type: str | UnsetType = UNSET
    error_type: str | UnsetType = UNSET
    """Of its newest error."""


class ReplayRuleInfo(Struct):
    name: str
    filter: ReplayFilter
    delay: str
    max_replays: int
    enabled: bool
    created_at: str
    updated_at: str


class ReplayRuleAnswer(Struct):
    rule: ReplayRuleInfo
    replayed: int | UnsetType = UNSET
    """How many dead letters started over at once."""
    task: TaskInfo | UnsetType = UNSET
    """Where very many lie there: how far the look at them is."""


class ReplayRuleList(Struct):
    rules: list[ReplayRuleInfo]
    pagination: Pagination


class DeletedReplayRule(Struct):
    deleted: bool
    name: str
