"""One structure for everything that happens at a known time.

Jobs wait in buckets of 64 ms; a bucket that comes due is sorted out exactly, so an instant is met to the millisecond while arming a timer stays an append to a list.
A job has at most one live entry, named by its `alarm`; entries that were overtaken are recognised by it and dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from headgate.core.job import Job

GRAIN = 6
"""A bucket spans 2**GRAIN milliseconds."""

NEVER = 1 << 62

SLICE = 1_000
"""How many entries one call may handle, so that a million timers due at once are no pause."""


class Timers:
    __slots__ = (
        "_buckets",
        "_count",
        "_keys",
        "_opened",
        "_opening",
        "_soon",
        "next_at",
        "on_sooner",
    )

    def __init__(self) -> None:
        self.next_at = NEVER
        """Nothing is due before this instant."""
        self.on_sooner: Callable[[], None] | None = None
        self._buckets: dict[int, list[Job | Alarm]] = {}
        self._keys: list[int] = []
        self._soon: list[tuple[int, int, int, Job | Alarm]] = []
        self._opened = -1
        self._opening: list[Job | Alarm] = []
        self._count = 0

    def arm(self, entry: Job | Alarm, at: int) -> None:
        """Let the entry come due at this instant; an earlier alarm that it has stays and is looked at then."""
        if 0 < entry.alarm <= at:
            return
        entry.alarm = at
        key = at >> GRAIN
        if key <= self._opened:
            self._put_soon(entry, at)
            return
        bucket = self._buckets.get(key)
        if bucket is None:
            self._buckets[key] = [entry]
            heappush(self._keys, key)
            if key << GRAIN < self.next_at:
                self._sooner(key << GRAIN)
        else:
            bucket.append(entry)

    def _put_soon(self, entry: Job | Alarm, at: int) -> None:
        self._count += 1
        heappush(self._soon, (at, entry.seq, self._count, entry))
        if at < self.next_at:
            self._sooner(at)

    def _sooner(self, at: int) -> None:
        self.next_at = at
        if self.on_sooner is not None:
            self.on_sooner()

    def due(self, now_ms: int) -> tuple[Job | Alarm, int] | None:
        """The next entry that is due, with its instant; None when there is none."""
        soon = self._soon
        while True:
            self._open(now_ms)
            if not soon or soon[0][0] > now_ms:
                self._look_ahead()
                return None
            at, _, _, entry = heappop(soon)
            if entry.alarm == at:
                entry.alarm = 0
                return entry, at

    def _open(self, now_ms: int) -> None:
        """Sort out the buckets that have begun, a slice at a time."""
        if self._opening:
            taken = self._opening[-SLICE:]
            del self._opening[-SLICE:]
            self._sort_out(taken)
            return
        last = now_ms >> GRAIN
        keys = self._keys
        while keys and keys[0] <= last and not self._opening:
            key = heappop(keys)
            self._opened = key
            bucket = self._buckets.pop(key)
            if len(bucket) > SLICE:
                bucket.reverse()
                self._opening = bucket
                self._open(now_ms)
            else:
                self._sort_out(bucket)

    def _sort_out(self, entries: list[Job | Alarm]) -> None:
        opened = self._opened
        soon = self._soon
        for entry in entries:
            at = entry.alarm
            if at and at >> GRAIN == opened:
                self._count += 1
                heappush(soon, (at, entry.seq, self._count, entry))

    def _look_ahead(self) -> None:
        at = NEVER
        if self._opening:
            at = self._opened << GRAIN
        elif self._soon:
            at = self._soon[0][0]
        if self._keys:
            at = min(at, self._keys[0] << GRAIN)
        self.next_at = at


class Alarm:
    """Something other than a job that happens at a known time."""

    __slots__ = ("alarm", "ring", "seq")

    def __init__(self, ring: Callable[[int], None]) -> None:
        self.alarm = 0
        self.seq = 0
        self.ring = ring
        """Called with the instant at which it was due."""
