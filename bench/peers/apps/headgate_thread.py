"""Headgate with handlers that are plain functions, which run in threads."""

from __future__ import annotations

import sys

from bench.peers import role
from headgate import Headgate, Worker

hg = Headgate(role.store())


@hg.job
def nop(number: int) -> None:
    role.nop(number)


@hg.job
def stamp() -> None:
    role.stamp()


if __name__ == "__main__":
    if sys.argv[1] == "produce":
        calls = [(4711,)] * role.BATCH
        role.produce(lambda: nop.enqueue(4711), stamp.enqueue, lambda: nop.enqueue_many(calls))
        hg.close()
    else:
        Worker(hg, concurrency=int(sys.argv[2])).run()
