"""Server-sent events as text."""

from __future__ import annotations

from typing import Final

from msgspec import json

RETRY: Final = b"retry: 3000\n\n"
"""How soon a reader whose connection broke may come back."""
HEARTBEAT: Final = b":heartbeat\n\n"
HEARTBEAT_S: Final = 15.0


def event(kind: str, data: bytes) -> bytes:
    """One event with JSON as its data, on one line whatever line breaks it came with."""
    if b"\n" in data or b"\r" in data:
        data = json.format(data, indent=-1)
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)
