from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from headgate.core.errors import BackendUnavailable, Conflict, OjsError
from headgate.server.app import Application
from headgate.server.context import Context
from headgate.server.route import Answer, Request, Stream
from headgate.server.settings import Limits, Settings, Token
from tests.server.driver import NOW_MS, Exchange, Reply, ToyEngine, call, make_app, route

PRODUCER = frozenset({"producer"})
SECRET = Token(
    "web", ("producer",), "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
)
"""The token is: secret"""


class Job(msgspec.Struct):
    type: str
    priority: int = 0


def jobs(**rest: Any) -> Application:
    return make_app(route("POST", "/jobs", request=Job, body="required"), **rest)


def limited(**limits: Any) -> Settings:
    return Settings(limits=Limits(**limits))


# What every answer carries


@pytest.mark.parametrize("path", ["/a", "/nothing"])
def test_every_answer_says_what_it_is(path: str) -> None:
    reply = call(make_app(route("GET", "/a")), "GET", path)
    assert reply.header("content-type") == "application/openjobspec+json"
    assert reply.header("ojs-version") == "1.0"
    assert reply.header("content-length") == str(len(reply.body))
    assert reply.header("x-request-id") == f"req_id-{NOW_MS}"


@pytest.mark.parametrize(
    ("given", "echoed"),
    [("trace-7", True), ("a b {c}", True), ("x" * 200, True), ("x" * 201, False), ("", False),
     ("a\tb", False), ("é", False)],
)  # fmt: skip
def test_a_sane_request_id_comes_back(given: str, echoed: bool) -> None:
    app = make_app(route("GET", "/a"))
    for path in ("/a", "/nothing"):
        reply = call(app, "GET", path, headers={"X-Request-Id": given})
        assert (reply.header("x-request-id") == given) is echoed
        if path == "/nothing":
            assert reply.error["request_id"] == reply.header("x-request-id")


def test_an_answer_may_say_otherwise() -> None:
    async def text(_context: Context, _request: Request) -> Answer:
        return Answer(b"up 1\n", 203, [(b"x-more", b"1")], b"text/plain")

    reply = call(make_app(route("GET", "/metrics", text)), "GET", "/metrics")
    assert (reply.status, reply.body) == (203, b"up 1\n")
    assert reply.header("content-type") == "text/plain"
    assert reply.header("x-more") == "1"


def test_headers_cannot_be_smuggled_in(caplog: pytest.LogCaptureFixture) -> None:
    async def push(_context: Context, _request: Request) -> Answer:
        return Answer(b"{}", headers=[(b"location", b"/a\r\nset-cookie: x")])

    reply = call(make_app(route("GET", "/a", push)), "GET", "/a")
    assert reply.header("location") is None
    assert "breaks lines" in caplog.text


# Methods and paths


def test_an_unknown_path_is_not_found() -> None:
    reply = call(make_app(route("GET", "/a")), "GET", "/b")
    assert (reply.status, reply.error["code"]) == (404, "not_found")


@pytest.mark.parametrize("method", ["PUT", "ASSERT", "push", "get", "TRACE"])
def test_an_unknown_method_is_told_the_known_ones(method: str) -> None:
    app = make_app(route("GET", "/a"), route("POST", "/a"))
    reply = call(app, method, "/a")
    assert (reply.status, reply.error["code"]) == (405, "method_not_allowed")
    assert reply.header("allow") == "GET, HEAD, OPTIONS, POST"


def test_head_is_get_without_the_body() -> None:
    app = make_app(route("GET", "/a"))
    head, full = call(app, "HEAD", "/a"), call(app, "GET", "/a")
    assert head.body == b""
    assert head.status == full.status
    # The answer tells the method, so that of HEAD is one longer.
    assert head.header("content-length") == str(len(full.body) + 1)


def test_options_names_the_methods() -> None:
    app = make_app(route("POST", "/a", roles=PRODUCER), settings=Settings(tokens=(SECRET,)))
    reply = call(app, "OPTIONS", "/a")
    assert (reply.status, reply.body) == (204, b"")
    assert reply.header("allow") == "OPTIONS, POST"
    assert reply.header("content-length") is None


def test_parameters_and_query_arrive_decoded() -> None:
    app = make_app(route("GET", "/jobs/{id}/x/{key}"))
    found = call(app, "GET", "/jobs/a%2Fb/x/c", query="limit=5&name=a%20b&empty=").json
    assert found["params"] == ["a/b", "c"]
    assert found["query"] == {"limit": "5", "name": "a b", "empty": ""}


