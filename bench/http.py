"""What the whole server does: real requests from another process, over the loopback.

Every measurement has a fresh server on an empty store; single enqueues are held against the barest answer on the same uvicorn, measured right before.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from bench.jobs import BATCH, ENVELOPE
from bench.load import Latency, Measured, fill, load, wakes
from bench.processes import fresh, used
from bench.report import Budget, Row, at_least, at_most, middle
from bench.requests import EXCHANGED
from bench.servers import Running, bare, headgate
from bench.sizes import Size

CONFIGURATIONS = ("memory", "normal", "full")
ABOUT = "server"
LATENCIES = "latency"

_ANSWER_BYTES = 560
"""About as many as the answer to an enqueue has."""
_SETTLE_S = 1.5
"""After which everything that was begun is folded."""


def measure(configuration: str, directory: Path, size: Size) -> list[Row]:
    return middle([_round(configuration, directory, size) for _ in range(size.rounds)])


def _round(configuration: str, directory: Path, size: Size) -> list[Row]:
    server = partial(headgate, configuration, directory)

    def under(kind: str, running: Running, connections: int = size.connections) -> Measured:
        depth = size.depth if kind in ("enqueue", "batch") else 1
        return fresh(
            load, kind, running.address, running.pid, connections, depth, size.warm_s, size.load_s
        )

    few = max(1, size.connections // 8)
    with bare(_ANSWER_BYTES) as running:
        least = under("enqueue", running)
    with server() as running:
        enqueued = under("enqueue", running)
    with server() as running:
        batched = under("batch", running)
    with server() as running:
        lives = under("life", running)
    with server() as running:
        # More than can be worked off meanwhile, at a rate far above any that was seen.
        fresh(fill, running.address, round((size.warm_s + size.load_s) * 20_000 / BATCH))
        worked = under("work", running)
    with server() as running:
        exchanged = under("exchange", running, few)
    with server() as running:
        mixed = under("verbs", running)
    with server() as running:
        alone = under("verbs", running, 1)
    with server() as running:
        woken = fresh(wakes, running.address, size.wakes)
        idle = _idle(running, size.idle_s)

    rate = partial(_rate, configuration)
    body = f"{len(ENVELOPE)} bytes"
    share = enqueued.per_second("enqueue") / least.per_second("enqueue") * 100
    # Where others use the machine, CPU time says more than the clock.
    by_cpu = _loop_us(least, "enqueue") / _loop_us(enqueued, "enqueue") * 100
    return [
        rate(f"bare ASGI answer to {body}", "requests", least, "enqueue"),
        rate(f"enqueue of {body}", "requests", enqueued, "enqueue"),
        Row(ABOUT, "of the bare answer", configuration, share, "%", at_least(65), {"by loop CPU %": by_cpu}),
        rate(f"enqueue {BATCH} at once", "jobs", batched, "batch", BATCH, at_least(60_000)),
        rate("life by single calls: enqueue, fetch, ack", "lives", lives, "ack", 1,
             at_least(6_000)),
        rate("of it fetch and ack alone", "lives", worked, "ack"),
        rate(f"life by {EXCHANGED}: batch, exchange", "lives", exchanged, "exchange", EXCHANGED,
             at_least(25_000)),
        Row(ABOUT, "CPU when idle", configuration, idle * 100, "%", at_most(1)),
        _latency("wake-up of a fetch that waits", configuration, woken),
        *_latencies("one connection", configuration, alone),
        *_latencies(f"{size.connections} connections", configuration, mixed),
        *_latencies(f"{size.connections} connections", configuration, batched),
        *_latencies(f"{few} connections", configuration, exchanged),
    ]  # fmt: skip


def _rate(
    configuration: str,
    name: str,
    unit: str,
    measured: Measured,
    verb: str,
    each: int = 1,
    budget: Budget | None = None,
) -> Row:
    """How many a second; each request of the verb stands for so many."""
    count = measured.verbs[verb].count * each
    return Row(
        ABOUT,
        name,
        configuration,
        count / measured.seconds,
        f"{unit}/s",
        budget,
        {
            "loop CPU µs": _loop_us(measured, verb) / each,
            "other threads' CPU µs": measured.server.others_s / count * 1e6,
            "loop busy %": measured.server.loop_s / measured.seconds * 100,
            "generator busy %": measured.generator.loop_s / measured.seconds * 100,
        },
    )


def _loop_us(measured: Measured, verb: str) -> float:
    """For one request."""
    return measured.server.loop_s / measured.verbs[verb].count * 1e6


def _latencies(name: str, configuration: str, measured: Measured) -> list[Row]:
    return [
        _latency(f"{verb}, {name}", configuration, found)
        for verb, found in sorted(measured.verbs.items())
    ]


def _latency(name: str, configuration: str, found: Latency) -> Row:
    more = {"p95 ms": found.p95, "p99 ms": found.p99, "longest ms": found.longest}
    return Row(LATENCIES, name, configuration, found.p50, "ms", None, more)


def _idle(running: Running, seconds: float) -> float:
    """The share of one core that the server uses while nothing happens."""
    time.sleep(_SETTLE_S)
    before = used(running.pid)
    time.sleep(seconds)
    after = used(running.pid).since(before)
    return (after.loop_s + after.others_s) / seconds
