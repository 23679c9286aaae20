"""WORKERS: look at, quiet, forget."""

from __future__ import annotations

from headgate.core.errors import Conflict, NotFound
from headgate.engines.contract import Engine, WorkerView


async def look_up(engine: Engine, worker: str, now_ms: int) -> WorkerView:
    found = await engine.worker(worker, now_ms)
    if found is None:
        raise _unknown(worker)
    return found


async def quiet(engine: Engine, worker: str, now_ms: int) -> WorkerView:
    """Tell a worker to take no more jobs; one that is to terminate already is left to that."""
    found = await look_up(engine, worker, now_ms)
    if found.directive != "terminate":
        await engine.direct(worker, "quiet", now_ms)
    return await look_up(engine, worker, now_ms)


async def remove_stale(engine: Engine, worker: str, now_ms: int) -> int:
    """Forget a worker that has been silent for too long: how many jobs go back to their queues."""
    found = await look_up(engine, worker, now_ms)
    if not found.stale:
        raise Conflict(
            f"the worker {worker} is alive; only a stale one can be removed",
            details={"worker_id": worker, "state": found.state},
        )
    requeued = await engine.forget_worker(worker, "error", now_ms)
    if requeued is None:
        raise _unknown(worker)
    return requeued


def _unknown(worker: str) -> NotFound:
    return NotFound(f"there is no worker {worker}", details={"worker_id": worker})
