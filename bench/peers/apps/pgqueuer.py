"""PgQueuer over Postgres."""

from __future__ import annotations

import asyncio
import sys

import asyncpg
import uvloop
from pgqueuer import AsyncpgDriver, PgQueuer, Queries

from bench.peers import role

FETCHED = 100


async def produce() -> None:
    connection = await asyncpg.connect(role.store())
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    many = ["nop"] * role.BATCH, [b"4711"] * role.BATCH, [0] * role.BATCH
    await role.produce_async(
        lambda: queries.enqueue("nop", b"4711"),
        lambda: queries.enqueue("stamp", None),
        lambda: queries.enqueue(*many),
    )
    await connection.close()


async def work() -> None:
    connection = await asyncpg.connect(role.store())
    queuer = PgQueuer(AsyncpgDriver(connection))

    async def nop(_job: object) -> None:
        role.nop(4711)

    async def stamp(_job: object) -> None:
        role.stamp()

    queuer.entrypoint("nop")(nop)
    queuer.entrypoint("stamp")(stamp)
    await queuer.run(batch_size=FETCHED)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(produce() if sys.argv[1] == "produce" else work())
