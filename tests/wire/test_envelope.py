from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from headgate.core.envelope import SCHEDULED_FIRST, Envelope, unscheduled
from headgate.core.errors import InvalidPayload, InvalidRequest, OjsError, TooLarge
from headgate.core.gates import LimitsChange, Rate
from headgate.core.limits import Use
from headgate.wire.envelope import DROPPED, JOB_ID, JOB_TYPE, read_envelope

NOW = 1_770_892_200_000
NOW_TEXT = "2026-02-12T10:30:00.000Z"
ID = "019461a8-1a2b-7c3d-8e4f-5a6b7c8d9e0f"


def read(**members: Any) -> Envelope:
    return read_envelope(msgspec.json.encode({"type": "a.b", "args": [], **members}), NOW)


def kept(envelope: Envelope) -> dict[str, Any]:
    """What is kept as it came, besides arguments and meta."""
    found: dict[str, Any] = msgspec.json.decode(b"{%b}" % envelope.fixed)
    del found["args"], found["meta"]
    return found


def refusal(body: bytes, **limits: Any) -> OjsError:
    with pytest.raises(OjsError) as caught:
        read_envelope(body, NOW, **limits)
    return caught.value


def read_or_refusal(body: bytes) -> Envelope | OjsError:
    try:
        return read_envelope(body, NOW)
    except OjsError as error:
        found = error
    assert 400 <= found.status < 500
    return found


def test_type_and_args_are_enough() -> None:
    envelope = read_envelope(b'{"type":"a.b","args":[]}', NOW)
    assert (envelope.type, envelope.queue, envelope.priority) == ("a.b", "default", 0)
    assert (envelope.id, envelope.meta, envelope.retry, envelope.unique) == ("", b"{}", None, None)
    assert envelope.fixed == b'"args":[],"meta":{}'


