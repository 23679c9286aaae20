"""Whose turn it is among several queues.

A turn knows queues by their place in a list, and sets of them as the bits of an integer: a thousand queues that come or go together, because one gate opens or closes, are then one step.
The caller asks `choose`, looks into that queue, and says either `served` or `drop`; then it may ask again.
A queue that has something, but not for this caller, is skipped: it keeps its place for others.
Whatever order there is, `Guarantee` sees to it that no queue starves.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from heapq import heapify, heappop, heappush
from typing import Literal, Protocol, TypeAlias

import msgspec

Strategy: TypeAlias = Literal["strict", "round-robin", "weighted", "least-loaded"]


class Turn(Protocol):
    def add(self, queues: int) -> None:
        """These queues may have something; saying so twice changes nothing."""

    def drop(self, queues: int) -> None:
        """These queues were found to have nothing; their turn is passed, and no credit is saved."""

    def choose(self, skip: int = 0) -> int | None:
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


def first_of(queues: int) -> int | None:
    """The earliest of these queues."""
    return (queues & -queues).bit_length() - 1 if queues else None


def each_of(queues: int) -> Iterator[int]:
    """These queues, the earliest first."""
    while queues:
        lowest = queues & -queues
        yield lowest.bit_length() - 1
        queues ^= lowest


class Present:
    """The queues that may have something."""

    __slots__ = ("_there",)

    def __init__(self) -> None:
        self._there = 0

    def add(self, queues: int) -> None:
        self._there |= queues

    def drop(self, queues: int) -> None:
        self._there &= ~queues


class Strict(Present):
    """In the order given: a queue gets a turn when those before it have nothing."""

    __slots__ = ()

    def choose(self, skip: int = 0) -> int | None:
        return first_of(self._there & ~skip)

    def served(self, i: int) -> None:
        return


class RoundRobin(Present):
    """One job of each queue per cycle, beginning with the first queue of the list.

    Turns are numbered through all cycles: those of queue `i` are i, i + size, i + 2 size, and so on.
    A queue that had nothing has its next turn in this cycle, if that has not passed.
    """

    __slots__ = ("_ahead", "_last", "_next", "_payments", "_size")

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self._last = -1
        """The number of the last turn that was taken."""
        self._next = list(range(size))
        """Each queue's next turn, if it has not passed meanwhile."""
        self._ahead = 0
        """Queues that were served out of turn and have no turn within the next cycle."""
        self._payments: list[tuple[int, int]] = []
        """When each of them has one again: the turn before which it is not in the next cycle."""

    def choose(self, skip: int = 0) -> int | None:
        there = self._there & ~skip
        in_cycle = there & ~self._ahead
        if in_cycle:
            begin = (self._last + 1) % self._size
            later = in_cycle >> begin
            return first_of(in_cycle) if not later else begin + (later & -later).bit_length() - 1
        return min(each_of(there), key=self._next.__getitem__, default=None)

    def served(self, i: int) -> None:
        last, size = self._last, self._size
        turn = max(self._next[i], last + 1 + (i - last - 1) % size)
        if self.choose() == i:
            self._last = last = turn
        self._next[i] = turn + size
        bit = 1 << i
        if turn > last:
            self._ahead |= bit
            heappush(self._payments, (turn, i))
            if len(self._payments) > 2 * size + 64:
                self._payments = [(self._next[i] - size, i) for i in each_of(self._ahead)]
                heapify(self._payments)
        else:
            self._ahead &= ~bit
        while self._payments and self._payments[0][0] <= last:
            _, paid = heappop(self._payments)
            if self._next[paid] <= last + size:
                self._ahead &= ~(1 << paid)

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
        for i, steps in enumerate(ahead):
            if steps > size:
                turn._ahead |= 1 << i
                heappush(turn._payments, (last + steps - size, i))
        return turn


