"""Taskiq over Redis. The worker is started by its own command."""

from __future__ import annotations

import asyncio
import os

from taskiq_redis import ListQueueBroker, RedisStreamBroker

from bench.peers import role

kind = RedisStreamBroker if os.environ.get("BENCH_VARIANT") == "stream" else ListQueueBroker
broker = kind(role.store())


async def nop_async(number: int) -> None:
    role.nop(number)


async def stamp_async() -> None:
    role.stamp()


nop = broker.task("nop")(nop_async)
stamp = broker.task("stamp")(stamp_async)


async def produce() -> None:
    await broker.startup()
    await role.produce_async(
        lambda: nop.kiq(4711),
        stamp.kiq,
        lambda: asyncio.gather(*(nop.kiq(4711) for _ in range(role.BATCH))),
    )
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(produce())