@pytest.mark.parametrize(
    ("members", "expected", "stays"),
    [
        ({"queue": "mail"}, {"queue": "mail"}, {}),
        ({"priority": -100}, {"priority": -100}, {}),
        ({"timeout": 20}, {"timeout_ms": 20_000}, {}),
        ({"timeout": 0}, {"timeout_ms": 0}, {}),
        ({"timeout_ms": 2_500}, {"timeout_ms": 2_500}, {}),
        ({"timeout": 20, "timeout_ms": 2_500}, {"timeout_ms": 2_500}, {}),
        ({"visibility_timeout": 9}, {"visibility_ms": 9_000}, {"visibility_timeout": 9}),
        ({"visibility_timeout": "PT1.5S"}, {"visibility_ms": 1_500}, {"visibility_timeout": "PT1.5S"}),
        ({"visibility_timeout_ms": 9}, {"visibility_ms": 9}, {"visibility_timeout_ms": 9}),
        ({"total_timeout": 9}, {"total_timeout_ms": 9_000}, {"total_timeout": 9}),
        ({"enqueue_ttl": 9}, {"enqueue_ttl_ms": 9_000}, {"enqueue_ttl": 9}),
        ({"heartbeat_timeout": 9}, {"heartbeat_timeout_ms": 9_000}, {"heartbeat_timeout": 9}),
        ({"result_ttl": 9}, {"result_ttl_ms": 9_000}, {"result_ttl": 9}),
        ({"result_ttl": 0}, {"result_ttl_ms": 0}, {"result_ttl": 0}),
        ({"result_ttl": -1}, {"result_ttl_ms": -1}, {"result_ttl": -1}),
        ({"grace_period": 0}, {}, {"grace_period": 0}),
        ({"pending": True}, {"pending": True}, {}),
        ({"tags": ["a"]}, {}, {"tags": ["a"]}),
        ({"schema": "urn:x"}, {}, {"schema": "urn:x"}),
        ({"version": 2}, {}, {"version": 2}),
        ({"version": "2.0"}, {}, {"version": "2.0"}),
        ({"parent_id": "p", "root_id": "r"}, {}, {"parent_id": "p", "root_id": "r"}),
        ({"rate_limit": {"key": "k"}}, {"uses": (Use("k"),)}, {"rate_limit": {"key": "k"}}),
        ({"unique_key": "abc"}, {"unique_key": "abc"}, {"unique_key": "abc"}),
        ({"retry": {"max_attempts": 4}}, {"retry": b'{"max_attempts":4}'}, {"retry": {"max_attempts": 4}}),
        ({"retry_policy": {"jitter": False}}, {"retry": b'{"jitter":false}'}, {"retry": {"jitter": False}}),
        ({"unique": {}}, {"unique": b"{}"}, {"unique": {}}),
        ({"specversion": "1.0"}, {}, {}),
        ({"x_new": {"a": None}}, {}, {"x_new": {"a": None}}),
        ({"x_null": None}, {}, {"x_null": None}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("where", ["top", "options"])
def test_settings_are_understood_at_the_top_and_in_options(
    members: dict[str, Any], expected: dict[str, Any], stays: dict[str, Any], where: str
) -> None:
    if where == "options" and not {"specversion", "x_null"}.isdisjoint(members):
        return
    envelope = read(**members) if where == "top" else read(options=members)
    assert {name: getattr(envelope, name) for name in expected} == expected
    assert kept(envelope) == stays


@pytest.mark.parametrize(
    ("top", "options", "expected"),
    [
        ({"queue": "a"}, {"queue": "b"}, {"queue": "b"}),
        ({"queue": "a"}, {"queue": None}, {"queue": "a"}),
        ({"queue": None}, {"queue": "b"}, {"queue": "b"}),
        ({"timeout_ms": 1}, {"timeout": 2}, {"timeout_ms": 2_000}),
        ({"timeout": 2}, {"timeout_ms": 1}, {"timeout_ms": 1}),
        ({"visibility_timeout_ms": 1}, {"visibility_timeout": 2}, {"visibility_ms": 2_000}),
        ({"retry": {"jitter": True}}, {"retry_policy": {}}, {"retry": b"{}"}),
        ({"retry_policy": {}}, {"retry": {"jitter": True}}, {"retry": b'{"jitter":true}'}),
        ({"retry": {}}, {"retry": None, "retry_policy": {"a": 1}}, {"retry": b'{"a":1}'}),
        ({"scheduled_at": NOW_TEXT}, {"delay_until": "+PT1S"}, {"scheduled_at": NOW + 1_000}),
    ],
)
def test_options_win(top: dict[str, Any], options: dict[str, Any], expected: Any) -> None:
    envelope = read(**top, options=options)
    assert {name: getattr(envelope, name) for name in expected} == expected


@pytest.mark.parametrize(
    "name",
    ["id", "queue", "priority", "meta", "metadata", "options", "specversion", "timeout", "retry",
     "timeout_ms", "unique", "unique_key", "tags", "scheduled_at", "delay_until", "expires_at",
     "version", "schema", "rate_limit", "pending", "result_ttl", "visibility_timeout"],
)  # fmt: skip
def test_null_counts_as_absent(name: str) -> None:
    envelope, plain = read(**{name: None}), read()
    for field in Envelope.__struct_fields__:
        assert getattr(envelope, field) == getattr(plain, field)


@pytest.mark.parametrize("name", sorted(DROPPED))
def test_what_only_a_server_states_is_ignored(name: str) -> None:
    assert read(**{name: {"any": 1}}).fixed == read().fixed
    assert read(options={name: 1}).fixed == read().fixed


@pytest.mark.parametrize(
    ("given", "at_ms", "literal"),
    [
        ("2026-02-12T12:30:01+02:00", NOW + 1_000, "2026-02-12T12:30:01+02:00"),
        ("2099-12-31T23:59:59Z", 4_102_444_799_000, "2099-12-31T23:59:59Z"),
        ("+PT2S", NOW + 2_000, "2026-02-12T10:30:02.000Z"),
        ("1960-01-01T00:00:00Z", 1, "1960-01-01T00:00:00Z"),
    ],
)
@pytest.mark.parametrize("name", ["scheduled_at", "delay_until", "expires_at"])
def test_instants_keep_the_literal_and_relative_ones_are_resolved(
    name: str, given: str, at_ms: int, literal: str
) -> None:
    envelope = read(options={name: given}, tags=["x"])
    field = "expires_at" if name == "expires_at" else "scheduled_at"
    assert getattr(envelope, field) == at_ms
    assert kept(envelope) == {field: literal, "tags": ["x"]}
    assert envelope.fixed.startswith(SCHEDULED_FIRST) == (field == "scheduled_at")
    assert SCHEDULED_FIRST not in unscheduled(envelope.fixed)
    assert unscheduled(envelope.fixed).startswith(b'"args":' if field == "scheduled_at" else b'"')


def test_an_argument_cannot_pass_for_a_schedule() -> None:
    envelope = read(args=["scheduled_at"])
    assert unscheduled(envelope.fixed) == envelope.fixed


def test_metadata_is_laid_over_meta_and_values_survive_byte_for_byte() -> None:
    body = b'{"type":"a","args":[],"meta":{"a":1.0,"b": [ 1 ]},"options":{"metadata":{"a":2.50}}}'
    assert read_envelope(body, NOW).meta == b'{"a":2.50,"b":[ 1 ]}'


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"type": None}, "type"),
        ({"type": ""}, "type"),
        ({"type": 7}, "type"),
        ({"type": "Email.Send"}, "type"),
        ({"type": "email send"}, "type"),
        ({"type": "1email.send"}, "type"),
        ({"type": "email@send!"}, "type"),
        ({"type": "email..send"}, "type"),
        ({"type": "email.send\n"}, "type"),
        ({"type": "a" * 256}, "type"),
        ({"args": None}, "args"),
        ({"args": {}}, "args"),
        ({"args": "[]"}, "args"),
        ({"id": ""}, "id"),
        ({"id": 1}, "id"),
        ({"id": ID.upper()}, "id"),
        ({"id": "019461a8-1a2b-4c3d-8e4f-5a6b7c8d9e0f"}, "id"),
        ({"id": ID + "\n"}, "id"),
        ({"queue": ""}, "queue"),
        ({"queue": "Default"}, "queue"),
        ({"queue": "my_queue!"}, "queue"),
        ({"queue": "-invalid"}, "queue"),
        ({"queue": "_default"}, "queue"),
        ({"queue": "q" * 129}, "queue"),
        ({"queue": ["a"]}, "queue"),
        ({"priority": 101}, "priority"),
        ({"priority": -101}, "priority"),
        ({"priority": 1.5}, "priority"),
        ({"priority": True}, "priority"),
        ({"priority": "5"}, "priority"),
        ({"priority": 10**30}, "priority"),
        ({"meta": []}, "meta"),
        ({"metadata": 1}, "metadata"),
        ({"specversion": "2.0"}, "specversion"),
        ({"specversion": 1}, "specversion"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": 2**53}, "timeout"),
        ({"timeout_ms": "1"}, "timeout_ms"),
        ({"visibility_timeout": "9s"}, "visibility_timeout"),
        ({"visibility_timeout": -1}, "visibility_timeout"),
        ({"visibility_timeout_ms": -1}, "visibility_timeout_ms"),
        ({"scheduled_at": "tomorrow"}, "scheduled_at"),
        ({"scheduled_at": "2026-02-12T10:30:00"}, "scheduled_at"),
        ({"scheduled_at": 5}, "scheduled_at"),
        ({"expires_at": "+2s"}, "expires_at"),
        ({"expires_at": ""}, "expires_at"),
        ({"tags": "a"}, "tags"),
        ({"tags": [1]}, "tags"),
        ({"schema": 1}, "schema"),
        ({"version": 1.5}, "version"),
        ({"version": {}}, "version"),
        ({"total_timeout": 0}, "total_timeout"),
        ({"enqueue_ttl": 0}, "enqueue_ttl"),
        ({"heartbeat_timeout": 0}, "heartbeat_timeout"),
        ({"grace_period": -1}, "grace_period"),
        ({"result_ttl": -2}, "result_ttl"),
        ({"rate_limit": "fast"}, "rate_limit"),
        ({"rate_limit": {}}, "rate_limit.key"),
        ({"rate_limit": {"key": "a b"}}, "rate_limit.key"),
        (
            {"rate_limit": {"key": "a", "rate": {"limit": 0, "period": "PT1S"}}},
            "rate_limit.rate.limit",
        ),
        (
            {"rate_limit": {"key": "a", "rate": {"limit": 1, "period": "PT0S"}}},
            "rate_limit.rate.period",
        ),
        ({"rate_limit": {"key": "a", "concurrency": -1}}, "rate_limit.concurrency"),
        ({"rate_limit": {"key": "a", "on_limit": "skip"}}, "rate_limit.on_limit"),
        ({"rate_limit": {"key": "a", "scope": "queue"}}, "rate_limit.scope"),
        ({"rate_limit": []}, "rate_limit"),
        ({"rate_limit": [{"key": "a"}] * 5}, "rate_limit"),
        ({"rate_limit": [{"key": "a"}, {"key": "a"}]}, "rate_limit[1].key"),
        ({"rate_limit": [{"key": "a"}, 5]}, "rate_limit[1]"),
        ({"options": {"rate_limit": {"key": ""}}}, "rate_limit.key"),
        ({"meta": {"tenant_id": ""}}, "meta.tenant_id"),
        ({"meta": {"tenant_id": 5}}, "meta.tenant_id"),
        ({"meta": {"tenant_id": "a b"}}, "meta.tenant_id"),
        ({"meta": {"tenant_id": "_default"}}, "meta.tenant_id"),
        ({"metadata": {"tenant_id": "-"}}, "meta.tenant_id"),
        ({"unique_key": ""}, "unique_key"),
        ({"pending": "yes"}, "pending"),
        ({"parent_id": ""}, "parent_id"),
        ({"options": []}, "options"),
        ({"options": {"priority": 101}}, "priority"),
        ({"options": {"type": "a"}}, "options.type"),
        ({"options": {"args": [1]}}, "options.args"),
        ({"options": {"id": ID}}, "options.id"),
    ],
)
def test_what_is_wrong_is_named(members: dict[str, Any], field: str) -> None:
    found = refusal(msgspec.json.encode({"type": "a.b", "args": [], **members}))
    assert type(found) is InvalidRequest
    assert found.status == 400
    assert found.details["field"] == field
    assert field in found.message


