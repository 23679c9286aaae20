"""INFO: look at a job; never changes it."""

from __future__ import annotations

from headgate.core.job import Job
from headgate.engines.contract import Engine
from headgate.operations.outcomes import no_job


async def info(engine: Engine, job_id: str, now_ms: int) -> Job:
    job = await engine.find(job_id, now_ms)
    if job is None:
        raise no_job(job_id)
    return job
