"""An event loop in which waiting takes no time."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any


class Instantly(selectors.SelectSelector):
    """Instead of waiting it moves the time on, and counts how often it was woken."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.wakes = 0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "nothing will ever happen"
        if timeout:
            self.now += timeout
            self.wakes += 1
        return super().select(0)


class Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.instantly = Instantly()
        super().__init__(self.instantly)

    def time(self) -> float:
        return self.instantly.now