def test_a_rate_limit_is_an_object_or_an_array_of_them() -> None:
    minute = {"limit": 100, "period": "PT1M"}
    one = {"key": "stripe", "concurrency": 5, "rate": minute, "throttle": None, "x_new": 1}
    two = {"key": "db", "on_limit": "drop", "scope": "tenant"}
    change = LimitsChange(5, Rate(100, 60_000_000), None)
    for sent, uses in (
        (one, (Use("stripe", change=change),)),
        ([one, two], (Use("stripe", change=change), Use("db", "tenant", "drop"))),
    ):
        envelope = read(rate_limit=sent)
        assert tuple(envelope.uses) == uses
        assert kept(envelope) == {"rate_limit": sent}


@pytest.mark.parametrize(
    ("given", "key", "rate", "throttle"),
    [
        ({"max_per_second": 5}, "queue:mail", None, Rate(5, 1_000_000)),
        ({"key": "a", "rate": 5, "period": "minute"}, "a", Rate(5, 60_000_000), None),
    ],
)
def test_older_shapes_of_a_rate_limit_are_understood(
    given: dict[str, Any], key: str, rate: Rate | None, throttle: Rate | None
) -> None:
    envelope = read(rate_limit=given, queue="mail")
    (use,) = envelope.uses
    assert use.key == key
    assert (use.change.rate or None, use.change.throttle or None) == (rate, throttle)
    assert kept(envelope) == {"rate_limit": given}