@pytest.mark.parametrize("query", ["a=%ff", "&".join("a=1" for _ in range(1_001))])
def test_a_query_that_cannot_be_read_is_refused(query: str) -> None:
    reply = call(make_app(route("GET", "/a")), "GET", "/a", query=query)
    assert (reply.status, reply.error["details"]) == (400, {"field": "query"})


@pytest.mark.parametrize("raw_path", [True, False])
def test_it_can_be_mounted_below_a_path(raw_path: bool) -> None:
    app = make_app(route("GET", "/jobs/{id}"))
    reply = call(app, "GET", "/queue/jobs/7", root_path="/queue", raw_path=raw_path)
    assert reply.json["params"] == ["7"]


# Who may


def test_a_route_with_roles_needs_a_token() -> None:
    app = make_app(
        route("GET", "/open"),
        route("GET", "/push", roles=PRODUCER),
        route("GET", "/work", roles=frozenset({"worker"})),
        settings=Settings(tokens=(SECRET,)),
    )
    bearer = {"Authorization": "Bearer secret"}
    assert call(app, "GET", "/open").status == 200
    refused = call(app, "GET", "/push")
    assert (refused.status, refused.header("www-authenticate")) == (401, "Bearer")
    assert call(app, "GET", "/push", headers=bearer).json["caller"] == "web"
    denied = call(app, "GET", "/work", headers=bearer)
    assert (denied.status, denied.error["code"]) == (403, "permission_denied")
    assert "worker" in denied.error["message"]


# What it speaks


@pytest.mark.parametrize(("version", "status"), [("1.0", 200), ("2.0", 422), ("1", 422)])
def test_other_versions_are_refused(version: str, status: int) -> None:
    reply = call(make_app(route("GET", "/a")), "GET", "/a", headers={"OJS-Version": version})
    assert reply.status == status
    if status == 422:
        assert reply.error["code"] == "unsupported"


@pytest.mark.parametrize(
    ("wanted", "status"), [("urn:a", 200), ("urn:a, urn:b", 200), ("urn:c", 422), ("urn:a,x", 422)]
)
def test_extensions_that_are_required_must_be_there(wanted: str, status: int) -> None:
    app = make_app(route("GET", "/a"), extensions=frozenset({"urn:a", "urn:b"}))
    reply = call(app, "GET", "/a", headers={"OJS-Requires-Extension": wanted})
    assert reply.status == status
    if status == 422:
        assert reply.error["code"] == "EXTENSION_NOT_SUPPORTED"


@pytest.mark.parametrize(
    ("kind", "status"),
    [("application/json", 200), ("application/json; charset=utf-8", 200), ("text/plain", 400)],
)
def test_bodies_are_json(kind: str, status: int) -> None:
    reply = call(jobs(), "POST", "/jobs", body=b'{"type":"a"}', headers={"Content-Type": kind})
    assert reply.status == status
    if status == 400:
        assert reply.error["code"] == "invalid_request"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_payload"),
        (b"  ", "invalid_payload"),
        (b"{", "invalid_payload"),
        (b"[]", "invalid_payload"),
        (b"\xef\xbb\xbf{}", "invalid_payload"),
        (b'{"type":"\xff"}', "invalid_payload"),
        (b'{"type":' + b"[" * 40 + b"]" * 40 + b"}", "invalid_payload"),
        (b"{}", "invalid_request"),
        (b'{"type":7}', "invalid_request"),
    ],
)
def test_a_bad_body_is_refused_and_never_reaches_the_handler(body: bytes, code: str) -> None:
    reply = call(jobs(), "POST", "/jobs", body=body)
    assert (reply.status, reply.error["code"]) == (400, code)


def test_a_wrong_field_is_named() -> None:
    reply = call(jobs(), "POST", "/jobs", body=b'{"type":"a","priority":"high"}')
    assert reply.error["details"] == {"field": "priority", "expected": "an integer"}


def test_an_optional_body_may_be_missing_but_not_wrong() -> None:
    app = make_app(route("POST", "/a", request=Job, body="optional"))
    assert call(app, "POST", "/a").json["data"] is None
    assert "Job(" in call(app, "POST", "/a", body=b'{"type":"x"}').json["data"]
    assert call(app, "POST", "/a", body=b"{").status == 400


def test_a_route_without_a_body_does_not_look_at_one() -> None:
    app = make_app(route("POST", "/a"))
    reply = call(app, "POST", "/a", body=b"\xff", headers={"Content-Type": "text/plain"})
    assert reply.json["body"] == ""


