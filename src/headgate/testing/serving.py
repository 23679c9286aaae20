"""A real server for tests: in a thread of its own, on loopback, in memory."""

from __future__ import annotations

import asyncio
import socket
import threading

from headgate import runtime
from headgate.server.settings import Settings

STARTS_S = 30.0


class ServerThread:
    """Listens at `url` from `start` to `stop`."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._ready = threading.Event()
        self._server: runtime.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="headgate-server", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._ready.wait(STARTS_S)
        if self._server is None or self._error is not None:
            raise RuntimeError("the server for tests did not start") from self._error

    def stop(self) -> None:
        if self._server is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._server.stopping.set)
        self._thread.join(STARTS_S)
        self._listener.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - whoever started it raises it
            self._error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        app = runtime.application(Settings(store="memory:", shutdown_s=2.0))
        async with runtime.alive(app.context, advise=False):
            self._server = runtime.Server(app, self._ready.set)
            await self._server.serve([self._listener])
