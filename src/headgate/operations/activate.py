"""ACTIVATE: a pending job may run now."""

from __future__ import annotations

from headgate.engines.contract import Done, Engine
from headgate.operations.outcomes import done


async def activate(engine: Engine, job_id: str, now_ms: int) -> Done:
    return done(await engine.activate(job_id, now_ms), "activate")
