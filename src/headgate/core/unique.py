"""Uniqueness: which jobs count as the same, and what a producer wants when one exists.

The fingerprint is part of the protocol: a producer may compute it itself, in any language.
It is the SHA-256, as lower-case hexadecimal, of the canonical JSON (RFC 8785) of the object of the chosen dimensions, its strings in Unicode form NFC.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec
import rfc8785

from headgate.core.errors import PolicyInvalid
from headgate.core.states import ACTIVE, AVAILABLE, PENDING, RETRYABLE, SCHEDULED, STATES, TERMINAL
from headgate.core.times import duration_ms

Conflict: TypeAlias = Literal["reject", "replace", "replace_except_schedule", "ignore"]

DIMENSIONS: Final = ("type", "queue", "args", "meta")
CONFLICTS: Final[dict[str, Conflict]] = {
    "reject": "reject",
    "replace": "replace",
    "replace_except_schedule": "replace_except_schedule",
    "ignore": "ignore",
    "use_existing": "ignore",
}
LIVE: Final = frozenset({AVAILABLE, ACTIVE, SCHEDULED, RETRYABLE, PENDING})

_MEMBERS: Final = frozenset(
    {"key", "keys", "args_keys", "meta_keys", "period", "states", "on_conflict"}
)
_LARGEST_INTEGER = 2**53 - 1


class UniquePolicy(msgspec.Struct, frozen=True, gc=False):
    """When an existing job with the same fingerprint stands in the way, and what then."""

    dimensions: tuple[str, ...] = ("type",)
    args_keys: tuple[str, ...] = ()
    """Which members of the first argument count; empty means all arguments."""
    meta_keys: tuple[str, ...] = ()
    period_ms: int | None = None
    """How long after its creation a job stands in the way; None means as long as it exists."""
    states: frozenset[str] = LIVE
    on_conflict: Conflict = "reject"

    @property
    def looks_at_finished(self) -> bool:
        """Whether jobs that have ended can stand in the way."""
        return not self.states.isdisjoint(TERMINAL)


def policy_from(given: object, *, path: str = "unique") -> UniquePolicy:
    """Read a policy; null counts as absent. Raises PolicyInvalid, naming the member."""
    if not isinstance(given, Mapping):
        raise PolicyInvalid(field=path, expected="an object")
    for name in given:
        if name not in _MEMBERS:
            raise PolicyInvalid(
                field=f"{path}.{name}", expected="absent; known are " + ", ".join(sorted(_MEMBERS))
            )
    dimensions = _names(given, "keys", path, DIMENSIONS)
    args_keys = _names(given, "args_keys", path)
    meta_keys = _names(given, "meta_keys", path)
    legacy = _names(given, "key", path)
    if legacy is not None:
        dimensions = (*(dimensions or ()), "args")
        args_keys = args_keys or legacy
    chosen = {"type", *(dimensions or ())}
    if args_keys:
        chosen.add("args")
    if meta_keys:
        chosen.add("meta")
    elif "meta" in chosen:
        raise PolicyInvalid(
            field=f"{path}.meta_keys", expected="the names of the meta members that count"
        )
    states = _names(given, "states", path, STATES)
    return UniquePolicy(
        dimensions=tuple(name for name in DIMENSIONS if name in chosen),
        args_keys=tuple(sorted(set(args_keys or ()))),
        meta_keys=tuple(sorted(set(meta_keys or ()))),
        period_ms=_period(given, path),
        states=frozenset(states) if states is not None else LIVE,
        on_conflict=_on_conflict(given, path),
    )


def fingerprint(
    policy: UniquePolicy,
    type: str,  # noqa: A002 - the wire's own word
    queue: str,
    args: Sequence[Any],
    meta: Mapping[str, Any],
    *,
    path: str = "unique",
) -> str:
    """Give the job's fingerprint; raises PolicyInvalid when the job lacks what the policy names."""
    chosen: dict[str, Any] = {"type": type}
    if "queue" in policy.dimensions:
        chosen["queue"] = queue
    if "args" in policy.dimensions:
        chosen["args"] = _args(policy, args, path)
    if "meta" in policy.dimensions:
        for name in policy.meta_keys:
            if name not in meta:
                raise PolicyInvalid(f"meta has no member {name}", field=f"{path}.meta_keys")
        chosen["meta"] = {name: meta[name] for name in policy.meta_keys}
    return hashlib.sha256(_canonical(chosen, path)).hexdigest()


def _args(policy: UniquePolicy, args: Sequence[Any], path: str) -> Any:
    if not policy.args_keys:
        return list(args)
    first = args[0] if args else None
    if not isinstance(first, Mapping):
        raise PolicyInvalid(
            "args_keys need an object as the first argument", field=f"{path}.args_keys"
        )
    for name in policy.args_keys:
        if name not in first:
            raise PolicyInvalid(
                f"the first argument has no member {name}", field=f"{path}.args_keys"
            )
    return {name: first[name] for name in policy.args_keys}


def _canonical(value: Any, path: str) -> bytes:
    try:
        return rfc8785.dumps(_composed(value))
    except (
        rfc8785.CanonicalizationError,
        UnicodeEncodeError,
        RecursionError,
        OverflowError,
    ) as error:
        raise PolicyInvalid(f"the job has no canonical form: {error}", field=path) from None


def _composed(value: Any) -> Any:
    """The same value with every string, names included, in form NFC."""
    if isinstance(value, str):
        return value if value.isascii() else unicodedata.normalize("NFC", value)
    if isinstance(value, Mapping):
        return {_composed(name): _composed(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_composed(item) for item in value]
    if isinstance(value, int) and abs(value) > _LARGEST_INTEGER:
        # Such a number reaches other readers of the JSON as a double; so it counts as one.
        return float(value)
    return value


def _names(
    given: Mapping[str, Any], name: str, path: str, known: Sequence[str] = ()
) -> tuple[str, ...] | None:
    value = given.get(name)
    if value is None:
        return None
    expected = "an array of " + (f"some of {', '.join(known)}" if known else "non-empty strings")
    if not isinstance(value, list | tuple):
        raise PolicyInvalid(field=f"{path}.{name}", expected=expected)
    for item in value:
        if not isinstance(item, str) or not item or (known and item not in known):
            raise PolicyInvalid(field=f"{path}.{name}", expected=expected)
    return tuple(cast("Sequence[str]", value))


def _period(given: Mapping[str, Any], path: str) -> int | None:
    value = given.get("period")
    if value is None:
        return None
    expected = "an ISO 8601 duration above zero, such as PT1H"
    if not isinstance(value, str):
        raise PolicyInvalid(field=f"{path}.period", expected=expected)
    try:
        ms = duration_ms(value)
    except ValueError as error:
        raise PolicyInvalid(str(error), field=f"{path}.period", expected=expected) from None
    if ms <= 0:
        raise PolicyInvalid(field=f"{path}.period", expected=expected)
    return ms


def _on_conflict(given: Mapping[str, Any], path: str) -> Conflict:
    value = given.get("on_conflict")
    if value is None:
        return "reject"
    if not isinstance(value, str) or value not in CONFLICTS:
        raise PolicyInvalid(field=f"{path}.on_conflict", expected="one of " + ", ".join(CONFLICTS))
    return CONFLICTS[value]