def test_equal_limits_share_one_record_and_long_ones_are_read_too() -> None:
    assert read(rate_limit={"key": "k"}).uses is read(rate_limit={"key": "k"}).uses
    assert read(rate_limit={"key": "k", "x": "y" * 2_000}).uses == (Use("k"),)


def test_the_tenant_is_what_meta_says() -> None:
    assert read().tenant == read(meta={"tenant_id": None}).tenant == ""
    assert read(meta={"tenant_id": "acme", "a": 1}).tenant == "acme"
    assert read(metadata={"tenant_id": "acme"}).tenant == "acme"
    assert read(meta={"nested": {"tenant_id": "acme"}}).tenant == ""
    hidden = b'{"type":"a","args":[],"meta":{"tenant\\u005fid":"ac\\u006de"}}'
    assert read_envelope(hidden, NOW).tenant == "acme"
    twice = b'{"type":"a","args":[],"meta":{"tenant_id":"one","tenant_id":"two"}}'
    assert read_envelope(twice, NOW).tenant == "two"


@pytest.mark.parametrize(
    ("meta", "stored"),
    [
        (b"", b'{"tenant_id":"acme"}'),
        (b',"meta":null', b'{"tenant_id":"acme"}'),
        (b',"meta":{}', b'{"tenant_id":"acme"}'),
        (b',"meta":{ "a": 1.50 }', b'{"a":1.50,"tenant_id":"acme"}'),
        (b',"meta":{"tenant_id":null,"a":1}', b'{"tenant_id":"acme","a":1}'),
        (b',"meta":{"tenant_id":"acme", "a":1}', b'{"tenant_id":"acme", "a":1}'),
    ],
)
def test_the_tenant_of_the_request_is_put_into_meta(meta: bytes, stored: bytes) -> None:
    body = b'{"type":"a","args":[]%b}' % meta
    envelope = read_envelope(body, NOW, tenant="acme")
    assert (envelope.tenant, envelope.meta) == ("acme", stored)
    assert envelope.fixed == b'"args":[],"meta":%b' % stored