def test_compressed_bodies_are_unpacked() -> None:
    app = make_app(route("POST", "/a", body="required"), settings=limited(body_bytes=1_000))
    body = b'{"a":1}'
    headers = {"Content-Encoding": "gzip"}
    packed = gzip.compress(body)
    assert call(app, "POST", "/a", body=packed, headers=headers).json["body"] == body.decode()
    bomb = gzip.compress(b'{"a":"' + b"x" * 2_000 + b'"}')
    assert len(bomb) < 1_000
    assert call(app, "POST", "/a", body=bomb, headers=headers).status == 413
    other = call(app, "POST", "/a", body=body, headers={"Content-Encoding": "br"})
    assert (other.status, other.error["code"]) == (415, "unsupported_compression")


# How much


def test_a_body_that_says_it_is_too_large_is_not_read() -> None:
    async def run() -> Reply:
        app = jobs(settings=limited(body_bytes=100))
        exchange = Exchange("POST", "/jobs", body=b"", headers={"content-length": "101"})
        reply = await exchange.run(app)
        assert exchange.incoming.qsize() == 1
        return reply

    reply = asyncio.run(run())
    assert (reply.status, reply.error["details"]) == (413, {"max_bytes": 100})


def test_a_body_that_turns_out_too_large_is_cut_short() -> None:
    pieces = [b'{"type":"', b"x" * 60, b"x" * 60, b'"}']
    whole = call(jobs(), "POST", "/jobs", body=pieces)
    assert whole.json["body"] == b"".join(pieces).decode()
    reply = call(jobs(settings=limited(body_bytes=100)), "POST", "/jobs", body=pieces)
    assert reply.status == 413


@pytest.mark.parametrize("length", ["-1", "x", "", "9" * 30])
def test_a_length_that_is_none_is_refused(length: str) -> None:
    reply = call(jobs(), "POST", "/jobs", headers={"content-length": length})
    assert reply.status in {400, 413}


def test_a_body_that_does_not_arrive_is_not_waited_for() -> None:
    async def run() -> Reply:
        app = jobs(settings=limited(body_timeout_s=0.02))
        return await Exchange("POST", "/jobs", body=b"{", ends=False).run(app)

    reply = asyncio.run(run())
    assert (reply.status, reply.error["code"]) == (408, "request_timeout")


def test_a_client_that_leaves_while_it_sends_gets_nothing() -> None:
    async def run() -> tuple[Reply, Application]:
        app = jobs()
        exchange = Exchange("POST", "/jobs", body=b"{", ends=False)
        exchange.disconnect()
        return await exchange.run(app), app

    reply, app = asyncio.run(run())
    assert (reply.status, app.in_flight) == (0, 0)


def test_only_so_many_requests_are_answered_at_once() -> None:
    async def run() -> None:
        free = asyncio.Event()

        async def slow(_context: Context, _request: Request) -> Answer:
            await free.wait()
            return Answer(b"{}")

        app = make_app(
            route("GET", "/slow", slow, roles=PRODUCER),
            route("GET", "/health"),
            settings=limited(in_flight=2),
        )
        running = [asyncio.create_task(Exchange("GET", "/slow").run(app)) for _ in range(2)]
        await asyncio.sleep(0)
        refused = await Exchange("GET", "/slow").run(app)
        assert (refused.status, refused.error["code"]) == (429, "rate_limited")
        assert refused.header("retry-after") == "1"
        assert (await Exchange("GET", "/health").run(app)).status == 200
        free.set()
        assert [(await task).status for task in running] == [200, 200]
        assert (await Exchange("GET", "/slow").run(app)).status == 200
        assert app.in_flight == 0

    asyncio.run(run())


# What is durable


