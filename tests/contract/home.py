"""Where an engine under test lives, and what most tests ask of it."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ParamSpec

from headgate.core.job import Job
from headgate.engines.contract import Draft, Fetch, Pushed
from headgate.engines.local.engine import LocalEngine

P = ParamSpec("P")

NOW = 1_770_000_000_000


def story(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Let an async test run in a loop of its own; one that hangs fails."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def limited() -> None:
            async with asyncio.timeout(60):
                await test(*args, **kwargs)

        asyncio.run(limited())

    return run


class Home:
    """One kind of engine, and the place of its data."""

    def __init__(self, path: str) -> None:
        self.path = path

    @asynccontextmanager
    async def engine(self, now_ms: int = NOW, **options: Any) -> AsyncIterator[LocalEngine]:
        """Open an engine, and close it at the end."""
        engine = await LocalEngine.open(
            self.path, now_ms=now_ms, elapsed_s=time.monotonic, durability="normal", **options
        )
        try:
            yield engine
        finally:
            await engine.close()

    def file(self, suffix: str = "") -> Path:
        return Path(self.path + suffix)


def draft(number: int, now_ms: int = NOW, **members: Any) -> Draft:
    """A job called `j<number>`; in the queue `q` unless told otherwise."""
    given = {"type": "t", "queue": "q", "priority": 0, "fixed": b'"args":[],"meta":{}', **members}
    return Draft(Job(id=f"j{number}", created_at=now_ms, **given))


def drafts(count: int, now_ms: int = NOW, **members: Any) -> list[Draft]:
    return [draft(number, now_ms, **members) for number in range(count)]


async def push(engine: LocalEngine, some: Sequence[Draft], now_ms: int = NOW) -> list[Job]:
    """Push what must be taken."""
    accepted = []
    for start in range(0, len(some), 1_000):
        for outcome in await engine.push(some[start : start + 1_000], now_ms):
            assert isinstance(outcome, Pushed)
            accepted.append(outcome.job)
    await engine.settled()
    return accepted


async def fetch(
    engine: LocalEngine, count: int = 1, now_ms: int = NOW, worker: str = "w"
) -> list[str]:
    jobs = await engine.fetch(Fetch(["q"], count, worker), now_ms)
    await engine.settled()
    return [job.id for job in jobs]


async def found(engine: LocalEngine, number: int, now_ms: int = NOW) -> Job:
    job = await engine.find(f"j{number}", now_ms)
    assert job is not None
    return job


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what threads and tasks of the engine bring about."""
    while not await condition():  # noqa: ASYNC110 - threads of the engine tell nobody
        await asyncio.sleep(0.002)
