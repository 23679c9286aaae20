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


class Clock:
    """Starts at the later of the wall clock and the given time and never goes back.

    Setting the wall clock back while the server runs, or between two runs, freezes nothing and repeats nothing.
    """

    __slots__ = ("_offset_ns",)

    def __init__(self, not_before_ms: int = 0) -> None:
        now_ns = max(time.time_ns(), not_before_ms * 1_000_000)
        self._offset_ns = now_ns - time.clock_gettime_ns(_ELAPSED)

    def now_ms(self) -> int:
        return (time.clock_gettime_ns(_ELAPSED) + self._offset_ns) // 1_000_000

    def now_us(self) -> int:
        """The same instant, for those who reckon in microseconds."""
        return (time.clock_gettime_ns(_ELAPSED) + self._offset_ns) // 1_000


def steady(not_before_ms: int = 0) -> Callable[[], int]:
    """Such a clock for those who need nothing but milliseconds."""
    return Clock(not_before_ms).now_ms
