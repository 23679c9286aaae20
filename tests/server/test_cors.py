"""What pages of other origins may see."""

from __future__ import annotations

from hashlib import sha256

import msgspec
import pytest

from headgate.server.settings import Settings, Token
from tests.server.jobs_world import World, in_world

PAGE = "https://ops.example.com"
ALLOWED = (PAGE, "http://localhost:3000")


@in_world(cors_origins=ALLOWED)
async def test_pages_of_allowed_origins_may_read_answers_and_refusals(world: World) -> None:
    for method, path, status in (
        ("GET", "/queues", 200),
        ("GET", "/jobs/none", 404),
        ("GET", "/nothing", 404),
        ("PUT", "/queues", 405),
        ("GET", "//health", 200),
    ):
        reply = await world.call(method, path, origin=PAGE)
        assert reply.status == status
        assert reply.headers["access-control-allow-origin"] == PAGE
        assert reply.headers["vary"] == "Origin"
        assert "Retry-After" in reply.headers["access-control-expose-headers"]
        assert "access-control-allow-credentials" not in reply.headers


@in_world(cors_origins=ALLOWED)
async def test_a_browser_asks_first(world: World) -> None:
    reply = await world.call(
        "OPTIONS", "/jobs/x", origin=ALLOWED[1], access_control_request_method="PATCH"
    )
    assert (reply.status, reply.raw) == (204, b"")
    assert reply.headers["access-control-allow-origin"] == ALLOWED[1]
    assert reply.headers["access-control-max-age"] == "86400"
    assert "PATCH" in reply.headers["access-control-allow-methods"].split(", ")
    assert "Authorization" in reply.headers["access-control-allow-headers"].split(", ")


@in_world(cors_origins=ALLOWED)
async def test_other_origins_are_told_nothing(world: World) -> None:
    for origin in ("https://evil.example.com", "null", f"{PAGE}.evil.com", f"{PAGE}/"):
        for method in ("GET", "OPTIONS"):
            reply = await world.call(
                method, "/queues", origin=origin, access_control_request_method="GET"
            )
            assert [name for name in reply.headers if name.startswith("access-control")] == []
            assert reply.headers["vary"] == "Origin", "a cache must not give this to others"


@in_world()
async def test_by_default_nobody_is_told_anything(world: World) -> None:
    reply = await world.call("GET", "/queues", origin=PAGE)
    assert "vary" not in reply.headers
    assert [name for name in reply.headers if name.startswith("access-control")] == []


@pytest.mark.parametrize("origin", ["*", "https://*", "ops.example.com", "https://a/b", "null"])
def test_what_is_no_origin_is_no_setting(origin: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"cors_origins": [origin]}, Settings)


JOB = {"type": "t", "args": []}
TOKEN = Token("shop", ("producer",), sha256(b"secret").hexdigest())


@in_world(cors_origins=ALLOWED)
async def test_without_tokens_pages_of_other_origins_change_nothing(world: World) -> None:
    for origin in ("https://evil.example.com", "null", f"{PAGE}.evil.com", "localhost"):
        reply = await world.call("POST", "/jobs", JOB, origin=origin, host="localhost:8080")
        assert reply.status == 403
        assert reply.error["details"]["field"] == "Origin"
        assert (await world.call("GET", "/queues", origin=origin)).status == 200
    view = await world.engine.queue("default", world.now_ms)
    assert view is not None
    assert not any(view.counts.values())


@in_world(cors_origins=ALLOWED)
async def test_the_servers_own_pages_and_allowed_ones_may(world: World) -> None:
    for origin in (PAGE, "http://localhost:8080", "https://localhost:8080"):
        reply = await world.call("POST", "/jobs", JOB, origin=origin, host="localhost:8080")
        assert reply.status == 201


@in_world(tokens=(TOKEN,))
async def test_with_tokens_the_token_decides(world: World) -> None:
    answer = await world.call(
        "POST", "/jobs", JOB, origin="https://evil.example.com", authorization="Bearer secret"
    )
    assert answer.status == 201
