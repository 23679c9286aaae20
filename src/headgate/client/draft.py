"""A job on its way to the server, and what became of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from msgspec import Struct


class Draft:
    """What is about to be enqueued. Middleware may change all of it but the id."""

    __slots__ = ("_id", "body")

    def __init__(self, body: dict[str, Any]) -> None:
        self._id: str = body["id"]
        self.body = body
        """As it will be sent: type, args, queue, meta and all settings."""

    @property
    def id(self) -> str:
        return self._id

    @property
    def type(self) -> str:
        return str(self.body["type"])

    @property
    def queue(self) -> str:
        return str(self.body.get("queue", "default"))

    @property
    def meta(self) -> dict[str, Any]:
        """The job's `meta`, which may be added to."""
        found: dict[str, Any] = self.body.setdefault("meta", {})
        return found


class Enqueued(Struct):
    """An accepted job."""

    record: dict[str, Any]
    """As the server has it; as it will be sent while it is buffered."""
    deduplicated: bool = False
    """The record is of another job, which was there before and made this one unnecessary."""
    buffered: bool = False
    """It is in the local buffer and not on the server yet."""
    pressure: float | None = None
    """How full the queue is, 0 to 1, where the server says so."""


EnqueueNext: TypeAlias = Callable[[Draft], Awaitable[Enqueued | None]]
EnqueueMiddleware: TypeAlias = Callable[[Draft, EnqueueNext], Awaitable[Enqueued | None]]
"""Called around every enqueue; to give None without calling the next one drops the job."""
