"""FETCH: claim jobs, or wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headgate.core.errors import InvalidRequest
from headgate.core.job import Job
from headgate.engines.contract import Engine, Fetch, Why
from headgate.operations.waiting import Gone, never, unless_gone

ORDINARY = frozenset({"empty", "unknown"})
"""What an idle worker finds all day long: nothing that anybody needs to be told."""


async def fetch(
    engine: Engine,
    wanted: Fetch,
    now_us: Callable[[], int],
    *,
    wait_ms: int = 0,
    gone: Gone = never,
) -> list[Job]:
    """Up to `count` jobs; none when the wait is over, the client has left or the server ends.

    When there is nothing at once it stands in line and looks again, so nothing that comes in between is missed; once the client has left it claims nothing.
    """
    begun_us = now_us()
    jobs = await _look(engine, wanted, begun_us)
    if jobs or wait_ms <= 0:
        return jobs
    deadline = begun_us // 1000 + wait_ms
    leaving: asyncio.Future[None] | None = None
    watch = engine.watch(wanted)
    try:
        while True:
            jobs = await _look(engine, wanted, now_us())
            left_ms = deadline - now_us() // 1000
            if jobs or left_ms <= 0:
                return jobs
            leaving = leaving or asyncio.ensure_future(gone())
            if not await unless_gone(watch.wait(left_ms / 1000), leaving):
                return []
    finally:
        if leaving is not None:
            leaving.cancel()
        watch.close()


async def _look(engine: Engine, wanted: Fetch, now_us: int) -> list[Job]:
    now_ms, wanted.micros = divmod(now_us, 1000)
    return await engine.fetch(wanted, now_ms)


async def why(engine: Engine, wanted: Fetch, now_us: int, *, explain: bool) -> Why:
    """Why there was nothing; what is ordinary is left out, unless an explanation was asked for."""
    now_ms, wanted.micros = divmod(now_us, 1000)
    found = await engine.why(wanted, now_ms)
    if explain:
        return found
    reasons = {queue: why for queue, why in found.reasons.items() if why not in ORDINARY}
    return Why(found.next_at, reasons)


async def check_pool(engine: Engine, wanted: Fetch, now_ms: int, field: str = "pool") -> None:
    """Raise InvalidRequest when the fetch names another pool than its worker registered with."""
    if not wanted.pool or not wanted.worker:
        return
    known = await engine.worker(wanted.worker, now_ms)
    if known is not None and known.pool != wanted.pool:
        raise InvalidRequest(
            field=field, expected=f"the pool that the worker registered with, {known.pool}"
        )
