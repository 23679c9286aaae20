"""What happened in a queue lately: by the second for a minute, by the minute for a day."""

from __future__ import annotations

from collections import deque

from headgate.core.times import DAY_MS, MINUTE_MS, SECOND_MS
from headgate.engines.contract import Point, Rates

KEPT_MINUTES = 24 * 60
SAMPLES = 1_000


class Recent:
    """Counts are since the start of the process, except those of the day; nothing here decides anything."""

    __slots__ = ("_day", "_durations", "_minutes", "_seconds", "_today", "_waits")

    def __init__(self) -> None:
        self._seconds: deque[list[int]] = deque(maxlen=61)
        """[second, completed, failed, started, came back]"""
        self._minutes: deque[list[int]] = deque(maxlen=KEPT_MINUTES)
        """[minute, enqueued, completed, failed]"""
        self._durations: deque[int] = deque(maxlen=SAMPLES)
        self._waits: deque[int] = deque(maxlen=SAMPLES)
        self._day = 0
        self._today = [0, 0]

    def enqueued(self, now_ms: int) -> None:
        self._minute(now_ms)[1] += 1

    def started(self, now_ms: int, wait_ms: int) -> None:
        self._waits.append(wait_ms)
        self._second(now_ms)[3] += 1

    def came_back(self, now_ms: int) -> None:
        """A job that was started waits again."""
        self._second(now_ms)[4] += 1

    def completed(self, now_ms: int, duration_ms: int) -> None:
        self._durations.append(duration_ms)
        self._ended(now_ms, 0)

    def failed(self, now_ms: int) -> None:
        self._ended(now_ms, 1)

    def _ended(self, now_ms: int, which: int) -> None:
        self._second(now_ms)[1 + which] += 1
        self._minute(now_ms)[2 + which] += 1
        day = now_ms // DAY_MS
        if day != self._day:
            self._day = day
            self._today = [0, 0]
        self._today[which] += 1

    @property
    def today(self) -> tuple[int, int, int]:
        """The day, and how many jobs were completed and failed in it; what outlives the process."""
        completed, failed = self._today
        return self._day, completed, failed

    @today.setter
    def today(self, known: tuple[int, int, int]) -> None:
        self._day, *self._today = known

    def _second(self, now_ms: int) -> list[int]:
        second = now_ms // SECOND_MS
        seconds = self._seconds
        if not seconds or seconds[-1][0] != second:
            seconds.append([second, 0, 0, 0, 0])
        return seconds[-1]

    def _minute(self, now_ms: int) -> list[int]:
        minute = now_ms // MINUTE_MS
        minutes = self._minutes
        if not minutes or minutes[-1][0] != minute:
            minutes.append([minute, 0, 0, 0])
        return minutes[-1]

    def left(self, now_ms: int, *, to_run: bool) -> int:
        """How many jobs have left the queue in the last minute; `to_run`: also those that went only as far as a worker."""
        after = now_ms // SECOND_MS - 60
        ended = started = 0
        for second, completed, failed, begun, back in self._seconds:
            if second > after:
                ended += completed + failed
                started += begun - back
        return max(ended, started) if to_run else ended

    def rates(self, now_ms: int) -> Rates:
        second = now_ms // SECOND_MS
        minute = now_ms // MINUTE_MS
        last_minute = [s for s in self._seconds if s[0] > second - 60]
        last_hour = [m for m in self._minutes if m[0] > minute - 60]
        today = self._today if now_ms // DAY_MS == self._day else [0, 0]
        return Rates(
            started_last_minute=sum(s[3] for s in last_minute),
            completed_last_minute=sum(s[1] for s in last_minute),
            failed_last_minute=sum(s[2] for s in last_minute),
            completed_last_hour=sum(m[2] for m in last_hour),
            failed_last_hour=sum(m[3] for m in last_hour),
            completed_today=today[0],
            failed_today=today[1],
            avg_duration_ms=_mean(self._durations),
            avg_wait_ms=_mean(self._waits),
            latencies=self._latencies,
        )

    def _latencies(self) -> tuple[float, float, float]:
        durations = sorted(self._durations)
        return (
            _quantile(durations, 0.5),
            _quantile(durations, 0.95),
            _quantile(durations, 0.99),
        )

    def points(self, since: int, until: int) -> list[Point]:
        """By the minute, for the minutes that begin in [since, until)."""
        return [
            Point(minute * MINUTE_MS, enqueued, completed, failed)
            for minute, enqueued, completed, failed in self._minutes
            if since <= minute * MINUTE_MS < until
        ]


def _mean(values: deque[int]) -> float:
    return sum(values) / len(values) if values else 0.0


def _quantile(ordered: list[int], share: float) -> float:
    return float(ordered[int(share * (len(ordered) - 1))]) if ordered else 0.0
