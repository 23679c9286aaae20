"""An ordered list of middleware, which can be frozen while it is in use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

M = TypeVar("M")


class Chain(Generic[M]):
    """The first one added is the outermost."""

    def __init__(self, members: Iterable[M] = ()) -> None:
        self._members = list(members)
        self._frozen = False

    def add(self, one: M) -> M:
        """Put it innermost; it is given back, so that this can be used as a decorator."""
        return self._put(len(self._members), one)

    def prepend(self, one: M) -> M:
        return self._put(0, one)

    def insert_before(self, other: M, one: M) -> M:
        return self._put(self._find(other), one)

    def insert_after(self, other: M, one: M) -> M:
        return self._put(self._find(other) + 1, one)

    def remove(self, one: M) -> None:
        self._change()
        del self._members[self._find(one)]

    def freeze(self) -> None:
        """From now on every change is refused."""
        self._frozen = True

    def thaw(self) -> None:
        """Changes are allowed again."""
        self._frozen = False

    def __iter__(self) -> Iterator[M]:
        return iter(tuple(self._members))

    def __len__(self) -> int:
        return len(self._members)

    def _put(self, place: int, one: M) -> M:
        self._change()
        self._members.insert(place, one)
        return one

    def _find(self, one: M) -> int:
        try:
            return self._members.index(one)
        except ValueError:
            raise LookupError(f"{one!r} is not in the chain") from None

    def _change(self) -> None:
        if self._frozen:
            raise RuntimeError("middleware cannot be changed while it is in use")
