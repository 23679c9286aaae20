"""What is asked about limits over HTTP, and what is answered."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType

from headgate.core.gates import GateState
from headgate.core.limits import LIMITS, parted, state_json
from headgate.wire.bulk import TaskInfo
from headgate.wire.paging import NumberedPagination


class ConcurrencyUse(Struct):
    limit: int
    active: int
    available: int


class RateUse(Struct):
    limit: int
    period: str
    current_count: int
    """Starts in the sliding window that ends now."""
    window_resets_at: str
    """When all of these have left it; now when there are none."""


class ThrottleUse(Struct):
    limit: int
    period: str
    next_allowed_at: str
    """When the next start is allowed."""


class Hold(Struct):
    until: str
    reason: str


class RateLimit(Struct):
    """A key; only the limits that it has."""

    key: str
    waiting_count: int
    """Available jobs beyond those that the key would let start now."""
    tenant: str | UnsetType = UNSET
    """Whose key it is; absent where it is everybody's."""
    concurrency: ConcurrencyUse | UnsetType = UNSET
    rate: RateUse | UnsetType = UNSET
    throttle: ThrottleUse | UnsetType = UNSET
    hold: Hold | UnsetType = UNSET
    """Nothing starts until then, because a job was told so or an operator said so."""
    override: dict[str, Any] | UnsetType = UNSET
    """What holds instead of what jobs say, while it does."""


class RateLimitList(Struct):
    items: list[RateLimit]
    pagination: NumberedPagination


class LiftedLimit(Struct):
    key: str
    lifted: bool
    tenant: str | UnsetType = UNSET


class KeyJobList(Struct):
    """The jobs of a key as if it were the only one that they pass."""

    key: str
    allowed: Raw
    """Those that run, then those that the key would let start now."""
    rate_limited: Raw
    """Those that wait for it."""
    allowed_total: int
    rate_limited_total: int
    pagination: NumberedPagination
    """Over both lists, the allowed ones first."""
    tenant: str | UnsetType = UNSET


class CancelByKey(Struct):
    confirm: bool | None = None
    states: list[str] | None = None
    """Those that wait, by whatever name, where it is absent."""


class CancelledByKey(Struct):
    key: str
    total_matched: int
    cancelled: int
    skipped: int
    tenant: str | UnsetType = UNSET
    task: TaskInfo | UnsetType = UNSET
    """Where the rest can be followed; absent when nothing is left to do."""


class QueueRateLimit(Struct):
    """The limits of a queue as a whole, and how far they are used up."""

    queue: str
    concurrency: ConcurrencyUse | UnsetType = UNSET
    rate: RateUse | UnsetType = UNSET
    throttle: ThrottleUse | UnsetType = UNSET


def named(name: str) -> dict[str, str]:
    """The members that say which key is meant."""
    key, tenant = parted(name)
    return {"key": key, "tenant": tenant} if tenant else {"key": key}


def limit_json(name: str, state: GateState, waiting: int) -> dict[str, Any]:
    """A key as RateLimit shows it."""
    return named(name) | {
        member: value for member, value in state_json("", state, waiting).items() if member != "key"
    }


def queue_limit_json(queue: str, state: GateState | None) -> dict[str, Any]:
    """The limits of a queue as QueueRateLimit shows them."""
    found = {} if state is None else state_json("", state, 0)
    return {"queue": queue} | {name: found[name] for name in LIMITS if name in found}
