"""Maintenance: no job is given out and none becomes due, while everything else goes on."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

import msgspec

from headgate.core.job import Job
from headgate.core.states import RETRYABLE, SCHEDULED
from headgate.engines.contract import Maintenance
from headgate.engines.local.life import Life
from headgate.engines.local.timers import Alarm

MAINTENANCE: Final = "maintenance"


class Upkeep:
    """Remembers what came due in the meantime, and lets it become available afterwards, in the order in which it was due."""

    __slots__ = ("_alarm", "_held_back", "_life", "_tables")

    def __init__(self, life: Life) -> None:
        self._life = life
        self._tables = life.tables
        self._held_back: list[tuple[int, int, str]] = []
        """When it was due, number and id; it may have gone another way since."""
        self._alarm = Alarm(self._let_go)
        life.on_held_back = self._hold_back

    def begin(self, maintenance: Maintenance) -> None:
        """Or go on with it for another reason."""
        self._tables.maintenance = maintenance
        self._tables.set_thing(MAINTENANCE, "", msgspec.msgpack.encode(maintenance))

    def end(self, at: int) -> None:
        self._tables.maintenance = None
        self._tables.set_thing(MAINTENANCE, "", None)
        if self._held_back:
            self._tables.timers.arm(self._alarm, at)

    def restore(self, packed: bytes) -> None:
        self._tables.maintenance = msgspec.msgpack.decode(packed, type=Maintenance)

    def _hold_back(self, job: Job) -> None:
        heappush(self._held_back, (job.due_at, job.seq, job.id))

    def _let_go(self, at: int) -> None:
        """One after the other, so that a million of them delay no other step."""
        held_back, tables = self._held_back, self._tables
        if tables.maintenance is not None:
            return
        if held_back:
            due_at, _, job_id = heappop(held_back)
            job = tables.jobs.get(job_id)
            if job is not None and job.state in (SCHEDULED, RETRYABLE) and job.due_at == due_at:
                self._life.befall(job, at)
        if held_back:
            tables.timers.arm(self._alarm, at)
