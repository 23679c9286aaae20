"""The settings of a job, from what a program writes to what a server reads."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict

from headgate.client.amounts import Duration, Instant, at_ms, ms_of
from headgate.client.errors import ValidationError
from headgate.client.keys import render
from headgate.client.policies import MOST_LIMITS, RateLimit, RetryPolicy, Unique
from headgate.client.values import builtins
from headgate.core.times import SECOND_MS, instant_text


class Options(TypedDict, total=False):
    """What can be said of a job; `hg.job(...)`, `task.options(...)` and `hg.enqueue(...)` take these."""

    queue: str
    priority: int
    delay: Duration
    """Not before this much later."""
    at: Instant
    """Not before this instant."""
    expires: Duration | Instant
    """Not started within this time, or by this instant, the job is discarded."""
    timeout: Duration
    """What one attempt may take."""
    total_timeout: Duration
    visibility_timeout: Duration
    heartbeat_timeout: Duration
    grace_period: Duration
    result_ttl: Duration
    retry: RetryPolicy | int | Mapping[str, Any]
    """A policy, or how often the job is started at most."""
    unique: Unique | bool | Mapping[str, Any]
    rate_limit: RateLimit | Sequence[RateLimit]
    tags: Sequence[str]
    meta: Mapping[str, Any]
    tenant: str
    pending: bool
    """The job waits until it is activated."""
    schema: str
    version: int | str
    parent_id: str
    workflow_id: str
    root_id: str
    id: str
    """A UUIDv7; without it the client makes one."""


_AS_THEY_ARE: Final = (
    "queue", "priority", "pending", "schema", "version", "parent_id", "workflow_id", "root_id",
    "id",
)  # fmt: skip
_SECONDS: Final = ("total_timeout", "heartbeat_timeout", "grace_period", "result_ttl")
KNOWN: Final = frozenset(Options.__annotations__)


def check(options: Mapping[str, Any]) -> None:
    """Refuse names that nobody knows and values that no job can have; called where they are declared."""
    for name in options:
        if name not in KNOWN:
            raise ValidationError(
                f"{name} is not an option of a job; there are {', '.join(sorted(KNOWN))}",
                details={"field": name},
            )
    if "delay" in options and "at" in options:
        raise ValidationError("a job has either delay or at", details={"field": "delay"})
    _settings(options, 0)
    for limit in _limits(options):
        limit.wire("any")
    unique = options.get("unique")
    if isinstance(unique, Unique):
        unique.wire()


def merged(options: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The options with others laid over them; `meta` is merged, and each time replaces the other."""
    found = {**options, **more}
    if "delay" in more:
        found.pop("at", None)
    elif "at" in more:
        found.pop("delay", None)
    if "meta" in more and "meta" in options:
        found["meta"] = {**options["meta"], **more["meta"]}
    return found


def envelope(
    job_type: str,
    args: Sequence[Any],
    named: Mapping[str, Any],
    options: Mapping[str, Any],
    now_ms: int,
) -> dict[str, Any]:
    """The job as it is sent, all but its id where the options name none."""
    body: dict[str, Any] = {"type": job_type, "args": list(args)}
    body |= _settings(options, now_ms)
    limits = [limit.wire(render(limit.key, args, named)) for limit in _limits(options)]
    if limits:
        body["rate_limit"] = limits[0] if len(limits) == 1 else limits
    unique = options.get("unique")
    if unique is True:
        unique = Unique()
    if isinstance(unique, Unique):
        body["unique"] = unique.wire()
        if unique.key is not None:
            parts = [job_type, render(unique.key, args, named)]
            if unique.queue:
                parts.append(str(options.get("queue", "default")))
            body["unique_key"] = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    elif isinstance(unique, Mapping):
        body["unique"] = dict(unique)
    return body


def _settings(options: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    body = {name: options[name] for name in _AS_THEY_ARE if options.get(name) is not None}
    body |= _times(options, now_ms)
    retry = options.get("retry")
    if isinstance(retry, bool):
        raise ValidationError("retry must be a RetryPolicy or a number of attempts")
    if isinstance(retry, int):
        body["retry"] = {"max_attempts": retry}
    elif retry is not None:
        body["retry"] = retry.wire() if isinstance(retry, RetryPolicy) else dict(retry)
    meta = dict(options.get("meta") or {})
    if options.get("tenant"):
        meta["tenant_id"] = options["tenant"]
    if meta:
        body["meta"] = builtins(meta, "meta")
    tags = options.get("tags")
    if isinstance(tags, str):
        raise ValidationError("tags must be several texts, not one", details={"field": "tags"})
    if tags:
        body["tags"] = list(tags)
    return body


def _times(options: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for name in _SECONDS:
        if options.get(name) is not None:
            body[name] = -(-ms_of(options[name], name) // SECOND_MS)
    for name in ("timeout", "visibility_timeout"):
        if options.get(name) is not None:
            ms = ms_of(options[name], name)
            whole = ms % SECOND_MS == 0
            body[name if whole else f"{name}_ms"] = ms // SECOND_MS if whole else ms
    if options.get("delay") is not None:
        body["scheduled_at"] = instant_text(now_ms + ms_of(options["delay"], "delay"))
    elif options.get("at") is not None:
        body["scheduled_at"] = instant_text(at_ms(options["at"], "at"))
    if options.get("expires") is not None:
        body["expires_at"] = instant_text(_expiry(options["expires"], now_ms))
    return body


def _expiry(value: Duration | Instant, now_ms: int) -> int:
    try:
        return now_ms + ms_of(value, "expires")  # type: ignore[arg-type] # which one, it says itself
    except ValidationError:
        return at_ms(value, "expires")  # type: ignore[arg-type]


def _limits(options: Mapping[str, Any]) -> tuple[RateLimit, ...]:
    given = options.get("rate_limit")
    if given is None:
        return ()
    found = (given,) if isinstance(given, RateLimit) else tuple(given)
    if len(found) > MOST_LIMITS or not all(isinstance(one, RateLimit) for one in found):
        raise ValidationError(f"rate_limit must be a RateLimit, or up to {MOST_LIMITS} of them")
    return found
