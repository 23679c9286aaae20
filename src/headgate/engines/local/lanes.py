"""Lines of available jobs.

A lane is the ordered line (priority, then sequence) of the jobs of one queue that pass the same gates in the same way: same tenant, same keys, and for each key the same thing that happens when it is closed.
A job that leaves a lane other than by its head stays in the line as a husk, recognised because its `lane` is another one or none; so removal costs nothing, and a head is cleaned when it is looked at.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush, merge
from operator import neg
from typing import TYPE_CHECKING, Final

from headgate.core.job import Job

if TYPE_CHECKING:
    from headgate.engines.local.groups import Group
    from headgate.engines.local.keys import Key

Uses = tuple[tuple[str, str], ...]
"""Keys by their names, each with what happens when it is closed."""


_NONE: Final[list[int]] = []
"""Shared by all lanes without rows; it stays empty."""


class Row:
    """The jobs of one priority: those that came in order, and the few that came back."""

    __slots__ = ("came_back", "in_order")

    def __init__(self) -> None:
        self.in_order: deque[Job] = deque()
        self.came_back: list[tuple[int, int, Job]] = []


class Lane:
    """A lane with one job has no rows, because there may be as many lanes as jobs."""

    __slots__ = (
        "_count",
        "_only",
        "_rows",
        "acts_at",
        "age_entry",
        "fair_entry",
        "gates",
        "group",
        "husks",
        "plain_entry",
        "posts",
        "priorities",
        "size",
        "tenant",
        "tenant_entry",
        "uses",
    )

    def __init__(self, tenant: str, uses: Uses) -> None:
        self.tenant = tenant
        self.uses = uses
        self.gates: tuple[tuple[Key, str], ...] = ()
        """All that it passes besides the gate of its queue, each with what happens when it is closed."""
        self.acts_at: tuple[Key, ...] = ()
        """Those at which it does not wait, where another one may keep it from being met."""
        self.posts: tuple[Group, ...] = ()
        """The group of each of these gates in its queue."""
        self.group: Group
        """Where it stands."""
        self.size = 0
        self.husks = 0
        self.priorities: list[int] = _NONE
        """Those that have a row with jobs, highest first."""
        self.plain_entry = self.fair_entry = self.age_entry = self.tenant_entry = None
        """What stands for it in the orders of its group and of its tenant."""
        self._only: Job | None = None
        self._rows: dict[int, Row] | None = None
        self._count = 0

    def __lt__(self, other: object) -> bool:
        """Entries in an order are equal only where one of them counts no longer, so either may be first."""
        return False

    def add(self, job: Job) -> bool:
        """Let the job stand in line; true when the lane may now come earlier than before in some order."""
        job.lane = self
        self.size += 1
        if self._rows is None:
            if self._only is None:
                self._only = job
                return True
            first, self._only = self._only, None
            self._rows = {}
            self.priorities = []
            self._stand(first)
        return self._stand(job)

    def _stand(self, job: Job) -> bool:
        assert self._rows is not None
        priority = job.priority
        row = self._rows.get(priority)
        if row is None:
            row = self._rows[priority] = Row()
        line = row.in_order
        if not line and not row.came_back:
            if priority not in self.priorities:
                insort(self.priorities, priority, key=neg)
            line.append(job)
            return True
        if not line or line[-1].seq < job.seq:
            line.append(job)
            return len(line) == 1
        self._count += 1
        heappush(row.came_back, (job.seq, self._count, job))
        return True

    def head(self) -> Job | None:
        """The job whose turn it is; it stays in line."""
        if self._rows is None:
            return self._only
        while self.priorities:
            row = self._rows[self.priorities[0]]
            self._clean(row)
            line, came_back = row.in_order, row.came_back
            if came_back and (not line or came_back[0][0] < line[0].seq):
                return came_back[0][2]
            if line:
                return line[0]
            del self._rows[self.priorities.pop(0)]
        return None

    def _clean(self, row: Row) -> None:
        line, came_back = row.in_order, row.came_back
        while line and line[0].lane is not self:
            line.popleft()
            self.husks -= 1
        while came_back and came_back[0][2].lane is not self:
            heappop(came_back)
            self.husks -= 1

    def oldest(self) -> Job | None:
        """The job with the smallest sequence, of whatever priority."""
        if self._rows is None:
            return self._only
        found: Job | None = None
        for priority in self.priorities:
            row = self._rows[priority]
            self._clean(row)
            if row.in_order and (found is None or row.in_order[0].seq < found.seq):
                found = row.in_order[0]
            if row.came_back and (found is None or row.came_back[0][0] < found.seq):
                found = row.came_back[0][2]
        return found

    def by_age(self) -> Iterator[Job]:
        """All jobs, the smallest sequence first; nothing may change while this goes on."""
        if self._rows is None:
            return iter(() if self._only is None else (self._only,))
        lines: list[Iterable[Job]] = []
        for row in self._rows.values():
            lines.append(job for job in row.in_order if job.lane is self)
            if row.came_back:
                lines.append([entry[2] for entry in sorted(row.came_back) if entry[2].lane is self])
        return merge(*lines, key=lambda job: job.seq)

    def take(self) -> Job | None:
        """Remove the head and return it."""
        if self._rows is None:
            job, self._only = self._only, None
            if job is not None:
                self.size = 0
                job.lane = None
            return job
        job = self.head()
        if job is None:
            return None
        row = self._rows[self.priorities[0]]
        line = row.in_order
        if line and line[0] is job:
            line.popleft()
        else:
            heappop(row.came_back)
        self.size -= 1
        job.lane = None
        if not self.size:
            self._rest()
        return job

    def leave(self, job: Job) -> None:
        """Let a job go that is not taken by its turn."""
        job.lane = None
        self.size -= 1
        if self._only is job:
            self._only = None
            return
        self.husks += 1
        if not self.size:
            self._rest()
        elif self.husks > 1_000 and self.husks > self.size:
            self._sweep()

    def _rest(self) -> None:
        """Nobody stands here: what was needed for many goes."""
        self._rows = None
        self.priorities = _NONE
        self.husks = 0

    def _sweep(self) -> None:
        """Husks must not outnumber the jobs, or a line that is only cancelled never gives its memory back."""
        for row in (self._rows or {}).values():
            row.in_order = deque(job for job in row.in_order if job.lane is self)
            row.came_back = [entry for entry in row.came_back if entry[2].lane is self]
            heapify(row.came_back)
        self.husks = 0
