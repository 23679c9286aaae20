"""Options whose values are more than one word: what they mean, and refusals that name them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def names(text: str) -> list[str]:
    """`a,b` and `a, b`"""
    found = [name.strip() for name in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(f"must be names with commas between them, not {text!r}")
    return found


def whole(text: str) -> int:
    """A whole number, 0 or more, as people write it: `10_000` and `10,000` too."""
    try:
        found = int(text.replace(",", ""))
    except ValueError:
        found = -1
    if found < 0:
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 on, not {text!r}")
    return found


def or_none(kind: Callable[[str], T]) -> Callable[[str], T | None]:
    """The same, or the word `none`, which takes a setting away."""

    def read(text: str) -> T | None:
        return None if text == "none" else kind(text)

    return read


def pair(text: str) -> tuple[str, str]:
    """`NAME=VALUE`"""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, not {text!r}")
    return name, value


def weight(text: str) -> tuple[str, int]:
    """`QUEUE=NUMBER`"""
    name, value = pair(text)
    return name, whole(value)


def duration(text: str) -> str:
    """`90s`, `5m`, `2h`, `7d`, `PT5M` or seconds, as an ISO 8601 duration."""
    from headgate.core.times import duration_text

    return duration_text(milliseconds(text))


def milliseconds(text: str) -> int:
    from headgate.client.amounts import ms_of
    from headgate.client.errors import ValidationError

    try:
        return ms_of(float(text) if _is_number(text) else text, "")
    except ValidationError:
        raise argparse.ArgumentTypeError(
            f"must be a time such as 90s, 5m, 2h, 7d or PT5M, not {text!r}"
        ) from None


def rate(text: str) -> dict[str, Any]:
    """`100/m`, `5/30s`, `1/PT10S`, as the protocol has it."""
    from headgate.client.errors import ValidationError
    from headgate.client.policies import rate_wire

    try:
        return rate_wire(text, "")
    except ValidationError:
        raise argparse.ArgumentTypeError(
            f"must be like 100/m, 5/30s or 1/PT10S, not {text!r}"
        ) from None


def json_value(text: str) -> Any:
    """JSON where it is that, else the text itself: nobody quotes a word twice in a shell."""
    import msgspec

    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def member(text: str) -> tuple[str, Any]:
    """`NAME=JSON`"""
    name, value = pair(text)
    return name, json_value(value)


def array(text: str) -> list[Any]:
    found = json_value(text)
    if not isinstance(found, list):
        raise argparse.ArgumentTypeError(f"must be a JSON array, not {text!r}")
    return found


def given(asked: argparse.Namespace, members: Sequence[str]) -> dict[str, Any]:
    """Those of the options that were given."""
    return {name: vars(asked)[name] for name in members if vars(asked)[name] is not None}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
