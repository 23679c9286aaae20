"""One connection to a server, for one request at a time."""

from __future__ import annotations

import asyncio
from typing import cast

import httptools

from headgate.client.errors import OjsConnectionError
from headgate.client.transport.contract import Answer


class Connection(asyncio.Protocol):
    """Writes a request, reads its answer; usable again while `open` is true."""

    def __init__(self, most_bytes: int) -> None:
        self.open = False
        self._most_bytes = most_bytes
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[Answer] | None = None
        self._headers: dict[str, str] = {}
        self._parts: list[bytes] = []
        self._size = 0

    async def ask(self, request: bytes) -> Answer:
        """The answer; whatever stops this from coming closes the connection."""
        assert self._transport is not None
        self._headers = {}
        self._parts = []
        self._size = 0
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._answer = answer
        try:
            self._transport.write(request)
            return await answer
        except BaseException:
            self.abort()
            raise
        finally:
            self._answer = None

    def abort(self) -> None:
        self.open = False
        if self._transport is not None:
            self._transport.abort()

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.open = True

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            # Nobody asked: what comes after this could not be told apart from an answer.
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"the server's answer is not HTTP: {error}")

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        self._fail(f"the connection broke{f': {exc}' if exc else ''}")

    # httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._size > self._most_bytes:
            self._fail(f"the server's answer has more than {self._most_bytes} bytes")
            return
        self._parts.append(body)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            self._headers = {}
            return
        if not self._parser.should_keep_alive():
            self.open = False
        if self._answer is not None and not self._answer.done():
            parts = self._parts
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            self._answer.set_result(Answer(status, self._headers, body))

    def _fail(self, message: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(OjsConnectionError(message, uncertain=True))
