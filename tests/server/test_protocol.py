"""Raw sockets against the protocol, with limits short enough to wait for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
import uvicorn
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn.server import ServerState

from headgate.server.app import Application
from headgate.server.context import Context
from headgate.server.protocol import HttpProtocol
from headgate.server.route import Answer, Request, Stream
from headgate.server.settings import Limits, Settings
from tests.server.driver import NOW_MS, make_app, route

SOON_S = 0.1
"""A limit that tests wait for."""
LATE_S = 5.0
"""How long a test waits for what has to come."""


class Reply:
    def __init__(self, head: bytes, body: bytes) -> None:
        first, *lines = head.decode().split("\r\n")
        self.version, status, _ = first.split(" ", 2)
        self.status = int(status)
        self.headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
        assert len(self.headers) == len(lines)
        self.body = body

    @property
    def code(self) -> str:
        error = json.loads(self.body)["error"]
        assert error["request_id"] == self.headers["x-request-id"]
        assert self.headers["content-type"] == "application/openjobspec+json"
        assert self.headers["ojs-version"] == "1.0"
        return str(error["code"])


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def reply(self, *, head_only: bool = False) -> Reply:
        async with asyncio.timeout(LATE_S):
            head = (await self.reader.readuntil(b"\r\n\r\n"))[:-4]
            reply = Reply(head, b"")
            if "content-length" in reply.headers and not head_only:
                reply.body = await self.reader.readexactly(int(reply.headers["content-length"]))
            return reply

    async def ask(self, *pieces: bytes) -> Reply:
        for piece in pieces:
            await self.send(piece)
        return await self.reply()

    async def end(self) -> bytes:
        """What comes until the server closes."""
        async with asyncio.timeout(LATE_S):
            return await self.reader.read()


class World:
    """A server and its clients."""

    def __init__(self, app: Application, port: int, state: ServerState) -> None:
        self.app = app
        self.port = port
        self.state = state
        self.clients: list[Client] = []

    async def client(self, limit: int = 1 << 20) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port, limit=limit))
        self.clients.append(client)
        return client

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(LATE_S):
            while not holds():  # noqa: ASYNC110 - there is nothing that would signal it
                await asyncio.sleep(0.002)

    @property
    def connection(self) -> Any:
        (found,) = self.state.connections
        return found


@asynccontextmanager
async def world(*routes: Any, **limits: Any) -> AsyncIterator[World]:
    app = make_app(
        *(routes or (route("GET", "/a"), post())), settings=Settings(limits=Limits(**limits))
    )
    config = uvicorn.Config(
        app, http=HttpProtocol, ws="none", lifespan="off", log_config=None, proxy_headers=False
    )
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: HttpProtocol(config, state, {}), "127.0.0.1", 0)
    found = World(app, server.sockets[0].getsockname()[1], state)
    try:
        yield found
    finally:
        for client in found.clients:
            client.writer.close()
        # However a connection ends, nothing of it is left behind.
        await found.until(lambda: not state.connections and not app.in_flight)
        server.close()
        await server.wait_closed()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await test()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def post(**rest: Any) -> Any:
    return route("POST", "/a", body="required", **rest)


def get(path: str = "/a", version: str = "1.1", **headers: str) -> bytes:
    lines = [f"GET {path} HTTP/{version}", "Host: x"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def posted(body: bytes, path: str = "/a", **headers: str) -> bytes:
    headers.setdefault("Content_Length", str(len(body)))
    return get(path, **headers).replace(b"GET", b"POST", 1) + body


class Slow:
    """A handler that answers when it is let."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.may = asyncio.Event()

    async def __call__(self, _context: Context, request: Request) -> Answer:
        self.begun.append(request.query.get("n", ""))
        await self.may.wait()
        return Answer(json.dumps({"n": request.query.get("n", "")}).encode())


# Requests and answers