def test_a_job_cannot_be_another_tenants_than_its_request() -> None:
    body = b'{"type":"a","args":[],"meta":{"tenant_id":"other"}}'
    found = refusal(body, tenant="acme")
    assert (found.status, found.details["field"]) == (400, "meta.tenant_id")
    assert "acme" in found.message


@pytest.mark.parametrize("missing", ["type", "args"])
def test_type_and_args_are_required(missing: str) -> None:
    members = {"type": "a", "args": []}
    del members[missing]
    found = refusal(msgspec.json.encode(members))
    assert (found.status, found.details["field"]) == (400, missing)


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"1", b'"x"', b"{}x", b'\xef\xbb\xbf{"type":"a","args":[]}',
     b'{"type":"a","args":[],"x":"\xff"}', b'{"type":"a","args":["\xed\xa0\x80"]}',
     b'{"type":"a","args":[1,]}', b'{"type":"a","args":[NaN]}', b'{"\xff":1}',
     b'{"type":"a","args":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}"],
)  # fmt: skip
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    found = refusal(body)
    assert (type(found), found.status) == (InvalidPayload, 400)
    assert not found.details.get("field"), "no member of it is to blame"


def test_sizes_are_bounded() -> None:
    body = b'{"type":"a","args":[],"meta":{"k":"%b"}}' % (b"x" * 100)
    size = len(body)
    assert type(refusal(body, envelope_bytes=size - 1)) is TooLarge
    assert read_envelope(body, NOW, envelope_bytes=size).type == "a"
    assert read_envelope(Raw(body), NOW, envelope_bytes=size).type == "a"
    found = refusal(body, meta_bytes=107)
    assert (found.status, found.details["field"]) == (413, "meta")
    assert read_envelope(body, NOW, meta_bytes=108).type == "a"


