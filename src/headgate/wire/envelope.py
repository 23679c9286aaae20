"""From the JSON of a job that a producer sends to an `Envelope`.

Settings may stand at the top level or in `options`; those in `options` win.
What nobody knows is kept and comes back unchanged; what only a server may say is dropped.
Whatever is wrong is refused with the name of the field and what it should have been.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw, Struct, json

from headgate.core.envelope import SCHEDULED_FIRST, Envelope
from headgate.core.errors import InvalidRequest, TooLarge
from headgate.core.limits import Use, uses_from
from headgate.core.queues import check_name
from headgate.core.tenants import check_tenant
from headgate.core.times import LONGEST_MS, SECOND_MS, duration_ms, resolve_instant
from headgate.wire.members import NULL, object_fields, object_members, string, text_of, whole

MAX_TYPE: Final = 255
MAX_PRIORITY: Final = 100

JOB_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
JOB_TYPE: Final = re.compile(r"[a-z][a-z0-9_-]*(?:\.[a-z][a-z0-9_-]*)*")

DROPPED: Final = frozenset({
    "state", "attempt", "max_attempts", "created_at", "enqueued_at", "started_at", "completed_at",
    "cancelled_at", "discarded_at", "activated_at", "re_enqueued_at", "worker_id", "claim",
    "error", "errors", "result", "next_attempt_at", "next_retry_at", "retry_delay_ms",
    "parent_results", "checkpoint", "last_checkpoint", "result_stored_at", "result_expires_at",
    "result_size_bytes", "deferrals", "previous_state", "dead_letter",
})  # fmt: skip
"""Members that only a server states; what a producer says there is ignored."""

_NOT_IN_OPTIONS: Final = ("specversion", "id", "type", "args", "meta", "options")
_SAME: Final = {
    "retry": "retry_policy",
    "retry_policy": "retry",
    "scheduled_at": "delay_until",
    "delay_until": "scheduled_at",
    "timeout_ms": "timeout",
    "timeout": "timeout_ms",
    "visibility_timeout_ms": "visibility_timeout",
    "visibility_timeout": "visibility_timeout_ms",
}
"""Two names for one setting: where they stand side by side, the first of each pair counts."""
_PREFERRED: Final = ("retry", "scheduled_at", "timeout_ms", "visibility_timeout_ms")
_RENAMED: Final = ("retry", "scheduled_at")
"""Those whose two names mean the very same, so that one is kept under the other."""

_NOTHING: Final = b"{}"
_LONGEST_REMEMBERED: Final = 1_024
"""Bytes of a `rate_limit` that is worth remembering."""

_boolean: Final = json.Decoder(bool).decode
_texts: Final = json.Decoder(list[str]).decode
_encode: Final = json.Encoder().encode

_known_types: Final[dict[str, str]] = {}
_known_queues: Final[dict[str, str]] = {}
_known_tenants: Final[dict[str, str]] = {}
_MOST_KNOWN: Final = 10_000


def read_envelope(
    source: bytes | Raw,
    now_ms: int,
    *,
    envelope_bytes: int = 10 << 20,
    meta_bytes: int = 64 << 10,
    tenant: str = "",
) -> Envelope:
    """Read one job. Raises OjsError.

    A Raw is part of a body whose UTF-8 was checked as a whole.
    `tenant` is whom the request comes from: its `meta` gets that id, and must not have had another one.
    """
    if len(memoryview(source)) > envelope_bytes:
        raise TooLarge(f"a job may have at most {envelope_bytes} bytes")
    members = object_members(source)
    options = members.pop("options", None)
    if options is not None and options != NULL:
        _lay_over(members, options)

    take = members.pop
    if (said := take("specversion", None)) is not None:
        _specversion(said)
    job_type = _type(take("type", None))
    args = bytes(take("args", NULL))
    if args[:1] != b"[":
        raise InvalidRequest(field="args", expected="an array")
    meta = _NOTHING
    if (given := take("meta", None)) is not None:
        meta = _meta(given, "meta")
    if (given := take("metadata", None)) is not None:
        meta = _merged(meta, _meta(given, "metadata"))
    if tenant or meta is not _NOTHING:
        meta, tenant = _owned(meta, tenant)
    if len(meta) > meta_bytes:
        raise TooLarge(field="meta", expected=f"at most {meta_bytes} bytes")
    envelope = Envelope(job_type, b"", args, meta=meta)
    if tenant:
        envelope.tenant = tenant
    if (given := take("id", None)) is not None:
        envelope.id = _id(given)
    if (given := take("queue", None)) is not None:
        envelope.queue = _queue(given)
    if (given := take("priority", None)) is not None:
        envelope.priority = _priority(given)
    parts = [b'"args":', args, b',"meta":', meta]
    if members:
        _rest(members, envelope, parts, now_ms)
    envelope.fixed = b"".join(parts)
    return envelope


def _lay_over(members: dict[str, Raw], options: Raw) -> None:
    """Settings in `options` take the place of those at the top level, whatever their name there."""
    given = object_fields(options, "options")
    for name, value in given.items():
        if name in _NOT_IN_OPTIONS:
            raise InvalidRequest(
                field=f"options.{name}", expected=f"absent: {name} stands beside options"
            )
        other = _SAME.get(name)
        if other is not None and other not in given:
            members.pop(other, None)
        members[name] = value


def _rest(members: dict[str, Raw], envelope: Envelope, parts: list[Any], now_ms: int) -> None:
    """Read the members that most jobs do not have, and keep what is to be kept."""
    for name in _PREFERRED:
        other = _SAME[name]
        if other in members and (name in members or name in _RENAMED):
            members.setdefault(name, members.pop(other))
    for name, value in members.items():
        if name in DROPPED:
            continue
        if name in _INSTANTS:
            if value != NULL:
                _instant(envelope, name, value, parts, now_ms)
        elif (reader := _READERS.get(name)) is None:
            parts += (b",%b:" % _encode(name), value)
        elif value != NULL and (kept := reader(envelope, value)) is not None:
            parts += (b',"%b":' % name.encode(), kept)


def _instant(envelope: Envelope, name: str, value: Raw, parts: list[Any], now_ms: int) -> None:
    try:
        text = string(value, name)
        at_ms, kept = resolve_instant(text, now_ms)
    except ValueError as error:
        raise InvalidRequest(str(error), field=name) from None
    # 0 means not given, and the epoch is as far in the past as any other instant before now.
    setattr(envelope, name, max(1, at_ms))
    literal = value if kept == text else _encode(kept)
    if name == "scheduled_at":
        parts[:0] = (SCHEDULED_FIRST, literal, b",")
    else:
        parts += (b',"%b":' % name.encode(), literal)


def _specversion(value: Raw) -> None:
    if value != NULL and string(value, "specversion", 16) != "1.0":
        raise InvalidRequest(field="specversion", expected='"1.0"')


def _type(value: Raw | None) -> str:
    expected = (
        f"1 to {MAX_TYPE} characters: segments of a-z, 0-9, '_' and '-' with dots between them, "
        "each starting with a letter"
    )
    if value is None:
        raise InvalidRequest(field="type", expected=expected)
    try:
        text = text_of(value)
    except msgspec.DecodeError:
        raise InvalidRequest(field="type", expected=expected) from None
    known = _known_types.get(text)
    if known is None:
        if len(text) > MAX_TYPE or not JOB_TYPE.fullmatch(text):
            raise InvalidRequest(field="type", expected=expected)
        known = _remember(_known_types, text)
    return known


def _queue(value: Raw) -> str:
    if value == NULL:
        return "default"
    try:
        text = text_of(value)
    except msgspec.DecodeError:
        text = ""
    return _known_queues.get(text) or _remember(_known_queues, check_name(text))


def _remember(known: dict[str, str], text: str) -> str:
    """One string for equal names: jobs are many, their types and queues are few."""
    if len(known) >= _MOST_KNOWN:
        known.clear()
    return known.setdefault(text, text)


def _id(value: Raw) -> str:
    if value == NULL:
        return ""
    text = string(value, "id", 64)
    if not JOB_ID.fullmatch(text):
        raise InvalidRequest(field="id", expected="a UUIDv7 in lower case")
    return text


def _priority(value: Raw) -> int:
    if value == NULL:
        return 0
    return whole(value, "priority", -MAX_PRIORITY, MAX_PRIORITY)


def _meta(value: Raw, field: str) -> bytes:
    if value == NULL:
        return _NOTHING
    meta = bytes(value)
    if meta[:1] != b"{":
        raise InvalidRequest(field=field, expected="an object")
    return meta


def _merged(meta: bytes, metadata: bytes) -> bytes:
    return _encode({**object_members(meta, "meta"), **object_members(metadata, "metadata")})


class _Owned(Struct, gc=False):
    tenant_id: str | None = None


_owner: Final = json.Decoder(_Owned).decode


def _owned(meta: bytes, named: str) -> tuple[bytes, str]:
    """The meta with the tenant that the request names, and whose job it is; "" when nobody says.

    Decoding finds a name that is written with escapes as well, and is no slower than a search.
    """
    try:
        own = _owner(meta).tenant_id
    except msgspec.DecodeError:
        own = ""
    if own is None:
        return (_with_tenant(meta, named), named) if named else (meta, "")
    check_tenant(own, field="meta.tenant_id")
    if named and own != named:
        raise InvalidRequest(
            field="meta.tenant_id",
            expected=f"absent, or the tenant that the request names, {named}",
        )
    return meta, _remember(_known_tenants, own)


def _with_tenant(meta: bytes, tenant: str) -> bytes:
    if meta is _NOTHING:
        return b'{"tenant_id":"%b"}' % tenant.encode()
    return _encode({**object_members(meta, "meta"), "tenant_id": tenant})


# Members that mean something. Each reader gives what to keep, None for nothing.

Reader: TypeAlias = Callable[[Envelope, Raw], Raw | None]


def _seconds(name: str, target: str, least: int, *, keep: bool = True) -> Reader:
    def read(envelope: Envelope, value: Raw) -> Raw | None:
        setattr(envelope, target, whole(value, name, least) * SECOND_MS)
        return value if keep else None

    return read


def _kept(check: Callable[[Raw], object]) -> Reader:
    """Nothing but a check: the server does not use what it says."""

    def read(_envelope: Envelope, value: Raw) -> Raw:
        check(value)
        return value

    return read


def _plain(name: str) -> Reader:
    return _kept(lambda value: string(value, name))


def _timeout_ms(envelope: Envelope, value: Raw) -> None:
    envelope.timeout_ms = whole(value, "timeout_ms", 0, LONGEST_MS)


def _visibility_ms(envelope: Envelope, value: Raw) -> Raw:
    envelope.visibility_ms = whole(value, "visibility_timeout_ms", 0, LONGEST_MS)
    return value


def _visibility(envelope: Envelope, value: Raw) -> Raw:
    if bytes(value)[:1] != b'"':
        envelope.visibility_ms = whole(value, "visibility_timeout", 0) * SECOND_MS
        return value
    try:
        envelope.visibility_ms = duration_ms(string(value, "visibility_timeout"))
    except ValueError as error:
        raise InvalidRequest(str(error), field="visibility_timeout") from None
    return value


def _result_ttl(envelope: Envelope, value: Raw) -> Raw:
    seconds = whole(value, "result_ttl", -1)
    envelope.result_ttl_ms = seconds * SECOND_MS if seconds >= 0 else -1
    return value


def _pending(envelope: Envelope, value: Raw) -> None:
    try:
        envelope.pending = _boolean(value)
    except msgspec.DecodeError:
        raise InvalidRequest(field="pending", expected="true or false") from None


def _retry(envelope: Envelope, value: Raw) -> Raw:
    envelope.retry = bytes(value)
    return value


def _unique(envelope: Envelope, value: Raw) -> Raw:
    envelope.unique = bytes(value)
    return value


def _unique_key(envelope: Envelope, value: Raw) -> Raw:
    envelope.unique_key = string(value, "unique_key", 256)
    return value


def _rate_limit(envelope: Envelope, value: Raw) -> Raw:
    given = bytes(value)
    if len(given) <= _LONGEST_REMEMBERED:
        envelope.uses = _remembered_uses(given, envelope.queue)
    else:
        envelope.uses = _uses(given, envelope.queue)
    return value


def _uses(given: bytes, queue: str) -> tuple[Use, ...]:
    try:
        return uses_from(json.decode(given), queue)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest(f"rate_limit cannot be read: {error}", field="rate_limit") from None


# Producers send the same few limits over and over, and equal jobs then share one record.
_remembered_uses = lru_cache(maxsize=4_096)(_uses)


def _tags(value: Raw) -> None:
    try:
        _texts(value)
    except msgspec.DecodeError:
        raise InvalidRequest(field="tags", expected="an array of strings") from None


def _version(value: Raw) -> None:
    if bytes(value)[:1] == b'"':
        string(value, "version")
    else:
        whole(value, "version", -(2**53 - 1), 2**53 - 1)


_INSTANTS: Final = ("scheduled_at", "expires_at")
_READERS: Final[dict[str, Reader]] = {
    "timeout": _seconds("timeout", "timeout_ms", 0, keep=False),
    "timeout_ms": _timeout_ms,
    "visibility_timeout": _visibility,
    "visibility_timeout_ms": _visibility_ms,
    "total_timeout": _seconds("total_timeout", "total_timeout_ms", 1),
    "enqueue_ttl": _seconds("enqueue_ttl", "enqueue_ttl_ms", 1),
    "heartbeat_timeout": _seconds("heartbeat_timeout", "heartbeat_timeout_ms", 1),
    "grace_period": _kept(lambda value: whole(value, "grace_period", 0)),
    "result_ttl": _result_ttl,
    "pending": _pending,
    "retry": _retry,
    "unique": _unique,
    "unique_key": _unique_key,
    "tags": _kept(_tags),
    "version": _kept(_version),
    "rate_limit": _rate_limit,
    **{name: _plain(name) for name in ("schema", "parent_id", "workflow_id", "root_id")},
}