def test_a_connection_serves_one_request_after_the_other() -> None:
    async def test() -> None:
        async with world() as here:
            client = await here.client()
            for number in range(3):
                reply = await client.ask(get(f"/a?n={number}", X_Request_Id="r-1"))
                assert json.loads(reply.body)["query"] == {"n": str(number)}
                assert reply.version == "HTTP/1.1"
                assert reply.headers == {
                    "ojs-version": "1.0",
                    "content-type": "application/openjobspec+json",
                    "x-request-id": "r-1",
                    "date": "Mon, 02 Feb 2026 02:40:00 GMT",
                    "content-length": str(len(reply.body)),
                }
            reply = await client.ask(posted(b'{"a":1}'))
            assert json.loads(reply.body)["body"] == '{"a":1}'

    assert NOW_MS == 1_770_000_000_000
    run(test)


def test_bodies_come_in_pieces_and_chunks() -> None:
    async def test() -> None:
        async with world() as here:
            client = await here.client()
            body = json.dumps({"a": "x" * 300_000}).encode()
            request = posted(body)
            reply = await client.ask(request[:100], request[100:70_000], request[70_000:])
            assert json.loads(reply.body)["body"].encode() == body
            chunked = get(Transfer_Encoding="chunked").replace(b"GET", b"POST", 1)
            reply = await client.ask(
                chunked + b'3\r\n{"a\r\n', b'4;x=y\r\n":1}\r\n0\r\nX-Trailer: 1\r\n\r\n'
            )
            assert json.loads(reply.body)["body"] == '{"a":1}'
            assert (await client.ask(get())).status == 200

    run(test)


def test_head_and_options_have_no_body() -> None:
    async def test() -> None:
        async with world() as here:
            client = await here.client()
            await client.send(get().replace(b"GET", b"HEAD", 1))
            head = await client.reply(head_only=True)
            assert int(head.headers["content-length"]) > 10
            options = await client.ask(get().replace(b"GET", b"OPTIONS", 1))
            assert (options.status, options.headers["allow"]) == (204, "GET, HEAD, OPTIONS, POST")
            assert "content-length" not in options.headers
            assert (await client.ask(get())).status == 200

    run(test)


@pytest.mark.parametrize(
    ("target", "status"),
    [("http://host:80/a?n=1", 200), ("http://host", 404), ("*", 404), ("/a#part", 404),
     ("http://[", 404), ("/%ff", 404)],
)  # fmt: skip
def test_every_form_of_target_is_answered(target: str, status: int) -> None:
    async def test() -> None:
        async with world() as here:
            client = await here.client()
            reply = await client.ask(get(target))
            assert reply.status in {status, 400}
            if status == 200:
                assert json.loads(reply.body)["query"] == {"n": "1"}

    run(test)


@pytest.mark.parametrize(
    "request_",
    [get(Connection="close"), get(version="1.0"), get(version="1.0", Connection="keep-alive")],
)
def test_who_wants_no_second_answer_is_left_alone_after_the_first(request_: bytes) -> None:
    async def test() -> None:
        async with world() as here:
            client = await here.client()
            reply = await client.ask(request_)
            assert (reply.status, reply.headers["connection"]) == (200, "close")
            assert await client.end() == b""

    run(test)


def test_an_upgrade_is_not_made_and_costs_nothing() -> None:
    async def test() -> None:
        async with world() as here:
            client = await here.client()
            headers = {"Connection": "HTTP2-Settings, Upgrade", "Upgrade": "h2c"}
            reply = await client.ask(get(**headers))
            assert (reply.status, "connection" in reply.headers) == (200, False)
            request = posted(b'{"a":1}', HTTP2_Settings="AAA", **headers)
            for at in (len(request), len(request) - 3, len(request) - 7, 30):
                await client.send(request[:at])
                reply = await client.ask(request[at:] + get("/a?n=2"))
                assert json.loads(reply.body)["body"] == '{"a":1}'
                assert json.loads((await client.reply()).body)["query"] == {"n": "2"}
            reply = await client.ask(get(Connection="Upgrade, close", Upgrade="websocket"))
            assert (reply.status, reply.headers["connection"]) == (200, "close")

    run(test)


