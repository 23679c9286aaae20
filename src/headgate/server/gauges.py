"""Metrics of what is, looked up when somebody asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from headgate.core.states import ACTIVE, AVAILABLE, SCHEDULED, STATES, TERMINAL
from headgate.engines.contract import (
    Dispatches,
    KeyView,
    PoolView,
    QueueView,
    TenantView,
    WorkerView,
)
from headgate.server.exposition import MOST_SERIES, OTHER, Labels, bounded, family

MOST_KEYS: Final = 10_000
"""Keys that one scrape looks at."""

_LIVE: Final = tuple(state for state in STATES if state not in TERMINAL)
_WAITING: Final = tuple(state for state in _LIVE if state != ACTIVE)


class Seen(Struct):
    """What there is at one moment."""

    queues: Sequence[QueueView] = ()
    workers: Sequence[WorkerView] = ()
    dead_letters: int = 0
    keys: Sequence[KeyView] = ()
    pools: Sequence[PoolView] = ()
    dispatches: Sequence[Dispatches] = ()
    tenants: Sequence[TenantView] = ()


def state(seen: Seen, now_ms: int) -> list[str]:
    """The lines of everything that is looked up."""
    alive = sum(not worker.stale for worker in seen.workers)
    return [
        *_gauge("ojs_queue_depth", "Jobs that have not ended.", ("queue", "state"), _depths(seen)),
        *_gauge("ojs_workers_active", "Workers that are alive.", (), {(): alive}),
        *_gauge(
            "ojs_workers_busy",
            "Workers with a job, under each queue that they serve.",
            ("queue",),
            _busy(seen.workers),
        ),
        *_gauge("ojs_dead_letter_total", "Dead letters.", (), {(): seen.dead_letters}),
        *_queues(seen.queues, now_ms),
        *_keys(seen.keys),
        *_scheduling(seen),
        *_tenants(seen),
    ]


def _depths(seen: Seen) -> dict[Labels, int]:
    depths: dict[Labels, int] = {}
    for place, view in enumerate(seen.queues):
        name = view.name if place < MOST_SERIES else OTHER
        for each in _LIVE:
            depths[name, each] = depths.get((name, each), 0) + view.counts[each]
    return depths


def _busy(workers: Sequence[WorkerView]) -> dict[Labels, int]:
    busy: dict[Labels, int] = {}
    for worker in workers:
        if worker.stale or not worker.active_jobs:
            continue
        for queue in dict.fromkeys(worker.queues):
            labels = bounded((queue,), busy)
            busy[labels] = busy.get(labels, 0) + 1
    return busy


def _queues(views: Sequence[QueueView], now_ms: int) -> Iterable[str]:
    """How old and how full queues are; the first 1,000, because ages and shares cannot be added up."""
    ages: dict[Labels, float] = {}
    runnable: dict[Labels, float] = {}
    pressure: dict[Labels, float] = {}
    sizes: dict[Labels, int] = {}
    used: dict[Labels, float] = {}
    parked: dict[Labels, int] = {}
    for view in views[:MOST_SERIES]:
        name = (view.name,)
        ages[name] = _age_s(view.oldest_available_at, now_ms)
        runnable[name] = _age_s(view.oldest_runnable_at, now_ms)
        if view.load is not None:
            pressure[name] = view.load.pressure
            parked[name] = view.parked
        bounds = view.resolved.bounds
        waiting = sum(view.counts[each] for each in _WAITING)
        if bounds.max_size:
            sizes[name] = bounds.max_size
            used[name] = min(1.0, (waiting + view.counts[ACTIVE]) / bounds.max_size)
        elif bounds.max_depth:
            sizes[name] = bounds.max_depth
            used[name] = min(1.0, waiting / bounds.max_depth)
    return [
        *_gauge(
            "ojs_queue_oldest_available_age_seconds",
            "How long the oldest available job has waited.",
            ("queue",),
            ages,
        ),
        *_gauge(
            "ojs_queue_oldest_runnable_age_seconds",
            "How long the oldest job has waited that only lacks a free worker.",
            ("queue",),
            runnable,
        ),
        *_gauge(
            "ojs_queue_max_size",
            "How many jobs a bounded queue takes: max_size, else max_depth.",
            ("queue",),
            sizes,
        ),
        *_gauge("ojs_queue_utilization", "How much of that is used up.", ("queue",), used),
        *_gauge(
            "ojs_backpressure_pressure",
            "How much of its tightest bound a bounded queue has used up.",
            ("queue",),
            pressure,
        ),
        *_gauge(
            "ojs_backpressure_blocked",
            "Producers that wait for room in a bounded queue.",
            ("queue",),
            parked,
        ),
    ]


def _keys(views: Sequence[KeyView]) -> Iterable[str]:
    active: dict[Labels, int] = {}
    waiting: dict[Labels, int] = {}
    for view in views:
        labels = bounded((view.key,), active)
        active[labels] = active.get(labels, 0) + view.state.active
        waiting[labels] = waiting.get(labels, 0) + view.waiting
    return [
        *_gauge("ojs_rate_limit_active", "Jobs of a key that run.", ("key",), active),
        *_gauge(
            "ojs_rate_limit_waiting", "Available jobs that a key keeps waiting.", ("key",), waiting
        ),
    ]


def _scheduling(seen: Seen) -> Iterable[str]:
    total = sum(each.last_minute for each in seen.dispatches)
    ratios: dict[Labels, float] = {}
    for each in seen.dispatches:
        labels = bounded((each.queue,), ratios)
        share = each.last_minute / total if total else 0.0
        ratios[labels] = ratios.get(labels, 0.0) + share
    used = {
        (view.pool.name,): view.active_jobs / view.pool.concurrency
        for view in seen.pools[:MOST_SERIES]
        if view.pool.concurrency
    }
    return [
        *_gauge(
            "ojs_scheduling_dispatch_ratio",
            "A queue's part of all dispatches of the last minute.",
            ("queue",),
            ratios,
        ),
        *_gauge(
            "ojs_scheduling_pool_utilization",
            "How much of its concurrency a pool has used up.",
            ("pool",),
            used,
        ),
    ]


def _tenants(seen: Seen) -> Iterable[str]:
    active: dict[Labels, int] = {}
    depth: dict[Labels, int] = {}
    for view in seen.tenants:
        labels = bounded((view.id,), active)
        counts = view.counts
        active[labels] = active.get(labels, 0) + counts.get(ACTIVE, 0)
        waiting = counts.get(AVAILABLE, 0) + counts.get(SCHEDULED, 0)
        depth[labels] = depth.get(labels, 0) + waiting
    total = sum(view.counts[ACTIVE] for view in seen.queues)
    share = {labels: count / total if total else 0.0 for labels, count in active.items()}
    names = ("tenant_id",)
    return [
        *_gauge("ojs_tenant_jobs_active", "Jobs of a tenant that run.", names, active),
        *_gauge(
            "ojs_tenant_queue_depth", "Available and scheduled jobs of a tenant.", names, depth
        ),
        *_gauge("ojs_tenant_fairness_share", "A tenant's part of all jobs that run.", names, share),
    ]


def _age_s(since_ms: int, now_ms: int) -> float:
    return max(0, now_ms - since_ms) / 1000 if since_ms else 0.0


def _gauge(name: str, help_text: str, names: Labels, values: Mapping[Any, float]) -> list[str]:
    return family(name, "gauge", help_text, names, values)
