"""Numbers, times and limits in words for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def number(value: int) -> str:
    return f"{value:,}"


def counted(value: int, what: str) -> str:
    """`1 job`, `2 jobs`, `1,000 jobs`"""
    return f"{value:,} {what}" if value == 1 else f"{value:,} {what}s"


def span(ms: float) -> str:
    """The two largest units: `2 h 5 min`; below a second in milliseconds."""
    ms = round(ms)
    if ms < 1_000:
        return f"{ms} ms"
    parts = []
    for size, unit in _UNITS:
        amount, ms = divmod(ms, size)
        if amount:
            parts.append(f"{amount} {unit}")
        if len(parts) == 2:
            break
    return " ".join(parts)


def short_span(ms: float) -> str:
    """The largest unit alone, for narrow columns: `3 min`"""
    size, unit = next((one for one in _UNITS if ms >= one[0]), (1_000, "s"))
    return f"{int(ms // size)} {unit}"


def age(instant: str | None, now_ms: int) -> str:
    """How long ago it was, for narrow columns; "" where there is no such instant."""
    if not instant:
        return ""
    from headgate.core.times import instant_ms

    return short_span(max(0, now_ms - instant_ms(instant)))


def moment(instant: str | None, now_ms: int) -> str:
    """An instant, and how far it is; "" where there is none."""
    if not instant:
        return ""
    from headgate.core.times import instant_ms

    ms = instant_ms(instant) - now_ms
    if abs(ms) < 1_000:
        return f"{instant} (now)"
    return f"{instant} (in {span(ms)})" if ms > 0 else f"{instant} ({span(-ms)} ago)"


def percent(fraction: float | None) -> str:
    return "" if fraction is None else f"{fraction * 100:.0f} %"


def joined(names: Sequence[str], most: int = 5) -> str:
    """The first few names, and how many more."""
    more = len(names) - most
    shown = ", ".join(names[:most])
    return f"{shown} and {more:,} more" if more > 0 else shown


def per(limit: Mapping[str, Any]) -> str:
    """`100 per 1 min`"""
    from headgate.core.times import duration_ms

    return f"{limit['limit']:,} per {span(duration_ms(limit['period']))}"
