"""POOLS: look at them, set them up, take them away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.core.errors import NotFound
from headgate.core.pools import pool_from
from headgate.engines.contract import Engine, PoolView


async def look_up(engine: Engine, name: str, now_ms: int) -> PoolView:
    for view in await engine.pools(now_ms):
        if view.pool.name == name:
            return view
    raise unknown(name)


async def put(
    engine: Engine, name: str, given: Mapping[str, Any], now_ms: int
) -> tuple[PoolView, bool]:
    """Create or replace a pool; true when it is new."""
    fresh = await engine.set_pool(pool_from(given, name), now_ms)
    return await look_up(engine, name, now_ms), fresh


async def delete(engine: Engine, name: str, now_ms: int) -> None:
    """Its workers go on as if the server had never known it: by what they ask for themselves."""
    if not await engine.drop_pool(name, now_ms):
        raise unknown(name)


def unknown(name: str) -> NotFound:
    return NotFound(f"there is no pool {name}", details={"pool": name})
