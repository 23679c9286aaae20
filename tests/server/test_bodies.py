from __future__ import annotations

import gzip
import json
import zlib
from typing import Any, Literal
from unittest import mock

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.core.errors import (
    CompressionUnsupported,
    InvalidPayload,
    InvalidRequest,
    TooLarge,
)
from headgate.server import bodies
from headgate.server.settings import Limits

LIMITS = Limits()


def depth(value: Any) -> int:
    """The obvious definition."""
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 0


def keys(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(keys, value.values()))
    if isinstance(value, list):
        return sum(map(keys, value))
    return 0


texts = st.text(alphabet='{}[]":,\\ab\nä', max_size=6)
values = st.recursive(
    st.none() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)
objects = st.dictionaries(texts, values, max_size=4)


def accepted(body: bytes, **limits: int) -> bool:
    try:
        bodies.check_shape(body, Limits(**limits))
    except InvalidPayload:
        return False
    return True


@given(objects, st.integers(1, 8), st.booleans())
@example({"a": '"}'}, 1, False)
@example({"\\": ["\\"], '"': {"x": ["]]]]"]}}, 3, False)
def test_nesting_is_measured_exactly(value: dict[str, Any], nesting: int, ascii_only: bool) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert accepted(body, nesting=nesting) is (depth(value) <= nesting)


@given(objects, st.integers(1, 8))
def test_keys_are_counted_exactly(value: dict[str, Any], most: int) -> None:
    assert accepted(json.dumps(value).encode(), keys=most) is (keys(value) <= most)


@pytest.mark.parametrize("opening", [b'{"a":', b"["])
def test_the_limit_on_nesting_is_sharp(opening: bytes) -> None:
    closing = b"}" if opening == b'{"a":' else b"]"
    for levels, good in ((31, True), (32, False), (100_000, False)):
        body = b'{"x":' + opening * levels + b"1" + closing * levels + b"}"
        assert accepted(body) is good


def test_a_body_of_many_jobs_may_have_as_many_keys_for_each() -> None:
    limits = Limits(keys=5, nesting=3, batch_items=10)
    job = {"type": "a", "args": [1], "meta": {"x": 1}}
    body = json.dumps({"jobs": [job] * 10}).encode()
    bodies.check_shape(body, limits, many=True)
    with pytest.raises(InvalidPayload, match="keys"):
        bodies.check_shape(body, Limits(keys=5))
    deep = json.dumps({"jobs": [{"meta": {"a": [{}]}}]}).encode()
    with pytest.raises(InvalidPayload, match="nested"):
        bodies.check_shape(deep, limits, many=True)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "empty"),
        (b" \r\n\t", "empty"),
        (b"[]", "JSON object"),
        (b"null", "JSON object"),
        (b'"a"', "JSON object"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b'{"a":"\xff"}', "UTF-8"),
        (b'{"a":"\xed\xa0\x80"}', "UTF-8"),
        (b'{"\xc3":1}', "UTF-8"),
    ],
)
def test_what_is_no_object_in_utf_8_is_refused(body: bytes, words: str) -> None:
    with pytest.raises(InvalidPayload, match=words):
        bodies.check_shape(body, LIMITS)


@given(st.binary(max_size=40))
def test_any_bytes_are_judged_without_failing(noise: bytes) -> None:
    body = b'{"a":[' * 3 + noise
    decoder = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
    try:
        bodies.check_shape(body, Limits(nesting=2, keys=2))
        bodies.decode(decoder, body)
    except (InvalidPayload, InvalidRequest):
        pass


# Types and compression


@pytest.mark.parametrize(
    "kind",
    [b"application/openjobspec+json", b"application/json", b"application/json; charset=utf-8",
     b"APPLICATION/JSON", b"application/json;"],
)  # fmt: skip
def test_json_is_taken_under_both_names(kind: bytes) -> None:
    bodies.check_type(kind)


@pytest.mark.parametrize("kind", [b"", b"text/plain", b"application/x-www-form-urlencoded",
                                  b"application/jsonp", b"\xff"])  # fmt: skip
def test_other_types_are_refused_by_name(kind: bytes) -> None:
    with pytest.raises(InvalidRequest) as refused:
        bodies.check_type(kind)
    assert refused.value.details["field"] == "Content-Type"


@pytest.mark.parametrize("coding", [b"zstd", b"br", b"deflate", b"gzip, gzip", b"\xff"])
def test_codings_that_cannot_be_read_are_refused(coding: bytes) -> None:
    with pytest.raises(CompressionUnsupported):
        bodies.check_coding(coding)


def test_codings_that_can_be_read_have_one_name() -> None:
    assert [bodies.check_coding(name) for name in (b"gzip", b"X-GZIP", b" gzip ")] == [b"gzip"] * 3
    assert [bodies.check_coding(name) for name in (b"", b"identity")] == [None, None]
    assert bodies.CODINGS == ("gzip",)


