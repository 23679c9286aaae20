"""What was measured, held against the budgets: a table for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any, Literal

from msgspec import Struct, to_builtins

from bench.machine import Machine


class Budget(Struct, frozen=True):
    sign: Literal["≤", "≥"]
    value: float


class Row(Struct, frozen=True):
    about: str
    """What was measured; rows about the same stand together."""
    name: str
    configuration: str
    value: float
    unit: str
    budget: Budget | None = None
    more: dict[str, float] = {}
    """What else is known of it: name and unit -> value."""


def at_most(value: float) -> Budget:
    return Budget("≤", value)


def at_least(value: float) -> Budget:
    return Budget("≥", value)


def middle(rounds: Sequence[Sequence[Row]]) -> list[Row]:
    """One row for the same row of every round, each number the median of theirs."""
    rows = []
    for same in zip(*rounds, strict=True):
        first = same[0]
        rows.append(
            Row(
                first.about,
                first.name,
                first.configuration,
                median(row.value for row in same),
                first.unit,
                first.budget,
                {name: median(row.more[name] for row in same) for name in first.more},
            )
        )
    return rows


def table(rows: Sequence[Row]) -> str:
    """Every row with its budget, where it has one, and how much of it was used or reached."""
    lines = [["what", "on", "value", "unit", "budget", "ratio", "also"]]
    about = ""
    for row in rows:
        if row.about != about:
            about = row.about
            lines.append([about.upper()])
        budget, ratio = "", ""
        if row.budget is not None:
            budget = f"{row.budget.sign} {_number(row.budget.value)}"
            ratio = f"{row.value / row.budget.value:.2f}"
        also = ", ".join(f"{name} {_number(value)}" for name, value in row.more.items())
        name = f"  {row.name}"
        value = _number(row.value)
        lines.append([name, row.configuration, value, row.unit, budget, ratio, also])
    widths = [max(len(line[place]) for line in lines if len(line) > 1) for place in range(6)]
    return "\n".join(_line(line, widths) for line in lines)


def document(machine: Machine, rows: Sequence[Row]) -> dict[str, Any]:
    return {"machine": to_builtins(machine), "rows": to_builtins(rows)}


def _line(cells: list[str], widths: list[int]) -> str:
    if len(cells) == 1:
        return f"\n{cells[0]}"
    shown = []
    for place, (cell, width) in enumerate(zip(cells, [*widths, 0], strict=True)):
        shown.append(cell.rjust(width) if place in (2, 4, 5) else cell.ljust(width))
    return "  ".join(shown).rstrip()


def _number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
