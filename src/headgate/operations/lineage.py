"""LINEAGE: whom a job comes from, and who comes from it."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from headgate.core.job import Job
from headgate.engines.contract import Engine, Page, Query, Slice
from headgate.operations import info

FARTHEST: Final = 100
"""How many ancestors are looked up; a longer line is told as one that was not followed to its end."""

Relation: TypeAlias = Literal["children", "family", "workflow"]


class Named(Struct):
    """Whom a job says it belongs to; what is no text names nobody."""

    parent_id: object = None
    root_id: object = None
    workflow_id: object = None

    def text(self, name: str) -> str:
        value = getattr(self, name)
        return value if isinstance(value, str) else ""


class Lineage(Struct):
    job: Job
    named: Named
    ancestors: list[Job]
    """The parent first."""
    complete: bool
    """Whether the last of them, or the job itself, names no parent."""
    root: Job | None
    """The job that it names as its root, or else its farthest ancestor; None where that is not kept."""
    relatives: Slice


_decoder = msgspec.json.Decoder(Named)


def named(job: Job) -> Named:
    return _decoder.decode(b"{" + job.fixed + b"}")


async def lineage(
    engine: Engine, job_id: str, relation: Relation, tenant: str, page: Page, now_ms: int
) -> Lineage:
    """Jobs of other tenants than `tenant` do not exist; "" may see all."""
    job = await info.info(engine, job_id, now_ms)
    said = named(job)
    ancestors, complete = await _ancestors(engine, job, tenant, now_ms)
    root_id = said.text("root_id")
    if root_id:
        root = await _seen(engine, root_id, tenant, now_ms)
    elif complete:
        root = ancestors[-1] if ancestors else job
    else:
        root = None
    query = _query(job, said, relation)
    relatives = Slice([], 0)
    if query is not None:
        query.tenant = tenant or None
        relatives = await engine.find_all(query, page, now_ms)
    return Lineage(job, said, ancestors, complete, root, relatives)


def _query(job: Job, said: Named, relation: Relation) -> Query | None:
    """The relatives that are asked for; None where there can be none."""
    if relation == "children":
        return Query(parent=job.id)
    if relation == "family":
        return Query(root=said.text("root_id") or job.id)
    workflow = said.text("workflow_id")
    return Query(workflow=workflow) if workflow else None


async def _ancestors(engine: Engine, job: Job, tenant: str, now_ms: int) -> tuple[list[Job], bool]:
    """One after the other, and whether that led to the end of the line."""
    found: list[Job] = []
    met = {job.id}
    parent_id = named(job).text("parent_id")
    while parent_id and parent_id not in met and len(found) < FARTHEST:
        parent = await _seen(engine, parent_id, tenant, now_ms)
        if parent is None:
            return found, False
        found.append(parent)
        met.add(parent.id)
        parent_id = named(parent).text("parent_id")
    return found, not parent_id


async def _seen(engine: Engine, job_id: str, tenant: str, now_ms: int) -> Job | None:
    job = await engine.find(job_id, now_ms)
    return job if job is not None and tenant in {"", job.tenant} else None
