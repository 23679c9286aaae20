"""The only reader of time."""

from __future__ import annotations

import time
from collections.abc import Callable

_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Counts on while the machine sleeps, where the system knows such a clock."""


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def elapsed_s() -> float:
    """For measuring how long something takes; says nothing about the time of day."""
    return time.perf_counter()


def steady(not_before_ms: int = 0) -> Callable[[], int]:
    """A clock that starts at the later of the wall clock and the given time and never goes back.

    Setting the wall clock back while the server runs, or between two runs, freezes nothing and repeats nothing.
    """
    offset_ns = max(time.time_ns(), not_before_ms * 1_000_000) - time.clock_gettime_ns(_ELAPSED)
    read = time.clock_gettime_ns
    clock = _ELAPSED

    def now_ms() -> int:
        return (read(clock) + offset_ns) // 1_000_000

    return now_ms