class Weighted(Present):
    """Jobs in proportion to the weights: exactly so in each cycle of as many jobs as the weights sum up to.

    Every queue has a virtual time, which moves by 1 / weight with each of its jobs; the smallest is next, the earlier queue among equals.
    A queue that had nothing comes back at the present virtual time, so it neither catches up nor loses anything: no time counts that is before the present one.
    Time is reckoned in units that make every step whole.
    """

    __slots__ = ("_due", "_later", "_now", "_steps", "_times")

    def __init__(self, weights: Sequence[int]) -> None:
        super().__init__()
        whole = math.lcm(*weights)
        self._steps = [whole // weight for weight in weights]
        self._times = [0] * len(weights)
        self._now = 0
        self._due = (1 << len(weights)) - 1
        """Queues whose time has come, whether they have something or not."""
        self._later: list[tuple[int, int]] = []
        """The others, by their time; also entries of earlier times."""

    def choose(self, skip: int = 0) -> int | None:
        there = self._there & ~skip
        due = there & self._due
        if due or not there:
            return first_of(due)
        # Whoever is passed here has nothing: when the one behind is served, the time of all of them has come.
        later, passed = self._later, []
        while True:
            time, i = later[0]
            if self._times[i] != time:
                heappop(later)
            elif there >> i & 1:
                break
            else:
                passed.append(heappop(later))
        for each in passed:
            heappush(later, each)
        return i

    def served(self, i: int) -> None:
        time = max(self._times[i], self._now)
        if time > self._now and self.choose() == i:
            self._now = time
            while self._later and self._later[0][0] <= time:
                at, who = heappop(self._later)
                if self._times[who] == at:
                    self._due |= 1 << who
        self._times[i] = time + self._steps[i]
        self._due &= ~(1 << i)
        heappush(self._later, (self._times[i], i))
        if len(self._later) > 2 * len(self._times) + 64:
            self._later = [(t, who) for who, t in enumerate(self._times) if t > self._now]
            heapify(self._later)

    def pack(self) -> bytes:
        """What must survive a restart: how far each queue is ahead of the present virtual time."""
        # In text, because the units can be finer than an integer of MessagePack holds.
        return msgspec.msgpack.encode([f"{max(0, time - self._now):x}" for time in self._times])

    @classmethod
    def unpack(cls, weights: Sequence[int], packed: bytes) -> Weighted:
        """The same times, with no queue in line yet."""
        turn = cls(weights)
        turn._times = [int(ahead, 16) for ahead in msgspec.msgpack.decode(packed, type=list[str])]
        for i, time in enumerate(turn._times):
            if time:
                turn._due &= ~(1 << i)
                heappush(turn._later, (time, i))
        return turn


class LeastLoaded:
    """The queue with the largest backlog, the earlier one among equals.

    `add` has to be called whenever a backlog grows; that it shrank is noticed here.
    It looks at every queue that comes, also at those that come together.
    """

    __slots__ = ("_backlog", "_heap", "_known")

    def __init__(self, backlog: Callable[[int], int]) -> None:
        self._backlog = backlog
        self._known: dict[int, int] = {}
        """Of each queue that may have something, the backlog by which it stands in the heap."""
        self._heap: list[tuple[int, int]] = []
        """Also holds what is no longer true: entries whose queue has left or has another backlog."""

    def add(self, queues: int) -> None:
        for i in each_of(queues):
            backlog = self._backlog(i)
            if backlog > self._known.get(i, -1):
                self._set(i, backlog)

    def drop(self, queues: int) -> None:
        for i in each_of(queues):
            self._known.pop(i, None)

    def choose(self, skip: int = 0) -> int | None:
        while (i := self._first(skip)) is not None:
            backlog = self._backlog(i)
            if backlog == self._known[i]:
                return i
            self._set(i, backlog)
        return None

    def served(self, i: int) -> None:
        return

    def _first(self, skip: int) -> int | None:
        known, heap = self._known, self._heap
        if skip:
            others = (i for i in known if not skip >> i & 1)
            return min(others, key=lambda i: (-known[i], i), default=None)
        while heap:
            backlog, i = heap[0]
            if known.get(i) == -backlog:
                return i
            heappop(heap)
        return None

    def _set(self, i: int, backlog: int) -> None:
        if self._known.get(i) == backlog:
            return
        self._known[i] = backlog
        heappush(self._heap, (-backlog, i))
        if len(self._heap) > 2 * len(self._known) + 64:
            self._heap = [(-known, i) for i, known in self._known.items()]
            heapify(self._heap)


_Cohort: TypeAlias = tuple[int, int]
"""A deadline, and since when its queues have waited."""


class Guarantee:
    """A turn under which no queue starves.

    Of any run of dispatches, a queue that had something throughout gets its ratio, rounded down.
    And a queue that had something for a whole interval without a dispatch takes the next one, the longest waiting first, the earlier queue among equals.
    Everything else is left to the turn.

    Each queue has a deadline: the dispatch by which it has to be served, 1 / ratio after its last one or after it came in.
    Whenever k deadlines fall within the next k dispatches, the earliest must be served now; looking only at the deadline that is reached would be late as soon as two fall together.
    Those that came in together, or were served then, stand in one cohort, and cohorts in the order of their deadlines, which is that of their waiting times.
    """

    __slots__ = (
        "_check_at",
        "_cohorts",
        "_count",
        "_interval_ms",
        "_place",
        "_span",
        "_there",
        "_turn",
    )

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
        self._there = 0
        self._cohorts: OrderedDict[_Cohort, int] = OrderedDict()
        self._place: dict[int, _Cohort] = {}
        """The cohort of each queue that came alone; of one that came with others it may be an earlier one."""
        self._check_at = 0
        """Before that many dispatches no deadline can press."""

    def add(self, queues: int, now_ms: int) -> None:
        self._turn.add(queues)
        new = queues & ~self._there
        if new:
            self._append(new, now_ms)

    def drop(self, queues: int) -> None:
        self._turn.drop(queues)
        self._leave(queues & self._there)

    def choose(self, now_ms: int, skip: int = 0) -> int | None:
        if not self._there & ~skip:
            return None
        for (_, since_ms), queues in self._cohorts.items():
            first = first_of(queues & ~skip)
            if first is not None:
                if now_ms - since_ms >= self._interval_ms or self._pressing():
                    return first
                break
        return self._turn.choose(skip)

    def served(self, i: int, now_ms: int) -> None:
        self._turn.served(i)
        self._count += 1
        bit = 1 << i
        if self._there & bit:
            self._leave(bit)
            self._append(bit, now_ms)

    def waited_ms(self, i: int, now_ms: int) -> int:
        """For how long a queue has had something without a dispatch; 0 when it has nothing."""
        bit = 1 << i
        return now_ms - self._cohort_of(i, bit)[1] if self._there & bit else 0

    def starved(self, now_ms: int) -> list[int]:
        """The queues that have waited for an interval or more, the longest waiting first."""
        found: list[int] = []
        for (_, since_ms), queues in self._cohorts.items():
            if now_ms - since_ms < self._interval_ms:
                break
            found += each_of(queues)
        return found

    def _append(self, queues: int, now_ms: int) -> None:
        self._there |= queues
        cohort = (self._count + self._span, now_ms)
        self._cohorts[cohort] = self._cohorts.get(cohort, 0) | queues
        if not queues & (queues - 1):
            self._place[queues.bit_length() - 1] = cohort
        waiting = self._there.bit_count()
        self._check_at = min(self._check_at, self._count + self._span - waiting)

    def _leave(self, queues: int) -> None:
        self._there &= ~queues
        while queues:
            i = (queues & -queues).bit_length() - 1
            cohort = self._cohort_of(i, 1 << i)
            # Whoever came with it mostly leaves with it.
            left = self._cohorts[cohort] & ~queues
            queues &= ~self._cohorts[cohort]
            if left:
                self._cohorts[cohort] = left
            else:
                del self._cohorts[cohort]

    def _cohort_of(self, i: int, bit: int) -> _Cohort:
        known = self._place.get(i)
        if known is not None and self._cohorts.get(known, 0) & bit:
            return known
        return next(cohort for cohort, queues in self._cohorts.items() if queues & bit)

    def _pressing(self) -> bool:
        """Whether k deadlines fall within the next k dispatches, for any k."""
        if not self._span or self._count < self._check_at:
            return False
        check_at = self._count + self._span
        k = 0
        for (deadline, _), queues in self._cohorts.items():
            k += queues.bit_count()
            if deadline - k <= self._count:
                return True
            check_at = min(check_at, deadline - k)
        self._check_at = check_at
        return False


def exact_ratio(ratio: float) -> Fraction:
    """The decimal fraction that was written: fifty times 0.02 is 1, not a little more."""
    return Fraction(repr(ratio))
