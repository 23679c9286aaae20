"""When jobs come."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from headgate.ids import Dice
from headgate.simulation.scenario import Arrivals, Wrong, per_s, us_of

_NEEDED: Final = {
    "constant": {"rate"},
    "poisson": {"rate"},
    "bursts": {"size", "every"},
    "trace": {"file"},
}
_COLUMNS: Final = ("at", "count", "tenant", "value", "service")


class Arrival(Struct):
    at_us: int
    """Since the beginning."""
    count: int = 1
    tenant: str = ""
    """"" leaves it to the kind of job, as the rest."""
    value: str = ""
    service_us: int = -1


def arrivals(
    given: Arrivals, dice: Dice, path: str, folder: Path, duration_us: int
) -> Iterator[Arrival]:
    """In the order of their time, up to the end. Raises Wrong before the first one."""
    needed = _NEEDED[given.pattern]
    for name in ("rate", "size", "every", "file"):
        if (getattr(given, name) is not None) != (name in needed):
            problem = "is missing" if name in needed else "is not needed"
            raise Wrong(
                f"{path}.{name} {problem}: {given.pattern} has {' and '.join(sorted(needed))}"
            )
    begin = us_of(given.begin, f"{path}.from")
    end = duration_us if given.until is None else us_of(given.until, f"{path}.until")
    if given.until is not None and end <= begin:
        raise Wrong(f"{path}.until must be later than from")
    end = min(end, duration_us)
    if given.file is not None:
        return iter(_trace(folder / given.file, f"{path}.file", begin, end))
    if given.rate is not None:
        each_us = 1_000_000 / per_s(given.rate, f"{path}.rate")
        if given.pattern == "constant":
            return _evenly(begin, end, each_us)
        return _by_chance(begin, end, 1 / each_us, dice)
    size, every = given.size or 0, us_of(given.every or 0, f"{path}.every")
    if size < 1:
        raise Wrong(f"{path}.size must be at least 1")
    if not every:
        raise Wrong(f"{path}.every must be longer than nothing")
    return (Arrival(at_us, size) for at_us in range(begin, end, every))


def _evenly(begin: int, end: int, each_us: float) -> Iterator[Arrival]:
    number = 0
    while (at_us := begin + int(number * each_us)) < end:
        yield Arrival(at_us)
        number += 1


def _by_chance(begin: int, end: int, rate: float, dice: Dice) -> Iterator[Arrival]:
    at = begin + dice.expovariate(rate)
    while at < end:
        yield Arrival(int(at))
        at += dice.expovariate(rate)


def _trace(file: Path, path: str, begin: int, end: int) -> list[Arrival]:
    try:
        with file.open(encoding="utf-8", newline="") as source:
            rows = csv.DictReader(source)
            names = rows.fieldnames or ()
            if "at" not in names:
                raise Wrong(f"{path}: {file} has no column `at`")
            for name in names:
                if name not in _COLUMNS:
                    raise Wrong(f"{path}: the column {name!r} is none of {', '.join(_COLUMNS)}")
            found = [_row(row, f"{path}: line {rows.line_num}") for row in rows]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise Wrong(f"{path}: {file} cannot be read: {reason}") from None
    for one in found:
        one.at_us += begin
    return sorted((one for one in found if one.at_us < end), key=lambda one: one.at_us)


def _row(row: Mapping[str, str | None], path: str) -> Arrival:
    count = row.get("count") or "1"
    if not count.isdecimal() or not int(count):
        raise Wrong(f"{path}: count must be at least 1, not {count!r}")
    return Arrival(
        _amount(row.get("at") or "", f"{path}: at"),
        int(count),
        row.get("tenant") or "",
        row.get("value") or "",
        _amount(row["service"], f"{path}: service") if row.get("service") else -1,
    )


def _amount(text: str | None, path: str) -> int:
    try:
        return us_of(float(text or ""), path)
    except ValueError:
        return us_of(text or "", path)
