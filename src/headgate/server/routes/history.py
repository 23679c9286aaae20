"""What happened to a job, and to whom it belongs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast, get_args

import msgspec
from msgspec import UNSET, Raw, Struct

from headgate.core import trail
from headgate.core.errors import InvalidRequest
from headgate.core.job import Job, More
from headgate.core.states import FETCH
from headgate.core.times import instant_text
from headgate.engines.contract import Page
from headgate.operations import info, lineage
from headgate.operations.lineage import Relation
from headgate.operations.outcomes import done
from headgate.server.answers import answer
from headgate.server.context import Context
from headgate.server.roles import EVERYBODY, OPERATORS
from headgate.server.route import OWNED, Answer, Request, Route
from headgate.wire import history, paging
from headgate.wire.history import DeletedHistory, JobHistory, LineageAnswer

RELATIONS: Final[tuple[str, ...]] = get_args(Relation)


class _Entry(Struct):
    attempt: int
    occurred_at: str


_entry = msgspec.json.Decoder(_Entry).decode


async def look(context: Context, request: Request) -> Answer:
    (job_id,) = request.params
    part = paging.window(request.query)
    job = await info.info(context.engine, job_id, request.now_ms)
    changes = trail.history(job)
    more = job.more if job.more is not None else More(errors=[])
    errors = _errors(more)
    return answer(
        JobHistory(
            job_id=job.id,
            state=job.state,
            history=[
                history.change_info(change, {} if change.event == FETCH else errors)
                for change in changes[part.offset : part.offset + part.limit]
            ],
            omitted=more.trail_lost,
            pagination=paging.pagination(part, len(changes)),
            deleted_at=instant_text(more.forgotten_at) if more.forgotten_at else UNSET,
        )
    )


def _errors(more: More) -> dict[tuple[str, int], Raw]:
    found = {}
    for raw in more.errors:
        entry = _entry(raw)
        found[entry.occurred_at, entry.attempt] = raw
    return found


async def delete(context: Context, request: Request) -> Answer:
    (job_id,) = request.params
    outcome = await context.engine.forget_history(job_id, request.now_ms)
    done(outcome, "delete the history of")
    return answer(DeletedHistory(deleted=True, job_id=job_id))


async def relatives(context: Context, request: Request) -> Answer:
    (job_id,) = request.params
    part = paging.window(request.query)
    relation = _relation(request.query)
    page = Page(part.limit, part.offset)
    found = await lineage.lineage(
        context.engine, job_id, relation, request.tenant, page, request.now_ms
    )
    said = found.named
    return answer(
        LineageAnswer(
            job_id=job_id,
            ancestors=[_relative(job) for job in found.ancestors],
            complete=found.complete,
            relation=relation,
            relatives=[_relative(job) for job in found.relatives.jobs],
            pagination=paging.pagination(part, found.relatives.total),
            parent_id=said.text("parent_id") or UNSET,
            root_id=said.text("root_id") or UNSET,
            workflow_id=said.text("workflow_id") or UNSET,
            root=UNSET if found.root is None else _relative(found.root),
        )
    )


def _relative(job: Job) -> history.Relative:
    return history.relative(job, lineage.named(job).text("parent_id"))


def _relation(query: Mapping[str, str]) -> Relation:
    given = query.get("relation") or "children"
    if given not in RELATIONS:
        raise InvalidRequest(field="relation", expected="one of " + ", ".join(RELATIONS))
    return cast("Relation", given)


ROUTES: Sequence[Route] = (
    Route("GET", "/ojs/v1/jobs/{id}/history", look, EVERYBODY, **OWNED,
          summary="What happened to a job", response=JobHistory, query=paging.PARTS, errors=(400, 404)),
    Route("DELETE", "/ojs/v1/jobs/{id}/history", delete, OPERATORS, **OWNED,
          summary="Forget what happened to a job that has ended", response=DeletedHistory,
          errors=(404, 409)),
    Route("GET", "/ojs/v1/jobs/{id}/lineage", relatives, EVERYBODY, **OWNED,
          summary="Whom a job comes from, and who comes from it", response=LineageAnswer,
          query={"relation": "`children` (default), `family` (all that name the same root) or `workflow`.", **paging.PARTS},
          errors=(400, 404)),
)  # fmt: skip
