"""Keys that are templates over a job's arguments: `tenant:{customer}`, `{order.region}`, `{0}`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from string import Formatter
from typing import Any, Final

from headgate.client.errors import ValidationError

MOST: Final = 256
_NOT_KEY: Final = re.compile(r"[^a-zA-Z0-9._:-]")
_LONGEST_VALUE: Final = 64


def render(template: str, args: Sequence[Any], named: Mapping[str, Any]) -> str:
    """The key that these arguments give. Raises ValidationError.

    Arguments are looked at as they stand in the job. A value with characters that no key may have, or a long one, appears shortened and with a digest, so that different values keep different keys.
    """
    parts = []
    for text, field in _parsed(template):
        parts.append(text)
        if field is not None:
            parts.append(_safe(_value(template, field, args, named)))
    key = "".join(parts)
    if not key or len(key) > MOST or _NOT_KEY.search(key) or not key[0].isalnum():
        raise ValidationError(
            f"the key {key!r} must be 1 to {MOST} characters out of letters, digits and . _ : -, "
            "starting with a letter or digit"
        )
    return key


@lru_cache(maxsize=10_000)
def _parsed(template: str) -> tuple[tuple[str, tuple[str, ...] | None], ...]:
    try:
        found = list(Formatter().parse(template))
    except ValueError as error:
        raise ValidationError(f"the key {template!r} is no template: {error}") from None
    parts: list[tuple[str, tuple[str, ...] | None]] = []
    for text, field, spec, conversion in found:
        if field is None:
            parts.append((text, None))
            continue
        if not field or spec or conversion:
            raise ValidationError(
                f"the key {template!r} must name arguments, like {{customer}} or {{order.region}}"
            )
        parts.append((text, tuple(re.split(r"\.|\[|\]\.?", field.rstrip("]")))))
    return tuple(parts)


def _value(
    template: str, field: Sequence[str], args: Sequence[Any], named: Mapping[str, Any]
) -> Any:
    first, *rest = field
    try:
        found = args[int(first)] if first.isdigit() else named[first]
        for name in rest:
            found = found[int(name)] if isinstance(found, list) else found[name]
    except (KeyError, IndexError, TypeError, ValueError):
        raise ValidationError(
            f"the key {template!r} names {'.'.join(field)}, which the arguments do not have"
        ) from None
    if isinstance(found, bool):
        return str(found).lower()
    if isinstance(found, str | int | float):
        return str(found)
    raise ValidationError(f"the key {template!r}: {'.'.join(field)} is neither text nor a number")


def _safe(value: str) -> str:
    plain = _NOT_KEY.sub("_", value)
    if plain == value and 0 < len(value) <= _LONGEST_VALUE:
        return value
    digest = hashlib.sha256(value.encode()).hexdigest()[:16]
    return f"{plain[: _LONGEST_VALUE - 17]}-{digest}"
