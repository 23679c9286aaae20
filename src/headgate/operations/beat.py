"""BEAT: a worker says that it lives and which jobs it still runs, and learns what it should do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from headgate.core.errors import InvalidRequest, NotFound
from headgate.engines.contract import Beat, Engine, Report

RUNNING: Final = "running"
QUIET: Final = "quiet"
TERMINATE: Final = "terminate"
STATES: Final = {
    RUNNING: RUNNING,
    QUIET: QUIET,
    TERMINATE: TERMINATE,
    "drain": QUIET,
    "draining": QUIET,
}
"""What a worker may say of itself, and what that means: one that drains takes no new jobs."""

_SEVERITY: Final = (RUNNING, QUIET, TERMINATE)

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


async def beat(
    engine: Engine,
    report: Report,
    job_ids: Sequence[str],
    visibility_ms: int,
    now_ms: int,
    *,
    test_hooks: bool = False,
) -> Beat:
    """What the worker is told to be is never less than what it says that it is."""
    heard = await engine.beat(report, job_ids, visibility_ms, now_ms)
    directive = severest(heard.state, report.state or RUNNING)
    if test_hooks:
        directive = severest(directive, await _directive(engine, heard.extended, now_ms))
    return Beat(directive, heard.extended, heard.cancelled)


def severest(*states: str) -> str:
    """From these states there is no way back to one that comes before."""
    return max(states, key=_SEVERITY.index)


def state_from(given: str, field: str = "state") -> str:
    """Read what a worker says of itself."""
    state = STATES.get(given)
    if state is None:
        raise InvalidRequest(field=field, expected="one of " + ", ".join(STATES))
    return state


async def deregister(engine: Engine, worker: str, now_ms: int) -> int:
    """The worker has ended: how many jobs it still had, which are free again."""
    requeued = await engine.forget_worker(worker, "shutdown", now_ms)
    if requeued is None:
        raise NotFound(f"there is no worker {worker}", details={"worker_id": worker})
    return requeued


async def _directive(engine: Engine, job_ids: Iterable[str], now_ms: int) -> str:
    """For test suites: what the meta of a worker's jobs says that the worker should be told."""
    for job_id in job_ids:
        job = await engine.find(job_id, now_ms)
        if job is None or b'"test_directive"' not in job.fixed:
            continue
        meta = msgspec.json.decode(_members(b"{%b}" % job.fixed)["meta"])
        if meta.get("test_directive") in (QUIET, TERMINATE):
            return str(meta["test_directive"])
    return RUNNING
