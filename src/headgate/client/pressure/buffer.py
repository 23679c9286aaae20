"""Where a producer keeps jobs that the server cannot take now.

Both kinds are bounded, keep the order of each queue, and refuse what does not fit as a whole.
`MemoryBuffer` loses what it holds when the process ends without `close()`; `DiskBuffer` (in `disk.py`) has it on disk before `enqueue` returns.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Sequence
from typing import Protocol

from msgspec import Struct


class Kept(Struct, frozen=True):
    """One job, ready to be sent."""

    id: str
    queue: str
    body: bytes
    place: int = 0
    """Given by the buffer: smaller is older."""


class Buffer(Protocol):
    """Keeps jobs until they are sent. Methods may block for a moment, and are called from any thread."""

    @property
    def durable(self) -> bool:
        """Whether what is kept outlives the process, and keeping takes the time of a disk."""
        ...

    def put(self, jobs: Sequence[Kept]) -> bool:
        """Keep all of them; False, and none kept, when there is no room for all."""
        ...

    def first(self, most: int, most_bytes: int, skip: Collection[str]) -> list[Kept]:
        """The oldest jobs of the queue whose turn it is, which is none of those to skip."""
        ...

    def remove(self, jobs: Sequence[Kept]) -> None: ...

    def reject(self, job: Kept, reason: str) -> None:
        """The server will never take this one."""
        ...

    def rejected(self) -> list[tuple[Kept, str]]:
        """What the server refused for good, with its reason, the oldest first."""
        ...

    def __len__(self) -> int: ...

    def close(self) -> None: ...


class MemoryBuffer:
    """Keeps jobs in memory: fast, and gone when the process ends."""

    durable = False

    def __init__(
        self, max_jobs: int = 10_000, max_bytes: int = 64 << 20, max_rejected: int = 1_000
    ) -> None:
        self.max_jobs = max_jobs
        self.max_bytes = max_bytes
        self._queues: dict[str, deque[Kept]] = {}
        self._rejected: deque[tuple[Kept, str]] = deque(maxlen=max_rejected)
        self._jobs = 0
        self._bytes = 0
        self._places = 0
        self._lock = threading.Lock()

    def put(self, jobs: Sequence[Kept]) -> bool:
        size = sum(len(job.body) for job in jobs)
        with self._lock:
            if self._jobs + len(jobs) > self.max_jobs or self._bytes + size > self.max_bytes:
                return False
            for job in jobs:
                self._places += 1
                kept = Kept(job.id, job.queue, job.body, self._places)
                self._queues.setdefault(job.queue, deque()).append(kept)
            self._jobs += len(jobs)
            self._bytes += size
            return True

    def first(self, most: int, most_bytes: int, skip: Collection[str]) -> list[Kept]:
        with self._lock:
            open_ = [line for queue, line in self._queues.items() if queue not in skip]
            if not open_:
                return []
            line = min(open_, key=lambda line: line[0].place)
            return fitting(list(line)[:most], most_bytes)

    def remove(self, jobs: Sequence[Kept]) -> None:
        places = {job.place for job in jobs}
        with self._lock:
            for queue in {job.queue for job in jobs}:
                line = self._queues.get(queue, deque())
                left = deque(job for job in line if job.place not in places)
                self._jobs -= len(line) - len(left)
                self._bytes -= sum(len(job.body) for job in line if job.place in places)
                if left:
                    self._queues[queue] = left
                else:
                    self._queues.pop(queue, None)

    def reject(self, job: Kept, reason: str) -> None:
        self.remove([job])
        self._rejected.append((job, reason))

    def rejected(self) -> list[tuple[Kept, str]]:
        return list(self._rejected)

    def __len__(self) -> int:
        return self._jobs

    def close(self) -> None:
        """Nothing to let go of."""


def fitting(jobs: Sequence[Kept], most_bytes: int) -> list[Kept]:
    """As many of the first ones as fit, and at least one."""
    found: list[Kept] = []
    size = 0
    for job in jobs:
        size += len(job.body)
        if found and size > most_bytes:
            break
        found.append(job)
    return found
