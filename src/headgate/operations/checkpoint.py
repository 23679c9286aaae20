"""Checkpoints: what a worker saves of a long job, for whoever has to go on with it."""

from __future__ import annotations

from headgate.core.errors import NotFound, TooLarge
from headgate.engines.contract import Checkpoint, Engine
from headgate.operations.info import info
from headgate.operations.outcomes import done, no_job


async def save(
    engine: Engine, job_id: str, state: bytes, now_ms: int, *, checkpoint_bytes: int
) -> Checkpoint:
    """Replace the checkpoint as a whole; its sequence grows with every save."""
    check(state, checkpoint_bytes)
    done(await engine.save_checkpoint(job_id, state, now_ms), "checkpoint")
    saved = await engine.checkpoint(job_id, now_ms)
    if saved is None:
        raise no_job(job_id)
    return saved


def check(state: bytes, checkpoint_bytes: int) -> None:
    if len(state) > checkpoint_bytes:
        raise TooLarge(
            field="state",
            expected=f"at most {checkpoint_bytes} bytes",
            details={"size_bytes": len(state)},
        )


async def look_up(engine: Engine, job_id: str, now_ms: int) -> Checkpoint:
    await info(engine, job_id, now_ms)
    saved = await engine.checkpoint(job_id, now_ms)
    if saved is None:
        raise NotFound(f"the job {job_id} has no checkpoint", details={"job_id": job_id})
    return saved


async def drop(engine: Engine, job_id: str, now_ms: int) -> None:
    """Forget the checkpoint, if there is one; the next one is number 1 again."""
    done(await engine.drop_checkpoint(job_id, now_ms), "drop the checkpoint of")
