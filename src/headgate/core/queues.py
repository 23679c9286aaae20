"""Queue settings: what may be said of a queue, and how the layers are put together.

Only explicit values are kept.
What holds for a queue is looked up in this order: the queue's own configuration, the policy of the reserved queue `_default`, the system's defaults; so a change of a lower layer shows in every queue that does not override it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType

from headgate.core import bounds, retry, tenants
from headgate.core.bounds import Bounds, Strategy
from headgate.core.errors import InvalidRequest, PolicyInvalid
from headgate.core.gates import Limits, LimitsChange, changed
from headgate.core.limits import limits_json, queue_limits_from
from headgate.core.members import choice_at, duration_at, fraction_at, object_at, whole_at
from headgate.core.retry import RetryPolicy
from headgate.core.tenants import Fairness, FairnessConfig, fairness_json, fairness_merge
from headgate.core.times import DAY_MS, LONGEST_MS, SECOND_MS, duration_ms, duration_text

DEFAULT_POLICY: Final = "_default"
"""The reserved name under which the default policy is configured; no queue can have it."""
DEFAULT_QUEUE: Final = "default"
"""The queue that always exists."""

NAME: Final = re.compile(r"[a-z0-9][a-z0-9\-.]*")
MAX_NAME: Final = 128

ACTIVE: Final = "active"
PAUSED: Final = "paused"
DRAINING: Final = "draining"

_LONGEST_S: Final = LONGEST_MS // SECOND_MS
_STRATEGIES: Final[tuple[Strategy, ...]] = ("reject", "block", "drop_oldest")


class Retention(Struct, frozen=True, omit_defaults=True):
    """How long finished jobs are kept, as ISO 8601 durations."""

    completed: str | UnsetType = UNSET
    discarded: str | UnsetType = UNSET
    cancelled: str | UnsetType = UNSET


class Backpressure(Struct, frozen=True, omit_defaults=True):
    """Its strategy is kept as `overflow_policy`, so that whichever was set later holds."""

    max_depth: int | UnsetType = UNSET
    max_size_bytes: int | UnsetType = UNSET
    warning_threshold: float | UnsetType = UNSET


class QueueConfig(Struct, frozen=True, omit_defaults=True):
    """The explicit values of one layer; UNSET where it says nothing."""

    visibility_timeout: int | UnsetType = UNSET
    """Seconds."""
    default_timeout: int | UnsetType = UNSET
    """Seconds."""
    default_retry: dict[str, Any] | UnsetType = UNSET
    retention: Retention | UnsetType = UNSET
    allowed_job_types: tuple[str, ...] | UnsetType = UNSET
    max_size: int | UnsetType = UNSET
    max_size_bytes: int | UnsetType = UNSET
    overflow_policy: str | UnsetType = UNSET
    backpressure: Backpressure | UnsetType = UNSET
    concurrency: int | UnsetType = UNSET
    rate_limit: LimitsChange | UnsetType = UNSET
    """Without None: what is cleared is UNSET."""
    dead_letter_queue: str | UnsetType = UNSET
    dead_letter_max_size: int | UnsetType = UNSET
    dead_letter_ttl: str | UnsetType = UNSET
    producers: tuple[str, ...] | UnsetType = UNSET
    tenant_fairness: FairnessConfig | UnsetType = UNSET


EMPTY: Final = QueueConfig()

FIELDS: Final = QueueConfig.__struct_fields__


class Resolved(Struct, frozen=True):
    """What holds for a queue, in the units that the rules use."""

    visibility_ms: int = 30 * SECOND_MS
    timeout_ms: int = 1800 * SECOND_MS
    retry: RetryPolicy = retry.DEFAULT
    keep_completed_ms: int = 7 * DAY_MS
    keep_discarded_ms: int = 30 * DAY_MS
    keep_cancelled_ms: int = 7 * DAY_MS
    allowed_job_types: tuple[str, ...] = ("*",)
    bounds: Bounds = bounds.NONE
    limits: Limits = Limits()
    dead_letter_queue: str = ""
    dead_letter_max_size: int = 0
    """0 is no bound."""
    dead_letter_ttl_ms: int = 30 * DAY_MS
    producers: tuple[str, ...] = ("*",)
    fairness: Fairness = Fairness()

    def takes(self, job_type: str) -> bool:
        """Whether jobs of this type may enter."""
        return _matches(self.allowed_job_types, job_type)

    def takes_from(self, producer: str) -> bool:
        """Whether this producer's jobs may enter."""
        return _matches(self.producers, producer)


