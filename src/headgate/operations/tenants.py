"""TENANTS: look at them, give them limits, take these back, count what they have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from headgate.core.errors import InvalidRequest, NotFound
from headgate.core.members import object_at
from headgate.core.noise import Noise, signals
from headgate.core.states import (
    ACTIVE,
    AVAILABLE,
    COMPLETED,
    DISCARDED,
    SCHEDULED,
    STATES,
    TERMINAL,
)
from headgate.core.tenants import DEFAULT_TENANT, TenantLimits, check_tenant, tenant_limits_from
from headgate.core.times import MINUTE_MS, duration_text
from headgate.engines.contract import Engine, Page, Query, QueueView, TenantView

_PAGE = 1_000
_MOST = 10_000
"""Jobs that one look counts one by one."""
_US = 1_000
_LIVE = tuple(state for state in STATES if state not in TERMINAL)


class Use(Struct):
    """How far a limit is used up."""

    limit: int
    current: int
    queue: str = ""
    period: str = ""


class Figures(Struct):
    counts: dict[str, int]
    """Jobs per state, those that have ended included."""
    completed_last_minute: int
    discarded_last_minute: int
    uses: dict[str, Use]
    weight: int
    effective_share: float
    actual_share: float
    noisy: list[str]
    """In which respects it takes more than its neighbours, as core.noise has it."""


async def look_up(engine: Engine, tenant: str, now_ms: int) -> TenantView:
    """A tenant with limits or jobs, be they over."""
    found = await engine.tenant(tenant, now_ms)
    if found is not None:
        return found
    if await engine.count_jobs(Query(tenant=tenant), now_ms):
        return TenantView(tenant, TenantLimits(), 0, {})
    raise unknown(tenant)


async def put(
    engine: Engine, tenant: str, given: Mapping[str, Any], now_ms: int
) -> tuple[TenantView, bool]:
    """Give a tenant these limits and no others; true when it had none before."""
    check_tenant(tenant, field="id")
    body = object_at(given, "body", ("tenant_id", "limits"))
    if body.get("tenant_id", tenant) != tenant:
        raise InvalidRequest(field="body.tenant_id", expected=f"the id in the path, {tenant}")
    limits = tenant_limits_from(body.get("limits") or {}, path="body.limits")
    fresh = await engine.set_tenant(tenant, limits, now_ms)
    return await look_up(engine, tenant, now_ms), fresh


async def limit(
    engine: Engine, tenant: str, given: Mapping[str, Any], now_ms: int
) -> tuple[TenantView, bool]:
    """Change some limits of a tenant: given replaces, null clears, absent leaves."""
    check_tenant(tenant, field="id")
    known = await engine.tenant(tenant, now_ms)
    before = TenantLimits() if known is None else known.limits
    limits = tenant_limits_from(given, before, path="body")
    fresh = await engine.set_tenant(tenant, limits, now_ms)
    return await look_up(engine, tenant, now_ms), fresh


async def delete(engine: Engine, tenant: str, now_ms: int) -> None:
    """Its limits are gone; its jobs stay and run without them."""
    if not await engine.forget_tenant(tenant, now_ms):
        raise unknown(tenant)


async def figures(engine: Engine, view: TenantView, now_ms: int) -> Figures:
    by_queue = await engine.count_jobs(Query(tenant=view.id), now_ms)
    counts = dict.fromkeys(STATES, 0)
    for (_, state), count in by_queue.items():
        counts[state] += count
    everybody, queues = await engine.tenants(now_ms), await engine.queues(now_ms)
    weights, running = _of_all(everybody, queues)
    weight = view.limits.fairness_weight
    discarded = await _lately(engine, view.id, DISCARDED, now_ms)
    return Figures(
        counts=counts,
        completed_last_minute=await _lately(engine, view.id, COMPLETED, now_ms),
        discarded_last_minute=discarded,
        uses=await _uses(engine, view, by_queue, counts, now_ms),
        weight=weight,
        effective_share=weight / weights if weights and any(view.counts.values()) else 0.0,
        actual_share=counts[ACTIVE] / running if running else 0.0,
        noisy=signals(await _noise(engine, view, everybody, queues, discarded, now_ms)),
    )


async def _noise(
    engine: Engine,
    view: TenantView,
    everybody: Sequence[TenantView],
    queues: Sequence[QueueView],
    discarded: int,
    now_ms: int,
) -> Noise:
    """What the tenant does beside the others that have live jobs."""
    since = now_ms - MINUTE_MS + 1
    mine = await engine.count_jobs(Query(tenant=view.id, enqueued_from=since), now_ms)
    nobodys = await engine.count_jobs(Query(tenant=DEFAULT_TENANT, enqueued_from=since), now_ms)
    all_of_it = await engine.count_jobs(Query(enqueued_from=since), now_ms)
    enqueued = sum(mine.values())
    others = [
        each.counts
        for each in everybody
        if each.id not in {view.id, DEFAULT_TENANT} and any(each.counts.values())
    ]
    return Noise(
        depth=sum(view.counts.get(state, 0) for state in (AVAILABLE, SCHEDULED)),
        depths=[counts[AVAILABLE] + counts[SCHEDULED] for counts in others],
        enqueued=enqueued,
        enqueued_by_others=sum(all_of_it.values()) - enqueued - sum(nobodys.values()),
        active=view.counts.get(ACTIVE, 0),
        active_of_all=sum(queue.counts[ACTIVE] for queue in queues),
        discarded=discarded,
        discarded_by_others=max(0, sum(q.rates.failed_last_minute for q in queues) - discarded),
    )


def _of_all(tenants: Sequence[TenantView], queues: Sequence[QueueView]) -> tuple[int, int]:
    """The weights of everybody who has live jobs, together, and how many jobs run."""
    weights = sum(each.limits.fairness_weight for each in tenants if any(each.counts.values()))
    live = sum(view.counts[state] for view in queues for state in _LIVE)
    if live > sum(sum(each.counts.values()) for each in tenants if each.id != DEFAULT_TENANT):
        # Jobs that name no tenant take turns as one more.
        weights += 0 if any(each.id == DEFAULT_TENANT for each in tenants) else 1
    return weights, sum(view.counts[ACTIVE] for view in queues)


async def _uses(
    engine: Engine,
    view: TenantView,
    by_queue: Mapping[tuple[str, str], int],
    counts: Mapping[str, int],
    now_ms: int,
) -> dict[str, Use]:
    limits = view.limits
    found: dict[str, Use] = {}
    if limits.max_concurrency is not None:
        found["max_concurrency"] = Use(limits.max_concurrency, counts[ACTIVE])
    if limits.max_enqueue_rate is not None:
        rate = limits.max_enqueue_rate
        period_ms = rate.period_us // _US
        query = Query(tenant=view.id, created_from=now_ms - period_ms + 1)
        accepted = sum((await engine.count_jobs(query, now_ms)).values())
        found["max_enqueue_rate"] = Use(rate.limit, accepted, period=duration_text(period_ms))
    if limits.max_queue_depth is not None:
        depths: dict[str, int] = {}
        for (queue, state), count in by_queue.items():
            if state in {AVAILABLE, SCHEDULED}:
                depths[queue] = depths.get(queue, 0) + count
        fullest = max(depths, key=lambda queue: (depths[queue], queue), default="")
        found["max_queue_depth"] = Use(limits.max_queue_depth, depths.get(fullest, 0), fullest)
    if limits.max_scheduled is not None:
        found["max_scheduled"] = Use(limits.max_scheduled, counts[SCHEDULED])
    return found


async def _lately(engine: Engine, tenant: str, state: str, now_ms: int) -> int:
    """How many of its jobs came to this end in the last minute, counted up to 10,000."""
    query = Query(tenant=tenant, states=(state,))
    count = 0
    while count < _MOST:
        page = Page(limit=_PAGE, offset=count, sort="finished_at", newest_first=True)
        found = (await engine.find_all(query, page, now_ms)).jobs
        recent = sum(job.finished_at > now_ms - MINUTE_MS for job in found)
        count += recent
        if recent < _PAGE:
            break
    return count


def unknown(tenant: str) -> NotFound:
    return NotFound(f"nothing is known of the tenant {tenant}", details={"tenant_id": tenant})
