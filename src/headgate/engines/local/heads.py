"""Who comes first among many whose places change: an order that finds out late.

Everything in it has a place, the smallest of which comes first.
A place that has become larger is noticed when its owner comes to the top; one that may have become smaller has to be told by `put`.
So the jobs of a line can come and go, and tenants can be served, without any work here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

T = TypeVar("T")

Place = tuple[int, ...]
"""It ends in a sequence number, so no two are equal."""


class Heads(Generic[T]):
    """Whoever comes in order, as most do, stands in a line, which is cheaper than the heap for the others."""

    __slots__ = ("_heap", "_line", "_live", "_place_of", "_slot")

    def __init__(
        self, place_of: Callable[[T], Place | None], slot: str, items: Iterable[T] = ()
    ) -> None:
        self._place_of = place_of
        """None for what has nothing at present; it leaves by itself."""
        self._slot = slot
        """The attribute in which each owner keeps its entry; there may be as many owners as jobs."""
        entries: list[Any] = []
        for item in items:
            place = place_of(item)
            entry = None if place is None else (*place, item)
            setattr(item, slot, entry)
            if entry is not None:
                entries.append(entry)
        entries.sort()
        self._live = len(entries)
        # Both also hold what is no longer true: entries whose owner has left or has another one.
        self._line: deque[Any] = deque(entries)
        self._heap: list[Any] = []

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
        line, heap, slot = self._line, self._heap, self._slot
        while line or heap:
            in_line = not heap or (line and line[0] < heap[0])
            entry = line[0] if in_line else heap[0]
            item: T = entry[-1]
            known = getattr(item, slot) is entry
            place = self._place_of(item) if known else None
            if known and place == entry[:-1]:
                return item
            if in_line:
                line.popleft()
            else:
                heappop(heap)
            if known and place is None:
                setattr(item, slot, None)
                self._live -= 1
            elif place is not None:
                self._push(item, (*place, item))
        return None

    def _push(self, item: T, entry: tuple[Any, ...]) -> None:
        setattr(item, self._slot, entry)
        line = self._line
        if not line or line[-1] < entry:
            line.append(entry)
        else:
            heappush(self._heap, entry)
        if len(line) + len(self._heap) > 2 * self._live + 64:
            self._sweep()

    def _sweep(self) -> None:
        slot = self._slot
        entries = [each for each in (*self._line, *self._heap) if getattr(each[-1], slot) is each]
        entries.sort()
        self._line = deque(entries)
        self._heap = []
