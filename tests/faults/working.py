"""A worker that leaves a mark for every run: `python -m tests.faults.working URL MARKS exchange|standard`."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from headgate import AsyncHeadgate, Worker
from headgate.client.transport.http import HttpTransport

KINDS = ("coroutine", "thread", "process")
CONCURRENCY = 20


def mark(marks: str, n: int) -> None:
    """One write, so that marks of several processes do not mix."""
    file = os.open(marks, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{n} {os.getpid()}\n".encode())
    finally:
        os.close(file)


async def coroutine(marks: str, n: int) -> int:
    await asyncio.sleep(0.002)
    mark(marks, n)
    return n


def thread(marks: str, n: int) -> int:
    time.sleep(0.002)
    mark(marks, n)
    return n


def process(marks: str, n: int) -> int:
    mark(marks, n)
    return n


def declare(hg: AsyncHeadgate) -> None:
    hg.job(coroutine)
    hg.job(thread)
    hg.job(run_in="process")(process)


def marked(marks: Path) -> list[tuple[int, int]]:
    """(job, process) of every run, in order."""
    if not marks.exists():
        return []
    lines = marks.read_text().splitlines()
    return [(int(n), int(pid)) for n, pid in (line.split() for line in lines)]


if __name__ == "__main__":
    address, _, exchange = sys.argv[1:]
    app = AsyncHeadgate(transport=HttpTransport(address))
    declare(app)
    Worker(
        app, concurrency=CONCURRENCY, exchange=exchange == "exchange",
        heartbeat=0.2, wait=0.3, poll=0.05, processes=2, queues=["default"],
    ).run()  # fmt: skip
