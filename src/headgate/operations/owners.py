"""Whose a job is: for everybody else it does not exist."""

from __future__ import annotations

from headgate.core.errors import NotFound
from headgate.engines.contract import Engine
from headgate.operations.outcomes import no_job


async def check(engine: Engine, job_id: str, tenant: str, now_ms: int) -> None:
    """Raise NotFound when the job is not this tenant's; "" may see all.

    What it finds stays true: no job ever changes its tenant.
    """
    refusal = await refused(engine, job_id, tenant, now_ms)
    if refusal is not None:
        raise refusal


async def refused(engine: Engine, job_id: str, tenant: str, now_ms: int) -> NotFound | None:
    """The same as a value, for those who go on with other jobs."""
    if not tenant:
        return None
    job = await engine.find(job_id, now_ms)
    return None if job is not None and job.tenant == tenant else no_job(job_id)
