"""A connection between a client and a server that drops, delays and truncates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random


class Proxy:
    """Passes bytes on, except when its dice say otherwise."""

    def __init__(self, host: str, port: int, random: Random, faults: float) -> None:
        self._server = (host, port)
        self._random = random
        self.faults = faults
        """How likely a fault is for each piece that passes."""
        self.dropped = 0
        """Connections that were cut before the server saw the request."""
        self.lost = 0
        """Requests that the server saw and whose answers were thrown away."""
        self.truncated = 0
        self.delayed = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        listening = await asyncio.start_server(self._begin, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            listening.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(*self._server)
        except OSError:
            writer.transport.abort()
            return
        try:
            await asyncio.wait(
                {
                    asyncio.create_task(self._requests(reader, back)),
                    asyncio.create_task(self._answers(there, writer)),
                },
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            # Both ends at once and at once: whatever had not passed is gone.
            writer.transport.abort()
            back.transport.abort()

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await _read(reader):
            if self._fault():
                self.dropped += 1
                return
            writer.write(piece)
            with suppress(ConnectionError):
                await writer.drain()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await _read(reader):
            if self._fault():
                match self._random.randrange(3):
                    case 0:
                        self.lost += 1
                        return
                    case 1:
                        self.truncated += 1
                        writer.write(piece[: self._random.randrange(len(piece))])
                        with suppress(ConnectionError):
                            await writer.drain()
                        return
                    case _:
                        self.delayed += 1
                        await asyncio.sleep(0.05)
            writer.write(piece)
            with suppress(ConnectionError):
                await writer.drain()

    def _fault(self) -> bool:
        return self._random.random() < self.faults


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(65_536)
    except ConnectionError:
        return b""
