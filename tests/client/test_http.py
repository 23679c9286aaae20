"""The transport against servers that behave and servers that do not."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from headgate import OjsConnectionError, OjsError, OjsTimeoutError, ValidationError
from headgate.client.settings import read
from headgate.client.sides import background
from headgate.client.transport.contract import Answer
from headgate.client.transport.http import HttpTransport

GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Thing: Some\r\n\r\n{}"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter, int], Awaitable[None]]


@asynccontextmanager
async def server(serve: Serve) -> Any:
    """Calls `serve` with each connection and its number."""
    count = 0
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        try:
            await serve(reader, writer, count)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def start(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(connected(reader, writer))
        tasks.add(task)

    listening = await asyncio.start_server(start, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/base"
    finally:
        listening.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            return head + await reader.readexactly(int(line.split(b":")[1]))
    return head


def asking(serve: Serve, *sends: Any, **more: Any) -> list[Any]:
    """What comes of requests one after the other."""

    async def story() -> list[Any]:
        async with server(serve) as url:
            transport = HttpTransport(url, **more)
            found: list[Any] = []
            asked: list[dict[str, Any]] = list(sends) or [{}]
            for send in asked:
                try:
                    found.append(
                        await transport.send(
                            send.get("method", "POST"),
                            "/x",
                            send.get("body", b"{}"),
                            timeout_s=send.get("timeout_s", 5),
                        )
                    )
                except OjsError as error:
                    found.append(error)
            await transport.close()
            return found

    return asyncio.run(story())


def saying(*parts: bytes, close: bool = False) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: int) -> None:
        while True:
            await request(reader)
            for part in parts:
                writer.write(part)
                await writer.drain()
            if close:
                return

    return serve


def test_what_is_sent() -> None:
    got: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: int) -> None:
        got.append(await request(reader))
        writer.write(GOOD)

    (found,) = asking(serve, {"body": b'{"a":1}'}, token="secret")
    assert found == Answer(200, {"content-length": "2", "x-thing": "Some"}, b"{}")
    head, _, body = got[0].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /base/x HTTP/1.1"
    assert "authorization: Bearer secret" in lines
    assert "content-type: application/openjobspec+json" in lines
    assert body == b'{"a":1}'


def test_a_connection_is_used_again() -> None:
    numbers: list[int] = []

    async def serve(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        while True:
            await request(reader)
            numbers.append(number)
            writer.write(GOOD)

    asking(serve, {}, {}, {})
    assert numbers == [1, 1, 1]


def test_a_connection_that_the_server_closed_is_not() -> None:
    found = asking(saying(GOOD, close=True), *[{"method": "GET"}] * 3)
    assert [one.status for one in found] == [200] * 3


def test_a_server_that_asks_to_close_is_obeyed() -> None:
    closing = GOOD.replace(b"X-Thing: Some", b"Connection: close")
    found = asking(saying(closing), {}, {})
    assert [one.status for one in found] == [200] * 2


@pytest.mark.parametrize(
    "parts",
    [(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n{\r\n", b"1\r\n}\r\n0\r\n\r\n"),
     tuple(GOOD[n : n + 1] for n in range(len(GOOD))),
     (b"HTTP/1.1 100 Continue\r\n\r\n", GOOD)],
)  # fmt: skip
def test_answers_in_parts(parts: tuple[bytes, ...]) -> None:
    found = asking(saying(*parts), {}, {})
    assert [(one.status, one.body) for one in found] == [(200, b"{}")] * 2


@pytest.mark.parametrize(
    "parts",
    [(), (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{",), (b"HTTP/1.1 200",), (b"SSH-2.0-x\r\n",),
     (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",)],
)  # fmt: skip
def test_a_truncated_answer_is_none(parts: tuple[bytes, ...]) -> None:
    (found,) = asking(saying(*parts, close=True))
    assert isinstance(found, OjsConnectionError)
    assert found.uncertain
    assert found.retryable


def test_an_answer_that_does_not_come_is_not_waited_for_and_not_mistaken_later() -> None:
    async def serve(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        await request(reader)
        if number == 1:
            await reader.read()  # until the client hangs up
            return
        writer.write(GOOD)

    slow, good = asking(serve, {"timeout_s": 0.05}, {})
    assert isinstance(slow, OjsTimeoutError)
    assert slow.uncertain
    assert good.status == 200


def test_nobody_there() -> None:
    async def story() -> None:
        transport = HttpTransport("http://127.0.0.1:1")
        with pytest.raises(OjsConnectionError) as raised:
            await transport.send("GET", "/", timeout_s=5)
        assert not raised.value.uncertain

    asyncio.run(story())


def test_an_answer_has_bounds() -> None:
    large = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + b"x" * 100
    (found,) = asking(saying(large), most_bytes=99)
    assert isinstance(found, OjsConnectionError)


def test_connections_have_bounds_and_requests_wait_for_each_other() -> None:
    most = now = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: int) -> None:
        nonlocal most, now
        while True:
            await request(reader)
            now += 1
            most = max(most, now)
            for _ in range(5):
                await asyncio.sleep(0)
            now -= 1
            writer.write(GOOD)

    async def story() -> None:
        async with server(serve) as url:
            transport = HttpTransport(url, connections=3)
            sends = (transport.send("GET", "/", timeout_s=5) for _ in range(20))
            found = await asyncio.gather(*sends)
            assert [one.status for one in found] == [200] * 20
            await transport.close()

    asyncio.run(story())
    assert most == 3


def test_a_request_that_is_cancelled_spoils_nothing() -> None:
    async def serve(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        await request(reader)
        if number > 1:
            writer.write(GOOD)
        else:
            await reader.read()

    async def story() -> None:
        async with server(serve) as url:
            transport = HttpTransport(url, connections=1)
            task = asyncio.create_task(transport.send("GET", "/", timeout_s=5))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await transport.send("GET", "/", timeout_s=5)).status == 200
            await transport.close()

    asyncio.run(story())


@pytest.mark.parametrize("url", ["ftp://a", "a", "http://", "http://a?b", "http://u:p@a", ""])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(ValidationError):
        HttpTransport(url)


@pytest.mark.parametrize("value", ["a\r\nx: y", "a\nb", "ä\0"])
def test_headers_cannot_be_smuggled(value: str) -> None:
    async def story() -> None:
        transport = HttpTransport("http://127.0.0.1:1")
        with pytest.raises(ValidationError):
            await transport.send("GET", "/", headers={"x": value}, timeout_s=1)

    asyncio.run(story())
    with pytest.raises(ValidationError):
        HttpTransport("http://a", token=value)


class Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Silent."""


