"""HTTP/1.1 over a pool of connections, one pool per event loop."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlsplit
from weakref import WeakKeyDictionary

from headgate.client.errors import OjsConnectionError, OjsTimeoutError, ValidationError
from headgate.client.transport.connection import Connection
from headgate.client.transport.contract import Answer
from headgate.version import VERSION

CONNECTIONS: Final = 64
CONNECT_S: Final = 5.0
MOST_BYTES: Final = 256 << 20
_REPEATABLE: Final = frozenset({"GET", "PUT"})


class HttpTransport:
    """Sends requests to one server.

    Built on asyncio and the parser that the server uses too, and nothing else: on the loop a request costs a third of what it costs in the fastest general client. It knows no proxies and follows no redirects.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        connections: int = CONNECTIONS,
        connect_s: float = CONNECT_S,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        found = urlsplit(url)
        if found.scheme not in {"http", "https"} or not found.hostname:
            raise ValidationError(f"url must be http://HOST[:PORT] or https://…, not {url!r}")
        if found.query or found.fragment or found.username:
            raise ValidationError("url must have no user, query or fragment")
        self.url = url
        self.token = token
        self._host = found.hostname
        secure = found.scheme == "https"
        self._port = found.port or (443 if secure else 80)
        self._tls = (tls or ssl.create_default_context()) if secure else None
        self._prefix = quote(found.path.rstrip("/"), safe="/%")
        self._connections = connections
        self._connect_s = connect_s
        self._most_bytes = most_bytes
        lines = [f"host: {found.netloc}", f"user-agent: headgate/{VERSION}", "accept: */*"]
        if token:
            if not token.isascii() or not token.isprintable():
                raise ValidationError("token must be printable ASCII")
            lines.append(f"authorization: Bearer {token}")
        self._lines = "\r\n".join(lines)
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pool] = WeakKeyDictionary()

    async def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float,
    ) -> Answer:
        request = self._request(method, path, body, headers)
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            pool = self._pools[loop] = _Pool(self._connections)
        sent = False
        try:
            async with asyncio.timeout(timeout_s), pool.room:
                connection = pool.take()
                if connection is not None and method in _REPEATABLE:
                    sent = True
                    try:
                        return await pool.ask(connection, request)
                    except OjsConnectionError:
                        # The server may have closed it at the very moment of its use.
                        connection = None
                if connection is None:
                    connection = await self._connect(loop)
                sent = True
                return await pool.ask(connection, request)
        except TimeoutError:
            raise OjsTimeoutError(
                f"{self.url} did not answer within {timeout_s:g} s", uncertain=sent
            ) from None

    async def close(self) -> None:
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            pool.close()

    def _request(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str] | None
    ) -> bytes:
        head = f"{method} {self._prefix}{path} HTTP/1.1\r\n{self._lines}\r\n"
        for name, value in (headers or {}).items():
            if not value.isprintable():
                raise ValidationError(f"{name} must be one line of printable text")
            head += f"{name}: {value}\r\n"
        if body is None:
            return f"{head}\r\n".encode("latin-1", "replace")
        head += f"content-type: application/openjobspec+json\r\ncontent-length: {len(body)}\r\n\r\n"
        return head.encode("latin-1", "replace") + body

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> Connection:
        connection = Connection(self._most_bytes)
        try:
            async with asyncio.timeout(self._connect_s):
                await loop.create_connection(
                    lambda: connection, self._host, self._port, ssl=self._tls
                )
            return connection
        except TimeoutError:
            connection.abort()
            raise OjsConnectionError(
                f"no connection to {self.url} within {self._connect_s:g} s"
            ) from None
        except OSError as error:
            raise OjsConnectionError(f"cannot connect to {self.url}: {error}") from None
        except BaseException:
            # It may have been made in the very moment in which nobody wanted it any more.
            connection.abort()
            raise


class _Pool:
    def __init__(self, connections: int) -> None:
        self.room = asyncio.Semaphore(connections)
        self._idle: list[Connection] = []
        self._closed = False

    def take(self) -> Connection | None:
        """The one used last: the others may close when they are not needed."""
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                return connection
        return None

    async def ask(self, connection: Connection, request: bytes) -> Answer:
        answer = await connection.ask(request)
        if connection.open and not self._closed:
            self._idle.append(connection)
        else:
            connection.abort()
        return answer

    def close(self) -> None:
        """What is in use is closed when its answer has come."""
        self._closed = True
        for connection in self._idle:
            connection.abort()
        self._idle.clear()
