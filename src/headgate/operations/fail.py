"""FAIL: the attempt did not succeed, or its worker gives the job back."""

from __future__ import annotations

from headgate.core.job import Job
from headgate.engines.contract import Engine, Fail
from headgate.operations.outcomes import done


async def fail(engine: Engine, report: Fail, now_ms: int) -> Job:
    (outcome,) = await engine.fail((report,), now_ms)
    return done(outcome, "nack").job