def test_a_fault_in_beginning_a_request_is_answered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with world() as here:
            monkeypatch.setattr(here.app, "open", lambda *_: 1 // 0)
            client = await here.client()
            reply = await client.ask(get())
            assert (reply.status, reply.code) == (500, "backend_error")
            assert "ZeroDivisionError" in caplog.text
            assert await client.end() == b""

    run(test)


def test_an_answer_that_cannot_be_written_ends_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def odd(_context: Context, _request: Request) -> Answer:
        return Answer(b"{}", 999)

    async def test() -> None:
        async with world(route("GET", "/odd", odd)) as here:
            client = await here.client()
            await client.send(get("/odd"))
            assert await client.end() == b""
            assert "could not be written" in caplog.text

    run(test)


# Order


def test_pipelined_requests_are_answered_in_order_and_one_at_a_time() -> None:
    async def test() -> None:
        slow = Slow()
        async with world(route("GET", "/slow", slow), route("GET", "/a")) as here:
            client = await here.client()
            await client.send(get("/slow?n=1") + get("/nothing") + get("/slow?n=2") + get("/a"))
            await here.until(lambda: slow.begun == ["1"])
            await asyncio.sleep(0.01)
            assert slow.begun == ["1"]
            slow.may.set()
            replies = [await client.reply() for _ in range(4)]
            assert [reply.status for reply in replies] == [200, 404, 200, 200]
            assert [json.loads(replies[at].body)["n"] for at in (0, 2)] == ["1", "2"]
            assert (await client.ask(get())).status == 200

    run(test)


def test_a_long_pipeline_waits_without_piling_up() -> None:
    async def test() -> None:
        slow = Slow()
        async with world(route("GET", "/slow", slow)) as here:
            client = await here.client()
            client.writer.write(b"".join(get(f"/slow?n={n}") for n in range(20_000)))
            await here.until(lambda: bool(slow.begun))
            await asyncio.sleep(0.05)
            assert here.app.in_flight < 1_000
            slow.may.set()
            for number in range(20_000):
                reply = await client.reply()
                assert json.loads(reply.body)["n"] == str(number)

    run(test)


PIPELINE = (
    get("/a?n=1"),
    posted(b'{"a":1}'),
    get("/nothing"),
    posted(b"[]"),
    get(Transfer_Encoding="chunked").replace(b"GET", b"POST", 1) + b"2\r\n{}\r\n0\r\n\r\n",
    get("/a?n=2"),
)
STATUSES = [200, 200, 404, 400, 200, 200]


@settings(max_examples=15)
@given(st.lists(st.integers(1, len(b"".join(PIPELINE)) - 1), max_size=20))
def test_where_the_network_cuts_makes_no_difference(cuts: list[int]) -> None:
    async def test() -> None:
        async with world() as here:
            client = await here.client()
            whole = b"".join(PIPELINE)
            edges = [0, *sorted(set(cuts)), len(whole)]
            for start, end in pairwise(edges):
                client.writer.write(whole[start:end])
                await asyncio.sleep(0)
            assert [(await client.reply()).status for _ in PIPELINE] == STATUSES

    run(test)


def test_one_byte_at_a_time_is_enough() -> None:
    async def test() -> None:
        async with world() as here:
            client = await here.client()
            for byte in b"".join(PIPELINE):
                client.writer.write(bytes([byte]))
                await asyncio.sleep(0)
            assert [(await client.reply()).status for _ in PIPELINE] == STATUSES

    run(test)


# What cannot be read


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (b"what is this\r\n\r\n", 405, "method_not_allowed"),
        (b"ASSERT /a HTTP/1.1\r\nHost: x\r\n\r\n", 405, "method_not_allowed"),
        (b"push / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", 405, "method_not_allowed"),
        (b"GET /a HTTP/1.1\r\nno colon\r\n\r\n", 400, "invalid_request"),
        (b"GET /a HTTP/1.1\r\n: x\r\n\r\n", 400, "invalid_request"),
        (b"POST /a HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400, "invalid_request"),
        (
            b"POST /a HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
            "invalid_request",
        ),
        (
            b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            400,
            "invalid_request",
        ),
        (b"CONNECT host:80 HTTP/1.1\r\nHost: x\r\n\r\nabc", 405, "method_not_allowed"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "invalid_request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 405, "method_not_allowed"),
    ],
)
def test_what_is_not_http_is_answered_in_ojs(data: bytes, status: int, code: str) -> None:
    async def test() -> None:
        async with world() as here:
            client = await here.client()
            reply = await client.ask(data)
            assert (reply.status, reply.code) == (status, code)
            assert reply.headers["connection"] == "close"
            assert await client.end() == b""

    run(test)


def test_an_unknown_method_is_told_all_known_ones() -> None:
    async def test() -> None:
        async with world() as here:
            client = await here.client()
            reply = await client.ask(b"ASSERT / HTTP/1.1\r\n\r\n")
            assert reply.headers["allow"] == "GET, HEAD, OPTIONS, POST"

    run(test)


def test_what_came_before_the_fault_is_answered_first() -> None:
    async def test() -> None:
        slow = Slow()
        async with world(route("GET", "/slow", slow)) as here:
            client = await here.client()
            await client.send(get("/slow") + b"nonsense\r\n\r\n")
            await here.until(lambda: bool(slow.begun))
            slow.may.set()
            assert (await client.reply()).status == 200
            assert (await client.reply()).status == 405
            assert await client.end() == b""

    run(test)


# Sizes


@pytest.mark.parametrize("ends", [True, False])
def test_headers_have_a_limit(ends: bool) -> None:
    async def test() -> None:
        async with world(header_bytes=2_000) as here:
            client = await here.client()
            assert (await client.ask(get(X_A="a" * 1_900))).status == 200
            client.writer.write(get(X_A="a" * 2_000) if ends else b"GET /a HTTP/1.1\r\nX-A: ")
            for _ in range(0 if ends else 100):
                client.writer.write(b"a" * 1_000)
            reply = await client.reply()
            assert (reply.status, reply.code) == (431, "HEADERS_TOO_LARGE")

    run(test)


def test_many_small_headers_count_together() -> None:
    async def test() -> None:
        async with world(header_bytes=2_000) as here:
            client = await here.client()
            many = {f"X_{number}": "v" for number in range(300)}
            assert (await client.ask(get(**many))).status == 431

    run(test)


@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"2\r\n{}\r\n0\r\nX-T: ", b"x" * 1_000),
        (b"2\r\n{}\r\n0\r\n", b"x" * 1_000),
        (b"2\r\n{}\r\n0\r\n", b"X-T: x\r\n" * 100),
        (b"2;", b"x" * 1_000),
        (b"2\r\n{}\r\n0;a=", b"x" * 1_000),
    ],
    ids=["trailer", "name of a trailer", "trailers", "extension", "last extension"],
)
def test_what_stands_around_a_body_counts_as_headers_do(
    begin: bytes, more: bytes, refused: bool
) -> None:
    async def test() -> None:
        async with world(header_bytes=2_000) as here:
            client = await here.client()
            wrong = {"Content_Type": "text/plain"} if refused else {}
            head = get(Transfer_Encoding="chunked", **wrong).replace(b"GET", b"POST", 1)
            client.writer.write(head + begin)
            for _ in range(100):
                client.writer.write(more)
            reply = await client.reply()
            assert (reply.status, reply.code) == (431, "HEADERS_TOO_LARGE")
            await client.end()

    run(test)


