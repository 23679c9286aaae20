"""Whose turn it is among several queues.

A turn knows queues by their place in a list, and only those that may have something; nothing here looks at all of them.
The caller asks `choose`, looks into that queue, and says either `served` or `drop`; then it may ask again.
A queue that has something, but not for this caller, is skipped: it keeps its place for others.
Whatever order there is, `Guarantee` sees to it that no queue starves.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from fractions import Fraction
from heapq import heapify, heappop, heappush
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

Strategy: TypeAlias = Literal["strict", "round-robin", "weighted", "least-loaded"]
NOBODY: Final[AbstractSet[int]] = frozenset()


class Turn(Protocol):
    def add(self, i: int) -> None:
        """Queue `i` may have something; saying so twice changes nothing."""

    def drop(self, i: int) -> None:
        """Queue `i` was found to have nothing; its turn is passed, and no credit is saved."""

    def choose(self, skip: AbstractSet[int] = NOBODY) -> int | None:
        """The queue whose turn it is, leaving out some; None when no other queue may have something."""

    def served(self, i: int) -> None:
        """A job was dispatched from queue `i`, whether or not it was its turn.

        A queue that was served out of turn pays for it with turns to come.
        """


def turn_of(
    strategy: Strategy, size: int, weights: Sequence[int], backlog: Callable[[int], int]
) -> Turn:
    """The turn that the strategy stands for; `weights` and `backlog` are for those that need them."""
    match strategy:
        case "strict":
            return Strict()
        case "round-robin":
            return RoundRobin(size)
        case "weighted":
            return Weighted(weights)
        case "least-loaded":
            return LeastLoaded(backlog)


class Line:
    """Some queues, each with a key; the smallest key is first, the earlier queue among equal ones."""

    __slots__ = ("_heap", "_keys")

    def __init__(self) -> None:
        self._keys: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []
        """Also holds what is no longer true: entries whose queue has left or has another key."""

    def __contains__(self, i: int) -> bool:
        return i in self._keys

    def put(self, i: int, key: int) -> None:
        if self._keys.get(i) == key:
            return
        self._keys[i] = key
        heappush(self._heap, (key, i))
        if len(self._heap) > 2 * len(self._keys) + 64:
            self._heap = [(key, i) for i, key in self._keys.items()]
            heapify(self._heap)

    def remove(self, i: int) -> None:
        self._keys.pop(i, None)

    def first(self, skip: AbstractSet[int] = NOBODY) -> int | None:
        if skip:
            return min(
                (i for i in self._keys if i not in skip),
                key=lambda i: (self._keys[i], i),
                default=None,
            )
        heap = self._heap
        while heap:
            key, i = heap[0]
            if self._keys.get(i) == key:
                return i
            heappop(heap)
        return None


class Strict:
    """In the order given: a queue gets a turn when those before it have nothing."""

    __slots__ = ("_line",)

    def __init__(self) -> None:
        self._line = Line()

    def add(self, i: int) -> None:
        self._line.put(i, i)

    def drop(self, i: int) -> None:
        self._line.remove(i)

    def choose(self, skip: AbstractSet[int] = NOBODY) -> int | None:
        return self._line.first(skip)

    def served(self, i: int) -> None:
        return


class RoundRobin:
    """One job of each queue per cycle, beginning with the first queue of the list.

    Turns are numbered through all cycles: those of queue `i` are i, i + size, i + 2 size, and so on.
    """

    __slots__ = ("_last", "_line", "_next", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._last = -1
        """The number of the last turn that was taken."""
        self._next = list(range(size))
        """Each queue's next turn, if it has not been passed meanwhile."""
        self._line = Line()

    def add(self, i: int) -> None:
        if i not in self._line:
            self._next[i] = max(self._next[i], self._last + 1 + (i - self._last - 1) % self._size)
            self._line.put(i, self._next[i])

    def drop(self, i: int) -> None:
        self._line.remove(i)

    def choose(self, skip: AbstractSet[int] = NOBODY) -> int | None:
        return self._line.first(skip)

    def served(self, i: int) -> None:
        if self._line.first() == i:
            self._last = self._next[i]
        self._next[i] += self._size
        if i in self._line:
            self._line.put(i, self._next[i])

    def pack(self) -> bytes:
        """What must survive a restart: whose turn comes next."""
        ahead = [max(0, turn - self._last) for turn in self._next]
        return msgspec.msgpack.encode((self._last % self._size, ahead))

    @classmethod
    def unpack(cls, size: int, packed: bytes) -> RoundRobin:
        """The same turns, with no queue in line yet."""
        last, ahead = msgspec.msgpack.decode(packed, type=tuple[int, list[int]])
        turn = cls(size)
        turn._last = last
        turn._next = [last + steps for steps in ahead]
        return turn


