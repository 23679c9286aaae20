"""Requests that nobody would write: the server answers all of them, in OJS, and never with its own fault."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from schemathesis import Case
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.config import SchemathesisConfig

from headgate.server.openapi import described, document
from headgate.server.routes import ROUTES
from tests.faults.client import Address, Reply
from tests.faults.server import Server

RESET = "/ojs/v1/admin/reset"
EXAMPLES = 6
"""For each operation of the document."""
REQUESTS = 600
TIMEOUT_S = 5.0

_ROUTES = (*ROUTES, described(ROUTES))
_STREAMS = [route.path for route in ROUTES if route.content == "text/event-stream"]

_THOROUGH = os.environ.get("HEADGATE_TEST_PROFILE") == "thorough"
_CONFIG = SchemathesisConfig.from_dict({"phases": {"coverage": {"enabled": _THOROUGH}}})
SCHEMA = schemathesis.openapi.from_dict(document(_ROUTES), config=_CONFIG).exclude(
    path=[RESET, *_STREAMS]
)

load_all_checks()
_CHECKED: Any = CHECKS.get_by_names(
    [
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_headers_conformance",
        "response_schema_conformance",
    ]
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    place: Path = tmp_path_factory.mktemp("fuzz")
    configuration = place / "headgate.toml"
    # Whoever waits by chance shall not hold up the rest.
    configuration.write_text("[limits]\nwait_ms = 20\n")
    with Server("memory:", "--config", str(configuration)) as server:
        yield server.address
        assert server.running
        server.stop()
        assert "Traceback" not in server.errors, server.errors


@SCHEMA.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_operation_answers_as_the_document_says(case: Case[Any], address: Address) -> None:
    host, port = address
    case.call_and_validate(base_url=f"http://{host}:{port}", checks=_CHECKED, timeout=TIMEOUT_S)


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


# Below what the document can say

_PATHS = [re.sub(r"\{\w+\}", "x", route.path) for route in _ROUTES if route.path not in _STREAMS]
_LETTERS = st.characters(min_codepoint=0x21, max_codepoint=0x7E)
_paths = st.one_of(
    st.sampled_from(_PATHS),
    st.builds("{}/{}".format, st.sampled_from(_PATHS), st.text(_LETTERS, max_size=20)),
    st.builds("/ojs/v1/jobs/{}".format, st.text(_LETTERS, max_size=60)),
    st.text(_LETTERS, max_size=30),
)
_methods = st.one_of(
    st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "ASSERT"]),
    st.text(_LETTERS, min_size=1, max_size=8),
)
_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["PT1S", "+PT1S", "2026-01-01T00:00:00Z", "default", "P99999999Y", "a.b"]),
)
_MEMBERS = (
    "type", "args", "options", "queue", "queues", "meta", "id", "jobs", "job_id", "worker_id",
    "error", "retry", "unique", "filter", "confirm", "scheduled_at", "priority", "count", "acks",
    "fetch", "extend", "claim", "config", "keys", "name", "state", "progress",
)  # fmt: skip
_values = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.one_of(st.sampled_from(_MEMBERS), st.text(max_size=8)), inner, max_size=6
        ),
    ),
    max_leaves=12,
)
_bodies = st.one_of(
    st.binary(max_size=200),
    st.dictionaries(st.sampled_from(_MEMBERS), _values, max_size=8).map(_json),
    _values.map(_json),
    st.sampled_from([b"[" * 10_000, b'{"a":' * 10_000, b"\xff\xfe{}", b'{"type":"a","type":"b"}']),
)
_headers = st.dictionaries(
    st.one_of(
        st.sampled_from(
            ["Authorization", "Content-Encoding", "Content-Type", "OJS-Version", "X-Request-ID",
             "Idempotency-Key", "Accept", "Last-Event-ID", "OJS-Requires-Extension", "Expect",
             "OJS-Block-Timeout", "X-OJS-Tenant", "X-OJS-Tenant-ID"]
        ),
        st.text(st.characters(min_codepoint=0x61, max_codepoint=0x7A), min_size=1, max_size=8),
    ),
    st.one_of(
        st.sampled_from(
            ["gzip", "application/json", "1.0", "Bearer x", "100-continue", "acme", "0.01", ""]
        ),
        st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF), max_size=30),
    ),
    max_size=4,
)  # fmt: skip


@given(_methods, _paths, _bodies, _headers, st.booleans())
@settings(max_examples=REQUESTS)
def test_every_request_is_answered(
    address: Address, method: str, path: str, body: bytes, headers: dict[str, str], typed: bool
) -> None:
    if path == RESET:
        return
    if typed:
        headers["Content-Type"] = "application/json"
    head = f"{method} {path} HTTP/1.1\r\nHost: test\r\nContent-Length: {len(body)}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    reply = _raw(address, head.encode("latin-1") + b"Connection: close\r\n\r\n" + body)
    _is_ojs(reply, bodiless=method == "HEAD")


@given(st.binary(max_size=300).filter(lambda data: data.strip(b"\r\n") != b""))
@settings(max_examples=REQUESTS)
def test_what_is_no_request_is_refused(address: Address, data: bytes) -> None:
    # Among any bytes are requests, too, but not without a method at the beginning.
    assume(re.match(rb"[\r\n]*[A-Z-]+ ", data) is None)
    reply = _raw(address, data + b"\r\n\r\n")
    _is_ojs(reply, bodiless=False)
    assert reply.status >= 400


def _raw(address: Address, data: bytes) -> Reply:
    """All that comes back until the server closes."""
    received = b""
    with socket.create_connection(address, TIMEOUT_S) as connection:
        connection.sendall(data)
        while piece := connection.recv(65_536):
            received += piece
    head, separator, body = received.partition(b"\r\n\r\n")
    while separator and head.startswith(b"HTTP/1.1 1"):
        head, separator, body = body.partition(b"\r\n\r\n")
    assert separator, received
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return Reply(int(first.split()[1]), headers, body)


def _is_ojs(reply: Reply, *, bodiless: bool) -> None:
    assert reply.status < 500, reply
    assert reply.headers["ojs-version"] == "1.0"
    assert reply.headers["x-request-id"]
    if reply.status >= 400 and not bodiless:
        assert reply.headers["content-type"] == "application/openjobspec+json"
        error = reply.json["error"]
        assert {"code", "message", "retryable", "request_id"} <= set(error)
        assert error["message"]
        field = error.get("details", {}).get("field", "x")
        assert re.fullmatch(r"[^\s]+", field), "what is wrong is named by a path, not described"
