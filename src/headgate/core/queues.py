"""Queue settings: what may be said of a queue, and how the layers are put together.

Only explicit values are kept.
What holds for a queue is looked up in this order: the queue's own configuration, the policy of the reserved queue `_default`, the system's defaults; so a change of a lower layer shows in every queue that does not override it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType

from headgate.core import retry
from headgate.core.errors import InvalidRequest, PolicyInvalid
from headgate.core.retry import RetryPolicy
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


class Retention(Struct, frozen=True, omit_defaults=True):
    """How long finished jobs are kept, as ISO 8601 durations."""

    completed: str | UnsetType = UNSET
    discarded: str | UnsetType = UNSET
    cancelled: str | UnsetType = UNSET


class QueueConfig(Struct, frozen=True, omit_defaults=True):
    """The explicit values of one layer; UNSET where it says nothing."""

    visibility_timeout: int | UnsetType = UNSET
    """Seconds."""
    default_timeout: int | UnsetType = UNSET
    """Seconds."""
    default_retry: dict[str, Any] | UnsetType = UNSET
    retention: Retention | UnsetType = UNSET
    allowed_job_types: tuple[str, ...] | UnsetType = UNSET


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

    def takes(self, job_type: str) -> bool:
        """Whether jobs of this type may enter."""
        return "*" in self.allowed_job_types or any(
            fnmatchcase(job_type, pattern) for pattern in self.allowed_job_types
        )


SYSTEM: Final = Resolved()


def check_name(name: object, *, field: str = "queue") -> str:
    """Give the name back, or raise InvalidRequest."""
    if not isinstance(name, str) or len(name) > MAX_NAME or not NAME.fullmatch(name):
        raise InvalidRequest(
            field=field,
            expected=f"1 to {MAX_NAME} characters out of a-z, 0-9, '-' and '.', "
            "starting with a letter or digit",
        )
    return name


def merge(config: QueueConfig, changes: Mapping[str, Any], *, path: str = "config") -> QueueConfig:
    """Lay `changes` over a configuration: given replaces, null clears, absent leaves.

    Raises InvalidRequest or PolicyInvalid, naming the member, also when the member is not known.
    """
    if not isinstance(changes, Mapping):
        raise InvalidRequest(field=path, expected="an object")
    values: dict[str, Any] = {}
    for name, value in changes.items():
        if name not in FIELDS:
            raise InvalidRequest(
                f"{path}.{name} is not a setting that this server has",
                field=f"{path}.{name}",
                expected="one of " + ", ".join(FIELDS),
            )
        values[name] = _member(config, name, value, f"{path}.{name}")
    return msgspec.structs.replace(config, **values)


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
        case _:
            return _types(value, path)


def resolve(policy: QueueConfig, config: QueueConfig) -> Resolved:
    """Put the layers together: the system's defaults, the default policy, the queue's own."""
    found = SYSTEM
    for layer in (policy, config):
        values: dict[str, Any] = {}
        if layer.visibility_timeout is not UNSET:
            values["visibility_ms"] = layer.visibility_timeout * SECOND_MS
        if layer.default_timeout is not UNSET:
            values["timeout_ms"] = layer.default_timeout * SECOND_MS
        if layer.default_retry is not UNSET:
            values["retry"] = retry.policy_from(layer.default_retry, found.retry)
        if layer.retention is not UNSET:
            for name in Retention.__struct_fields__:
                text = getattr(layer.retention, name)
                if text is not UNSET:
                    values[f"keep_{name}_ms"] = duration_ms(text)
        if layer.allowed_job_types is not UNSET:
            values["allowed_job_types"] = layer.allowed_job_types
        if values:
            found = msgspec.structs.replace(found, **values)
    return found


def resolved_json(resolved: Resolved) -> dict[str, Any]:
    """The wire form of what holds, every setting included."""
    return {
        "visibility_timeout": resolved.visibility_ms // SECOND_MS,
        "default_timeout": resolved.timeout_ms // SECOND_MS,
        "default_retry": retry.policy_json(resolved.retry),
        "retention": {
            "completed": duration_text(resolved.keep_completed_ms),
            "discarded": duration_text(resolved.keep_discarded_ms),
            "cancelled": duration_text(resolved.keep_cancelled_ms),
        },
        "allowed_job_types": list(resolved.allowed_job_types),
    }


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
    if not isinstance(value, Mapping):
        raise InvalidRequest(field=path, expected="an object")
    merged = known if known is not UNSET else Retention()
    for name, text in value.items():
        if name not in Retention.__struct_fields__:
            raise InvalidRequest(
                field=f"{path}.{name}",
                expected="one of " + ", ".join(Retention.__struct_fields__),
            )
        if text is not None:
            _duration(text, f"{path}.{name}")
        merged = msgspec.structs.replace(merged, **{name: UNSET if text is None else text})
    return merged if merged != Retention() else UNSET


def _duration(text: Any, path: str) -> None:
    try:
        duration_ms(text if isinstance(text, str) else "")
    except ValueError:
        raise InvalidRequest(field=path, expected="an ISO 8601 duration such as P7D") from None


def _types(value: Any, path: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(v, str) and v for v in value):
        raise InvalidRequest(field=path, expected="an array of job types; * is a wildcard")
    return tuple(cast("list[str]", value))