class Weighted:
    """Jobs in proportion to the weights: exactly so in each cycle of as many jobs as the weights sum up to.

    Every queue has a virtual time, which moves by 1 / weight with each of its jobs; the smallest is next.
    A queue that had nothing comes back at the present virtual time, so it neither catches up nor loses anything.
    Time is reckoned in units that make every step whole.
    """

    __slots__ = ("_line", "_now", "_steps", "_times")

    def __init__(self, weights: Sequence[int]) -> None:
        whole = math.lcm(*weights)
        self._steps = [whole // weight for weight in weights]
        self._times = [0] * len(weights)
        self._now = 0
        self._line = Line()

    def add(self, i: int) -> None:
        if i not in self._line:
            self._times[i] = max(self._times[i], self._now)
            self._line.put(i, self._times[i])

    def drop(self, i: int) -> None:
        self._line.remove(i)

    def choose(self, skip: AbstractSet[int] = NOBODY) -> int | None:
        return self._line.first(skip)

    def served(self, i: int) -> None:
        if self._line.first() == i:
            self._now = self._times[i]
        self._times[i] = max(self._times[i], self._now) + self._steps[i]
        if i in self._line:
            self._line.put(i, self._times[i])

    def pack(self) -> bytes:
        """What must survive a restart: how far each queue is ahead of the present virtual time."""
        # In text, because the units can be finer than an integer of MessagePack holds.
        return msgspec.msgpack.encode([f"{max(0, time - self._now):x}" for time in self._times])

    @classmethod
    def unpack(cls, weights: Sequence[int], packed: bytes) -> Weighted:
        """The same times, with no queue in line yet."""
        turn = cls(weights)
        turn._times = [int(ahead, 16) for ahead in msgspec.msgpack.decode(packed, type=list[str])]
        return turn


class LeastLoaded:
    """The queue with the largest backlog, the earlier one among equals.

    `add` has to be called whenever a backlog grows; that it shrank is noticed here.
    """

    __slots__ = ("_backlog", "_known", "_line")

    def __init__(self, backlog: Callable[[int], int]) -> None:
        self._backlog = backlog
        self._known: dict[int, int] = {}
        self._line = Line()

    def add(self, i: int) -> None:
        backlog = self._backlog(i)
        if backlog > self._known.get(i, -1):
            self._set(i, backlog)

    def drop(self, i: int) -> None:
        self._known.pop(i, None)
        self._line.remove(i)

    def choose(self, skip: AbstractSet[int] = NOBODY) -> int | None:
        while (i := self._line.first(skip)) is not None:
            backlog = self._backlog(i)
            if backlog == self._known[i]:
                return i
            self._set(i, backlog)
        return None

    def served(self, i: int) -> None:
        return

    def _set(self, i: int, backlog: int) -> None:
        self._known[i] = backlog
        self._line.put(i, -backlog)


class Guarantee:
    """A turn under which no queue starves.

    Of any run of dispatches, a queue that had something throughout gets its ratio, rounded down.
    And a queue that had something for a whole interval without a dispatch takes the next one, the longest waiting first.
    Everything else is left to the turn.

    Each queue has a deadline: the dispatch by which it has to be served, 1 / ratio after its last one or after it came in.
    Whenever k deadlines fall within the next k dispatches, the earliest must be served now; looking only at the deadline that is reached would be late as soon as two fall together.
    Queues stand in the order in which they were served or came in, which is that of their deadlines and of their waiting times; those that came in together, as behind a gate that opened, in their own.
    """

    __slots__ = ("_check_at", "_count", "_interval_ms", "_mixed", "_span", "_turn", "_waiting")

    def __init__(self, turn: Turn, ratio: float, interval_ms: int, size: int) -> None:
        share = exact_ratio(ratio)
        if share * size > 1:
            raise ValueError(f"{size} queues cannot each have {ratio} of all dispatches")
        self._turn = turn
        self._interval_ms = interval_ms
        self._span = math.floor(1 / share) if share else 0
        """Of so many dispatches in a row each queue gets one; 0 for no such promise."""
        self._count = 0
        """Dispatches so far."""
        self._waiting: OrderedDict[int, tuple[int, int]] = OrderedDict()
        """Of each queue the deadline and since when it has waited."""
        self._mixed = False
        """Whether queues that came in together did so in another order than their own."""
        self._check_at = 0
        """Before that many dispatches no deadline can press."""

    def add(self, i: int, now_ms: int) -> None:
        self._turn.add(i)
        if i not in self._waiting:
            self._append(i, now_ms)

    def drop(self, i: int) -> None:
        self._turn.drop(i)
        self._waiting.pop(i, None)

    def choose(self, now_ms: int, skip: AbstractSet[int] = NOBODY) -> int | None:
        if self._mixed:
            self._order()
        first = next((i for i in self._waiting if i not in skip), None)
        if first is None:
            return None
        if now_ms - self._waiting[first][1] >= self._interval_ms or self._pressing():
            return first
        return self._turn.choose(skip)

    def served(self, i: int, now_ms: int) -> None:
        self._turn.served(i)
        self._count += 1
        if self._waiting.pop(i, None) is not None:
            self._append(i, now_ms)

    def waited_ms(self, i: int, now_ms: int) -> int:
        """For how long a queue has had something without a dispatch; 0 when it has nothing."""
        known = self._waiting.get(i)
        return 0 if known is None else now_ms - known[1]

    def starved(self, now_ms: int) -> list[int]:
        """The queues that have waited for an interval or more, the longest waiting first."""
        if self._mixed:
            self._order()
        found = []
        for i, (_, since_ms) in self._waiting.items():
            if now_ms - since_ms < self._interval_ms:
                break
            found.append(i)
        return found

    def _append(self, i: int, now_ms: int) -> None:
        entry = (self._count + self._span, now_ms)
        if self._waiting:
            last = next(reversed(self._waiting))
            self._mixed = self._mixed or (last > i and self._waiting[last] == entry)
        self._waiting[i] = entry
        self._check_at = min(self._check_at, self._count + self._span - len(self._waiting))

    def _order(self) -> None:
        self._mixed = False
        by_entry = sorted(self._waiting.items(), key=lambda item: (item[1], item[0]))
        self._waiting = OrderedDict(by_entry)

    def _pressing(self) -> bool:
        """Whether k deadlines fall within the next k dispatches, for any k."""
        if not self._span or self._count < self._check_at:
            return False
        check_at = self._count + self._span
        for k, (deadline, _) in enumerate(self._waiting.values(), 1):
            if deadline - k <= self._count:
                return True
            check_at = min(check_at, deadline - k)
        self._check_at = check_at
        return False


def exact_ratio(ratio: float) -> Fraction:
    """The decimal fraction that was written: fifty times 0.02 is 1, not a little more."""
    return Fraction(repr(ratio))
