"""Sends what the buffer keeps, in the background, queue by queue and oldest first."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from msgspec import Struct

from headgate import ids
from headgate.client.core import Core, worth_repeating
from headgate.client.errors import (
    CircuitOpenError,
    DuplicateJobError,
    OjsError,
    QueueFullError,
    ResourceError,
)
from headgate.client.pressure.buffer import Buffer, Kept

MOST_JOBS: Final = 100
MOST_BYTES: Final = 1 << 20
T = TypeVar("T")
_log = logging.getLogger(__name__)


class _Queue(Struct):
    """What is known of one queue while it is drained."""

    most: int = MOST_JOBS
    """How many jobs to send at once: fewer after a refusal, more again after a success."""
    not_before_s: float = 0.0
    waited_s: float = 0.0


class Drain:
    """Fills and empties a buffer. Emptying runs on the loop that last kept something, as long as there is something."""

    def __init__(
        self,
        buffer: Buffer,
        send: Callable[[Sequence[bytes], str], Awaitable[None]],
        core: Core,
    ) -> None:
        self.buffer = buffer
        self._send = send
        self._core = core
        self._queues: dict[str, _Queue] = {}
        self._failures = 0
        self._task: asyncio.Task[None] | None = None
        self._begun = False

    async def keep(self, jobs: Sequence[Kept]) -> bool:
        """Whether they are kept; that means on disk where the buffer is durable."""
        if not await self._do(self.buffer.put, jobs):
            return False
        self.start()
        return True

    def start(self) -> None:
        """Drain in the background, if that is not going on already."""
        self._begun = True
        task = self._task
        if task is None or task.done() or task.get_loop().is_closed():
            self._task = asyncio.get_running_loop().create_task(self._run())

    def start_once(self) -> None:
        """Drain what was there before this object was."""
        if not self._begun:
            self.start()

    async def flush(self) -> None:
        """Return when the buffer is empty."""
        while await self._do(self.buffer.__len__):
            self.start()
            assert self._task is not None
            if self._task.get_loop() is asyncio.get_running_loop():
                await asyncio.shield(self._task)
            else:
                await self._core.clock.sleep(0.05)

    async def stop(self) -> None:
        """What is still kept stays kept."""
        task, self._task = self._task, None
        if task is not None and task.get_loop() is asyncio.get_running_loop():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        while True:
            try:
                wait_s = await self.step()
            except Exception:  # noqa: BLE001 - a full disk today is no reason to lose jobs tomorrow
                _log.exception("the local buffer could not be drained; trying again")
                wait_s = self._core.waits.cap_s
            if wait_s is None:
                return
            if wait_s:
                await self._core.clock.sleep(wait_s)

    async def step(self) -> float | None:
        """Send once; how long there is nothing to do then, None when there is nothing left."""
        now_s = self._core.clock.elapsed_s()
        waiting = {name: one for name, one in self._queues.items() if one.not_before_s > now_s}
        jobs = await self._do(self.buffer.first, MOST_JOBS, MOST_BYTES, set(waiting))
        if not jobs:
            if not waiting or not await self._do(self.buffer.__len__):
                self._queues.clear()
                return None
            return min(one.not_before_s for one in waiting.values()) - now_s
        queue = self._queues.setdefault(jobs[0].queue, _Queue())
        jobs = jobs[: queue.most]
        try:
            await self._send([job.body for job in jobs], jobs[0].queue)
        except OjsError as error:
            return await self._refused(queue, jobs, error)
        await self._do(self.buffer.remove, jobs)
        self._failures = 0
        queue.most = min(MOST_JOBS, queue.most * 2)
        queue.waited_s = 0.0
        return 0.0

    async def _refused(self, queue: _Queue, jobs: Sequence[Kept], error: OjsError) -> float:
        now_s = self._core.clock.elapsed_s()
        if isinstance(error, CircuitOpenError):
            queue.not_before_s = now_s + (error.retry_after_s or 0.0)
            return 0.0
        if isinstance(error, ResourceError):
            room = error.room if isinstance(error, QueueFullError) else 0
            if 0 < room < len(jobs):
                queue.most = room
                return 0.0
            # Only what is as small as can be says by its refusal that there is no room at all.
            before_s = queue.waited_s if len(jobs) == 1 else 0.0
            queue.waited_s = self._core.waits.refused(before_s, error.retry_after_s)
            queue.not_before_s = now_s + queue.waited_s
            queue.most = max(1, len(jobs) // 2)
            return 0.0
        if worth_repeating(error):
            self._failures += 1
            return self._core.waits.failed(self._failures, ids.uniform())
        if isinstance(error, DuplicateJobError):
            there = [job for job in jobs if job.id == error.existing_job_id]
            if there:
                # An earlier try did arrive, and its answer did not.
                await self._do(self.buffer.remove, there)
                return 0.0
        index = error.details.get("index")
        if len(jobs) == 1:
            index = 0
        if isinstance(index, int) and 0 <= index < len(jobs):
            job = jobs[index]
            _log.error("buffered job %s was refused for good: %s", job.id, error)
            await self._do(self.buffer.reject, job, str(error))
        else:
            queue.most = 1
        return 0.0

    async def _do(self, step: Callable[..., T], *args: Any) -> T:
        if self.buffer.durable:
            return await asyncio.to_thread(step, *args)
        return step(*args)
