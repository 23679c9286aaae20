"""The smallest client that tells an answer from none."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

JSON = "application/openjobspec+json"
Address = tuple[str, int]


class NoAnswer(Exception):
    """The connection ended before the whole answer was here; whether it was carried out is unknown."""


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Of the OJS error."""
        return str(self.json["error"]["code"])


def call(
    address: Address, method: str, path: str, body: Any = None, timeout_s: float = 30
) -> Reply:
    """One request on a connection of its own."""
    connection = http.client.HTTPConnection(*address, timeout=timeout_s)
    try:
        content = None if body is None else json.dumps(body).encode()
        connection.request(method, path, content, {"Content-Type": JSON} if content else {})
        answer = connection.getresponse()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(answer.status, headers, answer.read())
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswer(f"{method} {path}: {error!r}") from None
    finally:
        connection.close()


def enqueue(address: Address, queue: str, *args: Any, **options: Any) -> Reply:
    body = {"type": "fault.test", "args": list(args), "options": {"queue": queue, **options}}
    return call(address, "POST", "/ojs/v1/jobs", body)


class Connection:
    """One connection that is kept; one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, address: Address) -> AsyncIterator[Connection]:
        try:
            reader, writer = await asyncio.open_connection(*address)
        except OSError as error:
            raise NoAnswer(repr(error)) from None
        try:
            yield cls(reader, writer)
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def request(self, method: str, path: str, body: Any = None) -> Reply:
        self.send(method, path, body)
        return await self.receive()

    async def post(self, path: str, body: Any) -> Reply:
        return await self.request("POST", f"/ojs/v1{path}", body)

    def send(self, method: str, path: str, body: Any = None) -> None:
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: test\r\n"
        if body is not None:
            head += f"Content-Type: {JSON}\r\nContent-Length: {len(content)}\r\n"
        self._writer.write(f"{head}\r\n".encode() + content)

    def write(self, data: bytes) -> None:
        """Send anything at all."""
        self._writer.write(data)

    def half_close(self) -> None:
        """Send nothing more, but listen."""
        self._writer.write_eof()

    def hear_nothing(self) -> None:
        """Let what comes pile up at the other side."""
        transport = self._writer.transport
        assert isinstance(transport, asyncio.ReadTransport)
        transport.pause_reading()

    async def receive(self) -> Reply:
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").rstrip().split("\r\n")
            headers = {
                name.lower(): value for name, _, value in (line.partition(": ") for line in lines)
            }
            body = await self._reader.readexactly(int(headers.get("content-length", "0")))
        except (OSError, EOFError) as error:
            raise NoAnswer(repr(error)) from None
        return Reply(int(first.split()[1]), headers, body)

    def abort(self) -> None:
        """Be gone at once."""
        self._writer.transport.abort()
