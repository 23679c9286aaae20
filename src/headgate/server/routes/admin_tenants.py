"""Tenants: their limits, and what they have of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from headgate.core.tenants import tenant_limits_json
from headgate.core.times import instant_text
from headgate.engines.contract import Page, TenantView
from headgate.operations import tenants
from headgate.operations.filters import JobFilter, query_of
from headgate.server.answers import answer, jobs_raw
from headgate.server.context import Context
from headgate.server.roles import OPERATORS
from headgate.server.route import Answer, Request, Route
from headgate.server.routes.admin_tasks import NUMBERED
from headgate.wire import paging
from headgate.wire.job_lists import JobItems
from headgate.wire.queues import Throughput
from headgate.wire.tenants import (
    DeletedTenant,
    FairShare,
    LimitUse,
    TenantInfo,
    TenantList,
    TenantStats,
)


async def list_tenants(context: Context, request: Request) -> Answer:
    page = paging.numbered(request.query)
    views = await context.engine.tenants(request.now_ms)
    if request.tenant:
        views = [view for view in views if view.id == request.tenant]
    shown = [_tenant(view) for view in views[page.offset : page.offset + page.limit]]
    return answer(TenantList(shown, page.pagination(len(views))))


async def info(context: Context, request: Request) -> Answer:
    tenant = _asked(request)
    view = await tenants.look_up(context.engine, tenant, request.now_ms)
    return answer(_tenant(view))


async def put(context: Context, request: Request) -> Answer:
    tenant = _asked(request)
    view, fresh = await tenants.put(context.engine, tenant, request.data or {}, request.now_ms)
    return answer(_tenant(view), status=201 if fresh else 200)


async def limit(context: Context, request: Request) -> Answer:
    tenant = _asked(request)
    view, fresh = await tenants.limit(context.engine, tenant, request.data, request.now_ms)
    return answer(_tenant(view), status=201 if fresh else 200)


async def delete(context: Context, request: Request) -> Answer:
    tenant = _asked(request)
    await tenants.delete(context.engine, tenant, request.now_ms)
    return answer(DeletedTenant(deleted=True, tenant_id=tenant))


async def stats(context: Context, request: Request) -> Answer:
    tenant = _asked(request)
    view = await tenants.look_up(context.engine, tenant, request.now_ms)
    found = await tenants.figures(context.engine, view, request.now_ms)
    return answer(
        TenantStats(
            tenant_id=tenant,
            total_jobs=sum(found.counts.values()),
            jobs=found.counts,
            throughput=Throughput(found.completed_last_minute, found.discarded_last_minute),
            limits={
                name: LimitUse(use.limit, use.current, use.queue or UNSET, use.period or UNSET)
                for name, use in found.uses.items()
            },
            fairness=FairShare(found.weight, found.effective_share, found.actual_share),
            noisy=found.noisy,
            computed_at=instant_text(request.now_ms),
        )
    )


async def list_jobs(context: Context, request: Request) -> Answer:
    tenant = _asked(request)
    page = paging.numbered(request.query)
    states = request.query.get("state")
    asked = JobFilter(queue=request.query.get("queue"), state=states.split(",") if states else None)
    query = query_of(asked, path="")
    await tenants.look_up(context.engine, tenant, request.now_ms)
    query.tenant = tenant
    found = await context.engine.find_all(
        query, Page(page.limit, page.offset, newest_first=True), request.now_ms
    )
    return answer(JobItems(jobs_raw(found.jobs, request.now_ms), page.pagination(found.total)))


def _asked(request: Request) -> str:
    """The tenant in the path; where the request acts for one, there is no other."""
    (tenant,) = request.params
    if request.tenant not in {"", tenant}:
        raise tenants.unknown(tenant)
    return tenant


def _tenant(view: TenantView) -> TenantInfo:
    return TenantInfo(
        tenant_id=view.id,
        jobs=view.counts,
        total_jobs=sum(view.counts.values()),
        limits=tenant_limits_json(view.limits),
        created_at=instant_text(view.known_at) if view.known_at else UNSET,
    )


def _route(method: str, path: str, handler: Any, **more: Any) -> Route:
    path = f"/ojs/v1/admin/tenants{path}"
    return Route(method, path, handler, OPERATORS, tag="admin", tenant="seen", **more)


ROUTES: Sequence[Route] = (
    _route("GET", "", list_tenants, summary="List the tenants that have limits or live jobs",
           response=TenantList, query=NUMBERED, errors=(400,)),
    _route("GET", "/{id}", info, summary="Look at a tenant", response=TenantInfo,
           errors=(404,)),
    _route("PUT", "/{id}", put, summary="Give a tenant these limits and no others",
           request=dict[str, Any], body="optional", response=TenantInfo, also=(201,),
           errors=(400, 404)),
    _route("DELETE", "/{id}", delete, summary="Take a tenant's limits away; its jobs stay",
           response=DeletedTenant, errors=(404,)),
    _route("PUT", "/{id}/limits", limit, summary="Change some limits of a tenant",
           request=dict[str, Any], body="required", response=TenantInfo, also=(201,),
           errors=(400, 404)),
    _route("GET", "/{id}/stats", stats, summary="What a tenant has, and of what it is entitled to",
           response=TenantStats, errors=(404,)),
    _route("GET", "/{id}/jobs", list_jobs, summary="List the jobs of a tenant",
           response=JobItems,
           query={
               "queue": "Only of this queue.",
               "state": "Only in these states, separated by commas.",
               **NUMBERED,
           },
           errors=(400, 404)),
)  # fmt: skip
