"""Those who wait for work.

A wake-up is a hint for one waiter: look again.
Whoever leaves the line, or looked and found nothing, passes a hint on when there is something for others; so none is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from headgate.engines.contract import Fetch

if TYPE_CHECKING:
    from headgate.engines.local.dispatch import Dispatch
    from headgate.engines.local.keys import Key
    from headgate.engines.local.queue import Queue


class Waiting:
    """One waiter, in line at each of its queues."""

    __slots__ = ("_future", "_looked", "_on_pass", "_over", "_woken", "fetch", "pool", "queues")

    def __init__(self, fetch: Fetch, on_pass: Callable[[Waiting, bool], None]) -> None:
        self.fetch = fetch
        self.pool = ""
        self.queues: list[Queue] = []
        self._on_pass = on_pass
        """Called when it will not use the hint that it may have; and whether it leaves for good."""
        self._woken = False
        self._looked = False
        self._over = False
        self._future: asyncio.Future[bool] | None = None

    def stand(self, queues: list[Queue]) -> None:
        """Stand in line at these queues, and at no other."""
        for queue in self.queues:
            queue.waiting.pop(self, None)
            queue.refollow()
        self.queues = queues
        for queue in queues:
            queue.waiting[self] = None
            queue.followed = True

    @property
    def is_woken(self) -> bool:
        return self._woken

    async def wait(self, timeout_s: float) -> bool:
        if self._over:
            return False
        if self._looked:
            self._looked = False
            self._on_pass(self, False)
        if not self._woken:
            loop = asyncio.get_running_loop()
            self._future = future = loop.create_future()
            timer = loop.call_later(timeout_s, _expire, future)
            try:
                await future
            finally:
                timer.cancel()
                self._future = None
        if not self._woken:
            return False
        self._woken = False
        self._looked = True
        return True

    def wake(self) -> None:
        self._woken = True
        if self._future is not None and not self._future.done():
            self._future.set_result(True)

    def end(self) -> None:
        """Nothing will come for this one any more: let it return."""
        self._over = True
        self._woken = False
        if self._future is not None and not self._future.done():
            self._future.set_result(False)

    def close(self) -> None:
        queues = self.queues
        for queue in queues:
            queue.waiting.pop(self, None)
            queue.refollow()
        self._on_pass(self, True)
        self.queues = []


class Waiters:
    """All who wait, and who of them is told."""

    __slots__ = ("_by_pool", "_by_worker", "_dispatch", "all")

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch
        self.all: dict[Waiting, None] = {}
        self._by_pool: dict[str, dict[Waiting, None]] = {}
        self._by_worker: dict[str, dict[Waiting, None]] = {}

    def add(self, fetch: Fetch) -> Waiting:
        waiter = Waiting(fetch, self._pass_on)
        self.all[waiter] = None
        self._by_worker.setdefault(fetch.worker, {})[waiter] = None
        self.place(waiter)
        return waiter

    def place(self, waiter: Waiting) -> None:
        """Let it stand in line at the queues that its fetch is served from now."""
        self._leave_pool(waiter)
        waiter.pool = self._dispatch.pool_of(waiter.fetch)
        self._by_pool.setdefault(waiter.pool, {})[waiter] = None
        waiter.stand(self._dispatch.queues_of(waiter.fetch))

    def _leave_pool(self, waiter: Waiting) -> None:
        known = self._by_pool.get(waiter.pool)
        if known is not None:
            known.pop(waiter, None)
            if not known:
                del self._by_pool[waiter.pool]

    def of_worker(self, worker: str) -> list[Waiting]:
        return list(self._by_worker.get(worker, ()))

    def tell(self, queue: Queue) -> None:
        """There may be something in this queue: let one know that it fits."""
        if not queue.waiting or self._dispatch.rests or not queue.open or queue.first() is None:
            return
        could = self._dispatch.could
        for waiter in queue.waiting:
            if could(waiter.fetch, queue):
                if waiter.is_woken:
                    # It passes the next hint on when it has looked.
                    return
                chosen = self._dispatch.least_loaded(waiter, queue)
                del queue.waiting[chosen]
                queue.waiting[chosen] = None
                chosen.wake()
                return

    def tell_freed(self, pools: Iterable[str], workers: Iterable[str]) -> None:
        """Some have room for one more active job."""
        for pool in pools:
            self._tell_one(self._by_pool.get(pool, ()))
        for worker in workers:
            self._tell_one(self._by_worker.get(worker, ()))

    def tell_opened(self, key: Key) -> None:
        """A gate has opened at which very many queues wait: let those know who can tell that it concerns them."""
        pools = self._dispatch.pools_at(key)
        self.tell_freed(pools, ())
        for pool, waiters in self._by_pool.items():
            if not self._dispatch.takes_turns(pool):
                for queue in {queue for waiter in waiters for queue in waiter.queues}:
                    if key in queue.groups.by_key:
                        self.tell(queue)

    def _tell_one(self, waiters: Iterable[Waiting]) -> None:
        if self._dispatch.rests:
            return
        could = self._dispatch.could
        for waiter in waiters:
            if any(could(waiter.fetch, queue) for queue in self._dispatch.offering(waiter)):
                if not waiter.is_woken:
                    waiter.wake()
                return

    def _pass_on(self, waiter: Waiting, leaves: bool) -> None:
        if leaves:
            self.all.pop(waiter, None)
            self._leave_pool(waiter)
            known = self._by_worker.get(waiter.fetch.worker)
            if known is not None:
                known.pop(waiter, None)
                if not known:
                    del self._by_worker[waiter.fetch.worker]
        for queue in self._dispatch.offering(waiter):
            self.tell(queue)
        if waiter.pool in self._by_pool:
            self.tell_freed((waiter.pool,), ())


def _expire(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(False)
