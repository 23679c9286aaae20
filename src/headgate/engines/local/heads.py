"""Who comes first among many whose places change: a heap that finds out late.

Everything in it has a place, the smallest of which comes first.
A place that has become larger is noticed when its owner comes to the top; one that may have become smaller has to be told by `put`.
So the jobs of a line can come and go, and tenants can be served, without any work here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

T = TypeVar("T")

Place = tuple[int, ...]
"""It ends in a sequence number, so no two are equal."""


class Heads(Generic[T]):
    __slots__ = ("_heap", "_live", "_place_of", "_slot")

    def __init__(
        self, place_of: Callable[[T], Place | None], slot: str, items: Iterable[T] = ()
    ) -> None:
        self._place_of = place_of
        """None for what has nothing at present; it leaves by itself."""
        self._slot = slot
        """The attribute in which each owner keeps its entry; there may be as many owners as jobs."""
        self._live = 0
        self._heap: list[Any] = []
        """Also holds what is no longer true: entries whose owner has left or has another one."""
        for item in items:
            place = place_of(item)
            entry = None if place is None else (*place, item)
            setattr(item, slot, entry)
            if entry is not None:
                self._heap.append(entry)
        self._live = len(self._heap)
        heapify(self._heap)

    def put(self, item: T) -> None:
        """This one is new, or may come earlier than before."""
        place = self._place_of(item)
        if place is None:
            return
        known = getattr(item, self._slot)
        entry = (*place, item)
        if known is None:
            self._live += 1
        elif known[:-1] <= place:
            return
        self._push(item, entry)

    def drop(self, item: T) -> None:
        if getattr(item, self._slot) is not None:
            setattr(item, self._slot, None)
            self._live -= 1

    def first(self) -> T | None:
        heap, slot = self._heap, self._slot
        while heap:
            entry = heap[0]
            item: T = entry[-1]
            if getattr(item, slot) is not entry:
                heappop(heap)
                continue
            place = self._place_of(item)
            if place == entry[:-1]:
                return item
            heappop(heap)
            if place is None:
                setattr(item, slot, None)
                self._live -= 1
            else:
                self._push(item, (*place, item))
        return None

    def _push(self, item: T, entry: tuple[Any, ...]) -> None:
        slot = self._slot
        setattr(item, slot, entry)
        heappush(self._heap, entry)
        if len(self._heap) > 2 * self._live + 64:
            self._heap = [each for each in self._heap if getattr(each[-1], slot) is each]
            heapify(self._heap)