def test_a_few_trailers_and_extensions_do_no_harm() -> None:
    async def test() -> None:
        async with world(header_bytes=2_000) as here:
            client = await here.client()
            head = get(Transfer_Encoding="chunked").replace(b"GET", b"POST", 1)
            for piece in (head, b"2;a=", b"x" * 900, b"\r\n{}\r\n0\r\n", b"X-T: x\r\n" * 100):
                await client.send(piece)
            assert (await client.ask(b"\r\n")).status == 200
            assert (await client.ask(get())).status == 200

    run(test)


def test_a_refused_body_is_skipped_when_it_is_small() -> None:
    async def test() -> None:
        async with world(body_bytes=1_000) as here:
            client = await here.client()
            reply = await client.ask(posted(b"x" * 10_000))
            assert (reply.status, reply.code) == (413, "envelope_too_large")
            reply = await client.ask(posted(b"x" * 50_000, "/nothing"))
            assert (reply.status, reply.code) == (404, "not_found")
            assert (await client.ask(get())).status == 200

    run(test)


@pytest.mark.parametrize("announced", [True, False])
def test_a_refused_body_that_is_large_ends_the_connection_but_not_the_answer(
    announced: bool,
) -> None:
    async def test() -> None:
        async with world(body_bytes=100_000) as here:
            client = await here.client()
            if announced:
                client.writer.write(posted(b"", Content_Length=str(10 << 20)))
            else:
                head = get(Transfer_Encoding="chunked").replace(b"GET", b"POST", 1)
                client.writer.write(head)
            for _ in range(100):
                client.writer.write(b"186a0\r\n" + b"x" * 100_000 + b"\r\n")
            reply = await client.reply()
            assert (reply.status, reply.code) == (413, "envelope_too_large")
            assert reply.headers["connection"] == "close"

    run(test)