class Refusing:
    """Handlers that change something and then do as they are told."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def __call__(self, _context: Context, _request: Request) -> Answer:
        if self.error is not None:
            raise self.error
        return Answer(b"{}")


@pytest.mark.parametrize("error", [None, Conflict("not now")])
def test_what_was_observed_is_durable_before_it_is_told(error: OjsError | None) -> None:
    engine = ToyEngine()
    app = make_app(route("GET", "/a", Refusing(error)), engine=engine)
    assert call(app, "GET", "/a").status == (409 if error else 200)
    assert engine.settled_calls == 1


def test_some_routes_need_not_wait() -> None:
    engine = ToyEngine()
    engine.failure = BackendUnavailable()
    app = make_app(route("GET", "/health", durable=False), engine=engine)
    assert call(app, "GET", "/health").status == 200
    assert engine.settled_calls == 0


@pytest.mark.parametrize("error", [None, Conflict("not now")])
def test_what_was_lost_is_not_told(error: OjsError | None) -> None:
    engine = ToyEngine()
    engine.failure = BackendUnavailable("the disk is full", retry_after_s=3)
    reply = call(make_app(route("GET", "/a", Refusing(error)), engine=engine), "GET", "/a")
    assert (reply.status, reply.error["code"]) == (503, "backend_unavailable")
    assert reply.header("retry-after") == "3"


def test_a_fault_is_logged_and_its_cause_stays_inside(caplog: pytest.LogCaptureFixture) -> None:
    app = make_app(route("GET", "/a", Refusing(KeyError("the secret plan"))))
    with caplog.at_level(logging.ERROR):
        reply = call(app, "GET", "/a", headers={"X-Request-Id": "r-7"})
    assert (reply.status, reply.error["code"]) == (500, "backend_error")
    assert "secret plan" not in json.dumps(reply.error)
    (record,) = caplog.records
    assert vars(record)["request_id"] == "r-7"
    assert record.exc_info is not None
    assert app.in_flight == 0


# Waiting and streaming


async def until_gone(_context: Context, request: Request) -> Answer:
    await request.gone()
    return Answer(b'{"jobs":[]}')


@pytest.mark.parametrize("why", ["disconnect", "drain"])
def test_a_waiting_handler_learns_that_it_need_not_wait(why: str) -> None:
    async def run() -> Reply:
        app = make_app(route("GET", "/wait", until_gone))
        exchange = Exchange("GET", "/wait")
        task = asyncio.create_task(exchange.run(app))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not task.done()
        app.drain() if why == "drain" else exchange.disconnect()
        reply = await task
        again = await asyncio.wait_for(Exchange("GET", "/wait").run(app), 5) if app.draining else 0
        assert why == "disconnect" or again
        assert app.in_flight == 0
        return reply

    assert asyncio.run(run()).json == {"jobs": []}


class Source:
    """A stream that tells what became of it."""

    def __init__(self, chunks: int = 1_000, *, fails: bool = False) -> None:
        self.chunks = chunks
        self.fails = fails
        self.ended = ""
        self.more = asyncio.Event()

    async def events(self) -> AsyncIterator[bytes]:
        try:
            for number in range(self.chunks):
                yield b"data: %d\n\n" % number
                if number == 1:
                    await self.more.wait()
            if self.fails:
                raise KeyError("source")
            self.ended = "by itself"
        finally:
            self.ended = self.ended or "closed"

    async def __call__(self, _context: Context, _request: Request) -> Stream:
        return Stream(self.events(), [(b"cache-control", b"no-store")])


async def started(app: Application, source: Source) -> tuple[Exchange, asyncio.Task[Reply]]:
    """A stream that has written its first two chunks and waits."""
    exchange = Exchange("GET", "/events")
    task = asyncio.create_task(exchange.run(app))
    while b"data: 1" not in exchange.reply.body:
        exchange.wrote.clear()
        await exchange.wrote.wait()
    return exchange, task


def test_a_stream_goes_on_until_it_ends() -> None:
    async def run() -> None:
        source = Source(3)
        app = make_app(route("GET", "/events", source))
        _, task = await started(app, source)
        assert (app.streams, app.in_flight) == (1, 1)
        source.more.set()
        reply = await task
        assert reply.body == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"
        assert reply.complete
        assert reply.header("content-type") == "text/event-stream"
        assert reply.header("cache-control") == "no-store"
        assert reply.header("content-length") is None
        assert (source.ended, app.streams, app.in_flight) == ("by itself", 0, 0)

    asyncio.run(run())


def test_the_head_of_a_stream_is_all_there_is() -> None:
    source = Source()
    app = make_app(route("GET", "/events", source))
    reply = call(app, "HEAD", "/events")
    assert (reply.status, reply.body) == (200, b"")
    assert reply.header("content-type") == "text/event-stream"
    assert (app.streams, app.in_flight) == (0, 0)


def test_a_stream_is_closed_when_its_reader_leaves() -> None:
    async def run() -> None:
        source = Source()
        app = make_app(route("GET", "/events", source))
        exchange, task = await started(app, source)
        exchange.disconnect()
        await task
        assert (source.ended, app.streams, app.in_flight) == ("closed", 0, 0)

    asyncio.run(run())


def test_a_stream_may_say_goodbye_when_the_server_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        polite, stubborn = Source(3), Source()
        app = make_app(route("GET", "/events", polite))
        _, task = await started(app, polite)
        app.drain()
        polite.more.set()
        assert (await task).body.endswith(b"data: 2\n\n")
        assert polite.ended == "by itself"
        app = make_app(route("GET", "/events", stubborn))
        _, task = await started(app, stubborn)
        app.drain()
        await task
        assert (stubborn.ended, app.streams) == ("closed", 0)

    monkeypatch.setattr("headgate.server.pipeline.STREAM_GRACE_S", 0.01)
    asyncio.run(run())


def test_a_stream_that_fails_breaks_off(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        source = Source(2, fails=True)
        app = make_app(route("GET", "/events", source))
        _, task = await started(app, source)
        source.more.set()
        reply = await task
        assert not reply.complete
        assert "broke off" in caplog.text
        assert (app.streams, app.in_flight) == (0, 0)

    asyncio.run(run())


def test_only_so_many_streams_are_open_at_once() -> None:
    async def run() -> None:
        first, second = Source(), Source()
        app = make_app(
            route("GET", "/events", first),
            route("GET", "/more", second),
            settings=limited(streams=1),
        )
        exchange, task = await started(app, first)
        refused = await Exchange("GET", "/more").run(app)
        assert (refused.status, refused.header("retry-after")) == (429, "5")
        exchange.disconnect()
        await task
        assert app.streams == 0

    asyncio.run(run())


# Life


class Server:
    """The server side of the lifespan protocol."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self.outgoing: asyncio.Queue[dict[str, str]] = asyncio.Queue()

    async def say(self, what: str) -> str:
        await self.incoming.put({"type": f"lifespan.{what}"})
        return (await self.outgoing.get())["type"]


