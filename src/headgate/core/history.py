"""Entries of a job's error history, encoded as they are stored and sent.

An entry says which attempt failed, when and with what; it is written once and never changes.
Members that were not given are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Raw, json

from headgate.core.retry import Failure, error_type
from headgate.core.times import instant_text

MAX_FRAMES = 50
MAX_BACKTRACE_CHARS = 10_000

_encode = json.Encoder().encode


class TracedFailure(Failure, frozen=True):
    """A failure whose worker sent the frames of its backtrace along."""

    backtrace: tuple[str, ...] = ()


def entry(
    attempt: int,
    code: str,
    message: str,
    type: str,  # noqa: A002 - the wire's own word
    at_ms: int,
    details: Mapping[str, Any] | Raw | None = None,
    backtrace: Sequence[str] | None = None,
    **more: Any,
) -> bytes:
    """Encode one entry; `more` members, such as `timeout_kind`, stand beside the standard ones."""
    members: dict[str, Any] = {
        "attempt": attempt,
        "code": code,
        "message": message,
        "type": type,
        "occurred_at": instant_text(at_ms),
    }
    if details is not None:
        members["details"] = details
    if backtrace:
        members["backtrace"] = cut(backtrace)
    for name, value in more.items():
        if value is not None:
            members.setdefault(name, value)
    return _encode(members)


def failure_entry(failure: Failure, attempt: int, at_ms: int) -> bytes:
    """Encode what a worker reported, under the type that failures of its kind are counted by."""
    frames = failure.backtrace if isinstance(failure, TracedFailure) else None
    return entry(
        attempt,
        failure.code,
        failure.message,
        error_type(failure),
        at_ms,
        failure.details,
        frames,
    )


def cut(frames: Sequence[str]) -> list[str]:
    """Keep the first frames that fit into both limits; the last one kept may be shortened."""
    kept: list[str] = []
    room = MAX_BACKTRACE_CHARS
    for frame in frames[:MAX_FRAMES]:
        if room <= 0:
            break
        kept.append(frame[:room])
        room -= len(frame)
    return kept
