"""The wire form of events: the OJS envelope around what happened."""

from __future__ import annotations

from typing import Any, Final, Protocol

import msgspec
from msgspec import Raw, Struct

from headgate.core.limits import parted
from headgate.core.times import instant_text
from headgate.wire.limits import named

_encode = msgspec.json.Encoder().encode

_INSTANTS: Final = ("_at", "until")
_PERCENT: Final = "job.progress"
_KEYS: Final = "rate_limit."
"""Events that are about keys."""


class Happening(Protocol):
    """What an engine says of an event."""

    @property
    def number(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def at_ms(self) -> int: ...
    @property
    def subject(self) -> str: ...
    @property
    def job_type(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def data(self) -> dict[str, Any] | None: ...


class EventList(Struct):
    events: Raw
    cursor: str
    has_more: bool


def event_id(number: int, at_ms: int) -> str:
    """`evt_` and a UUIDv7 that holds the event's number, so that an event always has the same id."""
    high = number >> 62 & 0xFFF
    low = number & 0x3FFF_FFFF_FFFF_FFFF
    text = f"{at_ms << 80 | 0x7 << 76 | high << 64 | 0x2 << 62 | low:032x}"
    return f"evt_{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def event_json(event: Happening, source: str) -> bytes:
    """The envelope, with what the event is about in its data."""
    time = instant_text(event.at_ms)
    return _encode(
        {
            "specversion": "1.0",
            "id": event_id(event.number, event.at_ms),
            "type": event.kind,
            "source": source,
            "time": time,
            "subject": _subject(event),
            "data": {**_about(event), "timestamp": time, **_data(event)},
        }
    )


def _subject(event: Happening) -> str:
    return parted(event.subject)[0] if event.kind.startswith(_KEYS) else event.subject


def _about(event: Happening) -> dict[str, Any]:
    if event.state:
        return {
            "job_id": event.subject,
            "job_type": event.job_type,
            "queue": event.queue,
            "state": event.state,
        }
    if event.queue:
        return {"queue": event.queue}
    if event.kind.startswith("worker."):
        return {"worker_id": event.subject}
    return {}


def _data(event: Happening) -> dict[str, Any]:
    if not event.data:
        return {}
    if event.kind == _PERCENT:
        return _progress(event.data)
    found = {
        name: instant_text(value) if name.endswith(_INSTANTS) and isinstance(value, int) else value
        for name, value in event.data.items()
    }
    key = found.get("key")
    return found if key is None else found | named(key)


def _progress(data: dict[str, Any]) -> dict[str, Any]:
    """Events count progress from 0 to 100, everything else from 0 to 1."""
    found = dict(data)
    share = found.pop("progress", None)
    if share is not None:
        found["progress_percent"] = round(share * 100, 6)
    message = found.pop("message", None)
    if message is not None:
        found["progress_message"] = message
    return found