SYSTEM: Final = Resolved()

_T = TypeVar("_T")


def _matches(patterns: Sequence[str], name: str) -> bool:
    return "*" in patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def check_name(name: object, *, field: str = "queue") -> str:
    """Give the name back, or raise InvalidRequest."""
    if not isinstance(name, str) or len(name) > MAX_NAME or not NAME.fullmatch(name):
        raise InvalidRequest(
            field=field,
            expected=f"1 to {MAX_NAME} characters out of a-z, 0-9, '-' and '.', "
            "starting with a letter or digit",
        )
    return name


def merge(
    config: QueueConfig, changes: Mapping[str, Any], *, path: str = "config", queue: str = ""
) -> QueueConfig:
    """Lay `changes` over the configuration of a queue: given replaces, null clears, absent leaves.

    Raises InvalidRequest or PolicyInvalid, naming the member, also when the member is not known.
    """
    if not isinstance(changes, Mapping):
        raise InvalidRequest(field=path, expected="an object")
    for name in changes:
        if name not in FIELDS:
            raise InvalidRequest(
                f"{path}.{name} is not a setting that this server has",
                field=f"{path}.{name}",
                expected="one of " + ", ".join(FIELDS),
            )
    values = {
        name: _member(config, name, value, f"{path}.{name}") for name, value in changes.items()
    }
    if "backpressure" in changes:
        _strategy_of_backpressure(changes, values, path)
    found = msgspec.structs.replace(config, **values)
    if queue and found.dead_letter_queue == queue:
        raise InvalidRequest(field=f"{path}.dead_letter_queue", expected="another queue")
    return found


def _member(config: QueueConfig, name: str, value: Any, path: str) -> Any:
    if value is None:
        return UNSET
    match name:
        case "visibility_timeout" | "default_timeout":
            return _seconds(value, path)
        case "default_retry":
            return _retry(config.default_retry, value, path)
        case "retention":
            return _retention(config.retention, value, path)
        case "max_size" | "max_size_bytes" | "concurrency":
            return whole_at(value, path, 0)
        case "overflow_policy":
            return choice_at(value, path, _STRATEGIES)
        case "backpressure":
            return _backpressure(config.backpressure, value, path)
        case "rate_limit":
            return _rate_limit(config.rate_limit, value, path)
        case "dead_letter_queue":
            return check_name(value, field=path)
        case "dead_letter_max_size":
            return whole_at(value, path, 1)
        case "dead_letter_ttl":
            duration_at(value, path)
            return value
        case "producers":
            return _patterns(value, path, "producers")
        case "tenant_fairness":
            known = FairnessConfig() if config.tenant_fairness is UNSET else config.tenant_fairness
            merged = fairness_merge(known, value, path)
            return UNSET if merged == FairnessConfig() else merged
        case _:
            return _patterns(value, path, "job types")


