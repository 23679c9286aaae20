"""Virtual time: workers, the jobs that they run, and what comes next.

Nothing here waits. Time jumps from one thing that happens to the next, and everything of one instant happens before it goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from heapq import heappop, heappush
from typing import Final, Generic, Protocol, TypeVar

from msgspec import Struct

from headgate.testing.clock import VirtualClock

R = TypeVar("R")
MOST_TURNS: Final = 1_000_000
"""More than this at one instant never ends."""


class Fleet(Struct, eq=False):
    """Workers that are all alike, seen as one."""

    name: str
    slots: int
    """How many jobs they run at the same time."""
    queues: Sequence[str] = ()
    pool: str = ""
    busy: int = 0

    @property
    def free(self) -> int:
        return self.slots - self.busy


class Desk(Protocol[R]):
    """Where workers get their jobs and answer for them."""

    async def take(self, fleet: Fleet, count: int) -> Sequence[tuple[int, R]]:
        """Jobs that start now, each with the microseconds that it takes."""
        ...

    async def give(self, fleet: Fleet, ended: Sequence[R]) -> None:
        """Answer for jobs that end now."""
        ...

    def has_work(self) -> bool:
        """False when it is certain that nobody would get anything."""
        ...

    def next_due_us(self) -> int | None:
        """When something happens by itself."""
        ...

    async def tick(self) -> None:
        """Let happen what is due."""
        ...


class Floor(Generic[R]):
    """Who works, and until when."""

    def __init__(self, time: VirtualClock, desk: Desk[R]) -> None:
        self.time = time
        self.fleets: list[Fleet] = []
        self.started = 0
        self._desk = desk
        self._ends: list[tuple[int, int, Fleet, R]] = []
        self._calls: list[tuple[int, int, Callable[[], Awaitable[None]]]] = []
        self._number = 0
        self._looks = True
        """Something has changed since the workers found nothing."""

    def call_at(self, at_us: int, call: Callable[[], Awaitable[None]]) -> None:
        """Let something else happen at that instant, before jobs end or start then."""
        self._number += 1
        heappush(self._calls, (at_us, self._number, call))

    def changed(self) -> None:
        """There may be work now."""
        self._looks = True

    def crash(self) -> list[R]:
        """All workers die without a word: their jobs are never answered for."""
        lost = [entry[3] for entry in sorted(self._ends, key=lambda entry: entry[:2])]
        self._ends.clear()
        for fleet in self.fleets:
            fleet.busy = 0
        self._looks = True
        return lost

    def running(self) -> list[R]:
        """What has started and not ended, in the order of its end."""
        return [entry[3] for entry in sorted(self._ends, key=lambda entry: entry[:2])]

    def next_us(self) -> int | None:
        """When something happens next."""
        found = self._desk.next_due_us()
        for heap in (self._ends, self._calls):
            if heap and (found is None or heap[0][0] < found):
                found = heap[0][0]
        return found

    async def run_until(self, until_us: int) -> None:
        """Everything that happens before that instant; what happens at it is left to the next run."""
        time, due = self.time, self._desk.next_due_us
        await self.run_now()
        ends, calls = self._ends, self._calls
        while True:
            due_us = due()
            at_us = due_us
            if ends and (at_us is None or ends[0][0] < at_us):
                at_us = ends[0][0]
            if calls and (at_us is None or calls[0][0] < at_us):
                at_us = calls[0][0]
            if at_us is None or at_us >= until_us:
                break
            time.move_to(max(at_us, time.now_us()))
            if due_us == at_us:
                await self._desk.tick()
            await self._turns(None)
        time.move_to(max(until_us, time.now_us()))

    async def run_now(self, most: int | None = None) -> None:
        """Everything that happens at this instant; no more starts than `most`."""
        await self._desk.tick()
        await self._turns(most)

    async def _turns(self, most: int | None) -> None:
        self._looks = True
        before = self.started
        for _ in range(MOST_TURNS):
            # A clock that flows has gone on meanwhile.
            if await self._happen(self.time.now_us()):
                continue
            if not self._looks:
                return
            left = None if most is None else most - (self.started - before)
            if left == 0 or not await self._start(left):
                return
        raise RuntimeError("the same instant never ends: jobs take no time and come back at once")

    async def _happen(self, now_us: int) -> bool:
        """What was planned for now; whether there was any."""
        calls, ends = self._calls, self._ends
        if calls and calls[0][0] <= now_us:
            self._looks = True
            await heappop(calls)[2]()
            return True
        if not ends or ends[0][0] > now_us:
            return False
        self._looks = True
        _, _, fleet, run = heappop(ends)
        ended = [run]
        while ends and ends[0][0] <= now_us and ends[0][2] is fleet:
            ended.append(heappop(ends)[3])
        fleet.busy -= len(ended)
        await self._desk.give(fleet, ended)
        return True

    async def _start(self, most: int | None) -> bool:
        """Let free workers look for jobs, those that have least to do first; whether any was found."""
        fleets = self.fleets
        if not self._desk.has_work():
            fleets = []
        elif len(fleets) > 1:
            fleets = sorted(fleets, key=lambda one: one.busy / max(1, one.slots))
        for fleet in fleets:
            free = fleet.free if most is None else min(fleet.free, most)
            if free <= 0:
                continue
            count = free if len(fleets) == 1 else 1
            taken = await self._desk.take(fleet, count)
            if taken:
                # Who got all that he asked for may find more.
                self._looks = len(taken) == count or len(fleets) > 1
                self._note(fleet, taken)
                return True
        self._looks = False
        return False

    def _note(self, fleet: Fleet, taken: Sequence[tuple[int, R]]) -> None:
        now_us = self.time.now_us()
        fleet.busy += len(taken)
        self.started += len(taken)
        for length_us, run in taken:
            self._number += 1
            heappush(self._ends, (now_us + length_us, self._number, fleet, run))
