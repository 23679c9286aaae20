"""The worker as programs see it: settings, start, stop, signals."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from headgate import ids
from headgate.client.app import AsyncHeadgate, Headgate
from headgate.client.chain import Chain
from headgate.client.errors import OjsError, ValidationError
from headgate.client.sides import new_loop
from headgate.client.transport.http import HttpTransport
from headgate.core.times import instant_text
from headgate.version import VERSION
from headgate.worker.child import Home
from headgate.worker.link import ChosenLink, Identity
from headgate.worker.loop import Counts, Loop, Pace
from headgate.worker.processes import Processes
from headgate.worker.run import Middleware, Runs

_LAST_ANSWERS_S: Final = 10.0
"""How long a worker that ends goes on trying to deliver its last answers."""
_log = logging.getLogger("headgate.worker")


class Worker:
    """Fetches jobs, runs their handlers, answers for them.

    As long as it lives, the jobs that it holds are renewed. When it stops, what has not ended in time is given back.
    """

    def __init__(
        self,
        app: Headgate | AsyncHeadgate,
        *,
        queues: Sequence[str] | None = None,
        concurrency: int | None = None,
        pool: str | None = None,
        worker_id: str | None = None,
        grace: float | None = None,
        heartbeat: float = 5.0,
        wait: float = 2.0,
        poll: float = 1.0,
        exchange: bool | None = None,
        processes: int | None = None,
        most_deferrals: int = 100,
        middleware: Iterable[Middleware] = (),
        labels: Mapping[str, str] | None = None,
        burst: bool = False,
    ) -> None:
        """Which queues to serve, in which order, and how many jobs at the same time.

        `grace` is how many seconds running jobs have to end when the worker stops. `wait` is how long a fetch waits at the server when there is nothing to do, `poll` the pause between fetches at a server that does not wait. `exchange` False keeps to the standard requests; by default the server's manifest decides. `processes` bounds how many handlers run in processes at once. With `burst` the worker ends when it finds nothing more to do.
        """
        parts = app.parts
        settings = parts.settings
        self.app = app
        self.concurrency = settings.concurrency if concurrency is None else concurrency
        if self.concurrency < 1:
            raise ValidationError(f"concurrency must be at least 1, not {self.concurrency}")
        self.grace_s = settings.shutdown_s if grace is None else grace
        self.middleware: Chain[Middleware] = Chain(middleware)
        """What is called around every run."""
        core = parts.core
        now_ms = core.clock.now_ms()
        host = socket.gethostname()
        self.identity = Identity(
            worker_id or f"{host}-{os.getpid()}-{ids.uuid7(now_ms)[-8:]}",
            list(queues or parts.register.queues() or [settings.queue]),
            self.concurrency,
            host,
            os.getpid(),
            dict(labels or {}),
            VERSION,
            pool,
            instant_text(now_ms),
        )
        self._core = core
        self._register = parts.register
        self._pace = Pace(heartbeat, wait, poll, burst)
        self._exchange = exchange
        self._most_processes = processes or os.cpu_count() or 1
        self._most_deferrals = most_deferrals
        self._burst = burst
        self._loop: Loop | None = None
        self._runs: Runs | None = None
        self._pump: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._forced = asyncio.Event()

    @property
    def worker_id(self) -> str:
        return self.identity.worker_id

    @property
    def state(self) -> str:
        """stopped, running, quiet or terminate."""
        return "stopped" if self._loop is None else self._loop.state

    @property
    def counts(self) -> Counts:
        """What it has done since its start."""
        return Counts() if self._loop is None else self._loop.counts

    def active(self) -> list[str]:
        """The ids of the jobs that it runs."""
        return [] if self._loop is None else self._loop.active()

    def run(self) -> None:
        """Serve until a signal. TERM and INT stop, a second one without further patience; TSTP makes quiet, CONT goes on."""
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(self.serve(signals=True))

    async def serve(self, *, signals: bool = False) -> None:
        """Start, work until `request_stop`, a signal or the server says that it is enough, stop."""
        here = threading.current_thread() is threading.main_thread()
        undo = self._handle_signals() if signals and here else None
        try:
            await self.start()
            await self._told_to_stop()
        finally:
            await self.stop()
            if undo is not None:
                undo()

    async def start(self) -> None:
        """Begin to fetch, or to try until the server answers."""
        if self._loop is not None:
            raise RuntimeError("the worker has started already")
        link = ChosenLink(self._core, self.identity, self._exchange)
        await self.register()
        core = self._core
        transport = core.transport
        home = Home("")
        if isinstance(transport, HttpTransport):
            home = Home(transport.url, transport.token, tuple(sys.path))
        self.middleware.freeze()
        self._runs = Runs(
            core,
            self.middleware,
            Processes(self._most_processes, home),
            self.worker_id,
            self._most_deferrals,
        )
        self._loop = Loop(
            core, link, self._runs, self._register, self.concurrency, self._pace, self.register
        )
        self._pump = asyncio.get_running_loop().create_task(self._loop.pump())
        _log.info(
            "worker %s serves %s, %d at once",
            self.worker_id,
            ", ".join(self.identity.queues),
            self.concurrency,
        )

    async def register(self) -> None:
        """Introduce this worker; a server without such a request learns of it with the first heartbeat."""
        with suppress(OjsError):
            await self._core.call(
                "register", "POST", "/workers/register", self.identity.body(), tries=2
            )

    def request_stop(self) -> None:
        """Make `serve` end; safe to call again, and from signal handlers of the loop."""
        if self._stopping.is_set():
            self._forced.set()
        self._stopping.set()

    def quiet(self) -> None:
        """Fetch nothing more, and finish what runs."""
        if self._loop is not None and self._loop.state == "running":
            self._loop.set_state("quiet")

    def resume(self) -> None:
        """Fetch again after `quiet`; there is no way back from stopping."""
        if self._loop is not None and self._loop.state == "quiet":
            self._loop.set_state("running")

    async def stop(self, grace: float | None = None) -> None:
        """Fetch nothing more, let jobs end for `grace` seconds, give back the others, and leave."""
        loop, pump = self._loop, self._pump
        if loop is None or pump is None:
            return
        loop.set_state("terminate")
        loop.finish()
        grace_s = self.grace_s if grace is None else grace
        forced = asyncio.get_running_loop().create_task(self._forced.wait())
        try:
            await asyncio.wait({pump, forced}, timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
            if not pump.done():
                _log.warning("%d jobs have not ended in time and are given back", loop.busy)
                loop.interrupt_all("shutdown")
                await asyncio.wait({pump}, timeout=_LAST_ANSWERS_S)
        finally:
            forced.cancel()
            pump.cancel()
            with suppress(asyncio.CancelledError):
                await pump
            await loop.close()
            if self._runs is not None:
                self._runs.end()
            with suppress(OjsError):
                await self._core.call(
                    "deregister",
                    "POST",
                    "/workers/deregister",
                    {"worker_id": self.worker_id},
                    tries=2,
                )
            await self._core.transport.close()
            self._loop = self._pump = self._runs = None
            self._stopping.clear()
            self._forced.clear()
            self.middleware.thaw()
            _log.info("worker %s has ended", self.worker_id)

    async def _told_to_stop(self) -> None:
        assert self._loop is not None
        assert self._pump is not None
        running = asyncio.get_running_loop()
        waits: set[asyncio.Task[object]] = {running.create_task(self._stopping.wait())}
        waits.add(running.create_task(self._obey(self._loop)))
        if self._burst:
            waits.add(running.create_task(self._loop.idle.wait()))
        try:
            done, _ = await asyncio.wait({*waits, self._pump}, return_when=asyncio.FIRST_COMPLETED)
            if self._pump in done:
                self._pump.result()
        finally:
            for one in waits:
                one.cancel()

    async def _obey(self, loop: Loop) -> None:
        """Follow what the server wants the worker to be; return when it wants it to end."""
        while loop.told != "terminate":
            await loop.told_something.wait()
            loop.told_something.clear()
            if loop.told == "quiet":
                self.quiet()

    def _handle_signals(self) -> Callable[[], None]:
        loop = asyncio.get_running_loop()
        handlers = {
            signal.SIGTERM: self.request_stop,
            signal.SIGINT: self.request_stop,
            signal.SIGTSTP: self.quiet,
            signal.SIGCONT: self.resume,
        }
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)

        def undo() -> None:
            for number in handlers:
                loop.remove_signal_handler(number)

        return undo
