"""Results: what a job came to, now or when it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from headgate.core.errors import RequestTimeout
from headgate.core.job import Job
from headgate.core.states import TERMINAL
from headgate.engines.contract import Engine, Interest
from headgate.operations.info import info
from headgate.operations.waiting import Gone, never, unless_gone

ENDS = ("job.completed", "job.cancelled", "job.discarded")


async def ended(
    engine: Engine,
    job_id: str,
    now_ms: Callable[[], int],
    *,
    wait_ms: int,
    gone: Gone = never,
) -> Job:
    """The job when it has ended; raises RequestTimeout when it has not by then."""
    deadline = now_ms() + wait_ms
    subscription = engine.subscribe(Interest(job_id=job_id, kinds=ENDS))
    leaving: asyncio.Future[None] | None = None
    try:
        while True:
            job = await info(engine, job_id, now_ms())
            if job.state in TERMINAL:
                return job
            left_ms = deadline - now_ms()
            if left_ms > 0:
                leaving = leaving or asyncio.ensure_future(gone())
                if await unless_gone(subscription.next(left_ms / 1000), leaving):
                    continue
            raise RequestTimeout(
                f"the job is still {job.state}", details={"job_id": job_id, "state": job.state}
            )
    finally:
        if leaving is not None:
            leaving.cancel()
        subscription.close()


async def changes(
    engine: Engine,
    job_id: str,
    kinds: tuple[str, ...],
    now_ms: Callable[[], int],
    quiet_s: float,
) -> AsyncGenerator[Job | None, None]:
    """The job as it is, and again after events of these kinds, until it has ended or is forgotten.

    Several changes at once are shown as one; None says that nothing happened for `quiet_s`.
    Whoever shows a record to others reads it at once and awaits `settled` first.
    """
    subscription = engine.subscribe(Interest(job_id=job_id, kinds=kinds))
    try:
        while True:
            job = await engine.find(job_id, now_ms())
            if job is None:
                return
            over = job.state in TERMINAL
            yield job
            if over:
                return
            while not await subscription.next(quiet_s):
                yield None
    finally:
        subscription.close()
