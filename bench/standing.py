"""What many waiting jobs cost: memory, pauses, the time of a restart."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from array import array
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.engine import opened
from bench.jobs import QUEUE, drafts
from bench.processes import fresh, fresh_and_killed, on_loop, resident_bytes
from bench.report import Row, at_most
from bench.sizes import Size
from headgate import clock
from headgate.engines.contract import Ack, Fetch
from headgate.engines.local.engine import LocalEngine

ABOUT = "many jobs wait"
PER_SECOND = 1_000
TICK_S = 0.01
LOOK_S = 0.001
"""How often the loop is asked whether it still turns."""
WORKER = "worker-1"


def measure(configuration: str, directory: Path, size: Size) -> list[Row]:
    with TemporaryDirectory(prefix="headgate-bench-", dir=directory) as place:
        rows = fresh_and_killed(filled, configuration, place, size.waiting, size.flow_s)
        if configuration != "memory":
            rows += fresh(restarted, configuration, place, size.waiting)
        return rows


def filled(configuration: str, place: str, waiting: int, flow_s: float) -> list[Row]:
    """In a process that is killed afterwards: fill a store, and let jobs flow past those that wait."""
    return on_loop(_filled(configuration, Path(place), waiting, flow_s))


async def _filled(configuration: str, place: Path, waiting: int, flow_s: float) -> list[Row]:
    # Kept events are bounded, so they are no part of what a job costs.
    engine = await opened(configuration, place, events_kept=1_000)
    # What is needed once (caches, buffers) is there after the first of them.
    start = waiting // 10
    await _fill(engine, start)
    before = resident_bytes(os.getpid())
    await _fill(engine, waiting - start)
    each = (resident_bytes(os.getpid()) - before) / (waiting - start)
    rows = [Row(ABOUT, "memory per job", configuration, each, "bytes", at_most(1024))]
    lags, busy = await _flow(engine, flow_s)
    ordered = sorted(lags)
    pause = Row(
        ABOUT, f"longest pause at {PER_SECOND:,} lives/s", configuration, ordered[-1] * 1e3, "ms",
        at_most(20),
        {
            "p99.9 ms": ordered[int(0.999 * (len(ordered) - 1))] * 1e3,
            "longest turn's CPU ms": max(busy) * 1e3,
        },
    )  # fmt: skip
    return [*rows, pause]


async def _fill(engine: LocalEngine, count: int) -> None:
    now = clock.steady()
    slice_ = 1_000
    for at in range(0, count, slice_):
        await engine.push(drafts(engine, min(slice_, count - at), now()), now())
        await engine.settled()
        await asyncio.sleep(0)
    await engine.ask(lambda _connection: None)
    gc.collect()


async def flow(
    engine: LocalEngine, over: Callable[[], Awaitable[bool]]
) -> tuple[array[float], array[float]]:
    """Lives at a steady pace until it is over; by how much the loop was late meanwhile, and what its turns used."""
    lags, busy = array("d"), array("d")
    loop = asyncio.get_running_loop()
    flowing = asyncio.create_task(_lives(engine, 3_600.0))
    try:
        while not await over():
            for _ in range(100):
                due, used = loop.time() + LOOK_S, time.thread_time()
                await asyncio.sleep(LOOK_S)
                lags.append(max(0.0, loop.time() - due))
                busy.append(time.thread_time() - used)
            if flowing.done():
                await flowing
    finally:
        flowing.cancel()
        await asyncio.gather(flowing, return_exceptions=True)
    return lags, busy


async def _flow(engine: LocalEngine, seconds: float) -> tuple[array[float], array[float]]:
    """Lives at a steady pace; by how much the loop was late meanwhile, and what its turns used."""
    lags, busy = array("d"), array("d")
    flowing = asyncio.create_task(_lives(engine, seconds))
    loop = asyncio.get_running_loop()
    while not flowing.done():
        due, used = loop.time() + LOOK_S, time.thread_time()
        await asyncio.sleep(LOOK_S)
        lags.append(max(0.0, time.monotonic() - due))
        busy.append(time.thread_time() - used)
    await flowing
    return lags, busy


async def _lives(engine: LocalEngine, seconds: float) -> None:
    now = clock.steady()
    count = int(PER_SECOND * TICK_S)
    begun = time.monotonic()
    for tick in range(int(seconds / TICK_S)):
        for draft in drafts(engine, count, now()):
            await engine.push((draft,), now())
        jobs = await engine.fetch(Fetch((QUEUE,), count, WORKER), now())
        for job in jobs:
            await engine.ack((Ack(job.id, WORKER, job.claim),), now())
        await engine.settled()
        await asyncio.sleep(max(0.0, begun + (tick + 1) * TICK_S - time.monotonic()))


def restarted(configuration: str, place: str, waiting: int) -> list[Row]:
    """In a fresh process: open what a killed one has left."""
    return on_loop(_restarted(configuration, Path(place), waiting))


async def _restarted(configuration: str, place: Path, waiting: int) -> list[Row]:
    before = resident_bytes(os.getpid())
    begun = time.perf_counter()
    engine = await opened(configuration, place)
    took_s = time.perf_counter() - begun
    memory = (resident_bytes(os.getpid()) - before) / waiting
    live, records = engine.recovered.live, engine.recovered.records
    await engine.close()
    if live != waiting:
        raise RuntimeError(f"{live} jobs came back of {waiting}")
    return [
        Row(ABOUT, "restart per million jobs", configuration, took_s / waiting * 1e6, "s",
            at_most(6), {"with records to fold": float(records)}),
        Row(ABOUT, "memory per job after it", configuration, memory, "bytes", at_most(1024)),
    ]  # fmt: skip
