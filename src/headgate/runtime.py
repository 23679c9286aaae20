"""The composition root: settings in, running server out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import cast

import uvicorn

from headgate import clock, ids
from headgate.engines.contract import Engine
from headgate.engines.local.engine import LocalEngine
from headgate.server.app import Application
from headgate.server.configuration import SettingInvalid
from headgate.server.context import Context
from headgate.server.duties.clockwork import Clockwork
from headgate.server.protocol import HttpProtocol
from headgate.server.routes import ROUTES
from headgate.server.settings import Settings
from headgate.version import VERSION
from headgate.wire.manifest import EXTENSIONS

_LOOK_AGAIN_S = 0.02
_MOST_NAMED = 10

_log = logging.getLogger(__name__)


class CannotListen(Exception):
    """The address cannot be had; the message is one line."""


def application(settings: Settings) -> Application:
    """The whole server as an ASGI application that opens and closes its engine with its lifespan."""
    now = clock.Clock()
    context = Context(
        engine=cast("Engine", None),  # until the lifespan begins
        settings=settings,
        now_ms=now.now_ms,
        now_us=now.now_us,
        new_id=ids.uuid7,
        uniform=ids.uniform,
    )
    return Application(context, ROUTES, EXTENSIONS, life=alive)


async def open_engine(settings: Settings) -> LocalEngine:
    """The engine that `store` names; raises SettingInvalid or StoreUnusable."""
    return await LocalEngine.open(
        store_path(settings.store),
        durability=settings.durability,
        now_ms=clock.wall_ms(),
        strict_queues=settings.strict_queues,
        heartbeat_timeout_ms=settings.heartbeat_timeout_s * 1000,
        events_kept=settings.events_kept,
        elapsed_s=clock.elapsed_s,
    )


def store_path(url: str) -> str:
    """What the engine opens: a path, or `:memory:`."""
    if url == "memory:":
        return ":memory:"
    scheme, separator, path = url.partition(":///")
    named = path.strip("/") and "?" not in path and path != ":memory:"
    if scheme == "sqlite" and separator and named:
        return path
    raise SettingInvalid(
        f"store: must be sqlite:///PATH, sqlite:////ABSOLUTE/PATH or memory:, not {url!r}"
    )


@contextlib.asynccontextmanager
async def alive(context: Context, *, advise: bool = True) -> AsyncIterator[None]:
    """Open the engine into the context and keep its time, until the end; advise those who run it for good."""
    engine = await open_engine(context.settings)
    context.engine = engine
    now = clock.Clock(engine.recovered.last_ms)
    context.now_ms, context.now_us = now.now_ms, now.now_us
    context.started_at = context.now_ms()
    engine.listen(context.metrics.observe)
    if advise:
        await _warn_of_unbounded(engine, context.started_at)
    clockwork = Clockwork(engine, context.now_ms)
    clockwork.start()
    try:
        yield
    finally:
        await clockwork.stop()
        await engine.close()


async def _warn_of_unbounded(engine: Engine, now_ms: int) -> None:
    """A queue without a bound takes all that comes, until memory or disk are full."""
    names = [q.name for q in await engine.queues(now_ms) if not q.resolved.bounds.bounded]
    if names:
        shown = ", ".join(names[:_MOST_NAMED])
        if len(names) > _MOST_NAMED:
            shown += f" and {len(names) - _MOST_NAMED} more"
        _log.warning("without a bound, so they take all that comes: %s", shown)


class Server(uvicorn.Server):
    """uvicorn, woken by an event instead of looking for one, and with signals as OJS wants them."""

    def __init__(self, app: Application, ready: Callable[[], None]) -> None:
        settings = app.context.settings
        super().__init__(
            uvicorn.Config(
                app,
                http=HttpProtocol,
                ws="none",
                lifespan="off",
                interface="asgi3",
                proxy_headers=False,
                log_config=None,
                access_log=False,
            )
        )
        self.app = app
        self.ready = ready
        self.stopping = asyncio.Event()
        self.shutdown_s = settings.shutdown_s

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready()

    async def main_loop(self) -> None:
        await self.stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept nobody, let everybody finish what is begun, then cut off who is left."""
        for server in self.servers:
            server.close()
        connections = self.server_state.connections
        self.app.drain()
        for connection in list(connections):
            connection.shutdown()
        until = asyncio.get_running_loop().time() + self.shutdown_s
        while connections or self.app.in_flight:
            if asyncio.get_running_loop().time() >= until:
                _log.warning("%d requests were cut off", self.app.in_flight)
                break
            await asyncio.sleep(_LOOK_AGAIN_S)
        for connection in list(connections):
            cast("HttpProtocol", connection).cut_off()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn takes them while it serves; that is not long enough, see `heeding_signals`."""
        yield

    @contextlib.contextmanager
    def heeding_signals(self) -> Iterator[None]:
        """The first one stops the server, the next one the process, whatever is still going on."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
                # It has stopped in order; a late signal must not make that look like a failure.
                signal.signal(number, signal.SIG_IGN)

    def _on_signal(self) -> None:
        if self.stopping.is_set():
            # What was answered is on disk; nothing else is owed to anybody.
            _log.warning("forced to stop")
            os._exit(1)
        _log.info("stopping")
        self.stopping.set()


async def serve(settings: Settings, say: Callable[[str], None]) -> None:
    """Run until a signal; `say` is told in single lines what a person wants to know."""
    store_path(settings.store)
    app = application(settings)
    listener = _bind(settings.host, settings.port)
    with contextlib.closing(listener), contextlib.ExitStack() as until_stopped:
        async with alive(app.context):
            server = Server(app, lambda: _introduce(app, listener, say))
            # Held until the engine is closed, too: folding what is left can take a while.
            until_stopped.enter_context(server.heeding_signals())
            await server.serve([listener])
        say("stopped")


def run(settings: Settings, say: Callable[[str], None]) -> None:
    """`serve` on the fastest loop there is."""
    make: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with contextlib.suppress(ImportError):
        from uvloop import new_event_loop as make
    with asyncio.Runner(loop_factory=make) as runner:
        runner.run(serve(settings, say))


def _bind(host: str, port: int) -> socket.socket:
    """Take the address before the store is opened, so that two servers do not meet there first."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = min(found, key=lambda entry: entry[0])
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise CannotListen(f"{host}:{port}: {error.strerror}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise CannotListen(f"{host}:{port}: {(error.strerror or str(error)).lower()}") from None
    return listener


def _introduce(app: Application, listener: socket.socket, say: Callable[[str], None]) -> None:
    settings = app.context.settings
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    say(f"headgate {VERSION}, listening on http://{shown}:{port}")
    if settings.store == "memory:":
        say("store memory:, everything is forgotten at the end")
    else:
        recovered = cast("LocalEngine", app.context.engine).recovered
        say(
            f"store {settings.store}, durability {settings.durability}, "
            f"recovered {recovered.live} live jobs and {recovered.records} journal records"
        )
    if settings.test_hooks:
        say("warning: test hooks are on, anybody who may come in can wipe everything")
    if settings.insecure and not settings.tokens:
        say("warning: insecure, whoever reaches this address may do everything")
