"""From the bytes of a request's body to what its route asked for; every fault is named."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from headgate.core.errors import (
    CompressionUnsupported,
    InvalidPayload,
    InvalidRequest,
    OjsError,
    TooLarge,
)
from headgate.server.choices import choices
from headgate.server.settings import Limits

CODINGS = ("gzip",)
"""What may be sent compressed, for the manifest."""

_TYPES = frozenset({b"application/openjobspec+json", b"application/json"})
_GZIP = zlib.MAX_WBITS | 16
_SLICE = 64 << 10
_MOST_MEMBERS = 1_000
"""A gzip body may consist of several, one after the other; each costs time, even an empty one."""
_WHITE = b" \t\r\n"
_AS_BRACES = bytes.maketrans(b"[]", b"{}")
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'{}[]"'))


def check_type(content_type: bytes) -> None:
    """Refuse bodies that say they are not JSON."""
    if content_type in _TYPES:
        return
    if content_type.partition(b";")[0].strip().lower() not in _TYPES:
        raise InvalidRequest(
            f"Content-Type is {content_type[:100].decode('latin-1')!r}",
            field="Content-Type",
            expected="application/openjobspec+json or application/json",
        )


def check_coding(coding: bytes) -> bytes | None:
    """The name of the compression, None where there is none."""
    name = coding.strip().lower()
    if name in {b"", b"identity"}:
        return None
    if name in {b"gzip", b"x-gzip"}:
        return b"gzip"
    raise CompressionUnsupported(
        f"bodies encoded as {coding[:100].decode('latin-1')!r} cannot be read here",
        field="Content-Encoding",
        expected=f"one of {', '.join(CODINGS)}",
        headers={"Accept-Encoding": ", ".join(CODINGS)},
    )


def too_large(limits: Limits) -> TooLarge:
    return TooLarge(
        f"the body is larger than {limits.body_bytes} bytes",
        details={"max_bytes": limits.body_bytes},
    )


def expand(body: bytes, limits: Limits) -> bytes:
    """Decompress, making no more than the limit allows, however small the compressed bytes are.

    The work grows with the bytes on both sides and nothing else: what follows the end of a member is copied no further than to the end of its slice, and members are counted.
    """
    pieces: list[bytes] = []
    left = limits.body_bytes
    members = 0
    unpacker = None
    for at in range(0, len(body), _SLICE):
        rest = body[at : at + _SLICE]
        while rest:
            if unpacker is None:
                members += 1
                if members > _MOST_MEMBERS:
                    raise InvalidPayload(f"the gzip body has more than {_MOST_MEMBERS} members")
                unpacker = zlib.decompressobj(_GZIP)
            try:
                piece = unpacker.decompress(rest, left + 1)
            except zlib.error as error:
                raise InvalidPayload(f"the body is not valid gzip: {error}") from None
            left -= len(piece)
            if left < 0:
                raise too_large(limits)
            pieces.append(piece)
            rest = unpacker.unused_data
            if unpacker.eof:
                unpacker = None
    if unpacker is not None:
        raise InvalidPayload("the gzip body ends too early")
    return b"".join(pieces)


def check_shape(body: bytes, limits: Limits, *, many: bool = False) -> None:
    """Refuse what is not UTF-8, not an object, too deeply nested or of too many keys.

    Counting bytes proves most bodies innocent; only the others are looked at closely.
    Whether it is JSON at all is left to the decoder.
    """
    if not body.startswith(b"{"):
        start = body.lstrip(_WHITE)[:1]
        if not start:
            raise InvalidPayload("the body is empty, but must be a JSON object")
        if start != b"{":
            raise InvalidPayload(
                "the body must be a JSON object, in UTF-8 without a byte order mark"
            )
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise InvalidPayload(f"the body is not UTF-8 (byte {error.start})") from None
    nesting = limits.nesting + 2 if many else limits.nesting
    if body.count(b"{") + body.count(b"[") > nesting and not _flat(body, nesting):
        raise InvalidPayload(f"the body is nested deeper than {nesting} levels")
    keys = limits.keys * limits.batch_items if many else limits.keys
    if body.count(b":") > keys and b"".join(_outside(body)).count(b":") > keys:
        raise InvalidPayload(f"the body has more than {keys} keys")


def _flat(body: bytes, nesting: int) -> bool:
    """Whether brackets, outside strings, nest no deeper than that.

    With all else taken out, a string is two quotes in a row, unless it holds a bracket: so if removing such pairs leaves no quote, what is left are the brackets of the structure.
    Each removal of empty pairs then takes away exactly the innermost level.
    """
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    rest = body.translate(_AS_BRACES, _NOT_STRUCTURE).replace(b'""', b"")
    if b'"' in rest:
        rest = b"".join(rest.split(b'"')[::2])
    for _ in range(nesting):
        fewer = rest.replace(b"{}", b"")
        if len(fewer) == len(rest):
            # What is left cannot be paired, so it is not JSON, and the decoder says so better;
            # but it must not have to go deep in order to find out.
            return rest.count(b"{") <= nesting
        rest = fewer
    return not rest


def _outside(body: bytes) -> list[bytes]:
    """What stands outside strings."""
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    return body.split(b'"')[::2]


def decode(decoder: Any, body: bytes) -> Any:
    """Decode with the method of a route's decoder; a fault of the JSON is told from a fault of a field."""
    try:
        return decoder(body)
    except msgspec.ValidationError as error:
        raise wrong_field(str(error), decoder.__self__.type) from None
    except msgspec.DecodeError as error:
        raise InvalidPayload(f"the body is not valid JSON: {error}") from None
    except RecursionError:
        raise InvalidPayload("the body is nested too deeply") from None


_WORDS = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "object": "an object",
    "array": "an array",
    "null": "null",
}


def wrong_field(message: str, kind: Any) -> OjsError:
    """Turn the decoder's message into a refusal that names the field and what it should be."""
    text, _, path = message.partition(" - at `")
    field = path.rstrip("`").removeprefix("$").removeprefix(".")
    missing = "Object missing required field `"
    if text.startswith(missing):
        name = text.removeprefix(missing).rstrip("`")
        return InvalidRequest(f"{_joined(field, name)} is missing", field=_joined(field, name))
    unknown = "Object contains unknown field `"
    if text.startswith(unknown):
        name = text.removeprefix(unknown).rstrip("`")
        return InvalidRequest(f"{_joined(field, name)} is not known", field=_joined(field, name))
    if text.startswith("Expected "):
        expected, _, got = text.removeprefix("Expected ").partition(", got ")
        return InvalidRequest(
            f"got {in_words(got)}" if got else "", field=field, expected=in_words(expected)
        )
    if text.startswith("Invalid enum value"):
        return InvalidRequest(field=field, expected=f"one of {', '.join(choices(kind, field))}")
    return InvalidRequest(text, field=field)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def in_words(text: str) -> str:
    """Turn "`int | null` >= 1" into "an integer or null >= 1"."""
    before, tick, rest = text.partition("`")
    types, _, after = rest.partition("`")
    if not tick:
        return text
    return before + " or ".join(_WORDS.get(name, name) for name in types.split(" | ")) + after
