"""FAIL: the attempt did not succeed, or its worker gives the job back."""

from __future__ import annotations

from headgate.core.errors import InvalidRequest
from headgate.core.job import Job
from headgate.core.limits import full_key
from headgate.engines.contract import Engine, Fail
from headgate.operations.outcomes import done, no_job


async def fail(engine: Engine, report: Fail, now_ms: int, key: str = "") -> Job:
    """`key` is the one that the failure shall hold, as the job's producer wrote it; "" is the first."""
    if key:
        report.hold_key = await key_of(engine, report.job_id, key, now_ms, "error.rate_limit_key")
    (outcome,) = await engine.fail((report,), now_ms)
    return done(outcome, "nack").job


async def key_of(engine: Engine, job_id: str, key: str, now_ms: int, field: str) -> str:
    """The name under which the job's key is kept. Raises InvalidRequest when it has none like that."""
    job = await engine.find(job_id, now_ms)
    if job is None:
        raise no_job(job_id)
    names = [name for name, _ in job.keys]
    for name in (key, full_key(key, "tenant", job.tenant)):
        if name in names:
            return name
    known = ", ".join(name.rpartition("/")[2] for name in names)
    expected = f"one of the job's keys: {known}" if known else "one of the job's keys; it has none"
    raise InvalidRequest(field=field, expected=expected)
