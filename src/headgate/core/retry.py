"""Retry policies, and what becomes of a job whose attempt failed.

`policy_from` layers what a client gave over a base policy; `decide` turns one failure into
`RetryAt`, `Discard` or `Requeue`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, cast

import msgspec

from headgate.core.errors import PolicyInvalid
from headgate.core.times import LONGEST_MS, MINUTE_MS, SECOND_MS, duration_ms, duration_text

Strategy: TypeAlias = Literal["exponential", "linear", "constant", "polynomial"]
Exhaustion: TypeAlias = Literal["discard", "dead_letter"]
Reason: TypeAlias = Literal[
    "discarded_by_handler",
    "dead_lettered_by_handler",
    "non_retryable",
    "attempts_exhausted",
    "total_timeout",
]


class RetryPolicy(msgspec.Struct, frozen=True, gc=False):
    """How often and when a failed job is tried again.

    `max_attempts` counts every execution, so 0 and 1 both mean a single one. The delay before
    the next attempt never exceeds `max_ms`, jitter included.
    """

    max_attempts: int = 3
    initial_ms: int = SECOND_MS
    coefficient: float = 2.0
    max_ms: int = 5 * MINUTE_MS
    jitter: bool = True
    strategy: Strategy = "exponential"
    non_retryable: tuple[str, ...] = ()
    on_exhaustion: Exhaustion = "discard"


DEFAULT = RetryPolicy()

_MOST_ATTEMPTS = 2**31 - 1

_STRATEGIES: dict[str, Strategy] = {
    "exponential": "exponential",
    "linear": "linear",
    "constant": "constant",
    "none": "constant",
    "polynomial": "polynomial",
}
# The first name that is given wins; the others of its row are still checked.
_STRATEGY_NAMES = ("backoff_strategy", "backoff_type", "strategy")
_INITIAL_NAMES = ("initial_interval", "initial_interval_ms", "initial_delay_ms")
_MAX_NAMES = ("max_interval", "max_interval_ms")


def policy_from(
    given: Mapping[str, Any], base: RetryPolicy = DEFAULT, *, path: str = "retry"
) -> RetryPolicy:
    """Layer `given` over `base`, member by member; null counts as absent.

    Unknown members are ignored. An inherited interval gives way to a given one, so that only
    a client which states both can contradict itself. Raises PolicyInvalid, naming the member
    below `path`.
    """
    if not isinstance(given, Mapping):
        raise PolicyInvalid(field=path, expected="an object")
    initial_ms = _interval(given, _INITIAL_NAMES, path)
    max_ms = _interval(given, _MAX_NAMES, path)
    if initial_ms is not None and max_ms is not None and max_ms < initial_ms:
        raise PolicyInvalid(
            field=f"{path}.max_interval", expected=f"at least the initial interval, {initial_ms} ms"
        )
    if initial_ms is None:
        initial_ms = base.initial_ms if max_ms is None else min(base.initial_ms, max_ms)
    if max_ms is None:
        max_ms = max(base.max_ms, initial_ms)
    return RetryPolicy(
        max_attempts=_max_attempts(given, base, path),
        initial_ms=initial_ms,
        coefficient=_coefficient(given, base, path),
        max_ms=max_ms,
        jitter=_jitter(given, base, path),
        strategy=_strategy(given, base, path),
        non_retryable=_non_retryable(given, base, path),
        on_exhaustion=_on_exhaustion(given, base, path),
    )


def policy_json(policy: RetryPolicy) -> dict[str, Any]:
    """Give the wire form with every member; `policy_from` reads it back unchanged."""
    return {
        "max_attempts": policy.max_attempts,
        "initial_interval": duration_text(policy.initial_ms),
        "backoff_coefficient": policy.coefficient,
        "max_interval": duration_text(policy.max_ms),
        "jitter": policy.jitter,
        "backoff_strategy": policy.strategy,
        "non_retryable_errors": list(policy.non_retryable),
        "on_exhaustion": policy.on_exhaustion,
    }


def delay_ms(policy: RetryPolicy, failed_attempt: int, uniform: float) -> int:
    """Say how long to wait after attempt number `failed_attempt`, which counts from 1.

    `uniform` lies in [0, 1); with jitter the delay is multiplied by a factor in [0.5, 1.5).
    """
    delay = min(_raw_delay(policy, failed_attempt), policy.max_ms)
    if policy.jitter:
        delay = min(delay * (0.5 + uniform), policy.max_ms)
    return round(delay)


class Failure(msgspec.Struct, frozen=True):
    """What a failed attempt reported; `type` is empty when it named none."""

    code: str
    message: str
    type: str = ""
    retryable: bool | None = None
    details: dict[str, Any] | None = None
    requeue: bool = False
    retry_after_ms: int | None = None
    """How long to wait before the next attempt, where the worker says so; None leaves it to the policy."""
    deferred: bool = False
    """A requeue that is counted: the handler put the job off, it was not merely given back."""


class RetryAt(msgspec.Struct, frozen=True, gc=False):
    """The job becomes retryable and is due again at `at`, in ms since the epoch."""

    at: int
    delay_ms: int


class Discard(msgspec.Struct, frozen=True, gc=False):
    """The job is discarded; `dead_letter` says whether it is retained for a replay."""

    reason: Reason
    dead_letter: bool

    @property
    def exhausted(self) -> bool:
        """Whether a queue's dead letter queue takes this job, whatever its own policy says.

        A handler that says discard and a spent total timeout are final instead.
        """
        return self.reason not in {"discarded_by_handler", "total_timeout"}


class Requeue(msgspec.Struct, frozen=True, gc=False):
    """The job becomes available again, and the attempt is not charged; with `later` only then, until which it is retryable."""

    later: RetryAt | None = None


def decide(
    policy: RetryPolicy,
    failure: Failure,
    attempt: int,
    now_ms: int,
    uniform: float,
    give_up_at: int | None,
    timeout_ms: int,
) -> RetryAt | Discard | Requeue:
    """Decide what follows the failure of attempt number `attempt`.

    In this order: a requeue, the handler's own verdict, errors that make a retry pointless,
    the attempts used up, and `give_up_at`, the end of the job's total timeout, when the next
    attempt with its `timeout_ms` could not finish before it. Otherwise the job is retried.
    """
    after = failure.retry_after_ms
    if failure.requeue:
        return Requeue(RetryAt(now_ms + after, after) if after else None)
    verdict = _verdict(failure)
    if verdict in {"DISCARD", "FAIL"}:
        return Discard("discarded_by_handler", dead_letter=False)
    if verdict == "DEAD_LETTER":
        return Discard("dead_lettered_by_handler", dead_letter=True)
    keep = policy.on_exhaustion == "dead_letter"
    if failure.retryable is False or _matches(policy.non_retryable, failure):
        return Discard("non_retryable", dead_letter=keep)
    if attempt >= policy.max_attempts:
        return Discard("attempts_exhausted", dead_letter=keep)
    delay = delay_ms(policy, attempt, uniform) if after is None else after
    if give_up_at is not None and now_ms + delay + timeout_ms > give_up_at:
        return Discard("total_timeout", dead_letter=False)
    return RetryAt(now_ms + delay, delay)


def error_type(failure: Failure) -> str:
    """Give the type that the job's error is stored under."""
    return failure.type or _detail(failure, "error_class") or failure.code


