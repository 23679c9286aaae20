"""Durations and instants between their text and milliseconds.

Text is ISO 8601 durations and RFC 3339 instants; numbers are whole milliseconds, instants
since the Unix epoch. Reading refuses everything that is not exactly one of these with a
ValueError that says what was expected; digits below the millisecond are cut off.
"""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

LONGEST_MS = 1_000 * 365 * DAY_MS
"""A thousand years: the sum of an instant of today and a few durations is an instant that can be written."""

_DURATION = re.compile(
    r"P(?=.)(?:([0-9]+)Y)?(?:([0-9]+)M)?(?:([0-9]+)W)?(?:([0-9]+)D)?"
    r"(?:T(?=.)(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+)(?:\.([0-9]+))?S)?)?"
)
_UNITS_MS = (365 * DAY_MS, 30 * DAY_MS, 7 * DAY_MS, DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS)
_INSTANT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?"
    r"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)
_LONGEST_TEXT = 64

_EPOCH_DAY = date(1970, 1, 1).toordinal()
FIRST_INSTANT_MS = (date.min.toordinal() - _EPOCH_DAY) * DAY_MS
LAST_INSTANT_MS = (date.max.toordinal() + 1 - _EPOCH_DAY) * DAY_MS - 1

_MILLISECONDS = tuple(f".{ms:03}Z" for ms in range(1000))


def duration_ms(text: str) -> int:
    """Read an ISO 8601 duration; a year counts as 365 days and a month as 30."""
    match = _DURATION.fullmatch(text) if len(text) <= _LONGEST_TEXT else None
    if match is None:
        raise ValueError(
            f"{_shown(text)} is not an ISO 8601 duration such as PT30S, PT1.5S, PT5M or P7D"
        )
    *wholes, fraction = match.groups()
    total = sum(
        int(whole) * unit for whole, unit in zip(wholes, _UNITS_MS, strict=True) if whole
    ) + _fraction_ms(fraction)
    if total > LONGEST_MS:
        raise ValueError(f"{_shown(text)} is longer than {LONGEST_MS} milliseconds")
    return total


def duration_text(ms: int) -> str:
    """Write a duration in days, hours, minutes and seconds; `duration_ms` reads it back."""
    if not 0 <= ms <= LONGEST_MS:
        raise ValueError(f"a duration lies between 0 and {LONGEST_MS} milliseconds, not {ms}")
    days, rest = divmod(ms, DAY_MS)
    hours, rest = divmod(rest, HOUR_MS)
    minutes, rest = divmod(rest, MINUTE_MS)
    seconds, millis = divmod(rest, SECOND_MS)
    text = f"P{days}D" if days else "P"
    time = f"{hours}H" if hours else ""
    if minutes:
        time += f"{minutes}M"
    if millis:
        time += f"{seconds}.{millis:03}".rstrip("0") + "S"
    elif seconds or not ms:
        time += f"{seconds}S"
    return f"{text}T{time}" if time else text


def instant_ms(text: str) -> int:
    """Read an RFC 3339 instant, which must carry its zone.

    A leap second (23:59:60 in UTC) counts as the second after it.
    """
    match = _INSTANT.fullmatch(text) if len(text) <= _LONGEST_TEXT else None
    if match is None:
        raise ValueError(
            f"{_shown(text)} is not an RFC 3339 timestamp with a zone, "
            "such as 2026-01-31T09:30:00Z or 2026-01-31T09:30:00.250+02:00"
        )
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    fraction, sign, offset_hour, offset_minute = match.groups()[6:]
    offset_s = 0
    if sign is not None:
        hours, minutes = int(offset_hour), int(offset_minute)
        if hours > 23 or minutes > 59:
            raise ValueError(f"{_shown(text)} has an offset that does not exist")
        offset_s = (hours * 3600 + minutes * 60) * (1 if sign == "+" else -1)
    try:
        days = date(year, month, day).toordinal() - _EPOCH_DAY
    except ValueError:
        raise ValueError(f"{_shown(text)} has a date that does not exist") from None
    seconds = days * 86_400 + hour * 3600 + minute * 60 + second - offset_s
    leap = second == 60 and seconds % 86_400 == 0
    if hour > 23 or minute > 59 or (second > 59 and not leap):
        raise ValueError(f"{_shown(text)} has a time of day that does not exist")
    ms = seconds * 1000 + _fraction_ms(fraction)
    if not FIRST_INSTANT_MS <= ms <= LAST_INSTANT_MS:
        raise ValueError(f"{_shown(text)} lies outside the years 1 to 9999 in UTC")
    return ms


def instant_text(ms: int) -> str:
    """Write an instant in UTC with exactly three decimals, such as 2026-01-31T09:30:00.250Z."""
    # Every answer carries several instants, mostly of the same few seconds.
    return _second_text(ms // 1000) + _MILLISECONDS[ms % 1000]


def resolve_instant(text: str, now_ms: int) -> tuple[int, str]:
    """Read an instant, or `+` and a duration from now; also give the text to keep.

    A client's own literal is kept as it came, because clients compare it; a relative one is
    kept as the instant it meant.
    """
    if not text.startswith("+"):
        return instant_ms(text), text
    ms = now_ms + duration_ms(text[1:])
    if ms > LAST_INSTANT_MS:
        raise ValueError(f"{_shown(text)} from now lies after the year 9999")
    return ms, instant_text(ms)


@lru_cache(maxsize=4096)
def _second_text(second: int) -> str:
    days, rest = divmod(second, 86_400)
    hour, rest = divmod(rest, 3600)
    minute, second_of_minute = divmod(rest, 60)
    try:
        day = date.fromordinal(days + _EPOCH_DAY)
    except (ValueError, OverflowError):
        raise ValueError(f"second {second} lies outside the years 1 to 9999") from None
    return f"{day.isoformat()}T{hour:02}:{minute:02}:{second_of_minute:02}"


def _fraction_ms(digits: str | None) -> int:
    return int(digits[:3].ljust(3, "0")) if digits else 0


def _shown(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "…")