@given(st.binary(max_size=500))
def test_gzip_is_undone(data: bytes) -> None:
    assert bodies.expand(gzip.compress(data), LIMITS) == data


def test_members_of_gzip_follow_each_other() -> None:
    assert bodies.expand(gzip.compress(b"{") + gzip.compress(b"}"), LIMITS) == b"{}"


@given(
    st.lists(st.binary(max_size=60), min_size=1, max_size=5),
    st.integers(1, 30),
    st.integers(0, 3),
)
def test_members_may_end_anywhere_in_a_slice(
    parts: list[bytes], slice_bytes: int, missing: int
) -> None:
    body = b"".join(map(gzip.compress, parts))
    with mock.patch.object(bodies, "_SLICE", slice_bytes):
        assert bodies.expand(body, LIMITS) == b"".join(parts)
        if missing:
            with pytest.raises(InvalidPayload, match="too early"):
                bodies.expand(body[:-missing], LIMITS)


@pytest.mark.parametrize("member", [b"", b" ", b"{}" * 1_000])
def test_members_are_bounded_and_so_is_the_work_that_they_make(member: bytes) -> None:
    """Each end hands the rest over anew, which must not be the rest of everything."""
    handed = 0

    class Counting:
        def __init__(self, kind: int) -> None:
            self._real = real(kind)

        def decompress(self, data: bytes, most: int) -> bytes:
            nonlocal handed
            handed += len(data)
            return self._real.decompress(data, most)

        eof = property(lambda self: self._real.eof)
        unused_data = property(lambda self: self._real.unused_data)

    real = zlib.decompressobj
    many = gzip.compress(member) * 1_000
    with mock.patch.object(zlib, "decompressobj", Counting):
        assert bodies.expand(many, LIMITS) == member * 1_000
        assert handed <= len(many) + 1_000 * (64 << 10)
        handed = 0
        with pytest.raises(InvalidPayload, match="more than 1000 members"):
            bodies.expand(many * 100, LIMITS)
        assert handed <= len(many) + 1_001 * (64 << 10)


def test_a_bomb_is_refused_while_it_is_small() -> None:
    bomb = gzip.compress(b"{" + b" " * 5_000_000)
    assert len(bomb) < 10_000
    with pytest.raises(TooLarge):
        bodies.expand(bomb, Limits(body_bytes=100_000))
    twice = gzip.compress(b" " * 60_000) * 2
    with pytest.raises(TooLarge):
        bodies.expand(twice, Limits(body_bytes=100_000))
    assert len(bodies.expand(twice, Limits(body_bytes=120_000))) == 120_000


@pytest.mark.parametrize(
    "data", [b"{}", gzip.compress(b"{}")[:-3], gzip.compress(b"{}") + b"rest", b"\x1f\x8b"]
)
def test_broken_gzip_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidPayload, match="gzip"):
        bodies.expand(data, LIMITS)


# Decoding


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    count: int


class Outer(msgspec.Struct):
    name: str
    inner: Inner | None = None
    many: list[int] = []
    mode: Literal["fast", "slow"] | None = None
    levels: dict[str, list[Literal[1, 2]]] = {}


decoder = msgspec.json.Decoder(Outer).decode


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        (b"{}", "name", "name is missing"),
        (b'{"name":1}', "name", "name: got an integer (expected a string)"),
        (b'{"name":null}', "name", "name: got null (expected a string)"),
        (b'{"name":"a","inner":3}', "inner", "inner: got an integer (expected an object or null)"),
        (b'{"name":"a","inner":{}}', "inner.count", "inner.count is missing"),
        (b'{"name":"a","inner":{"count":1,"x":1}}', "inner.x", "inner.x is not known"),
        (b'{"name":"a","mode":"x"}', "mode", "mode must be one of fast, slow"),
        (
            b'{"name":"a","levels":{"x":[3]}}',
            "levels[...][0]",
            "levels[...][0] must be one of 1, 2",
        ),
        (b'{"name":"a","many":[1,"2"]}', "many[1]", "many[1]: got a string (expected an integer)"),
    ],
)
def test_a_wrong_field_is_named_with_what_it_should_be(
    body: bytes, field: str, message: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        bodies.decode(decoder, body)
    assert refused.value.details["field"] == field
    assert refused.value.message == message


@pytest.mark.parametrize("body", [b"{", b'{"name":}', b'{"name":"a"} x', b'{"name":"\\x"}'])
def test_malformed_json_is_another_refusal(body: bytes) -> None:
    with pytest.raises(InvalidPayload, match="not valid JSON"):
        bodies.decode(decoder, body)
