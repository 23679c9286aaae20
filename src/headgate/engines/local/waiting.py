"""Those who wait for work.

A wake-up is a hint for one waiter: look again.
Whoever leaves the line passes a hint on when jobs are left, so none is lost: whether it took one job of several or none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headgate.core.states import AVAILABLE

if TYPE_CHECKING:
    from headgate.engines.local.queue import Queue


class Waiting:
    """One waiter, in line at each of its queues."""

    __slots__ = ("_future", "_over", "_queues", "_woken", "worker")

    def __init__(self, queues: Sequence[Queue], worker: str) -> None:
        self.worker = worker
        self._queues = queues
        self._woken = False
        self._over = False
        self._future: asyncio.Future[bool] | None = None
        for queue in queues:
            queue.waiting[self] = None

    @property
    def is_woken(self) -> bool:
        return self._woken

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

    def wake(self) -> bool:
        """Tell this one; false when it has been told already."""
        if self._woken:
            return False
        self._woken = True
        if self._future is not None and not self._future.done():
            self._future.set_result(True)
        return True

    def end(self) -> None:
        """Nothing will come for this one any more: let it return."""
        self._over = True
        if self._future is not None and not self._future.done():
            self._future.set_result(False)

    def close(self) -> None:
        for queue in self._queues:
            queue.waiting.pop(self, None)
        for queue in self._queues:
            pass_on(queue)


def wake(queue: Queue) -> None:
    """Tell the first in line, unless it has been told already: then it passes the next hint on."""
    waiting = queue.waiting
    for waiter in waiting:
        if waiter.wake():
            del waiting[waiter]
            waiting[waiter] = None
        return


def pass_on(queue: Queue) -> None:
    """Tell somebody when jobs are left."""
    if queue.waiting and not queue.paused and queue.counts[AVAILABLE]:
        wake(queue)


def _expire(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(False)
