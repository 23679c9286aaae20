"""What the two sides of one client share."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from typing import Final

from headgate.client.core import Core
from headgate.client.declared import Register
from headgate.client.enqueue import Enqueue
from headgate.client.settings import Settings
from headgate.client.sides import lending


class Side:
    """Where requests go: the server, or what tests put in its place."""

    def __init__(self, core: Core, enqueue: Enqueue, inside: Side | None = None) -> None:
        self.core = core
        self.enqueue = enqueue
        self.inside = inside
        """What it covers while it is in force."""


class Parts:
    """One connection to one server, and the handlers that were declared with it."""

    def __init__(
        self, core: Core, enqueue: Enqueue, register: Register, settings: Settings
    ) -> None:
        self.own = Side(core, enqueue)
        self.register = register
        self.settings = settings
        self._instead: list[Side] = []

    @property
    def core(self) -> Core:
        return self._side().core

    @property
    def enqueue(self) -> Enqueue:
        return self._side().enqueue

    def replace(self, core: Core, enqueue: Enqueue) -> Side:
        """From now on the server is not asked any more, but this; until `restore`.

        It holds for the thread or task that asks for it and for what that one starts. Threads that were started otherwise follow as long as there is no doubt whom.
        """
        side = Side(core, enqueue, self._here())
        self._instead.append(side)
        _here.set((*_here.get(), (self, side)))
        lending.set(True)
        return side

    def restore(self, side: Side) -> None:
        """Undo `replace`; from any thread or task."""
        self._instead.remove(side)
        _here.set(tuple(one for one in _here.get() if one[1] is not side))
        lending.set(bool(_here.get()))

    def _side(self) -> Side:
        if not self._instead:
            return self.own
        found = self._here()
        if found is not None:
            return found
        last = self._instead[-1]
        if len(list(_covered(last))) == len(self._instead):
            return last
        raise RuntimeError(
            "several tests use this application at the same time, and this thread belongs to none of them"
        )

    def _here(self) -> Side | None:
        return next(
            (
                side
                for parts, side in reversed(_here.get())
                if parts is self and side in self._instead
            ),
            None,
        )


def _covered(side: Side | None) -> Iterator[Side]:
    while side is not None:
        yield side
        side = side.inside


_here: Final[ContextVar[tuple[tuple[Parts, Side], ...]]] = ContextVar("headgate_here", default=())