def _raw_delay(policy: RetryPolicy, n: int) -> float:
    try:
        match policy.strategy:
            case "exponential":
                return policy.initial_ms * math.pow(policy.coefficient, n - 1)
            case "linear":
                return policy.initial_ms * n
            case "constant":
                return policy.initial_ms
            case "polynomial":
                return policy.initial_ms * math.pow(n, policy.coefficient)
    except OverflowError:
        return policy.max_ms


def _verdict(failure: Failure) -> str:
    # A directive is written for nothing else; a code may mean something of the handler's own.
    return _detail(failure, "directive") or failure.code


def _detail(failure: Failure, name: str) -> str:
    value = (failure.details or {}).get(name)
    return value if isinstance(value, str) else ""


def _matches(patterns: tuple[str, ...], failure: Failure) -> bool:
    names = {failure.type, _detail(failure, "error_class"), failure.code} - {""}
    return any(_covers(pattern, name) for pattern in patterns for name in names)


def _covers(pattern: str, name: str) -> bool:
    return name == pattern or (pattern.endswith(".*") and name.startswith(pattern[:-1]))


def _interval(given: Mapping[str, Any], names: tuple[str, ...], path: str) -> int | None:
    found: int | None = None
    for name in names:
        value = given.get(name)
        if value is None:
            continue
        ms = _milliseconds(value, name, path)
        if found is None:
            found = ms
    return found


