"""A job that waits gets another priority."""

from __future__ import annotations

from msgspec import Struct

from headgate.engines.contract import Engine
from headgate.operations.outcomes import done


class Reprioritized(Struct):
    id: str
    priority: int
    previous_priority: int


async def reprioritize(engine: Engine, job_id: str, priority: int, now_ms: int) -> Reprioritized:
    outcome = done(await engine.reprioritize(job_id, priority, now_ms), "reprioritize")
    return Reprioritized(job_id, outcome.job.priority, int(outcome.previous_state))
