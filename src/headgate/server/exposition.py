"""The text in which Prometheus reads metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

MOST_SERIES: Final = 1_000
OTHER: Final = "_other"

Labels = tuple[str, ...]


def exposition(lines: Sequence[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def head(name: str, kind: str, help_text: str) -> list[str]:
    return [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]


def family(
    name: str, kind: str, help_text: str, names: Labels, values: Mapping[Labels, float]
) -> list[str]:
    """A metric with all its samples."""
    lines = head(name, kind, help_text)
    for labels, value in values.items():
        lines.append(f"{name}{{{pairs(names, labels)}}} {value}" if names else f"{name} {value}")
    return lines


def histogram(
    name: str, labels: str, bounds_ms: Sequence[int], times: Sequence[int]
) -> Iterator[str]:
    """The samples of one series; `times` holds the buckets, what fell above all of them, the sum in ms."""
    total = 0
    for ms, count in zip(bounds_ms, times, strict=False):
        total += count
        yield f'{name}_bucket{{{labels},le="{ms / 1000:g}"}} {total}'
    total += times[len(bounds_ms)]
    yield f'{name}_bucket{{{labels},le="+Inf"}} {total}'
    yield f"{name}_sum{{{labels}}} {times[-1] / 1000:.3f}"
    yield f"{name}_count{{{labels}}} {total}"


def pairs(names: Labels, values: Labels) -> str:
    return ",".join(
        f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True)
    )


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def bounded(labels: Labels, known: Mapping[Labels, object]) -> Labels:
    """The labels, or those under which everything beyond the first 1,000 counts."""
    if labels in known or len(known) < MOST_SERIES:
        return labels
    return (OTHER,) * len(labels)
