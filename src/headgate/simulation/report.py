"""What a play has shown: a summary for people and for programs, and the series."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import json, to_builtins

from headgate.simulation.figures import Tally, percentiles
from headgate.simulation.play import Played

MOST_ROWS: Final = 20
"""Keys and tenants in the table: those with most starts."""
_SCOPES: Final = ("total", "queue", "key", "tenant")
_HEAD: Final = (
    "", "enqueued", "rejected", "started", "completed", "failed", "discarded", "waiting",
    "per s", "p50", "p95", "p99", "used",
)  # fmt: skip


def summary(played: Played) -> dict[str, Any]:
    """Everything but the series, in terms of JSON."""
    figures, scenario = played.figures, played.scenario
    found: dict[str, Any] = {
        "duration_s": scenario.duration_us / 1_000_000,
        "seed": scenario.seed,
        "played_in_s": round(played.took_s, 3),
    }
    for scope in _SCOPES:
        rows = {
            tally.name: _row(played, tally)
            for tally in figures.tallies.values()
            if tally.scope == scope
        }
        if scope == "total":
            found[scope] = rows[""]
        else:
            found[_plural(scope)] = rows
    found["reasons"] = dict(sorted(figures.reasons.items()))
    found["shares"] = to_builtins(played.shares)
    return found


def _plural(scope: str) -> str:
    return f"{scope}s"


def _row(played: Played, tally: Tally) -> dict[str, Any]:
    span_us = played.scenario.duration_us
    p50, p95, p99 = percentiles(tally.waits)
    row: dict[str, Any] = {
        "enqueued": tally.enqueued,
        "rejected": tally.rejected,
        "started": tally.started,
        "completed": tally.completed,
        "failed": tally.failed,
        "discarded": tally.discarded,
        "active": tally.active,
        "waiting": played.waiting.get((tally.scope, tally.name)),
        "per_second": round(tally.completed * 1_000_000 / span_us, 3),
        "wait_p50_ms": p50,
        "wait_p95_ms": p95,
        "wait_p99_ms": p99,
        "wait_max_ms": max(tally.waits, default=None),
        "utilisation": played.figures.utilisation(tally, tally.started, tally.busy_us, span_us),
    }
    if tally.scope == "queue":
        row["oldest_waiting_ms"] = played.oldest_ms.get(tally.name, 0)
    return row


def table(played: Played) -> str:
    """For people."""
    found = summary(played)
    lines = [list(_HEAD), _cells("total", found["total"])]
    notes = []
    for scope in _SCOPES[1:]:
        rows = found[_plural(scope)]
        shown = sorted(rows.items(), key=lambda one: (-one[1]["started"], one[0]))
        lines += [_cells(f"{scope} {name}", row) for name, row in shown[:MOST_ROWS]]
        if len(shown) > MOST_ROWS:
            notes.append(f"{len(shown) - MOST_ROWS} more {_plural(scope)} are not shown")
    text = [_aligned(lines)]
    for name, row in found["queues"].items():
        if row["oldest_waiting_ms"]:
            age = _time(row["oldest_waiting_ms"])
            text.append(
                f"queue {name}: {row['waiting']:,} jobs still wait at the end, the oldest for {age}"
            )
    if found["reasons"]:
        reasons = (f"{reason} {count:,}" for reason, count in found["reasons"].items())
        text.append("rejected or discarded: " + ", ".join(reasons))
    if found["shares"]:
        head = ["share of starts", "weight", "promised", "got", "while all wait"]
        text.append("")
        text.append(_aligned([head, *(_share(one) for one in found["shares"])]))
    length, took = _time(found["duration_s"] * 1000), found["played_in_s"]
    text += notes
    text.append(f"\n{length} played in {took:.1f} s, seed {found['seed']}")
    return "\n".join(text)


def _cells(name: str, row: dict[str, Any]) -> list[str]:
    counts = [f"{row[key]:,}" for key in _HEAD[1:7]]
    used = row["utilisation"]
    return [
        name,
        *counts,
        "" if row["waiting"] is None else f"{row['waiting']:,}",
        f"{row['per_second']:,.1f}",
        *(_time(row[f"wait_{part}_ms"]) for part in ("p50", "p95", "p99")),
        "" if used is None else f"{used:.0%}",
    ]


def _share(one: dict[str, Any]) -> list[str]:
    contested = one["contested"]
    return [
        f"{one['among']}: {one['name']}",
        str(one["weight"]),
        f"{one['promised']:.1%}",
        f"{one['got']:.1%}",
        "" if contested is None else f"{contested:.1%}",
    ]


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if n == 0 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _time(ms: float | None) -> str:
    if ms is None:
        return ""
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1_000)):
        if ms >= size:
            return f"{ms / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{ms:g} ms"


def write_series(played: Played, file: Path) -> None:
    """The series as JSON or as CSV, as the file's name ends. Raises OSError."""
    rows: Iterable[dict[str, Any]] = played.figures.series
    if file.suffix == ".json":
        file.write_bytes(json.format(json.encode(rows), indent=1))
        return
    with file.open("w", encoding="utf-8", newline="") as target:
        writer: csv.DictWriter[str] | None = None
        for row in rows:
            if writer is None:
                writer = csv.DictWriter(target, list(row))
                writer.writeheader()
            writer.writerow(row)
