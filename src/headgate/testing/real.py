"""The mode that needs a server: a real one, with real time and real workers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from headgate.client.clock import Clock, SystemClock
from headgate.client.context import Context
from headgate.client.core import Core
from headgate.client.pressure.waits import Waits
from headgate.client.sides import AsyncSide, SyncSide, verb
from headgate.client.transport.contract import Transport
from headgate.client.transport.http import HttpTransport
from headgate.testing.memory import shared
from headgate.testing.serving import ServerThread
from headgate.testing.stage import App, Stage
from headgate.worker.worker import Worker


class _Real(Stage):
    def __init__(self, *apps: App, url: str | None = None, token: str | None = None) -> None:
        """At the server of this address; without one, at a server of its own."""
        super().__init__(*apps)
        self._url = url
        self._token = token
        self._server: ServerThread | None = None

    @property
    def url(self) -> str:
        """Where the server listens."""
        if self._url is not None:
            return self._url
        if self._server is None:
            raise RuntimeError("it is not in force: use it with `with`")
        return self._server.url

    def _begin(self) -> None:
        if self._url is None:
            self._server = ServerThread()
            self._server.start()

    def _end(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def _transport(self, core: Core) -> tuple[Transport, Clock, Waits]:
        return HttpTransport(self.url, token=self._token), SystemClock(), Waits()

    @verb
    async def drain(
        self, queue: str | None = None, *, timeout: float = 30.0, workers: int = 10
    ) -> int:
        """Let real workers run until they find nothing more; how many runs that were.

        A job that waits for its time, a retry or a limit is not waited for.
        """
        ran = 0

        async def around(context: Context, following: Callable[[], Awaitable[Any]]) -> Any:
            nonlocal ran
            ran += 1
            fault = self._faults.next(context.type)
            if fault is not None:
                raise fault
            return await following()

        seen = list(dict.fromkeys(one.queue for one in self._enqueued.values()))
        async with asyncio.timeout(timeout):
            for app in self._apps:
                queues = [queue] if queue else [*app.register.queues(), *seen]
                if queues:
                    worker = Worker(
                        app,
                        queues=list(dict.fromkeys(queues)),
                        concurrency=workers,
                        middleware=[around],
                        wait=0.05,
                        poll=0.05,
                        burst=True,
                    )
                    await worker.serve()
        return ran

    @verb
    async def clear(self) -> None:
        """Forget what was enqueued and planned failures. The server keeps its jobs."""
        self._enqueued.clear()
        self._ran.clear()
        self._faults.clear()

    clear_all = clear


class Real(_Real, SyncSide):
    """The application at a real server."""

    lends = True

    @property
    def aio(self) -> AsyncReal:
        """The same for tests that await."""
        return shared(self, AsyncReal)


class AsyncReal(_Real, AsyncSide):
    """As `Real`, for tests that await."""