def test_a_body_may_be_announced_first() -> None:
    async def test() -> None:
        async with world() as here:
            client = await here.client()
            await client.send(posted(b"", Content_Length="2", Expect="100-continue"))
            async with asyncio.timeout(LATE_S):
                assert (
                    await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
                )
            assert (await client.ask(b"{}")).status == 200
            reply = await client.ask(
                posted(b"", Content_Length=str(100 << 20), Expect="100-continue")
            )
            assert reply.status == 413

    run(test)


# Time


def test_a_client_that_drips_its_headers_is_cut_off() -> None:
    async def test() -> None:
        async with world(header_timeout_s=SOON_S) as here:
            client = await here.client()
            await client.send(b"GET /a HTTP/1.1\r\n")
            asked = asyncio.get_running_loop().time()
            while not client.reader.at_eof() and not client.reader._buffer:  # type: ignore[attr-defined]
                client.writer.write(b"X-A: b\r\n")
                await asyncio.sleep(SOON_S / 5)
                assert asyncio.get_running_loop().time() - asked < LATE_S
            reply = await client.reply()
            assert (reply.status, reply.code) == (408, "request_timeout")
            assert asyncio.get_running_loop().time() - asked >= SOON_S * 0.9

    run(test)


def test_a_client_that_drips_its_body_is_cut_off() -> None:
    async def test() -> None:
        async with world(body_timeout_s=SOON_S) as here:
            client = await here.client()
            await client.send(posted(b"", Content_Length="1000"))
            asked = asyncio.get_running_loop().time()
            while not client.reader._buffer:  # type: ignore[attr-defined]
                client.writer.write(b" ")
                await asyncio.sleep(SOON_S / 5)
                assert asyncio.get_running_loop().time() - asked < LATE_S
            reply = await client.reply()
            assert (reply.status, reply.code) == (408, "request_timeout")

    run(test)


def test_a_second_request_may_be_dripped_no_longer_than_the_first() -> None:
    async def test() -> None:
        async with world(header_timeout_s=SOON_S) as here:
            client = await here.client()
            assert (await client.ask(get())).status == 200
            await client.send(b"GET /a HT")
            assert (await client.reply()).status == 408

    run(test)


@pytest.mark.parametrize("first", [b"", get()])
def test_a_silent_connection_is_closed(first: bytes) -> None:
    async def test() -> None:
        async with world(header_timeout_s=SOON_S, idle_timeout_s=SOON_S) as here:
            client = await here.client()
            if first:
                assert (await client.ask(first)).status == 200
            assert await client.end() == b""

    run(test)


