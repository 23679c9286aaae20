"""The load generator: connections that send the next request as soon as the last one is answered.

It runs in a process of its own and does as little as it can for each request, so that the server is what is measured.
"""

from __future__ import annotations

import asyncio
import os
import re
from array import array
from collections import deque
from functools import partial
from time import perf_counter

from msgspec import Struct

from bench.processes import Used, on_loop, used
from bench.requests import ENQUEUE, SCRIPTS, Request, Script, fetch

Address = tuple[str, int]

_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)
_PARK_S = 0.005
"""Until a fetch that waits has surely begun to wait."""


class Unexpected(Exception):
    """An answer that should not have come: what was measured would not be what it is called."""


class Latency(Struct):
    """Of one verb, in milliseconds."""

    count: int
    p50: float
    p95: float
    p99: float
    longest: float


class Measured(Struct):
    seconds: float
    verbs: dict[str, Latency]
    server: Used
    generator: Used

    def per_second(self, verb: str) -> float:
        return self.verbs[verb].count / self.seconds


class _Run:
    """What all connections share."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.took: dict[str, array[float]] = {}
        self.stopping = False
        self.failure: Unexpected | None = None
        self.open = 0
        self.ended = asyncio.Event()

    def begin(self) -> None:
        """From here on it counts."""
        for took in self.took.values():
            del took[:]
        self.server, self.generator = used(self.pid), used(os.getpid())
        self.at = perf_counter()

    def end(self) -> Measured:
        seconds = perf_counter() - self.at
        return Measured(
            seconds,
            {verb: latency(took) for verb, took in self.took.items() if took},
            used(self.pid).since(self.server),
            used(os.getpid()).since(self.generator),
        )


class _Connection(asyncio.Protocol):
    def __init__(self, run: _Run, script: Script, depth: int) -> None:
        self._run = run
        self._script = script
        self._depth = depth
        self._sent: deque[tuple[array[float], float]] = deque()
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._run.open += 1
        for _ in range(self._depth):
            self._next(b"")

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        while data:
            head = data.find(b"\r\n\r\n") + 4
            length = _LENGTH.search(data, 0, head)
            if head == 3 or length is None or len(data) < (end := head + int(length[1])):
                break
            took, at = self._sent.popleft()
            took.append(perf_counter() - at)
            if data[9:10] != b"2":
                self._run.failure = Unexpected(data[:end].decode())
                self._run.stopping = True
            self._next(data[head:end])
            data = data[end:]
        self._rest = data

    def connection_lost(self, exc: Exception | None) -> None:
        if self._sent and self._run.failure is None:
            self._run.failure = Unexpected(f"the server closed a connection: {exc}")
        self._run.open -= 1
        if not self._run.open:
            self._run.ended.set()

    def _next(self, answer: bytes) -> None:
        request = None if self._run.stopping else self._script(answer)
        if request is not None:
            verb, sent = request
            took = self._run.took.get(verb)
            if took is None:
                took = self._run.took[verb] = array("d")
            self._sent.append((took, perf_counter()))
            self._transport.write(sent)
        elif not self._sent:
            self._transport.close()


def load(
    kind: str,
    address: Address,
    pid: int,
    connections: int,
    depth: int,
    warm_s: float,
    load_s: float,
) -> Measured:
    """In a process of its own. Ends early when the scripts have nothing left to do."""
    return on_loop(_load(kind, address, pid, connections, depth, warm_s, load_s))


async def _load(
    kind: str,
    address: Address,
    pid: int,
    connections: int,
    depth: int,
    warm_s: float,
    load_s: float,
) -> Measured:
    run = _Run(pid)
    loop = asyncio.get_running_loop()
    run.begin()
    for number in range(connections):
        connect = partial(_Connection, run, SCRIPTS[kind](number), depth)
        await loop.create_connection(connect, *address)
    await _until(run, warm_s)
    run.begin()
    await _until(run, load_s)
    measured = run.end()
    run.stopping = True
    await run.ended.wait()
    if run.failure is not None:
        raise run.failure
    if not measured.verbs:
        raise Unexpected("nothing was left to do when counting began")
    return measured


async def _until(run: _Run, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await run.ended.wait()
    except TimeoutError:
        pass


def fill(address: Address, batches: int) -> None:
    """In a process of its own: leave jobs on the server."""
    on_loop(_fill(address, batches))


async def _fill(address: Address, batches: int) -> None:
    connection = await _Single.to(address)
    name, request = SCRIPTS["batch"](0)(b"") or ("", b"")
    for _ in range(batches):
        await connection.ask((name, request))
    connection.close()


def wakes(address: Address, times: int) -> Latency:
    """In a process of its own: from the moment that a job is sent to its arrival at a worker that waits."""
    return on_loop(_wakes(address, times))


async def _wakes(address: Address, times: int) -> Latency:
    worker, producer = await _Single.to(address), await _Single.to(address)
    took = array("d")
    for _ in range(times):
        waiting = asyncio.ensure_future(worker.ask(fetch("worker-1", 10_000)))
        await asyncio.sleep(_PARK_S)
        begun = perf_counter()
        enqueued = asyncio.ensure_future(producer.ask(ENQUEUE))
        answer = await waiting
        took.append(perf_counter() - begun)
        await enqueued
        if b'"claim":' not in answer:
            raise Unexpected(answer.decode())
    worker.close()
    producer.close()
    return latency(took)


class _Single:
    """One request after the other, where speed does not matter."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, address: Address) -> _Single:
        return cls(*await asyncio.open_connection(*address, limit=1 << 24))

    async def ask(self, request: Request) -> bytes:
        self._writer.write(request[1])
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        body = await self._reader.readexactly(int(length[1]) if length else 0)
        if head[9:10] != b"2":
            raise Unexpected((head + body).decode())
        return body

    def close(self) -> None:
        self._writer.close()


def latency(took: array[float]) -> Latency:
    ordered = sorted(took)
    last = len(ordered) - 1
    p50, p95, p99 = (ordered[round(share * last)] * 1e3 for share in (0.5, 0.95, 0.99))
    return Latency(len(ordered), p50, p95, p99, ordered[last] * 1e3)
