"""Progress: how far a running job has come, as its worker says."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Raw

from headgate.core.job import Job
from headgate.core.states import COMPLETED
from headgate.engines.contract import Engine
from headgate.operations.outcomes import done


class Progress(NamedTuple):
    """What is known; None where nothing is."""

    progress: float | None = None
    data: bytes | None = None
    """JSON."""
    message: str | None = None
    updated_at: int = 0


async def report(
    engine: Engine,
    job_id: str,
    progress: float | None,
    data: Raw | None,
    message: str | None,
    now_ms: int,
) -> Job:
    """Keep what the worker of an active job says; of any other job it is heard and forgotten."""
    if progress is not None:
        progress = min(1.0, max(0.0, progress))
    return done(await engine.progress(job_id, progress, data, message, now_ms), "report on").job


def progress_of(job: Job) -> Progress:
    """Of this attempt while it runs, of the last one after it failed; a completed job is at 1."""
    more = job.more
    done = 1.0 if job.state == COMPLETED else None
    if more is None or not more.progress_at:
        return Progress(done)
    return Progress(
        done or more.progress, more.progress_data, more.progress_message, more.progress_at
    )