@contextmanager
def other_server() -> Iterator[str]:
    """Not asyncio's, and not in this thread."""
    found = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=found.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{found.server_address[1]}"
    finally:
        found.shutdown()
        found.server_close()
        thread.join()


def test_every_loop_has_connections_of_its_own() -> None:
    with other_server() as url:
        transport = HttpTransport(url)

        async def ask() -> int:
            found = await transport.send("GET", "/", timeout_s=5)
            await transport.close()
            return found.status

        assert [asyncio.run(ask()) for _ in range(3)] == [200] * 3
        assert background().run(ask()) == 200


def _child(url: str, status: Any) -> None:
    async def ask() -> int:
        return (await HttpTransport(url).send("GET", "/", timeout_s=5)).status

    status.put(background().run(ask()))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_a_background_of_its_own() -> None:
    with other_server() as url:
        transport = HttpTransport(url)
        assert background().run(transport.send("GET", "/", timeout_s=5)).status == 200
        context = multiprocessing.get_context("fork")
        status = context.SimpleQueue()
        child = context.Process(target=_child, args=(url, status))
        child.start()
        child.join(20)
        assert child.exitcode == 0
        assert status.get() == 200
        background().run(transport.close())


# where the settings come from


def test_settings_from_variables() -> None:
    found = read(
        {"OJS_BACKEND_URL": "http://a", "OJS_AUTH_TOKEN": "t", "OJS_QUEUE": "q", "OJS_CONCURRENCY": "3",
         "OJS_SHUTDOWN_TIMEOUT": "2.5", "OJS_LOG_LEVEL": "DEBUG", "OJS_TLS_CA_FILE": "ca"}
    )  # fmt: skip
    assert (found.url, found.token, found.queue, found.concurrency) == ("http://a", "t", "q", 3)
    assert (found.shutdown_s, found.log_level, found.tls_ca_file) == (2.5, "debug", "ca")
    assert read({"OJS_BACKEND_URL": "http://a", "HEADGATE_URL": "http://b"}).url == "http://b"
    assert read({}).url == "http://127.0.0.1:8080"


@pytest.mark.parametrize(
    ("name", "value"),
    [("OJS_CONCURRENCY", "0"), ("OJS_CONCURRENCY", "x"), ("OJS_SHUTDOWN_TIMEOUT", "-1")],
)
def test_settings_that_make_no_sense(name: str, value: str) -> None:
    with pytest.raises(ValidationError, match=name):
        read({name: value})
