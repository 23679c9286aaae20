"""Reading and writing limits: of a job, of a queue, and the override of a key.

A job states one policy, or up to four of them; each names a key and changes the limits of that key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, cast

from msgspec import UNSET, Struct, UnsetType

from headgate.core.errors import InvalidRequest
from headgate.core.gates import GateState, Limits, LimitsChange, Override, Rate, changed
from headgate.core.members import choice_at, duration_at, object_at, whole_at
from headgate.core.times import (
    DAY_MS,
    duration_text,
    instant_text,
    resolve_instant,
)

Scope: TypeAlias = Literal["global", "tenant"]
OnLimit: TypeAlias = Literal["wait", "reschedule", "drop"]

KEY: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._:-]*")
MAX_KEY: Final = 256
MAX_USES: Final = 4
MAX_PERIOD_MS: Final = 3650 * DAY_MS
LIMITS: Final = ("concurrency", "rate", "throttle")

_WORDS: Final = {"second": "PT1S", "minute": "PT1M", "hour": "PT1H", "day": "P1D"}
_US: Final = 1000
"""Microseconds in a millisecond."""


class Use(Struct, frozen=True, gc=False):
    """One key that a job passes, and what its producer says of that key."""

    key: str
    scope: Scope = "global"
    on_limit: OnLimit = "wait"
    """What happens to this job, and to no other, when it meets the key closed."""
    change: LimitsChange = LimitsChange()


def full_key(key: str, scope: Scope, tenant: str) -> str:
    """The name under which a gate is kept; a tenant's own keys are no other's, and no global ones."""
    return key if scope == "global" else f"@{tenant or '_default'}/{key}"


def parted(name: str) -> tuple[str, str]:
    """The key and the tenant in the name under which a gate is kept; no tenant where it is everybody's."""
    if not name.startswith("@"):
        return name, ""
    tenant, _, key = name[1:].partition("/")
    return key, tenant


def plainly(name: str) -> str:
    """The same for people."""
    key, tenant = parted(name)
    return f"{key} of the tenant {tenant}" if tenant else key


def queue_key(queue: str) -> str:
    """The name of a queue's own gate; as no client's key has a slash, none can reach it."""
    return f"/queue/{queue}"


def tenant_key(tenant: str) -> str:
    """The name of a tenant's own gate."""
    return f"/tenant/{tenant}"


def check_key(key: object, *, field: str = "key") -> str:
    """Give the key back, or raise InvalidRequest."""
    if not isinstance(key, str) or len(key) > MAX_KEY or not KEY.fullmatch(key):
        raise InvalidRequest(
            field=field,
            expected=f"1 to {MAX_KEY} characters out of letters, digits and . _ : -, "
            "starting with a letter or digit",
        )
    return key


def uses_from(given: object, queue: str, *, path: str = "rate_limit") -> tuple[Use, ...]:
    """Read the `rate_limit` of a job in this queue; null means none.

    Members that are not known are left alone, because the protocol lets them be.
    """
    if given is None:
        return ()
    if not isinstance(given, list | tuple):
        return (_use(given, queue, path),)
    if not 1 <= len(given) <= MAX_USES:
        raise InvalidRequest(field=path, expected=f"an object, or an array of 1 to {MAX_USES}")
    uses = tuple(_use(item, queue, f"{path}[{n}]") for n, item in enumerate(given))
    seen: set[tuple[str, str]] = set()
    for n, use in enumerate(uses):
        if (use.key, use.scope) in seen:
            raise InvalidRequest(
                field=f"{path}[{n}].key", expected="another key than those before it"
            )
        seen.add((use.key, use.scope))
    return uses


def override_from(given: object, now_ms: int, *, path: str = "body") -> Override:
    """Read what is put upon a key for a time; a limit that is null is lifted while it lasts."""
    body = object_at(given, path, (*LIMITS, "expires_at"))
    members = tuple(name for name in LIMITS if name in body)
    if not members:
        raise InvalidRequest(field=path, expected="at least one of " + ", ".join(LIMITS))
    expires_at = 0
    if body.get("expires_at") is not None:
        expires_at = _instant(body["expires_at"], now_ms, f"{path}.expires_at")
    change = change_from(body, path)
    return Override(changed(Limits(), change), members, expires_at)


def queue_limits_from(given: object, *, path: str = "rate_limit") -> LimitsChange:
    """Read the limits of a queue: `{limit, period}`, which is a rate, or the members by their names."""
    body = object_at(given, path, (*LIMITS, "limit", "period"))
    if "limit" not in body and "period" not in body:
        return change_from(body, path)
    if "rate" in body:
        raise InvalidRequest(field=f"{path}.rate", expected="absent beside limit and period")
    rate = rate_at({name: body.get(name) for name in ("limit", "period")}, path)
    return change_from({**body, "rate": rate_json(rate)}, path)


def change_from(body: Mapping[str, Any], path: str) -> LimitsChange:
    """Read the three limits: given replaces, null clears, absent leaves."""
    return LimitsChange(
        _concurrency(body, path), _rate(body, "rate", path), _rate(body, "throttle", path)
    )


