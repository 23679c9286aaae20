"""Tables for people: columns side by side, headings above, nothing drawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

_GAP: Final = "  "
_LEAST: Final = 8
"""A column that is narrowed keeps so much."""


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], width: int | None = None
) -> list[str]:
    """The lines of a table. A heading that starts with `>` puts its column to the right.

    Where `width` is given no line is longer: the first column gives way, and what is still too long is cut off.
    """
    to_right = [name.startswith(">") for name in head]
    lines = [[name.removeprefix(">") for name in head]]
    lines += [[plain(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if width is not None:
        over = sum(widths) + len(_GAP) * (len(widths) - 1) - width
        widths[0] = max(min(_LEAST, widths[0]), widths[0] - max(over, 0))
    found = []
    for line in lines:
        cells = [
            cut(cell, size).rjust(size) if right else cut(cell, size).ljust(size)
            for cell, size, right in zip(line, widths, to_right, strict=True)
        ]
        text = _GAP.join(cells).rstrip()
        found.append(text if width is None else cut(text, width))
    return found


def facts(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Names and values below each other; those without a value are left out."""
    shown = [(name, plain(value)) for name, value in pairs if value]
    size = max((len(name) for name, _ in shown), default=0)
    return [f"{name.ljust(size)}{_GAP}{value}" for name, value in shown]


def plain(text: str) -> str:
    """One line without anything that a terminal would obey: names and messages come from strangers."""
    return "".join(char if char.isprintable() else "�" for char in text.replace("\n", " "))


def cut(text: str, size: int) -> str:
    return text if len(text) <= size else text[: size - 1] + "…"


def show(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)
