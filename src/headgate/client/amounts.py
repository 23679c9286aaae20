"""Times and rates as people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from headgate.client.errors import ValidationError
from headgate.core.times import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, duration_ms, instant_ms

Duration: TypeAlias = float | timedelta | str
"""Seconds, a timedelta, "90s", "5m", "2h", "7d", or ISO 8601 such as "PT5M"."""
Instant: TypeAlias = datetime | str
"""A datetime with a zone, or RFC 3339."""

_SHORT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_UNITS_MS: Final = {"ms": 1, "s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS}
_RATE: Final = re.compile(r"\s*(\d+)\s*/\s*(.+?)\s*")
_PERIODS: Final = {
    "ms": 1, "s": SECOND_MS, "sec": SECOND_MS, "second": SECOND_MS, "m": MINUTE_MS,
    "min": MINUTE_MS, "minute": MINUTE_MS, "h": HOUR_MS, "hour": HOUR_MS, "d": DAY_MS,
    "day": DAY_MS,
}  # fmt: skip


def ms_of(value: Duration, field: str) -> int:
    """Whole milliseconds. Raises ValidationError."""
    match value:
        case bool():
            pass
        case int() | float():
            if 0 <= value < float("inf"):
                return round(value * SECOND_MS)
        case timedelta():
            if value >= timedelta():
                return value // timedelta(milliseconds=1)
        case str():
            short = _SHORT.fullmatch(value.strip())
            if short is not None:
                return round(float(short[1]) * _UNITS_MS[short[2]])
            try:
                return duration_ms(value)
            except ValueError:
                pass
    raise ValidationError(
        f"{field} must be seconds, a timedelta, or text such as 90s, 5m or PT5M, not {value!r}",
        details={"field": field},
    )


def at_ms(value: Instant, field: str) -> int:
    """Milliseconds since the epoch. Raises ValidationError."""
    if isinstance(value, datetime):
        if value.utcoffset() is not None:
            return (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    elif isinstance(value, str):
        try:
            return instant_ms(value)
        except ValueError:
            pass
    raise ValidationError(
        f"{field} must be a datetime with a zone or RFC 3339 text, not {value!r}",
        details={"field": field},
    )


def rate_of(text: str, field: str) -> tuple[int, int]:
    """Limit and period in milliseconds of "100/m", "5/30s" or "1/PT10S"."""
    found = _RATE.fullmatch(text)
    if found is not None:
        period = _PERIODS.get(found[2])
        if period is None:
            try:
                period = ms_of(found[2], field)
            except ValidationError:
                period = 0
        if period and int(found[1]):
            return int(found[1]), period
    raise ValidationError(
        f"{field} must be like 100/m, 5/30s or 1/PT10S, not {text!r}", details={"field": field}
    )
