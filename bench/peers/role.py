"""What every peer's program does alike: mark that a job ran, and enqueue when it is told to.

It runs in the peer's environment and uses the standard library only. The jobs of all peers are these two functions, so that a job costs every peer the same.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

BATCH = 100
STAMP_BYTES = 20
_files: dict[str, int] = {}


def nop(_number: int) -> None:
    """The job that is counted: it makes a file one byte longer, which is how others see that it ran."""
    _append("BENCH_MARKS", b".")


def stamp() -> None:
    """The job whose latency is measured: it says when it ran, by the clock that all processes share."""
    _append("BENCH_STAMPS", b"%0*d" % (STAMP_BYTES, time.monotonic_ns()))


def _append(name: str, data: bytes) -> None:
    file = _files.get(name)
    if file is None:
        file = _files[name] = os.open(os.environ[name], os.O_WRONLY | os.O_APPEND)
    os.write(file, data)


def store() -> str:
    """The address of what keeps the jobs: a Redis, a database, a server."""
    return os.environ["BENCH_STORE"]


def produce(
    one: Callable[[], Any], stamped: Callable[[], Any], batch: Callable[[], Any] | None = None
) -> None:
    """Enqueue as standard input says; `batch` enqueues BATCH jobs, where a peer has a way to."""
    for what, seconds in _orders():
        begun = time.monotonic_ns()
        if what == "stamp":
            stamped()
            _answer(begun, 1)
            continue
        call, each = (one, 1) if what == "single" else (batch, BATCH)
        count, until = 0, begun + seconds * 1e9
        while call is not None and time.monotonic_ns() < until:
            call()
            count += each
        _answer(begun, count)


async def produce_async(
    one: Callable[[], Awaitable[Any]],
    stamped: Callable[[], Awaitable[Any]],
    batch: Callable[[], Awaitable[Any]] | None = None,
) -> None:
    """The same for calls that are awaited, one after the other too; between orders nobody needs the loop."""
    for what, seconds in _orders():
        begun = time.monotonic_ns()
        if what == "stamp":
            await stamped()
            _answer(begun, 1)
            continue
        call, each = (one, 1) if what == "single" else (batch, BATCH)
        count, until = 0, begun + seconds * 1e9
        while call is not None and time.monotonic_ns() < until:
            await call()
            count += each
        _answer(begun, count)


def _orders() -> Iterator[tuple[str, float]]:
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        yield order["do"], float(order.get("seconds", 0))


def _answer(begun: int, count: int) -> None:
    took_s = (time.monotonic_ns() - begun) / 1e9
    print(json.dumps({"begun": begun, "count": count, "seconds": took_s}), flush=True)
