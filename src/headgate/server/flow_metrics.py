"""Counters and histograms of flow control: keys, bounds, queues, pools and tenants."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from headgate.engines.contract import KEY_WAITED, QUEUE_OPENED, Event
from headgate.server.exposition import Labels, bounded, family, head, histogram, pairs

Tell = Callable[[Event, dict[str, Any]], None]

_KEY_WAIT: Final = "ojs_rate_limit_wait_duration_seconds"
_QUEUES: Final = {
    QUEUE_OPENED: (
        "ojs_queue_created_count_total",
        "Queues that were created, by request or by use.",
    ),
    "queue.deleted": ("ojs_queue_deleted_count_total", "Queues that were deleted."),
}
_TENANTS: Final = {
    "job.enqueued": ("ojs_tenant_jobs_enqueued_total", "Jobs of a tenant that became available."),
    "job.completed": ("ojs_tenant_jobs_processed_total", "Jobs of a tenant that were completed."),
    "job.failed": ("ojs_tenant_jobs_failed_total", "Attempts at jobs of a tenant that failed."),
}
_DROP_OLDEST: Final = "drop_oldest"


class Counter:
    """A metric that only grows, by its labels."""

    __slots__ = ("_help", "_name", "_names", "counts")

    def __init__(self, name: str, help_text: str, *names: str) -> None:
        self._name = name
        self._help = help_text
        self._names = names
        self.counts: dict[Labels, int] = {}

    def add(self, *labels: str) -> None:
        counts = self.counts
        count = counts.get(labels)
        if count is None:
            labels = bounded(labels, counts)
            count = counts.get(labels, 0)
        counts[labels] = count + 1

    def lines(self) -> list[str]:
        return family(self._name, "counter", self._help, self._names, self.counts)


class FlowMetrics:
    """What happened to others than single jobs."""

    __slots__ = (
        "_bounds_ms",
        "_dropped",
        "_exceeded",
        "_overflow",
        "_queues",
        "_rejected",
        "_starved",
        "_waits",
        "tells",
        "tenants",
    )

    def __init__(self, bounds_ms: Sequence[int]) -> None:
        self._bounds_ms = bounds_ms
        self._queues = dict.fromkeys(_QUEUES, 0)
        self._exceeded = Counter(
            "ojs_rate_limit_exceeded_total",
            "Times that a key began to keep jobs of a queue waiting.",
            "key",
            "strategy",
        )
        self._rejected = Counter(
            "ojs_backpressure_rejected_total", "Refused enqueues of full queues.", "queue"
        )
        self._dropped = Counter(
            "ojs_backpressure_dropped_total", "Jobs discarded to make room for newer ones.", "queue"
        )
        self._overflow = Counter(
            "ojs_queue_overflow_count_total",
            "Enqueues refused and jobs dropped because the queue was full.",
            "queue",
            "policy",
        )
        self._starved = Counter(
            "ojs_scheduling_starvation_events_total",
            "Times that a queue got nothing for a whole interval.",
            "queue",
        )
        self.tenants = {
            kind: Counter(name, help_text, "tenant_id", "queue")
            for kind, (name, help_text) in _TENANTS.items()
        }
        """By the kind of the event that is counted."""
        self._waits: dict[Labels, list[int]] = {}
        """By key: how many waits fell into each bucket, how many above all, their sum."""
        self.tells: dict[str, Tell] = {
            "rate_limit.exceeded": self._on_exceeded,
            KEY_WAITED: self._on_waited,
            "backpressure.rejected": self._on_rejected,
            "backpressure.dropped": self._on_dropped,
            "scheduling.queue_starved": self._on_starved,
            **dict.fromkeys(_QUEUES, self._on_queue),
        }
        """By the kind of the event: what counts it."""

    def happened(self) -> Iterator[list[str]]:
        """The lines, one metric after the other."""
        for kind, (name, help_text) in _QUEUES.items():
            yield family(name, "counter", help_text, (), {(): self._queues[kind]})
        for counter in (
            self._exceeded,
            self._rejected,
            self._dropped,
            self._overflow,
            self._starved,
            *self.tenants.values(),
        ):
            yield counter.lines()
        yield self._key_waits()

    def _on_queue(self, event: Event, _data: dict[str, Any]) -> None:
        self._queues[event.kind] += 1

    def _on_exceeded(self, event: Event, data: dict[str, Any]) -> None:
        key = str(data.get("key", event.subject))
        self._exceeded.add(key, str(data.get("strategy", "")))

    def _on_waited(self, _event: Event, data: dict[str, Any]) -> None:
        labels = bounded((data["key"],), self._waits)
        times = self._waits.get(labels)
        if times is None:
            times = self._waits[labels] = [0] * (len(self._bounds_ms) + 2)
        ms = data["wait_ms"]
        times[bisect_left(self._bounds_ms, ms)] += 1
        times[-1] += ms

    def _on_rejected(self, event: Event, data: dict[str, Any]) -> None:
        queue = event.queue or str(data.get("queue", ""))
        self._rejected.add(queue)
        self._overflow.add(queue, str(data.get("strategy", "reject")))

    def _on_dropped(self, event: Event, data: dict[str, Any]) -> None:
        queue = event.queue or str(data.get("queue", ""))
        self._dropped.add(queue)
        self._overflow.add(queue, _DROP_OLDEST)

    def _on_starved(self, event: Event, data: dict[str, Any]) -> None:
        self._starved.add(event.queue or str(data.get("queue", "")))

    def _key_waits(self) -> list[str]:
        lines = head(_KEY_WAIT, "histogram", "How long keys kept the jobs waiting that started.")
        for labels, times in self._waits.items():
            lines += histogram(_KEY_WAIT, pairs(("key",), labels), self._bounds_ms, times)
        return lines
