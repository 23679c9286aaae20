"""Server-sent events as text."""

from __future__ import annotations

from typing import Any, Final

from msgspec import json

RETRY: Final = b"retry: 3000\n\n"
"""How soon a reader whose connection broke may come back."""
HEARTBEAT: Final = b":heartbeat\n\n"
HEARTBEAT_S: Final = 15.0


def event(kind: str, data: bytes, number: int = 0) -> bytes:
    """One event with JSON as its data, on one line whatever line breaks it came with.

    With a number, a reader that comes back says that it has seen everything up to this one.
    """
    if b"\n" in data or b"\r" in data:
        data = json.format(data, indent=-1)
    head = b"id: %d\n" % number if number else b""
    return b"%bevent: %b\ndata: %b\n\n" % (head, kind.encode(), data)


def notice(kind: str, data: dict[str, Any]) -> bytes:
    """One event about the stream itself: it is not kept and has no number."""
    return event(kind, json.encode(data))
