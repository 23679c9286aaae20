"""Tenants: what each may use, and how much of it is used."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from headgate.core.gates import Limits
from headgate.core.job import Job
from headgate.core.limits import tenant_key
from headgate.core.states import AVAILABLE, SCHEDULED
from headgate.core.tenants import (
    DEFAULT_TENANT,
    Fairness,
    TenantLimits,
    tenant_limits_from,
    tenant_limits_json,
)
from headgate.core.windows import Window
from headgate.engines.contract import Quota, TenantFull, TenantView
from headgate.engines.local.queue import LIVE
from headgate.engines.local.tables import Tables

TENANT: Final = "tenant"
SOON_S: Final = 5
"""When to try again where nobody knows."""
MOST_WAIT_S: Final = 60
"""What is said where trying again is of no use, because something has to be said."""


class _Stored(Struct, array_like=True):
    limits: bytes
    known_at: int
    window: tuple[int, list[int], list[int]] | None


class _Tenant:
    __slots__ = ("known_at", "limits", "window")

    def __init__(self, limits: TenantLimits, known_at: int) -> None:
        self.limits = limits
        self.known_at = known_at
        self.window: Window | None = None


class Tenantry:
    __slots__ = ("_known", "_tables")

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._known: dict[str, _Tenant] = {}

    def __contains__(self, tenant: str) -> bool:
        return tenant in self._known

    def weight(self, tenant: str, fairness: Fairness) -> int:
        """How much this tenant counts among others."""
        if tenant in fairness.weights or tenant not in self._known:
            return fairness.weight(tenant)
        return self._known[tenant].limits.fairness_weight

    # pushes

    def refusal(
        self, jobs: Sequence[Job], victims: Sequence[Job], now: int
    ) -> tuple[int, TenantFull] | None:
        """The first job whose tenant has used up a limit, counted with all of them; None when none has."""
        by_tenant: dict[str, list[int]] = {}
        for index, job in enumerate(jobs):
            if job.tenant in self._known:
                by_tenant.setdefault(job.tenant, []).append(index)
        for tenant, places in by_tenant.items():
            found = self._refusal(tenant, [jobs[i] for i in places], victims, now)
            if found is not None:
                return places[0], found
        return None

    def _refusal(
        self, tenant: str, jobs: Sequence[Job], victims: Sequence[Job], now: int
    ) -> TenantFull | None:
        known = self._known[tenant]
        limits = known.limits
        leaving = [job for job in victims if job.tenant == tenant]
        if limits.max_queue_depth is not None:
            for queue in dict.fromkeys(job.queue for job in jobs):
                states = (AVAILABLE, SCHEDULED)
                current = self._count(queue, tenant, states) - _among(leaving, states, queue)
                coming = _among(jobs, states, queue)
                if coming and current + coming > limits.max_queue_depth:
                    most = limits.max_queue_depth
                    return _full(tenant, "max_queue_depth", current, most, SOON_S, coming)
        if limits.max_scheduled is not None:
            later = (SCHEDULED,)
            coming = _among(jobs, later)
            if coming:
                current = sum(self._count(q, tenant, later) for q in self._tables.queues)
                current -= _among(leaving, later)
                if current + coming > limits.max_scheduled:
                    most = limits.max_scheduled
                    return _full(tenant, "max_scheduled", current, most, SOON_S, coming)
        rate = limits.max_enqueue_rate
        if rate is not None and known.window is not None:
            now_us = now * 1000
            room = known.window.room(now_us)
            if len(jobs) > room:
                ahead = min(len(jobs), rate.limit) - 1
                opens_us = known.window.opens_us(ahead)
                wait_s = max(1, math.ceil((opens_us - now_us) / 1_000_000))
                count = known.window.count
                return _full(tenant, "max_enqueue_rate", count, rate.limit, wait_s, len(jobs))
        return None

    def _count(self, queue: str, tenant: str, states: Iterable[str]) -> int:
        found = self._tables.queues.get(queue)
        tenanted = None if found is None else found.tenants.get(tenant)
        return 0 if tenanted is None else sum(tenanted.counts[state] for state in states)

    def quota(self, tenant: str, now: int) -> Quota | None:
        """How many it may still push, where that is limited."""
        known = self._known.get(tenant)
        if known is None or known.window is None:
            return None
        window = known.window
        left = max(0, window.room(now * 1000))
        return Quota(window.rate.limit, left, max(now, -(-window.empty_us() // 1000)))

    def pushed(self, job: Job, now: int) -> None:
        """A job of this tenant was accepted."""
        known = self._known.get(job.tenant)
        if known is not None and known.window is not None:
            known.window.start(now * 1000)
            self._save(job.tenant)

    # commands

    def set(self, tenant: str, limits: TenantLimits, now: int) -> bool:
        known = self._known.get(tenant)
        new = known is None
        if known is None:
            known = self._known[tenant] = _Tenant(limits, now)
        known.limits = limits
        rate = limits.max_enqueue_rate
        if rate is None:
            known.window = None
        elif known.window is None:
            known.window = Window(rate)
        elif known.window.rate != rate:
            known.window.change(rate)
        self._save(tenant)
        self._gate(tenant)
        return new

    def forget(self, tenant: str) -> bool:
        if self._known.pop(tenant, None) is None:
            return False
        self._tables.set_thing(TENANT, tenant, None)
        self._gate(tenant)
        return True

    def _gate(self, tenant: str) -> None:
        """Let the tenant's concurrency be a gate that its jobs pass."""
        tables = self._tables
        name = tenant_key(tenant)
        known = self._known.get(tenant)
        limit = None if known is None else known.limits.max_concurrency
        had = name in tables.keys.inner
        if limit is not None:
            active = [
                job
                for held in tables.held.values()
                for job in held.values()
                if job.tenant == tenant
            ]
            tables.keys.limit(name, Limits(concurrency=limit), active, None)
        elif had:
            tables.keys.unlimit(name)
        if had != (limit is not None):
            for queue in tables.queues.values():
                queue.regate(tenant)
                tables.touch(queue)

    # looking

    def view(self, tenant: str) -> TenantView | None:
        known = self._known.get(tenant)
        counts = dict.fromkeys(LIVE, 0)
        found = False
        for queue in self._tables.queues.values():
            tenanted = queue.tenants.get(tenant)
            if tenanted is not None:
                found = True
                for state, jobs in tenanted.counts.items():
                    counts[state] += jobs
        if known is None and not found:
            return None
        if known is None:
            return TenantView(tenant, TenantLimits(), 0, counts)
        return TenantView(tenant, known.limits, known.known_at, counts)

    def names(self) -> list[str]:
        names = set(self._known)
        for queue in self._tables.queues.values():
            names.update(queue.tenants)
        return sorted(names - {DEFAULT_TENANT})

    # what stays

    def _save(self, tenant: str) -> None:
        known = self._known[tenant]
        window = None if known.window is None else known.window.packed()
        limits = msgspec.json.encode(tenant_limits_json(known.limits))
        packed = msgspec.msgpack.encode(_Stored(limits, known.known_at, window))
        self._tables.set_thing(TENANT, tenant, packed)

    def restore(self, tenant: str, packed: bytes) -> None:
        """Before the jobs are, so that their lanes find the gate."""
        stored = msgspec.msgpack.decode(packed, type=_Stored)
        limits = tenant_limits_from(msgspec.json.decode(stored.limits))
        known = self._known[tenant] = _Tenant(limits, stored.known_at)
        if limits.max_enqueue_rate is not None and stored.window is not None:
            known.window = Window.unpacked(limits.max_enqueue_rate, stored.window)


def _full(tenant: str, limit: str, current: int, most: int, wait_s: int, coming: int) -> TenantFull:
    if coming > most:
        return TenantFull(tenant, limit, current, most, MOST_WAIT_S, never=True)
    return TenantFull(tenant, limit, current, most, wait_s)


def _among(jobs: Iterable[Job], states: Iterable[str], queue: str = "") -> int:
    return sum(job.state in states and (not queue or job.queue == queue) for job in jobs)
