"""Counters and histograms of what happens.

Every event passes through here at the moment it happens, several for each job, so `observe` is one look-up and a few additions.
Labels are bounded: the first 1,000 series of a metric have their own; what comes after them counts as `_other`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from headgate.engines.contract import Event
from headgate.server.exposition import (
    MOST_SERIES,
    OTHER,
    Labels,
    bounded,
    family,
    head,
    histogram,
    pairs,
)
from headgate.server.flow_metrics import FlowMetrics


class _Timed(NamedTuple):
    """A kind of event that says how long something took."""

    kind: str
    member: str
    metric: str
    labels: str
    """Besides those of its row."""
    bounds_ms: tuple[int, ...]


_DURATION: Final = "ojs_job_duration_seconds"
_QUEUE_TIME: Final = "ojs_job_queue_time_seconds"
_QUEUE_WAIT: Final = "ojs_scheduling_queue_wait_duration_seconds"
_DURATION_MS: Final = (
    5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 120_000, 300_000,
)  # fmt: skip
_QUEUE_TIME_MS: Final = (
    10, 50, 100, 500, 1_000, 5_000, 10_000, 30_000, 60_000, 300_000, 900_000, 1_800_000, 3_600_000,
)  # fmt: skip
_TIMED: Final = (
    _Timed("job.started", "wait_ms", _QUEUE_TIME, "", _QUEUE_TIME_MS),
    _Timed("job.completed", "duration_ms", _DURATION, ',state="completed"', _DURATION_MS),
    _Timed("job.failed", "duration_ms", _DURATION, ',state="failed"', _DURATION_MS),
)
_STARTED: Final = 0
"""The place of what tells which pool got the job."""
_HISTOGRAMS: Final = {
    _QUEUE_TIME: "How long jobs were available before an attempt started.",
    _DURATION: "How long attempts took.",
}
_COUNTED: Final = {
    "job.completed": ("ojs_job_completed_total", "Jobs that were completed."),
    "job.failed": ("ojs_job_failed_total", "Attempts that failed."),
    "job.enqueued": ("ojs_job_enqueued_total", "Jobs that became available as new."),
    "job.retrying": ("ojs_job_retried_total", "Failed attempts that another one follows."),
    "job.cancelled": ("ojs_job_cancelled_total", "Jobs that were cancelled."),
    "job.expired": ("ojs_job_expired_total", "Jobs that expired before they started."),
    "job.dead_lettered": ("ojs_dead_letter_added_total", "Jobs that became dead letters."),
    "dead_letter.retried": ("ojs_dead_letter_retried_total", "Dead letters tried again by hand."),
    "dead_letter.pruned": (
        "ojs_dead_letter_pruned_total",
        "Dead letters forgotten after their time.",
    ),
    "job.progress": ("ojs_progress_updates_total", "Reports of progress."),
    "priority.changed": ("ojs_job_priority_changes_total", "Changes of a job's priority."),
}
_PLACES: Final = {
    kind: place
    for place, kind in enumerate(dict.fromkeys([*(timed.kind for timed in _TIMED), *_COUNTED]))
}
"""Where in a row each kind is counted; those that are timed come first."""
_MOST_POOLS: Final = 50
"""In one row."""


class _Row:
    """What happened to the jobs of one type in one queue."""

    __slots__ = ("counts", "labels", "pools", "times", "written")

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self.written = pairs(("queue", "type"), labels)
        self.counts = [0] * len(_PLACES)
        self.pools: dict[str, int] = {}
        """Starts, by the pool that the worker belongs to."""
        self.times = [[0] * (len(timed.bounds_ms) + 2) for timed in _TIMED]
        """For each timed kind: how many fell into each bucket, how many above all, their sum."""


class Metrics:
    """What happened since this process started."""

    __slots__ = ("_flow", "_rows", "_tells", "_tenants")

    def __init__(self) -> None:
        self._rows: dict[Labels, _Row] = {}
        self._flow = FlowMetrics(_QUEUE_TIME_MS)
        self._tells = self._flow.tells
        self._tenants = {_PLACES[kind]: counter for kind, counter in self._flow.tenants.items()}

    def observe(self, event: Event) -> None:
        """Count an event; events of unknown kinds count nowhere."""
        data = event.data
        place = _PLACES.get(event.kind)
        if place is None:
            tell = self._tells.get(event.kind)
            if tell is not None:
                tell(event, data or {})
            return
        queue = event.queue
        labels = (queue, event.job_type)
        row = self._rows.get(labels) or self._new_row(labels)
        row.counts[place] += 1
        if not data:
            return
        if place < len(_TIMED):
            timed = _TIMED[place]
            ms = data.get(timed.member, 0)
            times = row.times[place]
            times[bisect_left(timed.bounds_ms, ms)] += 1
            times[-1] += ms
            if place == _STARTED:
                pools = row.pools
                pool = data.get("pool") or "default"
                if pool not in pools and len(pools) >= _MOST_POOLS:
                    pool = OTHER
                pools[pool] = pools.get(pool, 0) + 1
        tenant = data.get("tenant_id")
        if tenant:
            counter = self._tenants.get(place)
            if counter is not None:
                counter.add(tenant, queue)

    def happened(self) -> Iterator[list[str]]:
        """The lines of everything that is counted here, one metric after the other.

        They may be many: let others have their turn between two metrics.
        """
        rows = list(self._rows.values())
        for kind, (name, help_text) in _COUNTED.items():
            place = _PLACES[kind]
            lines = head(name, "counter", help_text)
            lines += [
                f"{name}{{{row.written}}} {row.counts[place]}" for row in rows if row.counts[place]
            ]
            yield lines
        for name, help_text in _HISTOGRAMS.items():
            yield head(name, "histogram", help_text)
            for place, timed in enumerate(_TIMED):
                if timed.metric == name:
                    yield list(_histograms(timed, place, rows))
        yield _dispatches(rows)
        yield _queue_waits(rows)
        yield from self._flow.happened()

    def _new_row(self, labels: Labels) -> _Row:
        if len(self._rows) >= MOST_SERIES:
            labels = (OTHER, OTHER)
        row = self._rows.get(labels)
        if row is None:
            row = self._rows[labels] = _Row(labels)
        return row


def _histograms(timed: _Timed, place: int, rows: Sequence[_Row]) -> Iterator[str]:
    for row in rows:
        if row.counts[place]:
            labels = row.written + timed.labels
            yield from histogram(timed.metric, labels, timed.bounds_ms, row.times[place])


def _dispatches(rows: Sequence[_Row]) -> list[str]:
    counts: dict[Labels, int] = {}
    for row in rows:
        for pool, count in row.pools.items():
            labels = bounded((row.labels[0], pool), counts)
            counts[labels] = counts.get(labels, 0) + count
    return family(
        "ojs_scheduling_dispatch_total",
        "counter",
        "Jobs given to workers.",
        ("queue", "pool"),
        counts,
    )


def _queue_waits(rows: Sequence[_Row]) -> list[str]:
    """What the rows say of jobs, for each queue as a whole."""
    sums: dict[str, list[int]] = {}
    for row in rows:
        if row.counts[_STARTED]:
            times = row.times[_STARTED]
            known = sums.get(row.labels[0])
            sums[row.labels[0]] = (
                list(times)
                if known is None
                else [one + other for one, other in zip(known, times, strict=True)]
            )
    lines = head(
        _QUEUE_WAIT,
        "histogram",
        "How long jobs of a queue were available before they were given out.",
    )
    for queue, times in sums.items():
        lines += histogram(_QUEUE_WAIT, pairs(("queue",), (queue,)), _QUEUE_TIME_MS, times)
    return lines