def test_a_handler_may_take_its_time() -> None:
    async def test() -> None:
        slow = Slow()
        async with world(
            route("GET", "/slow", slow),
            header_timeout_s=SOON_S,
            idle_timeout_s=SOON_S,
            body_timeout_s=SOON_S,
        ) as here:
            client = await here.client()
            await client.send(get("/slow"))
            await asyncio.sleep(SOON_S * 3)
            slow.may.set()
            assert (await client.reply()).status == 200

    run(test)


# Connections


def test_only_so_many_connections_are_open_at_once() -> None:
    async def test() -> None:
        async with world(connections=2) as here:
            clients = [await here.client() for _ in range(2)]
            assert [(await client.ask(get())).status for client in clients] == [200, 200]
            third = await here.client()
            reply = await third.reply()
            assert (reply.status, reply.code) == (503, "backend_unavailable")
            assert reply.headers["retry-after"] == "1"
            assert await third.end() == b""
            third.writer.close()
            clients[0].writer.close()
            await here.until(lambda: len(here.state.connections) == 1)
            assert (await (await here.client()).ask(get())).status == 200

    run(test)


async def large(_context: Context, _request: Request) -> Answer:
    return Answer(b"x" * 1_000_000)


def test_a_client_that_takes_no_answers_gets_no_more_and_is_cut_off() -> None:
    async def test() -> None:
        async with world(
            route("GET", "/large", large), outgoing_bytes=100_000, body_timeout_s=SOON_S * 3
        ) as here:
            client = await here.client(limit=1_000)
            client.writer.write(get("/large") * 200)
            await here.until(lambda: bool(here.state.connections))
            connection = here.connection
            await here.until(lambda: connection._writable is not None)
            await asyncio.sleep(SOON_S)
            assert connection._transport.get_write_buffer_size() <= 1_100_000
            assert here.app.in_flight > 0
            await here.until(lambda: not here.state.connections)

    run(test)


def test_a_client_that_takes_its_answers_late_gets_them_all() -> None:
    async def test() -> None:
        async with world(route("GET", "/large", large), outgoing_bytes=100_000) as here:
            client = await here.client(limit=1_000)
            client.writer.write(get("/large") * 20)
            await here.until(lambda: bool(here.state.connections))
            connection = here.connection
            await here.until(lambda: connection._writable is not None)
            for _ in range(20):
                assert len((await client.reply()).body) == 1_000_000

    run(test)


def test_a_handler_learns_that_its_client_has_left() -> None:
    async def test() -> None:
        left: list[str] = []

        async def wait(_context: Context, request: Request) -> Answer:
            await request.gone()
            left.append(request.query["n"])
            return Answer(b"{}")

        async with world(route("GET", "/wait", wait)) as here:
            first, second = await here.client(), await here.client()
            await first.send(get("/wait?n=1"))
            await second.send(get("/wait?n=2"))
            await here.until(lambda: here.app.in_flight == 2)
            first.writer.close()
            await here.until(lambda: left == ["1"])
            here.app.drain()
            assert (await second.reply()).status == 200
            assert left == ["1", "2"]

    run(test)


# Streams


class Source:
    def __init__(self, chunks: int) -> None:
        self.chunks = chunks
        self.closed = asyncio.Event()

    async def events(self) -> AsyncIterator[bytes]:
        try:
            for number in range(self.chunks):
                yield b"" if number == 1 else b"data: %d\n\n" % number
            await asyncio.sleep(3_600 if self.chunks == 2 else 0)
        finally:
            self.closed.set()

    async def __call__(self, _context: Context, _request: Request) -> Stream:
        return Stream(self.events())


def test_a_stream_is_chunked_and_the_connection_lives_on() -> None:
    async def test() -> None:
        async with world(route("GET", "/events", Source(3)), route("GET", "/a")) as here:
            client = await here.client()
            await client.send(get("/events"))
            head = await client.reply()
            assert head.headers["transfer-encoding"] == "chunked"
            assert head.headers["content-type"] == "text/event-stream"
            body = await client.reader.readuntil(b"0\r\n\r\n")
            assert body == b"9\r\ndata: 0\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n"
            assert (await client.ask(get())).status == 200

    run(test)


