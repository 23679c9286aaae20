"""Which jobs a query asks for."""

from __future__ import annotations

import msgspec

from headgate.core.tenants import DEFAULT_TENANT
from headgate.engines.contract import Query
from tests.model.records import Entry


def matches(job: Entry, query: Query) -> bool:
    """Whether the job is one of those that the query asks for."""

    def within(value: int, start: int | None, end: int | None) -> bool:
        """From the first instant to before the second; what has not happened lies in no span."""
        if start is None and end is None:
            return True
        return value > 0 and (start is None or start <= value) and (end is None or value < end)

    wanted_type = query.type if query.type is not None else "*"
    fits = job.type == wanted_type
    if wanted_type.endswith("*"):
        fits = job.type.startswith(wanted_type[:-1])
    newest = job.errors[-1].type if job.errors else None
    members = msgspec.json.decode(b"{" + job.fixed + b"}")
    meta = members.get("meta", {})
    return (
        fits
        and (
            query.queue is None
            or job.queue == query.queue
            or (query.dead and job.origin == query.queue)
        )
        and (not query.states or job.state in query.states)
        and (query.priority is None or job.priority == query.priority)
        and within(job.created_at, query.created_from, query.created_until)
        and within(job.enqueued_at, query.enqueued_from, query.enqueued_until)
        and (query.worker is None or job.worker == query.worker)
        and (query.error_type is None or newest == query.error_type)
        and (query.meta is None or all(meta.get(n, ...) == v for n, v in query.meta.items()))
        and (not query.dead or job.dead)
        and (query.ids is None or job.id in query.ids)
        and (query.key is None or job.has_key(query.key))
        and (query.parent is None or members.get("parent_id") == query.parent)
        and (query.root is None or members.get("root_id") == query.root)
        and (query.workflow is None or members.get("workflow_id") == query.workflow)
        and (query.tenant is None or query.tenant == (job.tenant or DEFAULT_TENANT))
    )
