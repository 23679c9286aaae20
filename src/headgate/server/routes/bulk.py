"""Cancelling, retrying and deleting many jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Struct

from headgate.core.errors import InvalidRequest, Unsupported
from headgate.core.states import AVAILABLE, CANCELLED, COMPLETED, DISCARDED, RETRYABLE, SCHEDULED
from headgate.engines.contract import Task
from headgate.operations import bulk, idempotency
from headgate.operations.bulk import Command
from headgate.operations.filters import NOTHING, JobFilter, query_of
from headgate.server.answers import answer
from headgate.server.context import Context
from headgate.server.roles import OPERATORS
from headgate.server.route import Answer, Handler, Request, Route
from headgate.server.routes.admin_tasks import task_info
from headgate.server.tenancy import restricted
from headgate.wire.bulk import BulkItem, Cancelled, Deleted, Retried

STATES: dict[Command, tuple[str, ...]] = {
    "cancel": (AVAILABLE, SCHEDULED),
    "retry": (DISCARDED, RETRYABLE),
    "delete": (COMPLETED, CANCELLED, DISCARDED),
}
"""Whose jobs a command is for when its filter names no state."""

_SHAPES: dict[Command, Any] = {"cancel": Cancelled, "retry": Retried, "delete": Deleted}


class Bulk(Struct):
    """Exactly one of `job_ids` and `filter`."""

    job_ids: list[str] | None = None
    filter: JobFilter | None = None
    idempotency_key: str | None = None
    atomicity: str | None = None
    """partial: what one job refuses does not stop the rest"""


def handler(command: Command) -> Handler:
    """What carries out this command, once per idempotency key."""

    async def carry_out(context: Context, request: Request) -> Answer:
        asked: Bulk = request.data
        key = _key(request, asked)
        if not key:
            return await _carry_out(context, request, command, asked)
        engine = context.engine
        scope = idempotency.scope_of(f"bulk.{command}", request.identity.name, request.tenant)
        kept = await idempotency.recall(engine, scope, key, request.body, request.now_ms)
        if kept is not None:
            return _unpacked(kept)
        found = await _carry_out(context, request, command, asked)
        packed = b"%03d%b" % (found.status, found.body)
        first = await idempotency.remember(engine, scope, key, request.body, packed, request.now_ms)
        return _unpacked(first)

    return carry_out


async def _carry_out(context: Context, request: Request, command: Command, asked: Bulk) -> Answer:
    if (asked.job_ids is None) == (asked.filter is None):
        raise InvalidRequest(field="job_ids", expected="given, or else a filter, but not both")
    if asked.atomicity not in {None, "partial"}:
        raise Unsupported("only the atomicity partial is available", field="atomicity")
    engine = context.engine
    if asked.job_ids is not None:
        items = await bulk.each(
            engine,
            command,
            asked.job_ids,
            request.identity.name,
            request.now_ms,
            most=context.settings.limits.batch_items,
            tenant=request.tenant,
        )
        return answer(_of_items(command, items))
    if asked.filter is None or asked.filter == NOTHING:
        raise InvalidRequest(field="filter", expected="at least one member")
    query = restricted(query_of(asked.filter, states=STATES[command]), request)
    task = await bulk.start(engine, command, query, context.new_id, request.now_ms)
    return answer(_of_task(command, task), status=200 if task.finished else 202)


def _of_items(command: Command, items: Sequence[bulk.Item]) -> Any:
    shown = [BulkItem(item.index, item.job_id, item.status, item.reason or UNSET) for item in items]
    done = sum(item.status != bulk.SKIPPED for item in items)
    matched = sum(item.reason != bulk.NOT_FOUND for item in items)
    return _SHAPES[command](matched, len(items) - done, shown, done)


def _of_task(command: Command, task: Task) -> Any:
    rest = UNSET if task.finished else task_info(task)
    return _SHAPES[command](task.matched, task.skipped, [], task.done, rest)


def _unpacked(packed: bytes) -> Answer:
    return Answer(packed[3:], int(packed[:3]))


def _key(request: Request, asked: Bulk) -> str:
    header = request.header(b"idempotency-key")
    if header is not None:
        return idempotency.check_key(header, "Idempotency-Key")
    if asked.idempotency_key is not None:
        return idempotency.check_key(asked.idempotency_key, "idempotency_key")
    return ""


def _route(command: Command, summary: str) -> Route:
    return Route("POST", f"/ojs/v1/jobs/bulk/{command}", handler(command), OPERATORS,
                 summary=summary, request=Bulk, body="required", response=_SHAPES[command],
                 also=(202,), errors=(400, 409, 413, 422), tag="bulk", tenant="needed")  # fmt: skip


ROUTES: Sequence[Route] = (
    _route("cancel", "Cancel many jobs"),
    _route("retry", "Try many jobs again"),
    _route("delete", "Forget many finished jobs"),
)
