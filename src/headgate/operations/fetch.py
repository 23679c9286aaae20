"""FETCH: claim jobs, or wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headgate.core.job import Job
from headgate.engines.contract import Engine, Fetch
from headgate.operations.waiting import Gone, never, unless_gone


async def fetch(
    engine: Engine,
    wanted: Fetch,
    now_ms: Callable[[], int],
    *,
    wait_ms: int = 0,
    gone: Gone = never,
) -> list[Job]:
    """Up to `count` jobs; none when the wait is over, the client has left or the server ends.

    It stands in line before it looks, so nothing that comes in between is missed; once the client has left it claims nothing.
    """
    if wait_ms <= 0:
        return await engine.fetch(wanted, now_ms())
    deadline = now_ms() + wait_ms
    leaving: asyncio.Future[None] | None = None
    watch = engine.watch(wanted)
    try:
        while True:
            jobs = await engine.fetch(wanted, now_ms())
            left_ms = deadline - now_ms()
            if jobs or left_ms <= 0:
                return jobs
            leaving = leaving or asyncio.ensure_future(gone())
            if not await unless_gone(watch.wait(left_ms / 1000), leaving):
                return []
    finally:
        if leaving is not None:
            leaving.cancel()
        watch.close()