def resolve(policy: QueueConfig, config: QueueConfig, queue: str = "") -> Resolved:
    """Put the layers together: the system's defaults, the default policy, the queue's own.

    Where two settings bound the same thing, the more restrictive one acts.
    In a queue that has a dead letter queue, exhausted jobs are dead letters unless a retry policy says otherwise; no queue is its own, whatever the default policy says.
    """
    layers = (policy, config)
    capacity = [layer.backpressure for layer in layers if layer.backpressure is not UNSET]
    kept = [layer.retention for layer in layers if layer.retention is not UNSET]
    dead_letter_queue = _last(layers, "dead_letter_queue", "")
    if dead_letter_queue == queue:
        dead_letter_queue = ""
    return Resolved(
        visibility_ms=_last(layers, "visibility_timeout", 0) * SECOND_MS or SYSTEM.visibility_ms,
        timeout_ms=_last(layers, "default_timeout", 0) * SECOND_MS or SYSTEM.timeout_ms,
        retry=_retry_policy(layers, dead_letter_queue),
        keep_completed_ms=_duration(kept, "completed", SYSTEM.keep_completed_ms),
        keep_discarded_ms=_duration(kept, "discarded", SYSTEM.keep_discarded_ms),
        keep_cancelled_ms=_duration(kept, "cancelled", SYSTEM.keep_cancelled_ms),
        allowed_job_types=_last(layers, "allowed_job_types", SYSTEM.allowed_job_types),
        bounds=Bounds(
            max_depth=_last(capacity, "max_depth", 0),
            max_size=_last(layers, "max_size", 0),
            max_size_bytes=_tighter(
                _last(layers, "max_size_bytes", 0), _last(capacity, "max_size_bytes", 0)
            ),
            strategy=_last(layers, "overflow_policy", bounds.NONE.strategy),
            warning_threshold=_last(capacity, "warning_threshold", bounds.NONE.warning_threshold),
        ),
        limits=_limits(layers),
        dead_letter_queue=dead_letter_queue,
        dead_letter_max_size=_last(layers, "dead_letter_max_size", 0),
        dead_letter_ttl_ms=_duration(layers, "dead_letter_ttl", SYSTEM.dead_letter_ttl_ms),
        producers=_last(layers, "producers", SYSTEM.producers),
        fairness=_fairness(layers),
    )


def resolved_json(resolved: Resolved) -> dict[str, Any]:
    """The wire form of what holds: every setting that has a default, and the others where they are set."""
    capacity = resolved.bounds
    limits = limits_json(resolved.limits)
    concurrency = limits.pop("concurrency", None)
    sizes = {
        "max_depth": capacity.max_depth or None,
        "max_size_bytes": capacity.max_size_bytes or None,
    }
    found = {
        "visibility_timeout": resolved.visibility_ms // SECOND_MS,
        "default_timeout": resolved.timeout_ms // SECOND_MS,
        "default_retry": retry.policy_json(resolved.retry),
        "retention": {
            "completed": duration_text(resolved.keep_completed_ms),
            "discarded": duration_text(resolved.keep_discarded_ms),
            "cancelled": duration_text(resolved.keep_cancelled_ms),
        },
        "allowed_job_types": list(resolved.allowed_job_types),
        "max_size": capacity.max_size or None,
        "max_size_bytes": capacity.max_size_bytes or None,
        "overflow_policy": capacity.strategy,
        "backpressure": {name: size for name, size in sizes.items() if size}
        | {"strategy": capacity.strategy, "warning_threshold": capacity.warning_threshold},
        "concurrency": concurrency,
        "rate_limit": limits or None,
        "dead_letter_queue": resolved.dead_letter_queue or None,
        "dead_letter_max_size": resolved.dead_letter_max_size or None,
        "dead_letter_ttl": duration_text(resolved.dead_letter_ttl_ms),
        "producers": list(resolved.producers),
        "tenant_fairness": fairness_json(resolved.fairness),
    }
    return {name: value for name, value in found.items() if value is not None}


def _last(layers: Sequence[Any], name: str, default: _T) -> _T:
    """What the last layer says that says anything."""
    for layer in reversed(layers):
        value = getattr(layer, name)
        if value is not UNSET:
            return cast("_T", value)
    return default


def _duration(layers: Sequence[Any], name: str, default_ms: int) -> int:
    text = _last(layers, name, "")
    return duration_ms(text) if text else default_ms


def _tighter(one: int, other: int) -> int:
    """The smaller of two bounds of which 0 is none."""
    return min(one, other) if one and other else one or other


def _retry_policy(layers: Sequence[QueueConfig], dead_letter_queue: str) -> RetryPolicy:
    found = SYSTEM.retry
    if dead_letter_queue:
        found = msgspec.structs.replace(found, on_exhaustion="dead_letter")
    for layer in layers:
        if layer.default_retry is not UNSET:
            found = retry.policy_from(layer.default_retry, found)
    return found


