"""Headgate with handlers that are coroutines."""

from __future__ import annotations

import asyncio
import sys

from bench.peers import role
from headgate import AsyncHeadgate, Worker

hg = AsyncHeadgate(role.store())


@hg.job
async def nop(number: int) -> None:
    role.nop(number)


@hg.job
async def stamp() -> None:
    role.stamp()


async def produce() -> None:
    calls = [(4711,)] * role.BATCH
    await role.produce_async(
        lambda: nop.enqueue(4711), stamp.enqueue, lambda: nop.enqueue_many(calls)
    )
    await hg.close()


if __name__ == "__main__":
    if sys.argv[1] == "produce":
        asyncio.run(produce())
    else:
        Worker(hg, concurrency=int(sys.argv[2])).run()
