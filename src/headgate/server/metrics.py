"""Counters and histograms of what happens, and the text in which Prometheus reads them.

Every event passes through here at the moment it happens, several for each job, so `observe` is one look-up and a few additions.
Labels are bounded: the first 1,000 pairs of queue and job type have series of their own; what comes after them counts as `_other`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from headgate.core.states import STATES, TERMINAL
from headgate.engines.contract import Event, QueueView, WorkerView

MOST_SERIES: Final = 1_000
OTHER: Final = "_other"

_LIVE: Final = tuple(state for state in STATES if state not in TERMINAL)

Labels = tuple[str, ...]


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
    "job.progress": ("ojs_progress_updates_total", "Reports of progress."),
    "priority.changed": ("ojs_job_priority_changes_total", "Changes of a job's priority."),
}
_PLACES: Final = {
    kind: place
    for place, kind in enumerate(dict.fromkeys([*(timed.kind for timed in _TIMED), *_COUNTED]))
}
"""Where in a row each kind is counted; those that are timed come first."""
_QUEUES: Final = {
    "queue.created": ("ojs_queue_created_count_total", "Queues that were created."),
    "queue.deleted": ("ojs_queue_deleted_count_total", "Queues that were deleted."),
}


class _Row:
    """What happened to the jobs of one type in one queue."""

    __slots__ = ("counts", "labels", "times")

    def __init__(self, queue: str, job_type: str) -> None:
        self.labels = _pairs(("queue", "type"), (queue, job_type))
        self.counts = [0] * len(_PLACES)
        self.times = [[0] * (len(timed.bounds_ms) + 2) for timed in _TIMED]
        """For each timed kind: how many fell into each bucket, how many above all, their sum."""


class Metrics:
    """What happened since this process started."""

    __slots__ = ("_queues", "_rows")

    def __init__(self) -> None:
        self._rows: dict[Labels, _Row] = {}
        self._queues = dict.fromkeys(_QUEUES, 0)

    def observe(self, event: Event) -> None:
        """Count an event; events of unknown kinds count nowhere."""
        _, kind, _, _, job_type, queue, _, data = event
        place = _PLACES.get(kind)
        if place is None:
            if kind in self._queues:
                self._queues[kind] += 1
            return
        row = self._rows.get((queue, job_type)) or self._new_row((queue, job_type))
        row.counts[place] += 1
        if place < len(_TIMED) and data:
            timed = _TIMED[place]
            ms = data.get(timed.member, 0)
            times = row.times[place]
            times[bisect_left(timed.bounds_ms, ms)] += 1
            times[-1] += ms

    def happened(self) -> Iterator[list[str]]:
        """The lines of everything that is counted here, one metric after the other.

        They may be many: let others have their turn between two metrics.
        """
        rows = list(self._rows.values())
        for kind, (name, help_text) in _COUNTED.items():
            place = _PLACES[kind]
            lines = _head(name, "counter", help_text)
            lines += [
                f"{name}{{{row.labels}}} {row.counts[place]}" for row in rows if row.counts[place]
            ]
            yield lines
        for kind, (name, help_text) in _QUEUES.items():
            yield [*_head(name, "counter", help_text), f"{name} {self._queues[kind]}"]
        for name, help_text in _HISTOGRAMS.items():
            yield _head(name, "histogram", help_text)
            for place, timed in enumerate(_TIMED):
                if timed.metric == name:
                    yield list(_histograms(timed, place, rows))

    def _new_row(self, labels: Labels) -> _Row:
        if len(self._rows) >= MOST_SERIES:
            labels = (OTHER, OTHER)
        row = self._rows.get(labels)
        if row is None:
            row = self._rows[labels] = _Row(*labels)
        return row


def _histograms(timed: _Timed, place: int, rows: Sequence[_Row]) -> Iterator[str]:
    name = timed.metric
    bounds = (*(f'le="{ms / 1000:g}"' for ms in timed.bounds_ms), 'le="+Inf"')
    for row in rows:
        if not row.counts[place]:
            continue
        labels = row.labels + timed.labels
        times = row.times[place]
        total = 0
        for bound, count in zip(bounds, times, strict=False):  # the last one is the sum
            total += count
            yield f"{name}_bucket{{{labels},{bound}}} {total}"
        yield f"{name}_sum{{{labels}}} {times[-1] / 1000:.3f}"
        yield f"{name}_count{{{labels}}} {total}"


def state(
    queues: Sequence[QueueView], workers: Sequence[WorkerView], dead_letters: int
) -> list[str]:
    """The lines of what is not counted but looked up."""
    alive = sum(not worker.stale for worker in workers)
    return [
        *_gauge("ojs_queue_depth", "Jobs that have not ended.", _depths(queues)),
        *_gauge("ojs_workers_active", "Workers that are alive.", {(): alive}, ()),
        *_gauge(
            "ojs_workers_busy",
            "Workers with a job, under each queue that they serve.",
            _busy(workers),
            ("queue",),
        ),
        *_gauge("ojs_dead_letter_total", "Dead letters.", {(): dead_letters}, ()),
    ]


def exposition(lines: Sequence[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def _depths(queues: Sequence[QueueView]) -> dict[Labels, int]:
    depths: dict[Labels, int] = {}
    for place, view in enumerate(queues):
        name = view.name if place < MOST_SERIES else OTHER
        for state in _LIVE:
            depths[name, state] = depths.get((name, state), 0) + view.counts[state]
    return depths


def _busy(workers: Sequence[WorkerView]) -> dict[Labels, int]:
    busy: dict[Labels, int] = {}
    for worker in workers:
        if worker.stale or not worker.active_jobs:
            continue
        for queue in dict.fromkeys(worker.queues):
            labels = (queue,) if (queue,) in busy or len(busy) < MOST_SERIES else (OTHER,)
            busy[labels] = busy.get(labels, 0) + 1
    return busy


def _gauge(
    name: str, help_text: str, values: dict[Labels, int], names: Labels = ("queue", "state")
) -> list[str]:
    lines = _head(name, "gauge", help_text)
    for labels, value in values.items():
        lines.append(f"{name}{{{_pairs(names, labels)}}} {value}" if names else f"{name} {value}")
    return lines


def _head(name: str, kind: str, help_text: str) -> list[str]:
    return [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]


def _pairs(names: Labels, values: Labels) -> str:
    return ",".join(
        f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True)
    )


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
