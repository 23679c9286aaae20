"""Time that tests move."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

START_MS: Final = 1_767_571_200_000
"""Monday, 5 January 2026, 00:00 UTC: where virtual time begins unless told otherwise."""


class VirtualClock:
    """Stands still, or goes on with another clock, until it is moved; it never goes back."""

    def __init__(self, now_us: int, flow_s: Callable[[], float] | None = None) -> None:
        self._us = now_us
        self._flow_s = flow_s
        self._since_s = 0.0 if flow_s is None else flow_s()
        self.start_us = now_us
        self.on_sleep: Callable[[int], Awaitable[None]] | None = None
        """What shall happen when somebody sleeps so many microseconds; without it, only time passes."""

    def now_us(self) -> int:
        if self._flow_s is None:
            return self._us
        return self._us + round((self._flow_s() - self._since_s) * 1_000_000)

    def now_ms(self) -> int:
        return self.now_us() // 1000

    def elapsed_s(self) -> float:
        return (self.now_us() - self.start_us) / 1_000_000

    def move_to(self, at_us: int) -> None:
        """Later is fine, earlier is too late."""
        if at_us < self.now_us():
            raise ValueError("time does not go back")
        self._us = at_us
        if self._flow_s is not None:
            self._since_s = self._flow_s()

    def freeze(self) -> None:
        """From now on it only moves when it is told to."""
        self._us = self.now_us()
        self._flow_s = None

    async def sleep(self, seconds: float) -> None:
        us = round(seconds * 1_000_000)
        if self.on_sleep is None:
            self.move_to(self.now_us() + us)
        else:
            await self.on_sleep(us)
