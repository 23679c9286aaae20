"""What the engine costs: its steps called in process, without HTTP.

Two drivers take turns, each waits after every hundred steps until they are durable; so one works while the journal writes the other's batch, as the server does.
Each round has a store of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self, TypeVar

from bench.jobs import BATCH, QUEUE, drafts, first
from bench.processes import fresh, on_loop
from bench.report import Row, at_most, middle
from bench.sizes import Size
from headgate import clock
from headgate.core.job import Job
from headgate.engines.contract import Ack, Done, Draft, Fetch
from headgate.engines.local.engine import LocalEngine

T = TypeVar("T")

CONFIGURATIONS = ("memory", "normal", "full")
ABOUT = "engine"
FETCHED = 50
DRIVERS = 2
WORKER = "worker-1"

_LIFE = {"memory": at_most(15), "normal": at_most(21), "full": at_most(30)}
"""µs: 15 for the engine, 6 or 15 more for the journal."""


def measure(configuration: str, directory: Path, size: Size) -> list[Row]:
    return middle(
        [fresh(one_round, configuration, str(directory), size.jobs) for _ in range(size.rounds)]
    )


def one_round(configuration: str, directory: str, jobs: int) -> list[Row]:
    """In a process of its own."""
    with TemporaryDirectory(prefix="headgate-bench-", dir=directory) as place:
        return on_loop(_round(configuration, Path(place), jobs))


async def opened(configuration: str, place: Path, events_kept: int = 100_000) -> LocalEngine:
    return await LocalEngine.open(
        ":memory:" if configuration == "memory" else str(place / "headgate.db"),
        durability="normal" if configuration == "normal" else "full",
        now_ms=clock.wall_ms(),
        events_kept=events_kept,
        elapsed_s=clock.elapsed_s,
    )


async def _round(configuration: str, place: Path, jobs: int) -> list[Row]:
    engine = await opened(configuration, place)
    now = clock.steady()
    held: list[Job] = []

    async def enqueue(draft: Draft) -> None:
        await engine.push((draft,), now())

    async def enqueue_batch(batch: Sequence[Draft]) -> None:
        await engine.push(batch, now())

    async def fetch(_turn: int) -> None:
        held.append(first(await engine.fetch(Fetch((QUEUE,), 1, WORKER), now())))

    async def fetch_many(_turn: int) -> None:
        held.extend(await engine.fetch(Fetch((QUEUE,), FETCHED, WORKER), now()))

    async def ack(job: Job) -> None:
        (outcome,) = await engine.ack((Ack(job.id, WORKER, job.claim),), now())
        assert isinstance(outcome, Done), outcome

    async def life(draft: Draft) -> None:
        await engine.push((draft,), now())
        job = first(await engine.fetch(Fetch((QUEUE,), 1, WORKER), now()))
        await engine.ack((Ack(job.id, WORKER, job.claim),), now())

    turns = jobs // BATCH * BATCH

    def costs(name: str, meter: _Meter, count: int) -> Row:
        budget = _LIFE[configuration] if name == "life" else None
        return Row(ABOUT, name, configuration, meter.wall_s / count * 1e6, "µs", budget, {
            "loop CPU µs": meter.loop_s / count * 1e6,
            "other threads' CPU µs": meter.others_s / count * 1e6,
        })  # fmt: skip

    async def steps(name: str, act: Callable[[Any], Awaitable[None]], on: Iterable[Any],
                    count: int, at_once: int = 100) -> Row:  # fmt: skip
        with _Meter() as meter:
            await _drive(engine, act, on, at_once)
        return costs(name, meter, count)

    try:
        singles = drafts(engine, turns, now())
        many = drafts(engine, turns, now())
        batches = [many[at : at + BATCH] for at in range(0, turns, BATCH)]
        rows = [
            await steps("enqueue", enqueue, singles, turns),
            await steps(f"enqueue, {BATCH} at once", enqueue_batch, batches, turns, 1),
            await steps("fetch", fetch, range(turns), turns),
            await steps(f"fetch, {FETCHED} at once", fetch_many, range(turns // FETCHED), turns, 2),
            await steps("ack", ack, held, 2 * turns),
        ]
        await _folded(engine)
        held.clear()
        lives = drafts(engine, turns, now())
        with _Meter() as meter:
            await _drive(engine, life, lives, 100 // 3)
            # What is left to be folded belongs to what these lives cost.
            await _folded(engine)
        rows.append(costs("life", meter, turns))
        return rows
    finally:
        await engine.close()


async def _drive(
    engine: LocalEngine, act: Callable[[T], Awaitable[None]], on: Iterable[T], at_once: int
) -> None:
    """Act on each item once; `at_once` actions share one wait until they are durable."""
    source = iter(on)

    async def driver() -> None:
        while items := list(islice(source, at_once)):
            for item in items:
                await act(item)
            await engine.settled()
            # Without a file nothing was waited for, and the loop has other work.
            await asyncio.sleep(0)

    await asyncio.gather(*(driver() for _ in range(DRIVERS)))


async def _folded(engine: LocalEngine) -> None:
    await engine.ask(lambda _connection: None)


class _Meter:
    """Time that passed and CPU time that was used, by the loop's thread and by all others."""

    def __enter__(self) -> Self:
        self.wall_s = -time.perf_counter()
        self.loop_s = -time.thread_time()
        self.others_s = -time.process_time() - self.loop_s
        return self

    def __exit__(self, *_: object) -> None:
        self.loop_s += time.thread_time()
        self.wall_s += time.perf_counter()
        self.others_s += time.process_time() - time.thread_time()
