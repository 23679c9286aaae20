"""Time as clients and workers see it, so that tests can hold it."""

from __future__ import annotations

import asyncio
from typing import Protocol

from headgate import clock


class Clock(Protocol):
    def now_ms(self) -> int:
        """The time of day."""
        ...

    def elapsed_s(self) -> float:
        """Never goes back; says nothing about the time of day."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now_ms(self) -> int:
        return clock.wall_ms()

    def elapsed_s(self) -> float:
        return clock.elapsed_s()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
