"""What flow control costs at scale: whatever is blocked must cost a fetch nothing, nor the release that opens a gate.

Every situation is a queue in which free jobs come and go beside jobs that wait for something; the same few steps are measured in each, so what counts is their ratio to the queue in which nothing waits.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import msgspec
from msgspec import Struct

from bench.engine import opened
from bench.jobs import ENVELOPE
from bench.processes import fresh, on_loop
from bench.report import Row, at_most, middle
from bench.sizes import Size
from bench.standing import flow
from headgate import clock, ids
from headgate.core.pools import pool_from
from headgate.engines.contract import Ack, Fetch
from headgate.engines.local.engine import LocalEngine
from headgate.operations.push import draft_of
from headgate.wire.envelope import read_envelope

ABOUT = "flow control"
LARGE = "a large queue ends"
PARKED = "producers wait"
SLICE = 1_000
STEPS = 300
"""Measured steps of each kind; the median counts."""
QUIET_S = 1.0
WORKER = "worker-1"


class Situation(Struct, frozen=True):
    name: str
    blocked: int
    """Jobs that wait."""
    keys: int = 1
    tenants: int = 0
    queues: int = 1


def situations(size: Size) -> list[Situation]:
    most = size.waiting
    return [
        Situation("nothing blocked", 0),
        Situation(f"{most // 100:,} jobs on one key", most // 100),
        Situation(f"{most // 10:,} jobs on one key", most // 10),
        Situation(f"{most:,} jobs on one key", most),
        Situation(f"{most // 100:,} blocked keys", most // 100, keys=most // 100),
        Situation(f"{most // 100:,} tenants on one key", most // 100, tenants=most // 100),
        Situation("a pool of 10 queues, a key each", most // 100, 10, queues=10),
        Situation(
            f"a pool of {most // 1000:,} queues, a key each",
            most // 100,
            most // 1000,
            queues=most // 1000,
        ),
        Situation("a pool of 10 queues, one key", most // 100, queues=10),
        Situation(f"a pool of {most // 1000:,} queues, one key", most // 100, queues=most // 1000),
    ]


def measure(configuration: str, directory: Path, size: Size) -> list[Row]:
    rows: list[Row] = []
    base: dict[str, float] = {}
    for situation in situations(size):
        rounds = [
            fresh(one_situation, configuration, str(directory), situation)
            for _ in range(size.rounds)
        ]
        for row in middle(rounds):
            step = row.name.partition(", ")[0]
            first = base.setdefault(step, row.value)
            rows.append(
                Row(row.about, row.name, row.configuration, row.value, row.unit, None,
                    {"of nothing blocked": row.value / first})
            )  # fmt: skip
    with TemporaryDirectory(prefix="headgate-bench-", dir=directory) as place:
        for strategy in ("move", "discard"):
            rows += fresh(ended, configuration, place, strategy, size.waiting)
    rows += fresh(parked, configuration, str(directory), min(1_000, size.waiting // 50))
    return rows


# steps beside what is blocked


def one_situation(configuration: str, directory: str, situation: Situation) -> list[Row]:
    """In a process of its own."""
    with TemporaryDirectory(prefix="headgate-bench-", dir=directory) as place:
        return on_loop(_one_situation(configuration, Path(place), situation))


async def _one_situation(configuration: str, place: Path, situation: Situation) -> list[Row]:
    engine = await opened(configuration, place, events_kept=1_000)
    now = clock.steady()
    try:
        names = [f"q{n}" for n in range(situation.queues)]
        if situation.queues > 1:
            await engine.set_pool(pool_from({"queues": names}, "default"), now())
        closed = "shared" if situation.keys == 1 else "key-0"
        holder = await _hold(engine, names[0], closed, now())
        await _fill(engine, names, situation)
        wanted = Fetch((names[0],), 1, WORKER)
        # One that meets what is closed: from here on it is hidden.
        await engine.fetch(wanted, now())
        free = array("d")
        for _ in range(STEPS):
            await _push(engine, names[0], 1)
            begun = time.perf_counter()
            (job,) = await engine.fetch(wanted, now())
            free.append(time.perf_counter() - begun)
            await engine.ack((Ack(job.id, WORKER, job.claim),), now())
            await engine.settled()
        rows = [_row("fetch of a free job", situation, configuration, free)]
        opening, taking = array("d"), array("d")
        for _ in range(STEPS):
            if situation.blocked // situation.keys < STEPS:
                await _push(engine, names[0], 1, rate_limit={"key": closed})
            begun = time.perf_counter()
            await engine.ack((Ack(holder, WORKER),), now())
            opened_at = time.perf_counter()
            (job,) = await engine.fetch(wanted, now())
            taking.append(time.perf_counter() - opened_at)
            opening.append(opened_at - begun)
            holder = job.id
            await engine.settled()
        rows += [
            _row("release that opens the gate", situation, configuration, opening),
            _row("fetch through the open gate", situation, configuration, taking),
        ]
        return rows
    finally:
        await engine.close()


def _row(step: str, situation: Situation, configuration: str, took: Sequence[float]) -> Row:
    return Row(ABOUT, f"{step}, {situation.name}", configuration, median(took) * 1e6, "µs")


async def _hold(engine: LocalEngine, queue: str, key: str, now_ms: int) -> str:
    """Close the key: a job that runs has its only slot."""
    await _push(engine, queue, 1, rate_limit={"key": key, "concurrency": 1})
    (job,) = await engine.fetch(Fetch((queue,), 1, WORKER), now_ms)
    return job.id


async def _fill(engine: LocalEngine, names: Sequence[str], situation: Situation) -> None:
    def made() -> Iterable[tuple[str, bytes]]:
        for n in range(situation.blocked):
            limit = b'{"key":"shared"}'
            if situation.keys > 1:
                # Every key but the first is closed by its own limit.
                more = b',"concurrency":0' if n % situation.keys else b""
                limit = b'{"key":"key-%d"%b}' % (n % situation.keys, more)
            meta = b""
            if situation.tenants:
                meta = b',"meta":{"tenant_id":"t%d"}' % (n % situation.tenants)
            body = b'{"type":"email.send","args":[%d],"rate_limit":%b%b}' % (n, limit, meta)
            yield names[n % len(names)], body

    batch = []
    now = clock.steady()
    for queue, body in made():
        envelope = read_envelope(body, now())
        envelope.queue = queue
        batch.append(draft_of(engine, envelope, now(), ids.uuid7))
        if len(batch) == SLICE:
            await engine.push(batch, now())
            await engine.settled()
            await asyncio.sleep(0)
            batch = []
    if batch:
        await engine.push(batch, now())
    await engine.ask(lambda _connection: None)


async def _push(
    engine: LocalEngine, queue: str, count: int, *, rate_limit: dict[str, object] | None = None
) -> None:
    now_ms = clock.wall_ms()
    body = b'{"type":"email.send","args":[]}'
    if rate_limit is not None:
        body = b'{"type":"email.send","args":[],"rate_limit":%b}' % msgspec.json.encode(rate_limit)
    envelope = read_envelope(body, now_ms)
    envelope.queue = queue
    drafts = [draft_of(engine, envelope, now_ms, ids.uuid7) for _ in range(count)]
    await engine.push(drafts, now_ms)


# a large queue that ends


def ended(configuration: str, place: str, strategy: str, jobs: int) -> list[Row]:
    """In a process of its own: delete a queue with very many jobs while others flow."""
    with TemporaryDirectory(dir=place) as own:
        return on_loop(_ended(configuration, Path(own), strategy, jobs))


async def _ended(configuration: str, place: Path, strategy: str, jobs: int) -> list[Row]:
    engine = await opened(configuration, place, events_kept=1_000)
    now = clock.steady()
    try:
        for _ in range(jobs // SLICE):
            drafts = [
                draft_of(engine, read_envelope(_elsewhere(b"old"), now()), now(), ids.uuid7)
                for _ in range(SLICE)
            ]
            await engine.push(drafts, now())
            await engine.settled()
        await engine.configure("new", {}, now())
        begun = time.perf_counter()
        await engine.remove_queue("old", strategy, "new", f"bench-{strategy}", now())

        async def gone() -> bool:
            view = await engine.queue("old", now())
            return view is None

        lags, busy = await flow(engine, gone)
        took = time.perf_counter() - begun
        ordered = sorted(lags)
        return [
            Row(LARGE, f"longest pause in a {strategy} of {jobs:,}", configuration,
                ordered[-1] * 1e3, "ms", at_most(20),
                {"p99.9 ms": ordered[int(0.999 * (len(ordered) - 1))] * 1e3,
                 "longest turn's CPU ms": max(busy) * 1e3, "took s": took}),
        ]  # fmt: skip
    finally:
        await engine.close()


def _elsewhere(queue: bytes) -> bytes:
    return ENVELOPE.replace(b'"queue":"mail"', b'"queue":"%b"' % queue)


# producers that wait


def parked(configuration: str, directory: str, producers: int) -> list[Row]:
    with TemporaryDirectory(prefix="headgate-bench-", dir=directory) as place:
        return on_loop(_parked(configuration, Path(place), producers))


async def _parked(configuration: str, place: Path, producers: int) -> list[Row]:
    engine = await opened(configuration, place)
    now = clock.steady()
    try:
        bound = {"backpressure": {"max_depth": 1, "strategy": "block"}}
        await engine.configure("q0", bound, now())
        await _push(engine, "q0", 1)
        envelope = read_envelope(_elsewhere(b"q0"), now())
        places = []
        for _ in range(producers):
            place_ = engine.park([draft_of(engine, envelope, now(), ids.uuid7)])
            assert place_ is not None
            places.append(place_)
        waiting = [asyncio.create_task(each.wait(60)) for each in places]
        await engine.settled()
        await asyncio.sleep(0.1)
        used = time.process_time()
        await asyncio.sleep(QUIET_S)
        share = (time.process_time() - used) / QUIET_S
        for each in places:
            each.close()
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return [
            Row(PARKED, f"CPU of {producers:,} parked enqueues", configuration, share * 100, "%",
                at_most(1.0)),
        ]  # fmt: skip
    finally:
        await engine.close()
