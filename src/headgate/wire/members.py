"""Members of a JSON object one by one: read, or refused with the name of the field and what it should be."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw, json

from headgate.core.errors import InvalidPayload, InvalidRequest
from headgate.core.times import LONGEST_MS, SECOND_MS

NULL: Final = Raw(b"null")
LONGEST_S: Final = LONGEST_MS // SECOND_MS
MAX_TEXT: Final = 1_024
"""Of a string that the protocol does not bound: a schema's name, a tag, an id of another system."""

text_of: Final = json.Decoder(str).decode
_members: Final = json.Decoder(dict[str, Raw]).decode
_integer: Final = json.Decoder(int).decode


def object_members(source: bytes | Raw, field: str = "") -> dict[str, Raw]:
    """The members of a JSON object, each as it came. Raises InvalidPayload or InvalidRequest."""
    try:
        if type(source) is not Raw and not source.isascii():
            source.decode()
        return _members(source)
    except msgspec.ValidationError:
        if field:
            raise InvalidRequest(field=field, expected="a JSON object") from None
        what = "the job" if type(source) is Raw else "the body"
        raise InvalidPayload(f"{what} must be a JSON object") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidPayload(f"the body is not valid JSON: {error}", field=field) from None


def object_fields(source: bytes | Raw, field: str = "") -> dict[str, Raw]:
    """As `object_members`, without those that are null."""
    return {name: value for name, value in object_members(source, field).items() if value != NULL}


def string(value: Raw, field: str, longest: int = MAX_TEXT) -> str:
    try:
        text = text_of(value)
    except msgspec.DecodeError:
        text = ""
    if not 0 < len(text) <= longest:
        raise InvalidRequest(field=field, expected=f"a string of 1 to {longest} characters")
    return text


def whole(value: Raw, field: str, least: int, most: int = LONGEST_S) -> int:
    try:
        number = _integer(value)
    except msgspec.DecodeError:
        number = least - 1
    if not least <= number <= most:
        raise InvalidRequest(field=field, expected=f"a whole number from {least} to {most}")
    return number