def rate_at(value: object, path: str) -> Rate:
    body = object_at(value, path)
    limit = whole_at(body.get("limit"), f"{path}.limit", 1)
    return Rate(limit, duration_at(body.get("period"), f"{path}.period", MAX_PERIOD_MS) * _US)


def rate_json(rate: Rate) -> dict[str, Any]:
    return {"limit": rate.limit, "period": duration_text(rate.period_us // _US)}


def limits_json(limits: Limits) -> dict[str, Any]:
    """The limits that there are, by their names."""
    found: dict[str, Any] = {}
    if limits.concurrency is not None:
        found["concurrency"] = limits.concurrency
    if limits.rate is not None:
        found["rate"] = rate_json(limits.rate)
    if limits.throttle is not None:
        found["throttle"] = rate_json(limits.throttle)
    return found


def change_json(change: LimitsChange) -> dict[str, Any]:
    """What `change_from` reads back."""
    found: dict[str, Any] = {}
    if change.concurrency is not UNSET:
        found["concurrency"] = change.concurrency
    if change.rate is not UNSET:
        found["rate"] = None if change.rate is None else rate_json(change.rate)
    if change.throttle is not UNSET:
        found["throttle"] = None if change.throttle is None else rate_json(change.throttle)
    return found


def override_json(override: Override) -> dict[str, Any]:
    """What `override_from` reads back while it has not expired."""
    body = limits_json(override.limits)
    found: dict[str, Any] = {name: body.get(name) for name in LIMITS if name in override.members}
    if override.expires_at:
        found["expires_at"] = instant_text(override.expires_at)
    return found


def state_json(key: str, state: GateState, waiting: int) -> dict[str, Any]:
    """What is told of a key: only limits that it has, and hold and override only while they last.

    Instants are rounded up to a millisecond, so that whoever waits for one is not too early.
    """
    found: dict[str, Any] = {"key": key}
    limits = state.limits
    if limits.concurrency is not None:
        found["concurrency"] = {
            "limit": limits.concurrency,
            "active": state.active,
            "available": state.available,
        }
    if limits.rate is not None:
        found["rate"] = rate_json(limits.rate) | {
            "current_count": state.current_count,
            "window_resets_at": _instant_text(state.window_resets_at_us),
        }
    if limits.throttle is not None:
        found["throttle"] = rate_json(limits.throttle) | {
            "next_allowed_at": _instant_text(state.next_allowed_at_us),
        }
    found["waiting_count"] = waiting
    if state.hold_until_us:
        found["hold"] = {
            "until": _instant_text(state.hold_until_us),
            "reason": state.hold_reason,
        }
    if state.override is not None:
        found["override"] = override_json(state.override)
    return found


def _use(given: object, queue: str, path: str) -> Use:
    body = object_at(given, path)
    on_limit = body.get("on_limit")
    scope = body.get("scope")
    if on_limit is not None:
        choice_at(on_limit, f"{path}.on_limit", ("wait", "reschedule", "drop"))
    if scope is not None:
        choice_at(scope, f"{path}.scope", ("global", "tenant"))
    rest = cast("tuple[Scope, OnLimit]", (scope or "global", on_limit or "wait"))
    body = _present_shape(body, queue, path)
    key = check_key(body.get("key"), field=f"{path}.key")
    return Use(key, *rest, change_from(body, path))


def _present_shape(body: Mapping[str, Any], queue: str, path: str) -> Mapping[str, Any]:
    """Two older shapes in the present one: `{max_per_second: 5}` and `{key, rate: 5, period: "second"}`."""
    if body.get("max_per_second") is not None:
        limit = whole_at(body["max_per_second"], f"{path}.max_per_second", 1)
        body = {
            "key": f"queue:{queue}",
            "throttle": {"limit": limit, "period": "PT1S"},
            **body,
        }
    rate = body.get("rate")
    if not isinstance(rate, int) or isinstance(rate, bool):
        return body
    period = body.get("period")
    if isinstance(period, str) and period in _WORDS:
        period = _WORDS[period]
    limit = whole_at(rate, f"{path}.rate", 1)
    ms = duration_at(period, f"{path}.period", MAX_PERIOD_MS)
    return {**body, "rate": {"limit": limit, "period": duration_text(ms)}}


def _concurrency(body: Mapping[str, Any], path: str) -> int | UnsetType | None:
    if "concurrency" not in body:
        return UNSET
    value = body["concurrency"]
    return None if value is None else whole_at(value, f"{path}.concurrency", 0)


def _rate(body: Mapping[str, Any], name: str, path: str) -> Rate | UnsetType | None:
    if name not in body:
        return UNSET
    value = body[name]
    return None if value is None else rate_at(value, f"{path}.{name}")


def _instant(value: object, now_ms: int, path: str) -> int:
    expected = "an RFC 3339 timestamp in the future, or + and a duration"
    try:
        at, _ = resolve_instant(value if isinstance(value, str) else "", now_ms)
    except ValueError as error:
        raise InvalidRequest(str(error), field=path, expected=expected) from None
    if at <= now_ms:
        raise InvalidRequest(field=path, expected=expected)
    return at


def _instant_text(at_us: int | None) -> str | None:
    return None if at_us is None else instant_text(-(-at_us // _US))
