"""Replay rules: dead letters that start over by themselves, after a while and so many times.

A rule is a wish about dead letters, not a note on each of them: what it says now decides about all that lie there, however long.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from headgate.core.errors import InvalidRequest
from headgate.core.job import Job
from headgate.core.members import duration_at, flag_at, object_at, whole_at
from headgate.core.pools import MAX_NAME, NAME
from headgate.core.queues import check_name
from headgate.core.times import duration_text, instant_text

MOST_RULES: Final = 100
MOST_REPLAYS: Final = 1_000
LONGEST_FILTER: Final = 255

COUNT: Final = "ojs.replay_count"
LAST_AT: Final = "ojs.last_replayed_at"
RULE: Final = "ojs.replay_rule"
"""The members of a job's `meta` that say how it came to start over."""

_MEMBERS: Final = ("name", "filter", "delay", "max_replays", "enabled")
_FILTERS: Final = ("queue", "type", "error_type")


class ReplayRule(Struct, frozen=True, gc=False):
    name: str
    queue: str | None = None
    """The queue from which the dead letter came."""
    type: str | None = None
    """Exact, or a prefix that ends in `*`."""
    error_type: str | None = None
    """Of its newest error."""
    delay_ms: int = 0
    """From the instant at which it became a dead letter."""
    max_replays: int = 1
    """How often rules have let the job start over, all of them together, when this one leaves it alone."""
    enabled: bool = True
    created_at: int = 0
    updated_at: int = 0


def rule_from(given: object, name: str, *, path: str = "body") -> ReplayRule:
    """Read the rule of this name; null counts as absent."""
    body = {m: value for m, value in object_at(given, path, _MEMBERS).items() if value is not None}
    check_rule_name(name)
    if body.get("name", name) != name:
        raise InvalidRequest(field=f"{path}.name", expected=f"the name in the path, {name}")
    wanted = {
        member: value
        for member, value in object_at(body.get("filter", {}), f"{path}.filter", _FILTERS).items()
        if value is not None
    }
    for member, value in wanted.items():
        if not isinstance(value, str) or not 1 <= len(value) <= LONGEST_FILTER:
            raise InvalidRequest(
                field=f"{path}.filter.{member}", expected=f"1 to {LONGEST_FILTER} characters"
            )
    if "queue" in wanted:
        check_name(wanted["queue"], field=f"{path}.filter.queue")
    delay = body.get("delay", "PT0S")
    return ReplayRule(
        name,
        **wanted,
        delay_ms=0 if delay == "PT0S" else duration_at(delay, f"{path}.delay"),
        max_replays=whole_at(body.get("max_replays", 1), f"{path}.max_replays", 1, MOST_REPLAYS),
        enabled=flag_at(body.get("enabled", True), f"{path}.enabled"),
    )


def check_rule_name(name: str, *, field: str = "name") -> str:
    if len(name) > MAX_NAME or not NAME.fullmatch(name):
        raise InvalidRequest(
            field=field,
            expected=f"1 to {MAX_NAME} characters out of letters, digits and . _ : -, "
            "starting with a letter or digit",
        )
    return name


def rule_json(rule: ReplayRule) -> dict[str, Any]:
    """The wire form."""
    return {
        "name": rule.name,
        "filter": {
            member: value for member in _FILTERS if (value := getattr(rule, member)) is not None
        },
        "delay": duration_text(rule.delay_ms) if rule.delay_ms else "PT0S",
        "max_replays": rule.max_replays,
        "enabled": rule.enabled,
        "created_at": instant_text(rule.created_at),
        "updated_at": instant_text(rule.updated_at),
    }


class _Error(Struct):
    type: str = ""


_error = msgspec.json.Decoder(_Error).decode


def applies(rule: ReplayRule, job: Job) -> bool:
    """Whether the rule would let this dead letter start over once more."""
    more = job.rare()
    if not rule.enabled or more.replays >= rule.max_replays:
        return False
    if rule.queue is not None and rule.queue != (more.origin or job.queue):
        return False
    if rule.type is not None and not _is_type(rule.type, job.type):
        return False
    if rule.error_type is None:
        return True
    return bool(more.errors) and _error(more.errors[-1]).type == rule.error_type


def _is_type(wanted: str, job_type: str) -> bool:
    if wanted.endswith("*"):
        return job_type.startswith(wanted[:-1])
    return job_type == wanted


def choose(rules: Iterable[ReplayRule], job: Job) -> tuple[int, ReplayRule] | None:
    """When a dead letter starts over, and by which rule: the earliest, of equal ones the first by name."""
    more = job.rare()
    since = more.buried_at if more.origin else job.finished_at
    found = [(since + rule.delay_ms, rule.name, rule) for rule in rules if applies(rule, job)]
    if not found:
        return None
    due, _, rule = min(found, key=lambda each: each[:2])
    return due, rule


_MEMBERS_OF: Final = msgspec.json.Decoder(dict[str, Raw])
_encode: Final = msgspec.json.Encoder().encode


def stamped(fixed: bytes, rule: str, count: int, at_ms: int) -> bytes:
    """The job's members with what its `meta` has to say of the replay."""
    members = _MEMBERS_OF.decode(b"{%b}" % fixed)
    meta: dict[str, Any] = dict(_MEMBERS_OF.decode(members.get("meta", Raw(b"{}"))))
    meta |= {COUNT: count, LAST_AT: instant_text(at_ms), RULE: rule}
    members["meta"] = Raw(_encode(meta))
    return _encode(members)[1:-1]