def _limits(layers: Sequence[QueueConfig]) -> Limits:
    found = Limits()
    for layer in layers:
        if layer.rate_limit is not UNSET:
            found = changed(found, layer.rate_limit)
    own = cast("int | None", _last(layers, "concurrency", None))
    if own is None:
        return found
    of_both = own if found.concurrency is None else min(own, found.concurrency)
    return msgspec.structs.replace(found, concurrency=of_both)


def _fairness(layers: Sequence[QueueConfig]) -> Fairness:
    found = SYSTEM.fairness
    for layer in layers:
        if layer.tenant_fairness is not UNSET:
            found = tenants.fairness_over(found, layer.tenant_fairness)
    return found


def _seconds(value: Any, path: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= _LONGEST_S:
        raise InvalidRequest(field=path, expected="a whole number of seconds above 0")
    return value


def _retry(known: dict[str, Any] | UnsetType, value: Any, path: str) -> dict[str, Any] | UnsetType:
    if not isinstance(value, Mapping):
        raise PolicyInvalid(field=path, expected="an object")
    merged = dict(known) if known is not UNSET else {}
    for name, member in value.items():
        if member is None:
            merged.pop(name, None)
        else:
            merged[name] = member
    retry.policy_from(merged, path=path)
    return merged or UNSET


def _retention(known: Retention | UnsetType, value: Any, path: str) -> Retention | UnsetType:
    merged = known if known is not UNSET else Retention()
    for name, text in object_at(value, path, Retention.__struct_fields__).items():
        if text is not None:
            _check_duration(text, f"{path}.{name}")
        merged = msgspec.structs.replace(merged, **{name: UNSET if text is None else text})
    return merged if merged != Retention() else UNSET


def _check_duration(text: Any, path: str) -> None:
    try:
        duration_ms(text if isinstance(text, str) else "")
    except ValueError:
        raise InvalidRequest(field=path, expected="an ISO 8601 duration such as P7D") from None


def _backpressure(
    known: Backpressure | UnsetType, given: Any, path: str
) -> Backpressure | UnsetType:
    values: dict[str, Any] = {}
    for name, value in object_at(
        given, path, (*Backpressure.__struct_fields__, "strategy")
    ).items():
        at = f"{path}.{name}"
        if name == "strategy":
            continue
        if value is None:
            values[name] = UNSET
        elif name == "warning_threshold":
            values[name] = fraction_at(value, at)
        else:
            values[name] = whole_at(value, at, 0)
    merged = msgspec.structs.replace(known if known is not UNSET else Backpressure(), **values)
    return merged if merged != Backpressure() else UNSET


def _strategy_of_backpressure(
    changes: Mapping[str, Any], values: dict[str, Any], path: str
) -> None:
    """Keep it as the overflow policy; both may be given, but not at odds."""
    given = changes["backpressure"]
    if given is not None and "strategy" not in given:
        return
    at = f"{path}.backpressure.strategy"
    strategy = None if given is None else given["strategy"]
    if strategy is not None:
        choice_at(strategy, at, _STRATEGIES)
    if changes.get("overflow_policy", strategy) != strategy:
        if given is None:
            return
        raise InvalidRequest(field=at, expected=f"the same as {path}.overflow_policy")
    values["overflow_policy"] = UNSET if strategy is None else strategy


def _rate_limit(known: LimitsChange | UnsetType, given: Any, path: str) -> LimitsChange | UnsetType:
    change = queue_limits_from(given, path=path)
    values = {
        name: UNSET if getattr(change, name) is None else getattr(change, name)
        for name in LimitsChange.__struct_fields__
        if getattr(change, name) is not UNSET
    }
    merged = msgspec.structs.replace(known if known is not UNSET else LimitsChange(), **values)
    return merged if merged != LimitsChange() else UNSET


def _patterns(value: Any, path: str, what: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(v, str) and v for v in value):
        raise InvalidRequest(field=path, expected=f"an array of {what}; * is a wildcard")
    return tuple(cast("list[str]", value))
