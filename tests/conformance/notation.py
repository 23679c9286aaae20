"""The notation of the official suites: paths into an answer and what is expected there.

Stricter than the official runner: every operator is honoured, and what is absent is not there at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

ABSENT: Final = type("Absent", (), {"__repr__": lambda _: "nothing"})()
"""What a path that leads nowhere leads to."""

_STEP = re.compile(
    r"\.?(?P<name>[^.\[\]]+)"
    r"|\[(?P<index>\d+)\]"
    r"|\[(?P<all>\*)\]"
    r"|\[\?\(@\.(?P<member>\w+)==(?P<quote>['\"])(?P<value>.*?)(?P=quote)\)\]"
)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _in_range(ends: str, value: Any) -> bool:
    least, most = map(float, ends.split(","))
    return _between(least, most, value)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _between(least: float, most: float, value: Any) -> bool:
    return bool(least <= value <= most)


def _matches(pattern: str, value: Any, *, whole: bool = True) -> bool:
    match = re.fullmatch if whole else re.search
    return isinstance(value, str) and match(pattern, value, re.ASCII) is not None


_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-%s[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"
_NAMED: Final[dict[str, Callable[[Any], bool]]] = {
    "any": lambda value: value is not ABSENT,
    "exists": lambda value: value is not ABSENT and value is not None,
    "absent": lambda value: value is ABSENT,
    "string:nonempty": lambda value: isinstance(value, str) and value != "",
    "string:non_empty": lambda value: isinstance(value, str) and value != "",
    "string:uuid": lambda value: _matches(_UUID % "[0-9a-f]", value),
    "string:uuidv7": lambda value: _matches(_UUID % "7", value),
    "string:datetime": lambda value: _matches(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", value
    ),
    "number:positive": lambda value: _is_number(value) and value > 0,
    "number:non_negative": lambda value: _is_number(value) and value >= 0,
    "array:nonempty": lambda value: isinstance(value, list) and value != [],
    "array:empty": lambda value: value == [],
}
_WITH_ARGUMENT: Final[tuple[tuple[str, Callable[[str, Any], bool]], ...]] = (
    (r"array:min(?:_length)?:(\d+)", lambda n, value: _is_list(value) and len(value) >= int(n)),
    (r"array:length[:(](\d+)\)?", lambda n, value: _is_list(value) and len(value) == int(n)),
    (r"contains:(.*)", lambda item, value: _is_list(value) and item in value),
    (r"not_contains:(.*)", lambda item, value: _is_list(value) and item not in value),
    (r"string:contains:(.*)", lambda part, value: isinstance(value, str) and part in value),
    (r"string:pattern\((.*)\)", lambda rule, value: _matches(rule, value, whole=False)),
    (r"~(\d+)", lambda n, value: _is_number(value) and abs(value - int(n)) <= int(n) / 2),
    (
        r"number:range\((.*)\)",
        lambda ends, value: _is_number(value) and _in_range(ends, value),
    ),
    (r"one_of:(.*)", lambda choice, value: str(value) in choice.replace(" ", "").split(",")),
)
_TYPES: Final[dict[str, Callable[[Any], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "number": _is_number,
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def find(path: str, data: Any) -> Any:
    """What the path leads to; a `[*]` gives the list of what is found in each item."""
    rest = path.removeprefix("$")
    while rest:
        step = _STEP.match(rest)
        if step is None:
            raise ValueError(f"this is no path: {path!r}")
        rest = rest[step.end() :]
        if step["name"] is not None:
            data = data.get(step["name"], ABSENT) if isinstance(data, dict) else ABSENT
        elif not isinstance(data, list):
            return ABSENT
        elif step["index"] is not None:
            index = int(step["index"])
            data = data[index] if index < len(data) else ABSENT
        elif step["all"]:
            found = [find(rest, item) for item in data]
            return [value for value in found if value is not ABSENT]
        else:
            wanted = step["value"]
            data = next((item for item in data if item.get(step["member"]) == wanted), ABSENT)
    return data


def fits(expected: Any, value: Any) -> bool:
    """Whether a value is as expected."""
    if isinstance(expected, str):
        return _fits_text(expected, value)
    if isinstance(expected, dict):
        operators = [name for name in expected if name.startswith("$") or name == "range"]
        if operators:
            return all(_operate(name, expected[name], value) for name in operators)
        return isinstance(value, dict) and all(
            fits(wanted, value.get(name, ABSENT)) for name, wanted in expected.items()
        )
    if isinstance(expected, list):
        return (
            isinstance(value, list)
            and len(value) == len(expected)
            and all(map(fits, expected, value))
        )
    if isinstance(expected, bool) or isinstance(value, bool):
        return expected is value
    return bool(expected == value)


def _fits_text(expected: str, value: Any) -> bool:
    if expected in _NAMED:
        return _NAMED[expected](value)
    for pattern, test in _WITH_ARGUMENT:
        found = re.fullmatch(pattern, expected)
        if found is not None:
            return test(found[1], value)
    return bool(value == expected)


def _operate(name: str, wanted: Any, value: Any) -> bool:
    match name:
        case "$exists":
            return (value is not ABSENT) is wanted
        case "$type":
            return _TYPES[wanted](value)
        case "$in":
            return any(fits(one, value) for one in wanted)
        case "$eq":
            return bool(value == wanted)
        case "$match":
            return _matches(wanted, value, whole=False)
        case "$gte":
            return _is_number(value) and bool(value >= wanted)
        case "$size":
            return isinstance(value, list) and fits(wanted, len(value))
        case "range":
            return _is_number(value) and _between(wanted["min"], wanted["max"], value)
        case _:
            raise ValueError(f"this operator is not known: {name!r}")
