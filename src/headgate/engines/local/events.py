"""The last events, in the order in which they happened.

An event is a tuple `(n, kind, at_ms, subject, job_type, queue, state, data)`:
its number, its OJS type such as `job.completed`, when it happened, what it is about (a job's id, a queue's or a worker's name), the type, queue and state of the job ("" where it is about none), and a dictionary of what else there is to say (None for nothing).
Values in `data` are JSON values, `msgspec.Raw` for what is JSON already; names ending in `_at` are milliseconds, which the wire turns into instants.
Numbers only grow, over restarts too, so that a reader's cursor never points backwards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any

from headgate.engines.contract import EventPage

Event = tuple[int, str, int, str, str, str, str, dict[str, Any] | None]


class EventLog:
    """A ring: the oldest events make room for the newest."""

    __slots__ = ("next_number", "ring", "watcher")

    def __init__(self, size: int, now_ms: int) -> None:
        self.ring: deque[Event] = deque(maxlen=size)
        self.next_number = now_ms << 10
        self.watcher: Callable[[Event], None] | None = None

    def add(
        self,
        kind: str,
        at_ms: int,
        subject: str,
        job_type: str = "",
        queue: str = "",
        state: str = "",
        data: dict[str, Any] | None = None,
    ) -> None:
        number = self.next_number
        self.next_number = number + 1
        event = (number, kind, at_ms, subject, job_type, queue, state, data)
        self.ring.append(event)
        if self.watcher is not None:
            self.watcher(event)

    def page(self, after: int, limit: int) -> EventPage:
        """Up to `limit` events with numbers above `after`, oldest first."""
        ring = self.ring
        if not ring or after >= ring[-1][0]:
            return EventPage([], max(after, 0), False)
        # Numbers in the ring have no gaps, so the place of a number is a subtraction.
        start = max(0, after + 1 - ring[0][0])
        events = list(islice(ring, start, start + limit))
        return EventPage(list(events), events[-1][0], start + limit < len(ring))

    def drop_after(self, number: int) -> None:
        """Forget what was never durable."""
        while self.ring and self.ring[-1][0] > number:
            self.ring.pop()
