"""Reading single members of a JSON object; each refusal names the member and what was expected.

A reader is given the value and its path, such as `rate_limit.rate.period`, and raises InvalidRequest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from headgate.core.errors import InvalidRequest
from headgate.core.times import LONGEST_MS, duration_ms, duration_text

_PLAIN: Final = re.compile(r"[^\s]{1,128}")
"""Names that can be part of a path; what else clients make up is only shown."""
_SHOWN: Final = 50

LARGEST: Final = 2**53 - 1
"""The largest number that every reader of JSON understands."""


def object_at(value: object, path: str, known: Sequence[str] = ()) -> Mapping[str, Any]:
    """An object; where its members are known, no others."""
    if not isinstance(value, Mapping):
        raise InvalidRequest(field=path, expected="an object")
    for name in value:
        if known and name not in known:
            plain = _PLAIN.fullmatch(str(name)) is not None
            shown = f"{path}.{name}" if plain else f"{path}[{str(name)[:_SHOWN]!r}]"
            raise InvalidRequest(
                f"{shown} is not known here",
                field=shown if plain else path,
                expected="one of " + ", ".join(known),
            )
    return value


def whole_at(value: object, path: str, least: int, most: int = LARGEST) -> int:
    """A whole number within bounds, both of them allowed."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        bounds = f"of {least} or more" if most == LARGEST else f"from {least} to {most}"
        raise InvalidRequest(field=path, expected=f"a whole number {bounds}")
    return value


def fraction_at(value: object, path: str) -> float:
    """A number from 0 to 1."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise InvalidRequest(field=path, expected="a number from 0.0 to 1.0")
    return float(value)


def flag_at(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidRequest(field=path, expected="true or false")
    return value


def choice_at(value: object, path: str, choices: Sequence[str]) -> str:
    """One of these words."""
    if not isinstance(value, str) or value not in choices:
        raise InvalidRequest(field=path, expected="one of " + ", ".join(choices))
    return value


def duration_at(value: object, path: str, most_ms: int = LONGEST_MS) -> int:
    """An ISO 8601 duration above zero, in milliseconds."""
    expected = "an ISO 8601 duration above zero, such as PT1M"
    if most_ms != LONGEST_MS:
        expected += f", of {duration_text(most_ms)} or less"
    try:
        ms = duration_ms(value) if isinstance(value, str) else 0
    except ValueError as error:
        raise InvalidRequest(str(error), field=path, expected=expected) from None
    if not 0 < ms <= most_ms:
        raise InvalidRequest(field=path, expected=expected)
    return ms
