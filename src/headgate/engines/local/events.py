"""The last events, in the order in which they happened, and those who follow them.

Numbers only grow, over restarts too, so that a reader's cursor never points backwards.
Readers and followers are shown an event only when it is durable; listeners hear it at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any

from headgate.core.job import Job
from headgate.engines.contract import Event, EventPage, Interest

MOST_BEHIND = 1_000
"""How many events a follower may be behind."""


class EventLog:
    """A ring: the oldest events make room for the newest."""

    __slots__ = ("_followers", "durable", "listeners", "number", "ring")

    def __init__(self, size: int) -> None:
        self.ring: deque[Event] = deque(maxlen=size)
        self.number = 0
        """Of the last event."""
        self.durable = 0
        """Of the last event that a crash cannot undo."""
        self.listeners: list[Callable[[Event], None]] = []
        self._followers: dict[Follower, None] = {}

    def start_above(self, number: int) -> None:
        """Numbers go on from here, unless they are further already."""
        self.number = self.durable = max(self.number, number)

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
        self.number = number = self.number + 1
        event = Event(number, kind, at_ms, subject, job_type, queue, state, data)
        self.ring.append(event)
        for listener in self.listeners:
            listener(event)

    def add_job(self, kind: str, at_ms: int, job: Job, data: dict[str, Any]) -> None:
        """The same for what happened to a job."""
        more = job.more
        if more is not None and more.trace_id:
            data["trace_id"] = more.trace_id
        if job.tenant:
            data["tenant_id"] = job.tenant
        self.number = number = self.number + 1
        event = Event(number, kind, at_ms, job.id, job.type, job.queue, job.state, data)
        self.ring.append(event)
        for listener in self.listeners:
            listener(event)

    def whisper(
        self, kind: str, at_ms: int, queue: str, data: dict[str, Any] | None = None
    ) -> None:
        """Tell the listeners alone."""
        for listener in self.listeners:
            listener(Event(self.number, kind, at_ms, queue, "", queue, "", data))

    def settle(self, number: int) -> None:
        """All events up to this number are durable."""
        first = self.durable
        if number <= first:
            return
        self.durable = number
        if self._followers:
            fresh = [event for event in self._after(first) if event.number <= number]
            for follower in list(self._followers):
                follower.take(fresh)

    def forget_unsettled(self) -> None:
        """What was never durable has not happened; its numbers are not used again."""
        while self.ring and self.ring[-1].number > self.durable:
            self.ring.pop()
        self.durable = self.number

    def clear(self) -> None:
        self.ring.clear()

    def page(self, after: int, limit: int, interest: Interest) -> EventPage:
        """Up to `limit` durable events with numbers above `after`, oldest first."""
        wanted = filter_of(interest)
        found: list[Event] = []
        cursor = after
        for event in self._after(after):
            if event.number > self.durable:
                break
            if wanted(event):
                if len(found) == limit:
                    return EventPage(found, cursor, True)
                found.append(event)
            cursor = event.number
        return EventPage(found, cursor, False)

    def follow(self, interest: Interest) -> Follower:
        follower = Follower(self, interest)
        self._followers[follower] = None
        return follower

    def unfollow(self, follower: Follower) -> None:
        self._followers.pop(follower, None)

    def _after(self, number: int) -> list[Event]:
        """Those with greater numbers, oldest first."""
        ring = self.ring
        if not ring or ring[-1].number <= number:
            return []
        # Most readers are near the end, and there are no more of them than numbers.
        found = list(islice(reversed(ring), ring[-1].number - number))
        while found[-1].number <= number:
            found.pop()
        found.reverse()
        return found


class Follower:
    """One reader of durable events, as they come."""

    __slots__ = ("_log", "_lost", "_pending", "_waiter", "_wanted")

    def __init__(self, log: EventLog, interest: Interest) -> None:
        self._log = log
        self._wanted = filter_of(interest)
        self._pending: deque[Event] = deque()
        self._lost = 0
        self._waiter: asyncio.Future[bool] | None = None

    def take(self, events: list[Event]) -> None:
        pending = self._pending
        for event in events:
            if self._wanted(event):
                pending.append(event)
        while len(pending) > MOST_BEHIND:
            pending.popleft()
            self._lost += 1
        if pending and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)

    async def next(self, timeout_s: float) -> list[Event]:
        if not self._pending:
            loop = asyncio.get_running_loop()
            self._waiter = waiter = loop.create_future()
            timer = loop.call_later(timeout_s, _expire, waiter)
            try:
                await waiter
            finally:
                timer.cancel()
                self._waiter = None
        events = list(self._pending)
        self._pending.clear()
        if self._lost:
            first = events[0]
            data = {"events_dropped": self._lost}
            note = Event(
                first.number - 1, "system.events_dropped", first.at_ms, "", "", "", "", data
            )
            events.insert(0, note)
            self._lost = 0
        return events

    def close(self) -> None:
        self._log.unfollow(self)


def _expire(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)


def filter_of(interest: Interest) -> Callable[[Event], bool]:
    """A test for whether an event is of interest."""
    job_id = interest.job_id
    queues = frozenset(interest.queues)
    types = frozenset(interest.job_types)
    exact = frozenset(kind for kind in interest.kinds if not kind.endswith("*"))
    prefixes = tuple(kind[:-1] for kind in interest.kinds if kind.endswith("*"))
    kinds = bool(interest.kinds)
    tenant = interest.tenant

    if not (job_id or queues or types or kinds or tenant):
        return _every

    def wanted(event: Event) -> bool:
        return (
            (not job_id or event.subject == job_id)
            and (not queues or event.queue in queues)
            and (not types or event.job_type in types)
            and (not kinds or event.kind in exact or event.kind.startswith(prefixes))
            and (not tenant or (event.data is not None and event.data.get("tenant_id") == tenant))
        )

    return wanted


def _every(_event: Event) -> bool:
    return True
