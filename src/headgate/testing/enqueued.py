"""What was enqueued, and whether a job is one that a test means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from headgate.client.tasks import AsyncTask, Task
from headgate.client.values import builtins

AnyTask: TypeAlias = Task[..., Any] | AsyncTask[..., Any]
What: TypeAlias = AnyTask | str
"""A declared handler, or the type of its jobs."""


class Enqueued(Struct, frozen=True):
    """A job that was enqueued, as it was sent."""

    body: Mapping[str, Any]

    @property
    def id(self) -> str:
        return str(self.body["id"])

    @property
    def type(self) -> str:
        return str(self.body["type"])

    @property
    def args(self) -> list[Any]:
        return list(self.body["args"])

    @property
    def queue(self) -> str:
        return str(self.body.get("queue") or "default")

    @property
    def meta(self) -> Mapping[str, Any]:
        return self.body.get("meta") or {}

    @property
    def scheduled_at(self) -> str | None:
        return self.body.get("scheduled_at")

    def __str__(self) -> str:
        return f"{self.type}{tuple(self.args)} in {self.queue}" + (
            f" meta {dict(self.meta)}" if self.meta else ""
        )


class Wanted(Struct, frozen=True):
    """Which jobs a test means; what it does not say may be anything."""

    type: str | None = None
    args: list[Any] | None = None
    queue: str | None = None
    meta: Mapping[str, Any] | None = None

    def fits(self, one: Enqueued) -> bool:
        return (
            self.type in {None, one.type}
            and self.args in (None, one.args)
            and self.queue in {None, one.queue}
            and all(
                name in one.meta and one.meta[name] == value
                for name, value in (self.meta or {}).items()
            )
        )

    def __str__(self) -> str:
        said = [f"type {self.type}" if self.type else "any type"]
        if self.args is not None:
            said.append(f"args {self.args}")
        if self.queue is not None:
            said.append(f"queue {self.queue}")
        if self.meta is not None:
            said.append(f"meta with {dict(self.meta)}")
        return ", ".join(said)


def wanted(
    what: What | None,
    args: Sequence[Any] | None,
    queue: str | None,
    meta: Mapping[str, Any] | None,
) -> Wanted:
    """Read what a test says, arguments as they would be sent."""
    packed = None
    if args is not None:
        if isinstance(args, str | bytes) or not isinstance(args, Sequence):
            raise TypeError("args must be a list or tuple of all arguments")
        if isinstance(what, Task | AsyncTask):
            packed = list(what.call(*args).args)
        else:
            packed = builtins(list(args), "args")
    return Wanted(type_of(what), packed, queue, None if meta is None else builtins(meta, "meta"))


def type_of(what: What | None) -> str | None:
    if what is None or isinstance(what, str):
        return what
    return what.type
