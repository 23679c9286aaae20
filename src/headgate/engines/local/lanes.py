"""Lines of available jobs.

A lane is the ordered line (priority, then sequence) of the jobs of one queue that pass the same gates in the same way.
A group is the set of lanes of one queue that share a home gate; it knows its best lane.
A job that leaves a lane other than by its head stays in the line as a husk, recognised because its `lane` is another one or none; so removal costs nothing, and a head is cleaned when it is looked at.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from heapq import heapify, heappop, heappush
from operator import neg

from headgate.core.job import Job


class Row:
    """The jobs of one priority: those that came in order, and the few that came back."""

    __slots__ = ("came_back", "in_order")

    def __init__(self) -> None:
        self.in_order: deque[Job] = deque()
        self.came_back: list[tuple[int, int, Job]] = []


class Lane:
    __slots__ = ("_count", "_rows", "group", "husks", "key", "priorities", "size")

    def __init__(self, group: Group, key: tuple[str, ...]) -> None:
        self.group = group
        self.key = key
        self.size = 0
        self.husks = 0
        self.priorities: list[int] = []
        """Those that have a row with jobs, highest first."""
        self._rows: dict[int, Row] = {}
        self._count = 0

    def add(self, job: Job) -> bool:
        """Let the job stand in line; true when it is the new head."""
        job.lane = self
        priority = job.priority
        row = self._rows.get(priority)
        if row is None:
            row = self._rows[priority] = Row()
        line = row.in_order
        self.size += 1
        if not line and not row.came_back:
            if priority not in self.priorities:
                insort(self.priorities, priority, key=neg)
            line.append(job)
            return self.priorities[0] == priority
        if not line or line[-1].seq < job.seq:
            line.append(job)
            # Alone in its line, it may still come before all that came back.
            return (
                len(line) == 1 and self.priorities[0] == priority and job.seq < row.came_back[0][0]
            )
        self._count += 1
        heappush(row.came_back, (job.seq, self._count, job))
        return self.priorities[0] == priority and row.came_back[0][2] is job

    def head(self) -> Job | None:
        """The job whose turn it is; it stays in line."""
        while self.priorities:
            row = self._rows[self.priorities[0]]
            line, came_back = row.in_order, row.came_back
            while line and line[0].lane is not self:
                line.popleft()
                self.husks -= 1
            while came_back and came_back[0][2].lane is not self:
                heappop(came_back)
                self.husks -= 1
            if came_back and (not line or came_back[0][0] < line[0].seq):
                return came_back[0][2]
            if line:
                return line[0]
            del self._rows[self.priorities.pop(0)]
        return None

    def oldest(self) -> Job | None:
        """The job that was enqueued first, as far as those tell that came in order."""
        heads = []
        for priority in self.priorities:
            row = self._rows[priority]
            while row.in_order and row.in_order[0].lane is not self:
                row.in_order.popleft()
                self.husks -= 1
            heads += [row.in_order[0]] if row.in_order else []
            heads += [entry[2] for entry in row.came_back if entry[2].lane is self]
        return min(heads, key=lambda job: job.enqueued_at, default=None)

    def take(self) -> Job | None:
        """Remove the head and return it."""
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
        return job

    def leave(self, job: Job) -> None:
        """Let a job go that is not taken by its turn."""
        job.lane = None
        self.size -= 1
        self.husks += 1
        if self.husks > 1_000 and self.husks > self.size:
            self._sweep()

    def _sweep(self) -> None:
        """Husks must not outnumber the jobs, or a line that is only cancelled never gives its memory back."""
        for row in self._rows.values():
            row.in_order = deque(job for job in row.in_order if job.lane is self)
            row.came_back = [entry for entry in row.came_back if entry[2].lane is self]
            heapify(row.came_back)
        self.husks = 0


class Group:
    """Lanes of one queue under one home gate, ordered by their heads."""

    __slots__ = ("_heads", "lanes")

    def __init__(self) -> None:
        self.lanes: dict[tuple[str, ...], Lane] = {}
        self._heads: list[tuple[int, int, int, Lane]] = []

    def lane(self, key: tuple[str, ...]) -> Lane:
        lane = self.lanes.get(key)
        if lane is None:
            lane = self.lanes[key] = Lane(self, key)
            if len(self.lanes) == 2:
                self._heads = []
                for other in self.lanes.values():
                    self.show(other)
        return lane

    def show(self, lane: Lane) -> None:
        """The lane has a new head."""
        if len(self.lanes) > 1:
            head = lane.head()
            if head is not None:
                heappush(self._heads, (-head.priority, head.seq, id(lane), lane))

    def best(self) -> Lane | None:
        """The lane whose head comes first; None when no job waits."""
        if len(self.lanes) == 1:
            for lane in self.lanes.values():
                return lane if lane.size else None
        heads = self._heads
        while heads:
            lane = heads[0][3]
            head = lane.head()
            if head is None:
                heappop(heads)
            elif heads[0][0] == -head.priority and heads[0][1] == head.seq:
                return lane
            else:
                heappop(heads)
                heappush(heads, (-head.priority, head.seq, id(lane), lane))
        return None
