"""Who comes first among many whose places change: a heap that finds out late.

Everything in it has a key, the smallest of which comes first.
A key that has become larger is noticed when its owner comes to the top; one that may have become smaller has to be told by `put`.
So the jobs of a line can come and go, and tenants can be served, without any work here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T")

Key = tuple[int, ...]


class Heads(Generic[T]):
    __slots__ = ("_heap", "_key_of", "_known")

    def __init__(self, key_of: Callable[[T], Key | None], items: Iterable[T] = ()) -> None:
        self._key_of = key_of
        """None for what has nothing at present; it leaves by itself."""
        self._known: dict[T, Key] = {}
        self._heap: list[tuple[Key, int, T]] = []
        """Also holds what is no longer true: entries whose owner has left or has another key."""
        for item in items:
            self.put(item)

    def put(self, item: T) -> None:
        """This one is new, or may come earlier than before."""
        key = self._key_of(item)
        if key is None:
            return
        known = self._known.get(item)
        if known is None or key < known:
            self._push(item, key)

    def drop(self, item: T) -> None:
        self._known.pop(item, None)

    def first(self) -> T | None:
        heap, known = self._heap, self._known
        while heap:
            key, _, item = heap[0]
            if known.get(item) != key:
                heappop(heap)
                continue
            actual = self._key_of(item)
            if actual == key:
                return item
            heappop(heap)
            if actual is None:
                del known[item]
            else:
                self._push(item, actual)
        return None

    def _push(self, item: T, key: Key) -> None:
        known = self._known
        known[item] = key
        heappush(self._heap, (key, id(item), item))
        if len(self._heap) > 2 * len(known) + 64:
            self._heap = [(key, id(item), item) for item, key in known.items()]
            heapify(self._heap)
