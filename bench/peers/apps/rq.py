"""RQ: `simple` runs jobs in the worker's own process, which is its fastest; `forking` is what `rq worker` does."""

from __future__ import annotations

import sys

from redis import Redis
from rq import Queue, SimpleWorker, Worker

from bench.peers import role
from bench.peers.role import nop, stamp

KEEPS_NOTHING = {"result_ttl": 0}


def produce(queue: Queue) -> None:
    def many() -> None:
        queue.enqueue_many(
            [Queue.prepare_data(nop, (4711,), **KEEPS_NOTHING) for _ in range(role.BATCH)]
        )

    role.produce(
        lambda: queue.enqueue(nop, 4711, **KEEPS_NOTHING),
        lambda: queue.enqueue(stamp, **KEEPS_NOTHING),
        many,
    )


if __name__ == "__main__":
    connection = Redis.from_url(role.store())
    if sys.argv[1] == "produce":
        produce(Queue(connection=connection))
    else:
        kind = SimpleWorker if sys.argv[1] == "simple" else Worker
        kind(["default"], connection=connection).work(logging_level="WARNING")