def test_the_last_of_two_equal_names_counts() -> None:
    body = b'{"type":"a","args":[1],"args":[2],"queue":"x","queue":"y"}'
    envelope = read_envelope(body, NOW)
    assert (envelope.args, envelope.queue) == (b"[2]", "y")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=5), inner, max_size=3
    ),
    max_leaves=8,
)  # fmt: skip
SPACES = st.sampled_from([0, 1, 2])


@given(
    st.lists(VALUES, max_size=3), st.dictionaries(st.text(max_size=4), VALUES, max_size=3), SPACES
)
def test_arguments_meta_and_unknown_members_survive_byte_for_byte(
    args: list[Any], meta: dict[str, Any], indent: int
) -> None:
    try:
        encoded = [msgspec.json.encode(part) for part in (args, meta)]
    except UnicodeEncodeError:
        return
    given_args, given_meta = (
        msgspec.json.format(part, indent=indent) if indent else part for part in encoded
    )
    body = b'{"x_new": %b ,"args":%b, "type":"a","meta":%b}' % (given_args, given_args, given_meta)
    envelope = read_envelope(body, NOW)
    assert (envelope.args, envelope.meta) == (given_args, given_meta)
    assert envelope.fixed == b'"args":%b,"meta":%b,"x_new":%b' % (
        given_args,
        given_meta,
        given_args,
    )


NAMES = st.sampled_from(
    ["type", "args", "id", "queue", "priority", "meta", "metadata", "options", "retry", "unique",
     "retry_policy", "scheduled_at", "delay_until", "expires_at", "timeout", "timeout_ms", "tags",
     "visibility_timeout", "visibility_timeout_ms", "specversion", "version", "state", "x_new", "rate_limit", "tenant_id",
     "key", "rate", "concurrency"]
)  # fmt: skip
MEMBERS = st.dictionaries(NAMES, VALUES | st.dictionaries(NAMES, VALUES, max_size=3), max_size=6)


@given(MEMBERS, st.booleans())
def test_any_object_is_read_or_refused_with_an_ojs_error(
    members: dict[str, Any], sound: bool
) -> None:
    if sound:
        members |= {"type": "a.b", "args": []}
    envelope = read_or_refusal(msgspec.json.encode(members))
    if isinstance(envelope, OjsError):
        return
    found = msgspec.json.decode(b"{%b}" % envelope.fixed)
    assert not DROPPED & set(found)
    assert not {"id", "type", "queue", "priority", "timeout", "specversion"} & set(found)
    assert msgspec.json.decode(b"{%b}" % envelope.fixed, type=dict[str, Raw]).keys() == found.keys()


@given(st.binary(max_size=60) | st.text(max_size=40).map(lambda t: t.encode("utf-8", "replace")))
def test_any_bytes_are_read_or_refused_with_an_ojs_error(body: bytes) -> None:
    for source in (body, b'{"type":"a","args":[%b]}' % body, b'{"type":"a","args":[],%b}' % body):
        read_or_refusal(source)


@given(st.from_regex(JOB_TYPE, fullmatch=True).filter(lambda text: len(text) <= 255))
def test_every_type_of_the_pattern_is_taken(job_type: str) -> None:
    assert read(type=job_type).type == job_type


@given(st.from_regex(JOB_ID, fullmatch=True))
def test_every_id_of_the_pattern_is_taken(job_id: str) -> None:
    assert read(id=job_id).id == job_id
