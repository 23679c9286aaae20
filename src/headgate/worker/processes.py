"""Handlers that need a processor for themselves, in processes that can be killed."""

from __future__ import annotations

import asyncio
import multiprocessing
from multiprocessing.connection import Connection
from typing import Final

from msgspec import msgpack

from headgate.worker.child import Ended, Home, Work, main

_AT_ONCE: Final = 32_768
"""Bytes that a pipe takes without being read."""


class Died(Exception):
    """The process ended without an answer; the message says how."""


class Process:
    """A child that runs one job after the other."""

    def __init__(self, home: Home) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        # The child holds the other end of this one open for as long as it lives, and reads it:
        # when this process is gone, however it went, the child notices and goes too.
        watched, self._alive = context.Pipe(duplex=False)
        self._process = context.Process(
            target=main, args=(theirs, watched, home), name="headgate-job", daemon=False
        )
        self._process.start()
        theirs.close()
        watched.close()

    @property
    def usable(self) -> bool:
        return self._process.is_alive()

    async def run(self, work: Work) -> Ended:
        """How the job ended. Raises Died. To be cancelled means to kill the child."""
        try:
            asked = msgpack.encode(work)
            if len(asked) < _AT_ONCE:
                self._pipe.send_bytes(asked)
            else:
                # A child that is still starting does not read yet, and the loop must not wait for it.
                await asyncio.to_thread(self._pipe.send_bytes, asked)
            data = await _readable(self._pipe)
        except (EOFError, OSError):
            code = await asyncio.to_thread(self._reap)
            raise Died(f"the handler's process ended with exit code {code}") from None
        except BaseException:
            self.kill()
            raise
        return msgpack.decode(data, type=Ended)

    def kill(self) -> None:
        self._process.kill()
        self._reap()

    def _reap(self) -> int | None:
        self._process.join(10)
        code = self._process.exitcode
        self._pipe.close()
        self._alive.close()
        return code


class Processes:
    """So many children at most; they are kept for the next job."""

    def __init__(self, most: int, home: Home) -> None:
        self._room = asyncio.Semaphore(most)
        self._home = home
        self._idle: list[Process] = []

    async def run(self, work: Work) -> Ended:
        """How the job ended. Raises Died."""
        async with self._room:
            process = await self._take()
            ended = await process.run(work)
            self._idle.append(process)
            return ended

    def end(self) -> None:
        for process in self._idle:
            process.kill()
        self._idle.clear()

    async def _take(self) -> Process:
        while self._idle:
            process = self._idle.pop()
            if process.usable:
                return process
            process.kill()
        starting = asyncio.get_running_loop().run_in_executor(None, Process, self._home)
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(_unwanted)
            raise


def _unwanted(started: asyncio.Future[Process]) -> None:
    if not started.cancelled() and started.exception() is None:
        started.result().kill()


async def _readable(pipe: Connection) -> bytes:
    """One message."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def found() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(pipe.fileno(), found)
    try:
        await ready
    finally:
        loop.remove_reader(pipe.fileno())
    # The child writes without a pause: what has begun to come comes.
    return await asyncio.to_thread(pipe.recv_bytes)
