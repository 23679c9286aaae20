"""CANCEL, RETRY and DELETE of many jobs: a list of them one by one, or all that match as one task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, assert_never

from msgspec import Struct

from headgate.core.errors import BatchTooLarge, InvalidRequest
from headgate.engines.contract import (
    Done,
    Draining,
    Engine,
    Missing,
    NotHolder,
    Outcome,
    Query,
    Replay,
    Task,
    Unwanted,
    WrongState,
)
from headgate.operations import owners
from headgate.operations.filters import JobFilter, query_of

Command = Literal["cancel", "retry", "delete"]

DONE: dict[Command, str] = {"cancel": "cancelled", "retry": "retried", "delete": "deleted"}
SKIPPED = "skipped"
NOT_FOUND = "not_found"


class Selection(Struct):
    """All jobs that match; an empty filter means every one that the command is for."""

    filter: JobFilter | None = None
    confirm: bool | None = None


class Item(Struct):
    """What became of one job of the list."""

    index: int
    job_id: str
    status: str
    reason: str = ""


async def carry_out(engine: Engine, command: Command, job_id: str, by: str, now_ms: int) -> Outcome:
    """One step on one job."""
    match command:
        case "cancel":
            return await engine.cancel(job_id, by, "", now_ms)
        case "retry":
            return await engine.retry(job_id, Replay(by=by), now_ms)
        case "delete":
            return await engine.delete(job_id, now_ms)
        case _:
            assert_never(command)


async def each(
    engine: Engine,
    command: Command,
    job_ids: Sequence[str],
    by: str,
    now_ms: int,
    *,
    most: int,
    tenant: str = "",
) -> list[Item]:
    """Carry out the command on one job after the other; what one refuses does not stop the rest.

    Those that are not this tenant's do not exist; "" may see all.
    """
    if not job_ids:
        raise InvalidRequest(field="job_ids", expected="at least one job id")
    if len(job_ids) > most:
        raise BatchTooLarge(max_batch_size=most)
    items = []
    for index, job_id in enumerate(job_ids):
        if await owners.refused(engine, job_id, tenant, now_ms):
            items.append(Item(index, job_id, SKIPPED, NOT_FOUND))
            continue
        outcome = await carry_out(engine, command, job_id, by, now_ms)
        items.append(_item(index, job_id, outcome, command))
    return items


async def start(
    engine: Engine,
    kind: Command | Literal["purge"],
    query: Query,
    new_id: Callable[[int], str],
    now_ms: int,
) -> Task:
    """Carry out the command on all jobs that match; the task says whether that is finished."""
    return await engine.start_task(Task(new_id(now_ms), kind, query), now_ms)


def confirmed(asked: Selection, *, states: Sequence[str] = (), dead: bool = False) -> Query:
    """The query of a selection, which has to be confirmed and to say what it selects."""
    check_confirmed(asked.confirm)
    if asked.filter is None:
        raise InvalidRequest(field="filter", expected="an object; an empty one selects all")
    return query_of(asked.filter, states=states, dead=dead)


def check_confirmed(confirm: bool | None) -> None:
    if confirm is not True:
        raise InvalidRequest(field="confirm", expected="true: this changes every job that matches")


def _item(index: int, job_id: str, outcome: Outcome, command: Command) -> Item:
    match outcome:
        case Done():
            return Item(index, job_id, DONE[command])
        case Missing():
            return Item(index, job_id, SKIPPED, NOT_FOUND)
        case Unwanted() | Draining():
            reason = "queue_not_found" if isinstance(outcome, Unwanted) else "queue_draining"
            return Item(index, job_id, SKIPPED, reason)
        case WrongState() | NotHolder():
            return Item(index, job_id, SKIPPED, f"state_{outcome.job.state}")
        case _:
            assert_never(outcome)
