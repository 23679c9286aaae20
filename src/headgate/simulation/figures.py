"""What is counted and measured while a scenario is played."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Final

from headgate.core.gates import Limits
from headgate.core.job import Job

MOST_IN_SERIES: Final = 200
"""Keys and tenants of which a series is kept: the first ones."""


class Tally:
    """What happened in one queue, for one key, of one tenant, or altogether."""

    __slots__ = (
        "active",
        "busy_us",
        "changed_us",
        "completed",
        "discarded",
        "enqueued",
        "failed",
        "name",
        "rejected",
        "scope",
        "seen",
        "started",
        "waits",
    )

    def __init__(self, scope: str, name: str) -> None:
        self.scope = scope
        self.name = name
        self.enqueued = self.rejected = self.started = 0
        self.completed = self.failed = self.discarded = 0
        self.active = 0
        self.busy_us = 0
        """Time that all its jobs ran together."""
        self.changed_us = 0
        self.waits = array("q")
        """From available to started, in ms, of every start."""
        self.seen: dict[str, int] = dict.fromkeys(COUNTED, 0)
        """At the last sample."""

    def run(self, now_us: int, more: int) -> None:
        """So many more run from now on."""
        self.busy_us += self.active * (now_us - self.changed_us)
        self.changed_us = now_us
        self.active += more


COUNTED: Final = (
    "enqueued", "rejected", "started", "completed", "failed", "discarded", "busy_us", "waits",
)  # fmt: skip


class Figures:
    """Tallies, and the series that is made of them."""

    def __init__(self, begin_us: int) -> None:
        self._begin_us = begin_us
        self._sampled_us = begin_us
        self.total = Tally("total", "")
        self.tallies: dict[tuple[str, str], Tally] = {("total", ""): self.total}
        self.series: list[dict[str, Any]] = []
        self.limits: dict[str, Limits] = {}
        """By key."""
        self.reasons: dict[str, int] = {}
        """Why jobs were discarded or refused."""
        self._of: dict[Any, tuple[Tally, ...]] = {}

    def of(self, job: Job) -> tuple[Tally, ...]:
        """All tallies in which this job counts."""
        named = (job.queue, job.tenant, job.keys)
        found = self._of.get(named)
        if found is None:
            keys = [("key", key) for key, _ in job.keys]
            tenants = [("tenant", job.tenant)] if job.tenant else []
            names = [("queue", job.queue), *keys, *tenants]
            found = self._of[named] = (self.total, *(self._tally(*one) for one in names))
        return found

    def _tally(self, scope: str, name: str) -> Tally:
        found = self.tallies.get((scope, name))
        if found is None:
            found = self.tallies[scope, name] = Tally(scope, name)
            found.changed_us = self._sampled_us
        return found

    def started(self, job: Job, now_us: int) -> None:
        wait_ms = max(0, now_us // 1000 - job.enqueued_at)
        for tally in self.of(job):
            tally.started += 1
            tally.waits.append(wait_ms)
            tally.busy_us += tally.active * (now_us - tally.changed_us)
            tally.changed_us = now_us
            tally.active += 1

    def ended(self, tallies: Iterable[Tally], now_us: int, *, well: bool) -> None:
        for tally in tallies:
            if well:
                tally.completed += 1
            else:
                tally.failed += 1
            tally.busy_us += tally.active * (now_us - tally.changed_us)
            tally.changed_us = now_us
            tally.active -= 1

    def because(self, reason: str) -> None:
        self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def sample(self, now_us: int, waiting: dict[tuple[str, str], int]) -> None:
        """One row for each tally: what happened since the last one, and how it is now."""
        step_us = now_us - self._sampled_us
        if step_us <= 0:
            return
        self._sampled_us = now_us
        shown = dict.fromkeys(("key", "tenant"), 0)
        for tally in self.tallies.values():
            if tally.scope in shown:
                shown[tally.scope] += 1
                if shown[tally.scope] > MOST_IN_SERIES:
                    continue
            self.series.append(self._row(tally, now_us, step_us, waiting))

    def _row(
        self, tally: Tally, now_us: int, step_us: int, waiting: dict[tuple[str, str], int]
    ) -> dict[str, Any]:
        tally.run(now_us, 0)
        now = {name: getattr(tally, name) for name in COUNTED[:-1]} | {"waits": len(tally.waits)}
        more = {name: now[name] - tally.seen[name] for name in COUNTED}
        waits = percentiles(tally.waits[tally.seen["waits"] :])
        tally.seen = now
        return {
            "at_s": round((now_us - self._begin_us) / 1_000_000, 3),
            "scope": tally.scope,
            "name": tally.name,
            **{name: more[name] for name in COUNTED[:-2]},
            "per_second": round(more["completed"] * 1_000_000 / step_us, 3),
            "active": tally.active,
            "waiting": waiting.get((tally.scope, tally.name)),
            "wait_p50_ms": waits[0],
            "wait_p95_ms": waits[1],
            "wait_p99_ms": waits[2],
            "utilisation": self.utilisation(tally, more["started"], more["busy_us"], step_us),
        }

    def utilisation(self, tally: Tally, started: int, busy_us: int, span_us: int) -> float | None:
        """How far the tightest limit of a key was used up; None where it has none."""
        limits = self.limits.get(tally.name) if tally.scope == "key" else None
        if limits is None:
            return None
        found = []
        if limits.concurrency:
            found.append(busy_us / (limits.concurrency * span_us))
        rates = [rate for rate in (limits.rate, limits.throttle) if rate is not None]
        found += [started / (rate.limit * span_us / rate.period_us) for rate in rates]
        return round(max(found), 4) if found else None


def percentiles(waits: Sequence[int]) -> tuple[int | None, int | None, int | None]:
    """p50, p95 and p99: the smallest values that so many are not above."""
    if not waits:
        return None, None, None
    found = sorted(waits)
    last = len(found) - 1
    p50, p95, p99 = (found[min(last, -(-len(found) * part // 100) - 1)] for part in (50, 95, 99))
    return p50, p95, p99