def test_the_lifespan_opens_and_closes_what_it_needs() -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def life(context: Context) -> AsyncIterator[None]:
        seen.append("opened")
        context.started_at = 7
        yield
        seen.append("closed")

    async def run() -> None:
        app = make_app(route("GET", "/a"), life=life)
        server = Server()
        task = asyncio.create_task(
            app({"type": "lifespan"}, server.incoming.get, server.outgoing.put)  # type: ignore[arg-type]
        )
        assert await server.say("startup") == "lifespan.startup.complete"
        assert (seen, app.context.started_at) == (["opened"], 7)
        assert await server.say("shutdown") == "lifespan.shutdown.complete"
        await task
        assert seen == ["opened", "closed"]
        assert app.draining

    asyncio.run(run())


def test_a_life_that_cannot_begin_says_why() -> None:
    @asynccontextmanager
    async def life(_context: Context) -> AsyncIterator[None]:
        if _context.started_at == 0:
            raise OSError("no such disk")
        yield

    async def run() -> None:
        server = Server()
        await server.incoming.put({"type": "lifespan.startup"})
        app = make_app(life=life)
        with pytest.raises(OSError, match="no such disk"):
            await app({"type": "lifespan"}, server.incoming.get, server.outgoing.put)  # type: ignore[arg-type]
        message = await server.outgoing.get()
        assert message == {"type": "lifespan.startup.failed", "message": "no such disk"}

    asyncio.run(run())


def test_other_protocols_are_turned_away() -> None:
    async def run() -> None:
        server = Server()
        await server.incoming.put({"type": "websocket.connect"})
        app = make_app()
        await app({"type": "websocket"}, server.incoming.get, server.outgoing.put)  # type: ignore[arg-type]
        assert (await server.outgoing.get())["type"] == "websocket.close"
        with pytest.raises(ValueError, match="smtp"):
            await app({"type": "smtp"}, server.incoming.get, server.outgoing.put)  # type: ignore[arg-type]

    asyncio.run(run())


def test_every_request_can_be_logged(caplog: pytest.LogCaptureFixture) -> None:
    app = jobs(settings=Settings(access_log=True))
    with caplog.at_level(logging.INFO, "headgate.access"):
        call(app, "POST", "/jobs", body=b'{"type":"private"}', headers={"X-Request-Id": "r-1"})
        call(app, "GET", "/nothing", headers={"X-Request-Id": "r-2"})
    assert [record.getMessage() for record in caplog.records] == [
        "POST /jobs 200",
        "GET /nothing 404",
    ]
    assert [vars(record)["request_id"] for record in caplog.records] == ["r-1", "r-2"]
    assert "private" not in caplog.text


def test_requests_are_not_logged_unless_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        call(jobs(), "POST", "/jobs", body=b'{"type":"a"}')
    assert not caplog.records
