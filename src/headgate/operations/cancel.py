"""CANCEL: the job shall not run, or not go on running."""

from __future__ import annotations

from headgate.engines.contract import Done, Engine
from headgate.operations.outcomes import done


async def cancel(engine: Engine, job_id: str, by: str, reason: str, now_ms: int) -> Done:
    """At once, also while it runs: its worker learns of it with the next heartbeat."""
    return done(await engine.cancel(job_id, by, reason, now_ms), "cancel")
