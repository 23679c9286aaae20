"""By when the client of a connection must have done its part."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Deadlines:
    """One for what it sends and one for what it takes, on one timer.

    A timer that fires too early only looks again, so a connection that keeps its deadlines hardly ever sets one.
    """

    __slots__ = (
        "_loop",
        "_on_unsent",
        "_on_untaken",
        "_send_by",
        "_take_by",
        "_timer",
        "_timer_at",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_unsent: Callable[[], None],
        on_untaken: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._on_unsent = on_unsent
        self._on_untaken = on_untaken
        self._send_by = 0.0
        """0 while it need not send anything."""
        self._take_by = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def send_within(self, seconds: float) -> None:
        self._send_by = self._loop.time() + seconds
        self._set(self._send_by)

    def sent(self) -> None:
        self._send_by = 0.0

    def take_within(self, seconds: float) -> None:
        self._take_by = self._loop.time() + seconds
        self._set(self._take_by)

    def taken(self) -> None:
        self._take_by = 0.0

    def stop(self) -> None:
        self._take_by = self._send_by = 0.0
        if self._timer is not None:
            self._timer.cancel()

    def _set(self, at: float) -> None:
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        if 0 < self._take_by <= now:
            self._take_by = 0.0
            self._on_untaken()
        if 0 < self._send_by <= now:
            self._send_by = 0.0
            self._on_unsent()
        if self._take_by or self._send_by:
            self._set(min(at for at in (self._take_by, self._send_by) if at))
