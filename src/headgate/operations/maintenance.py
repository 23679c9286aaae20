"""MAINTENANCE: let the server rest, and let it go on."""

from __future__ import annotations

from headgate.core.members import duration_at
from headgate.engines.contract import Engine, Maintenance


async def begin(
    engine: Engine, reason: str, estimated_duration: str | None, by: str, now_ms: int
) -> Maintenance:
    """The duration is only told: maintenance ends when somebody ends it."""
    ends = 0
    if estimated_duration is not None:
        ends = now_ms + duration_at(estimated_duration, "estimated_duration")
    return await engine.begin_maintenance(reason, ends, by, now_ms)


async def end(engine: Engine, by: str, now_ms: int) -> None:
    """Also where there was none: then nothing happens."""
    await engine.end_maintenance(by, now_ms)
