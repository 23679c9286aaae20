"""How many jobs of a key have started lately, and when the last one did.

Both records count starts only; they never refuse one.
Time is in microseconds.
"""

from __future__ import annotations

from array import array
from itertools import accumulate, pairwise
from typing import Final

from msgspec import Struct

EXACT: Final = 60
"""Up to this limit a window keeps every start; above it, starts are gathered into as many spans."""


_NOTHING: Final = array("q")
"""Shared by all windows that have observed nothing; it stays empty."""


class Rate(Struct, frozen=True, array_like=True, gc=False):
    """So many starts in every period; both are 1 or more."""

    limit: int
    period_us: int


class Window:
    """A sliding window of starts.

    No half-open window of one period holds more than the limit, provided that nothing starts while there is no room.
    With a limit up to 60 it is exact.
    Above that, an entry gathers the starts within a sixtieth of the period after its first, and is forgotten one period after its newest; so there are at most 61 entries, and the window is late to forget by less than a sixtieth of the period, never early.
    """

    __slots__ = ("_counts", "_first", "_gather_us", "_newest", "count", "rate")

    def __init__(self, rate: Rate) -> None:
        self._newest = _NOTHING
        """Of each entry, oldest entry first."""
        self._counts = _NOTHING
        self._first = 0
        """Of the newest entry."""
        self.count = 0
        """Starts in all entries, those included that are over and not yet let go."""
        self.change(rate)

    def change(self, rate: Rate) -> None:
        """Go on with another rate; what was observed and not yet forgotten keeps counting.

        A longer period cannot bring back what the shorter one had forgotten.
        """
        self.rate = rate
        exact = rate.limit <= EXACT
        self._gather_us = 1 if exact else -(-rate.period_us // EXACT)
        if exact:
            return
        newest, counts = self._newest, self._counts
        self._newest = self._counts = _NOTHING
        for at, count in zip(newest, counts, strict=True):
            self._add(at, count)

    def copy(self, rate: Rate) -> Window:
        """A window that has observed the same and goes on with its own rate."""
        twin = Window(self.rate)
        if self._newest:
            twin._newest, twin._counts = self._newest[:], self._counts[:]
        twin._first, twin.count = self._first, self.count
        twin.change(rate)
        return twin

    def start(self, now_us: int) -> None:
        self.forget(now_us)
        self.count += 1
        self._add(now_us, 1)

    def forget(self, now_us: int) -> None:
        """Let go of what is over by now; it counts no longer."""
        newest = self._newest
        over = now_us - self.rate.period_us
        if not newest or newest[0] > over:
            return
        gone = 0
        while gone < len(newest) and newest[gone] <= over:
            self.count -= self._counts[gone]
            gone += 1
        del newest[:gone]
        del self._counts[:gone]

    def room(self, now_us: int) -> int:
        """How many may start now; below zero after the limit was lowered."""
        self.forget(now_us)
        return self.rate.limit - self.count

    def opens_us(self, ahead: int = 0) -> int:
        """The instant from which there is room, when `ahead` starts, fewer than the limit, have found theirs first.

        It may lie in the past, and is 0 when there has always been room.
        """
        excess = self.count + ahead - self.rate.limit
        if excess < 0:
            return 0
        for at, count in zip(self._newest, self._counts, strict=True):
            excess -= count
            if excess < 0:
                return at + self.rate.period_us
        return self.empty_us()

    def empty_us(self) -> int:
        """The instant from which everything observed is over; 0 when there is nothing."""
        return self._newest[-1] + self.rate.period_us if self._newest else 0

    def packed(self) -> tuple[int, list[int], list[int]]:
        """The first start of the newest entry, the entries' instants each relative to the one before, their counts."""
        deltas = [at - before for before, at in pairwise([0, *self._newest])]
        return self._first, deltas, list(self._counts)

    @classmethod
    def unpacked(cls, rate: Rate, packed: tuple[int, list[int], list[int]]) -> Window:
        first, deltas, counts = packed
        window = cls(rate)
        if deltas:
            window._newest = array("q", accumulate(deltas))
            window._counts = array("q", counts)
        window._first, window.count = first, sum(counts)
        return window

    def _add(self, at_us: int, count: int) -> None:
        if self._newest and at_us - self._first < self._gather_us:
            self._newest[-1] = max(at_us, self._newest[-1])
            self._counts[-1] += count
        else:
            if not self._newest:
                self._newest, self._counts = array("q"), array("q")
            self._first = at_us
            self._newest.append(at_us)
            self._counts.append(count)


class Pace:
    """The last start, and how much of its lateness the next one may make up.

    An interval is period / limit.
    The next start is due one interval after the last one, less the time that the last one came after it was due, but less a tenth of an interval at most.
    So gaps are 0.9 intervals or more, n starts span n - 1.1 intervals or more, and small delays never add up.
    It is reckoned in tenths of 1 / limit microseconds, in which all of this is whole.
    """

    __slots__ = ("_credit", "_due_us", "_rate", "last_us")

    def __init__(self) -> None:
        self.last_us: int | None = None
        self._rate: Rate | None = None
        """The rate under which the last start came, with which its lateness was earned."""
        self._credit = 0
        self._due_us = 0

    def due_us(self, rate: Rate) -> int:
        """The instant from which the next start is due; 0 when there was none yet."""
        if rate is self._rate or rate == self._rate:
            return self._due_us
        # Lateness that was earned under another rate counts for nothing.
        return 0 if self.last_us is None else self.last_us - (-rate.period_us // rate.limit)

    def start(self, now_us: int, rate: Rate | None) -> None:
        """Something starts; `rate` is the throttle that holds now."""
        if rate is not None:
            self._credit = self._lateness(now_us, rate)
            wait = 10 * rate.period_us - self._credit
            self._due_us = now_us - (-wait // (10 * rate.limit))
        self._rate = rate
        self.last_us = now_us

    def packed(self) -> tuple[int, int, Rate | None] | None:
        return None if self.last_us is None else (self.last_us, self._credit, self._rate)

    @classmethod
    def unpacked(cls, packed: tuple[int, int, Rate | None] | None) -> Pace:
        pace = cls()
        if packed is not None:
            pace.last_us, pace._credit, pace._rate = packed
            if pace._rate is not None:
                wait = 10 * pace._rate.period_us - pace._credit
                pace._due_us = pace.last_us - (-wait // (10 * pace._rate.limit))
        return pace

    def _lateness(self, now_us: int, rate: Rate) -> int:
        if self.last_us is None:
            return 0
        credit = self._credit if rate == self._rate else 0
        late = 10 * rate.limit * (now_us - self.last_us) - (10 * rate.period_us - credit)
        return min(max(late, 0), rate.period_us)
