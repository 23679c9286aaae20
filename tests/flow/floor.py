"""A floor where much work is done in little time: an engine, a clock in microseconds, and a record of every start."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from headgate.core.gates import GateState
from headgate.core.job import Job
from headgate.core.limits import Use
from headgate.engines.contract import Ack, Draft, Fetch
from headgate.engines.local.engine import LocalEngine
from tests.contract.home import NOW, Home, push

KEY = "k"


class Start(NamedTuple):
    at_us: int
    job: str
    queue: str
    tenant: str
    seq: int
    claim: int


class Floor:
    def __init__(self, engine: LocalEngine) -> None:
        self.engine = engine
        self.now_us = NOW * 1000
        self.starts: list[Start] = []
        self.pushed = 0

    @property
    def now(self) -> int:
        return self.now_us // 1000

    async def push(
        self, count: int, queue: str = "q", *, tenant: str = "", uses: Sequence[Use] = ()
    ) -> list[Job]:
        drafts = []
        for _ in range(count):
            self.pushed += 1
            job = Job(f"j{self.pushed}", "t", queue, 0, b'"args":[]', self.now, tenant=tenant)
            job.keys = tuple((use.key, use.on_limit) for use in uses)
            drafts.append(Draft(job, named=False, uses=uses))
        return await push(self.engine, drafts, self.now)

    async def take(
        self, count: int = 1, queues: Sequence[str] = ("q",), *, pool: str = "", finish: bool = True
    ) -> list[Job]:
        """What a worker gets now; it is done at once unless told otherwise."""
        fetch = Fetch(list(queues), count, "w", pool=pool, micros=self.now_us % 1000)
        jobs = await self.engine.fetch(fetch, self.now)
        self.starts += [
            Start(self.now_us, job.id, job.queue, job.tenant, job.seq, job.claim) for job in jobs
        ]
        if finish and jobs:
            await self.engine.ack([Ack(job.id, "w", job.claim) for job in jobs], self.now)
        return jobs

    async def gate(self) -> GateState:
        found = await self.engine.key(KEY, self.now)
        assert found is not None
        return found.state

    async def next_at(self) -> int:
        """When the server says that a fetch may find something again."""
        why = await self.engine.why(Fetch(["q"], 1, "w", micros=self.now_us % 1000), self.now)
        return why.next_at


@asynccontextmanager
async def floor(path: str = ":memory:", now_ms: int = NOW) -> AsyncIterator[Floor]:
    async with Home(path).engine(now_ms) as engine:
        there = Floor(engine)
        there.now_us = now_ms * 1000
        yield there