def test_an_old_client_gets_the_stream_until_the_connection_ends() -> None:
    async def test() -> None:
        async with world(route("GET", "/events", Source(3))) as here:
            client = await here.client()
            await client.send(get("/events", version="1.0"))
            head = await client.reply()
            assert "transfer-encoding" not in head.headers
            assert await client.end() == b"data: 0\n\ndata: 2\n\n"

    run(test)


def test_a_stream_ends_with_its_reader() -> None:
    async def test() -> None:
        source = Source(2)
        async with world(route("GET", "/events", source)) as here:
            client = await here.client()
            await client.send(get("/events"))
            await client.reader.readuntil(b"data: 0")
            client.writer.close()
            await asyncio.wait_for(source.closed.wait(), LATE_S)
            await here.until(lambda: here.app.streams == 0)

    run(test)


# The end


def test_when_the_server_stops_idle_connections_end_and_others_are_answered() -> None:
    async def test() -> None:
        slow = Slow()
        async with world(route("GET", "/slow", slow), route("GET", "/a")) as here:
            idle, busy = await here.client(), await here.client()
            assert (await idle.ask(get())).status == 200
            await busy.send(get("/slow?n=1") + get("/slow?n=2"))
            await here.until(lambda: bool(slow.begun))
            for connection in list(here.state.connections):
                connection.shutdown()
            assert await idle.end() == b""
            slow.may.set()
            first, second = await busy.reply(), await busy.reply()
            assert [json.loads(reply.body)["n"] for reply in (first, second)] == ["1", "2"]
            assert "connection" not in first.headers
            assert second.headers["connection"] == "close"
            assert await busy.end() == b""

    run(test)


def test_what_was_sent_but_not_read_does_not_hold_up_the_end() -> None:
    async def test() -> None:
        slow = Slow()
        async with world(route("GET", "/slow", slow)) as here:
            client = await here.client()
            client.writer.write(get("/slow") * 2_000)
            await here.until(lambda: bool(slow.begun))
            await here.until(lambda: bool(here.connection._held))
            here.connection.shutdown()
            slow.may.set()
            assert (await client.end()).startswith(b"HTTP/1.1 200")

    run(test)


def test_who_is_cut_off_leaves_nothing_behind() -> None:
    async def test() -> None:
        slow = Slow()
        async with world(route("GET", "/slow", slow)) as here:
            client = await here.client()
            await client.send(get("/slow?n=1") + get("/slow?n=2"))
            await here.until(lambda: here.app.in_flight == 2)
            here.connection.cut_off()
            assert await client.end() == b""
            await here.until(lambda: here.app.in_flight == 0)
            assert slow.begun == ["1"]

    run(test)


def test_a_body_of_tiny_chunks_takes_no_more_room_than_its_bytes() -> None:
    async def test() -> None:
        async with world() as here:
            client = await here.client()
            await client.send(get(Transfer_Encoding="chunked").replace(b"GET", b"POST", 1))
            await client.send(b'8\r\n{"a":"xx\r\n' + b"1\r\ny\r\n" * 50_000)
            await here.until(lambda: here.connection._body_bytes == 50_008)
            assert type(here.connection._body) is bytearray
            assert len(here.connection._body) == 50_008
            reply = await client.ask(b'2\r\n"}\r\n0\r\n\r\n')
            assert json.loads(reply.body)["body"] == '{"a":"xx' + "y" * 50_000 + '"}'

    run(test)


def test_it_serves_our_application_only() -> None:
    async def other(_scope: Any, _receive: Any, _send: Any) -> None: ...

    config = uvicorn.Config(other, http=HttpProtocol, log_config=None)
    config.load()
    with pytest.raises(TypeError, match="headgate Application"):
        HttpProtocol(config, ServerState(), {})