def _milliseconds(value: object, name: str, path: str) -> int:
    if name.endswith("_ms"):
        if not _is_int(value) or not 0 < cast("int", value) <= LONGEST_MS:
            raise PolicyInvalid(
                field=f"{path}.{name}", expected="a whole number of milliseconds above 0"
            )
        return cast("int", value)
    expected = "an ISO 8601 duration above zero, such as PT1S"
    if not isinstance(value, str):
        raise PolicyInvalid(field=f"{path}.{name}", expected=expected)
    try:
        ms = duration_ms(value)
    except ValueError as error:
        raise PolicyInvalid(str(error), field=f"{path}.{name}", expected=expected) from None
    if ms <= 0:
        raise PolicyInvalid(field=f"{path}.{name}", expected=expected)
    return ms


def _max_attempts(given: Mapping[str, Any], base: RetryPolicy, path: str) -> int:
    value = given.get("max_attempts")
    if value is None:
        return base.max_attempts
    if not _is_int(value) or not 0 <= value <= _MOST_ATTEMPTS:
        raise PolicyInvalid(
            field=f"{path}.max_attempts", expected=f"an integer from 0 to {_MOST_ATTEMPTS}"
        )
    return cast("int", value)


def _coefficient(given: Mapping[str, Any], base: RetryPolicy, path: str) -> float:
    value = given.get("backoff_coefficient")
    if value is None:
        return base.coefficient
    if not (_is_int(value) or isinstance(value, float)) or not 1.0 <= value < math.inf:
        raise PolicyInvalid(field=f"{path}.backoff_coefficient", expected="a number of 1.0 or more")
    try:
        return float(value)
    except OverflowError:
        raise PolicyInvalid(
            field=f"{path}.backoff_coefficient", expected="a number that a double can hold"
        ) from None


def _jitter(given: Mapping[str, Any], base: RetryPolicy, path: str) -> bool:
    value = given.get("jitter")
    if value is None:
        return base.jitter
    if not isinstance(value, bool):
        raise PolicyInvalid(field=f"{path}.jitter", expected="true or false")
    return value


def _strategy(given: Mapping[str, Any], base: RetryPolicy, path: str) -> Strategy:
    found: Strategy | None = None
    for name in _STRATEGY_NAMES:
        value = given.get(name)
        if value is None:
            continue
        if not isinstance(value, str) or value not in _STRATEGIES:
            raise PolicyInvalid(field=f"{path}.{name}", expected="one of " + ", ".join(_STRATEGIES))
        found = found or _STRATEGIES[value]
    return found or base.strategy


def _non_retryable(given: Mapping[str, Any], base: RetryPolicy, path: str) -> tuple[str, ...]:
    value = given.get("non_retryable_errors")
    if value is None:
        return base.non_retryable
    if not isinstance(value, list | tuple) or not all(isinstance(v, str) and v for v in value):
        raise PolicyInvalid(
            field=f"{path}.non_retryable_errors", expected="an array of non-empty strings"
        )
    return tuple(value)


def _on_exhaustion(given: Mapping[str, Any], base: RetryPolicy, path: str) -> Exhaustion:
    value = given.get("on_exhaustion")
    if value is None:
        return base.on_exhaustion
    if value == "discard":
        return "discard"
    if value == "dead_letter":
        return "dead_letter"
    raise PolicyInvalid(field=f"{path}.on_exhaustion", expected="discard or dead_letter")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
