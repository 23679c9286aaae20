"""One structure for everything that happens at a known time.

Jobs wait in buckets of 64 ms; a bucket that comes due is sorted out exactly, so an instant is met to the millisecond while arming a timer stays an entry in a dictionary.
A job has at most one live entry, named by its `alarm`; entries that were overtaken are recognised by it and dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush

from headgate.core.job import Job

GRAIN = 6
"""A bucket spans 2**GRAIN milliseconds."""

NEVER = 1 << 62


class Timers:
    __slots__ = (
        "_buckets",
        "_count",
        "_keys",
        "_opened",
        "_soon",
        "next_at",
        "on_sooner",
    )

    def __init__(self) -> None:
        self.next_at = NEVER
        """Nothing is due before this instant."""
        self.on_sooner: Callable[[], None] | None = None
        self._buckets: dict[int, dict[Job | Alarm, None]] = {}
        self._keys: list[int] = []
        self._soon: list[tuple[int, int, int, Job | Alarm]] = []
        self._opened = -1
        self._count = 0

    def arm(self, entry: Job | Alarm, at: int) -> None:
        """Let the entry come due at this instant; an earlier alarm that it has stays and is looked at then."""
        if entry.alarm:
            if entry.alarm <= at:
                return
            self.disarm(entry)
        entry.alarm = at
        key = at >> GRAIN
        if key <= self._opened:
            self._put_soon(entry, at)
            return
        bucket = self._buckets.get(key)
        if bucket is None:
            self._buckets[key] = {entry: None}
            heappush(self._keys, key)
            if key << GRAIN < self.next_at:
                self._sooner(key << GRAIN)
        else:
            bucket[entry] = None

    def disarm(self, entry: Job | Alarm) -> None:
        """Nothing will come due for this entry; what has ended must not be kept by its timer."""
        if entry.alarm:
            bucket = self._buckets.get(entry.alarm >> GRAIN)
            if bucket is not None:
                bucket.pop(entry, None)
            entry.alarm = 0

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
            at, seq, _, entry = heappop(soon)
            # One with another number was armed anew, perhaps for the same instant.
            if entry.alarm == at and entry.seq == seq:
                entry.alarm = 0
                return entry, at

    def _open(self, now_ms: int) -> None:
        """Sort out the buckets that have begun, each one whole: only then is it known what comes first."""
        last = now_ms >> GRAIN
        keys = self._keys
        while keys and keys[0] <= last:
            key = heappop(keys)
            self._opened = key
            self._sort_out(self._buckets.pop(key))

    def _sort_out(self, entries: Iterable[Job | Alarm]) -> None:
        opened = self._opened
        soon = self._soon
        found = []
        for entry in entries:
            at = entry.alarm
            if at and at >> GRAIN == opened:
                self._count += 1
                found.append((at, entry.seq, self._count, entry))
        if len(found) > len(soon):
            soon += found
            heapify(soon)
        else:
            for each in found:
                heappush(soon, each)

    def _look_ahead(self) -> None:
        at = self._soon[0][0] if self._soon else NEVER
        keys = self._keys
        while keys and not self._buckets[keys[0]]:
            del self._buckets[heappop(keys)]
        if keys:
            at = min(at, keys[0] << GRAIN)
        self.next_at = at


class Alarm:
    """Something other than a job that happens at a known time."""

    __slots__ = ("alarm", "ring", "seq", "weight")

    def __init__(self, ring: Callable[[int], None], weight: int = 1) -> None:
        self.alarm = 0
        self.seq = 0
        self.ring = ring
        """Called with the instant at which it was due."""
        self.weight = weight
        """How many usual things it is worth, where a step does so many and no more."""
