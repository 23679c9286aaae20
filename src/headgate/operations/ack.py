"""ACK: the job is done."""

from __future__ import annotations

from headgate.core.errors import ResultTooLarge
from headgate.core.job import Job
from headgate.engines.contract import Ack, Engine
from headgate.operations.outcomes import done


async def ack(engine: Engine, answer: Ack, now_ms: int, *, result_bytes: int) -> Job:
    check(answer, result_bytes)
    (outcome,) = await engine.ack((answer,), now_ms)
    return done(outcome, "ack").job


def check(answer: Ack, result_bytes: int) -> None:
    """Raise ResultTooLarge; the job stays with its worker then."""
    if answer.result is not None and len(answer.result) > result_bytes:
        raise ResultTooLarge(
            field="result",
            expected=f"at most {result_bytes} bytes",
            details={"job_id": answer.job_id, "size_bytes": len(answer.result)},
        )
