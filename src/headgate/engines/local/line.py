"""Producers that wait for room in full queues, in the order in which they came."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.engines.local.queue import Queue


class Waiter:
    """One producer, in line before each of the queues that its jobs want to enter."""

    __slots__ = ("_closed", "_future", "_on_close", "_over", "_woken", "needs")

    def __init__(
        self, needs: dict[Queue, tuple[int, int]], on_close: Callable[[Waiter], None]
    ) -> None:
        self.needs = needs
        """Queue -> jobs and bytes that want in."""
        self._on_close = on_close
        self._woken = False
        self._over = False
        self._closed = False
        self._future: asyncio.Future[bool] | None = None
        for queue, need in needs.items():
            queue.line[self] = need
            queue.followed = True

    @property
    def is_woken(self) -> bool:
        return self._woken

    def is_first(self) -> bool:
        """Whether nobody stands before it in any of its lines."""
        return all(next(iter(queue.line)) is self for queue in self.needs)

    async def wait(self, timeout_s: float) -> bool:
        if self._over:
            return False
        if self._woken:
            self._woken = False
            return True
        loop = asyncio.get_running_loop()
        self._future = future = loop.create_future()
        timer = loop.call_later(timeout_s, _expire, future)
        try:
            woken: bool = await future
        finally:
            timer.cancel()
            self._future = None
        if woken:
            self._woken = False
        return woken

    def wake(self) -> None:
        """There should be room."""
        self._woken = True
        if self._future is not None and not self._future.done():
            self._future.set_result(True)

    def end(self) -> None:
        """Nobody will get in any more: let it return."""
        self._over = True
        if self._future is not None and not self._future.done():
            self._future.set_result(False)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for queue in self.needs:
            queue.line.pop(self, None)
            queue.refollow()
        self._on_close(self)


def _expire(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(False)
