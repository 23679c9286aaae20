"""Waiting on behalf of a client that may leave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

Gone: TypeAlias = Callable[[], Awaitable[None]]
"""Returns when the client has left."""


async def never() -> None:
    """Stands for a client that does not leave."""
    await asyncio.get_running_loop().create_future()


async def unless_gone(step: Coroutine[Any, Any, T], leaving: asyncio.Future[None]) -> T | None:
    """What the step gives; None as soon as the client has left, whatever the step would give."""
    waiting = asyncio.ensure_future(step)
    try:
        await asyncio.wait((waiting, leaving), return_when=asyncio.FIRST_COMPLETED)
        if leaving.done():
            return None
        return waiting.result()
    finally:
        waiting.cancel()
