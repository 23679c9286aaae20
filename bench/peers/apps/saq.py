"""SAQ over Redis. The worker is started by its own command; it is not uvloop's by itself, so the policy is set here."""

from __future__ import annotations

import asyncio
from typing import Any

import uvloop
from saq import Queue

from bench.peers import role

uvloop.install()


async def nop(_context: Any, *, number: int) -> None:
    role.nop(number)


async def stamp(_context: Any) -> None:
    role.stamp()


queue = Queue.from_url(role.store())
settings = {"queue": queue, "functions": [nop, stamp], "concurrency": 100}


async def produce() -> None:
    await queue.connect()
    await role.produce_async(
        lambda: queue.enqueue("nop", number=4711, ttl=-1),
        lambda: queue.enqueue("stamp", ttl=-1),
        lambda: asyncio.gather(
            *(queue.enqueue("nop", number=4711, ttl=-1) for _ in range(role.BATCH))
        ),
    )
    await queue.disconnect()


if __name__ == "__main__":
    asyncio.run(produce())
