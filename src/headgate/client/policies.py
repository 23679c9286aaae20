"""What a job may ask for besides being run: limits, retries, uniqueness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, TypeAlias

from headgate.client.amounts import Duration, ms_of, rate_of
from headgate.client.errors import ValidationError
from headgate.core.times import duration_text

OnLimit: TypeAlias = Literal["wait", "reschedule", "drop"]
MOST_LIMITS = 4


@dataclass(frozen=True, slots=True)
class Rate:
    """So many starts in each window of `per`, which is seconds or any other duration."""

    limit: int
    per: Duration = 1

    def wire(self, name: str) -> dict[str, Any]:
        if self.limit < 1:
            raise ValidationError(f"{name} must allow at least 1, not {self.limit!r}")
        period = ms_of(self.per, f"{name}.per")
        if not period:
            raise ValidationError(f"{name}.per must be longer than nothing")
        return {"limit": self.limit, "period": duration_text(period)}


@dataclass(frozen=True, slots=True)
class RateLimit:
    """How many jobs of one key may run, and how fast they may start.

    The key may be a template over the arguments: "tenant:{customer}". A limit that is not given is left as the server has it; the latest job that gives one decides it for all jobs of the key.

    `on_limit` says what happens to this job when it meets its key closed: it waits, is rescheduled to when there should be room, or is dropped.
    """

    key: str
    _: KW_ONLY
    concurrency: int | None = None
    rate: str | Rate | None = None
    throttle: str | Rate | None = None
    on_limit: OnLimit = "wait"
    scope: Literal["global", "tenant"] = "global"

    def wire(self, key: str) -> dict[str, Any]:
        """As a server reads it, under the key that the arguments gave."""
        body: dict[str, Any] = {"key": key}
        if self.concurrency is not None:
            if isinstance(self.concurrency, bool) or self.concurrency < 0:
                raise ValidationError(f"concurrency must be 0 or more, not {self.concurrency!r}")
            body["concurrency"] = self.concurrency
        if self.rate is not None:
            body["rate"] = rate_wire(self.rate, "rate")
        if self.throttle is not None:
            body["throttle"] = rate_wire(self.throttle, "throttle")
        if self.on_limit != "wait":
            body["on_limit"] = self.on_limit
        if self.scope != "global":
            body["scope"] = self.scope
        return body


def rate_wire(value: str | Rate, name: str) -> dict[str, Any]:
    if isinstance(value, Rate):
        return value.wire(name)
    limit, period_ms = rate_of(value, name)
    return {"limit": limit, "period": duration_text(period_ms)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and when a failed job is tried again; what is not given is the queue's choice.

    `max_attempts` counts every start. With `dead_letter` an exhausted job is kept aside.
    """

    max_attempts: int | None = None
    initial_interval: Duration | None = None
    max_interval: Duration | None = None
    backoff: Literal["exponential", "linear", "constant", "polynomial"] | None = None
    coefficient: float | None = None
    jitter: bool | None = None
    non_retryable: Sequence[str] = ()
    dead_letter: bool | None = None

    def wire(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "max_attempts": self.max_attempts,
            "backoff_strategy": self.backoff,
            "backoff_coefficient": self.coefficient,
            "jitter": self.jitter,
            "non_retryable_errors": list(self.non_retryable) or None,
        }
        for name in ("initial_interval", "max_interval"):
            value = getattr(self, name)
            if value is not None:
                body[name] = duration_text(ms_of(value, f"retry.{name}"))
        if self.dead_letter is not None:
            body["on_exhaustion"] = "dead_letter" if self.dead_letter else "discard"
        return {name: value for name, value in body.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unique:
    """Which other job makes this one a duplicate, and what then happens.

    Jobs of one type and with equal arguments are equal, unless `key`, a template over the arguments, says what counts instead. `ignore` gives the job that exists; `reject` raises DuplicateJobError.
    """

    key: str | None = None
    queue: bool = False
    meta_keys: Sequence[str] = ()
    period: Duration | None = None
    states: Sequence[str] = ()
    on_conflict: Literal["reject", "ignore", "replace", "replace_except_schedule"] = "reject"

    def wire(self) -> dict[str, Any]:
        keys = ["type"] if self.key is not None else ["type", "args"]
        body: dict[str, Any] = {"on_conflict": self.on_conflict}
        if self.queue:
            keys.append("queue")
        if self.meta_keys:
            keys.append("meta")
            body["meta_keys"] = list(self.meta_keys)
        body["keys"] = keys
        if self.states:
            body["states"] = list(self.states)
        if self.period is not None:
            body["period"] = duration_text(ms_of(self.period, "unique.period"))
        return body
