"""Tenants in requests: whom a request comes from, and what it does not get to see then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from headgate.core.errors import InvalidRequest
from headgate.core.job import Job
from headgate.core.tenants import check_tenant
from headgate.engines.contract import Query, QueueView
from headgate.operations import queues
from headgate.server.context import Context
from headgate.server.route import Request

HEADER: Final = "X-OJS-Tenant"

_NAME: Final = b"x-ojs-tenant"
_ALIAS: Final = b"x-ojs-tenant-id"
HEADERS: Final = frozenset({_NAME, _ALIAS})


def tenant_of(headers: Mapping[bytes, bytes]) -> str:
    """The tenant that the headers name; "" where they name none."""
    given, alias = headers.get(_NAME), headers.get(_ALIAS)
    if given is None:
        if alias is None:
            return ""
        given = alias
    elif alias is not None and alias != given:
        raise InvalidRequest(field=f"{HEADER}-ID", expected=f"absent, or the same as {HEADER}")
    return check_tenant(given.decode("latin-1"), field=HEADER)


def missing() -> InvalidRequest:
    """The refusal of a request that names nobody, where everybody must."""
    return InvalidRequest(field=HEADER, expected="the id of a tenant: this server insists on one")


async def queue_seen(context: Context, request: Request, name: str) -> QueueView:
    """A queue with the jobs counted that the request's tenant may know of; what else is told of it is of all together."""
    view = await queues.look_up(context.engine, name, request.now_ms)
    return (await queues_seen(context, request, [view]))[0]


async def queues_seen(
    context: Context, request: Request, views: Sequence[QueueView]
) -> Sequence[QueueView]:
    """The same of many queues."""
    if not request.tenant:
        return views
    query = Query(queue=views[0].name if len(views) == 1 else None, tenant=request.tenant)
    found = await context.engine.count_jobs(query, request.now_ms)
    return [
        msgspec.structs.replace(
            view, counts={state: found.get((view.name, state), 0) for state in view.counts}
        )
        for view in views
    ]


def restricted(query: Query, request: Request) -> Query:
    """The query as far as the request's tenant may look."""
    if request.tenant:
        if query.tenant not in {None, request.tenant}:
            raise InvalidRequest(
                field="tenant", expected=f"absent, or the same as {HEADER}, {request.tenant}"
            )
        query.tenant = request.tenant
    return query


def own(jobs: Sequence[Job], request: Request) -> Sequence[Job]:
    """Those of these jobs that the request's tenant may know of."""
    return [job for job in jobs if request.tenant in {"", job.tenant}]
