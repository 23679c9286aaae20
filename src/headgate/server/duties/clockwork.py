"""Lets the engine do what is due, when it is due, and sleeps otherwise."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from headgate.core.errors import BackendUnavailable
from headgate.engines.contract import Engine

LONGEST_S = 60.0
"""The loop's own clock stands still while the machine sleeps, the server's does not: so look again."""
BREATH_S = 0.001
"""Between two ticks, for the requests."""
AFTER_FAILURE_S = 1.0

_FAR_MS = 1 << 52
"""What lies later than this never happens."""

_log = logging.getLogger(__name__)


class Clockwork:
    """One timer, set to the engine's next due instant; none while nothing is due ever."""

    def __init__(self, engine: Engine, now_ms: Callable[[], int]) -> None:
        self._engine = engine
        self._now_ms = now_ms
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._ticking: asyncio.Task[None] | None = None
        self._stopped = False

    def start(self) -> None:
        self._engine.on_sooner(self.wind)
        self.wind()

    async def stop(self) -> None:
        """Return when no tick is under way and none will follow."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._ticking is not None:
            await self._ticking

    def wind(self, at_least_s: float = 0.0) -> None:
        """Set the timer to the next due instant, unless it is set to that or an earlier one."""
        if self._ticking is not None or self._stopped:
            return
        due_ms = self._engine.next_due()
        if self._timer is not None:
            if self._timer_ms <= due_ms:
                return
            self._timer.cancel()
            self._timer = None
        if due_ms >= _FAR_MS:
            return
        left_s = (due_ms - self._now_ms()) / 1000
        self._timer_ms = due_ms
        self._timer = self._loop.call_later(min(max(left_s, at_least_s), LONGEST_S), self._fire)

    def _fire(self) -> None:
        self._timer = None
        now_ms = self._now_ms()
        if self._engine.next_due() <= now_ms:
            self._ticking = self._loop.create_task(self._tick(now_ms))
        else:
            self.wind(BREATH_S)

    async def _tick(self, now_ms: int) -> None:
        pause_s = BREATH_S
        try:
            await self._engine.tick(now_ms)
        except BackendUnavailable as error:
            _log.warning("the store refuses writes, trying again: %s", error)
            pause_s = AFTER_FAILURE_S
        except Exception:  # noqa: BLE001 - time must go on
            _log.exception("a tick failed, trying again")
            pause_s = AFTER_FAILURE_S
        self._ticking = None
        self.wind(pause_s)
