"""EXCHANGE: one round trip for a batch of work: answers to old jobs, a sign of life, new jobs.

It saves a worker that runs many small jobs one request per job; what it means is what the single verbs mean, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from headgate.core.errors import OjsError
from headgate.core.job import Job
from headgate.engines.contract import (
    Ack,
    Beat,
    Done,
    Engine,
    Extend,
    Fail,
    Fetch,
    Outcome,
    Report,
    WrongState,
)
from headgate.operations import beat as beating
from headgate.operations import fetch as fetching
from headgate.operations.ack import check
from headgate.operations.outcomes import refusal
from headgate.operations.waiting import Gone, never


class Asked(Struct):
    """All that one exchange asks for."""

    report: Report
    acks: Sequence[Ack] = ()
    fails: Sequence[Fail] = ()
    extends: Sequence[Extend] = ()
    visibility_ms: int = 0
    """For what is extended."""
    fetch: Fetch | None = None
    wait_ms: int = 0


class Answered(Struct):
    """What a job was right after the step, however it goes on."""

    job_id: str
    state: str
    attempt: int
    max_attempts: int
    finished_at: int
    due_at: int
    retry_delay_ms: int
    visible_until: int


class Exchanged(Struct):
    """Item by item in the order asked; what one refuses does not stop the rest."""

    acks: list[Answered | OjsError]
    fails: list[Answered | OjsError]
    extends: list[Answered | OjsError]
    beat: Beat


async def answer(
    engine: Engine, asked: Asked, now_ms: int, *, result_bytes: int, test_hooks: bool = False
) -> Exchanged:
    """Carry out everything but the fetch."""
    worker = asked.report.worker
    acks = await _ack(engine, asked.acks, now_ms, result_bytes) if asked.acks else []
    fails = (
        [_answered(one, "nack") for one in await engine.fail(asked.fails, now_ms)]
        if asked.fails
        else []
    )
    extends: list[Answered | OjsError] = []
    ids: list[str] = []
    if asked.extends:
        outcomes = await engine.extend(worker, asked.extends, asked.visibility_ms, now_ms)
        # Those that are active have just been extended; of the others the beat tells which were cancelled.
        ids = [one.job.id for one in outcomes if isinstance(one, WrongState)]
        extends = [_answered(one, "extend") for one in outcomes]
    if test_hooks:
        ids = [one.job_id for one in asked.extends]
    beat = await beating.beat(
        engine, asked.report, ids, asked.visibility_ms, now_ms, test_hooks=test_hooks
    )
    return Exchanged(acks, fails, extends, beat)


async def fetch(
    engine: Engine, asked: Asked, now_ms: Callable[[], int], gone: Gone = never
) -> list[Job]:
    """New jobs; it waits for them only when no answer waits with it."""
    if asked.fetch is None:
        return []
    wait_ms = 0 if asked.acks or asked.fails else asked.wait_ms
    return await fetching.fetch(engine, asked.fetch, now_ms, wait_ms=wait_ms, gone=gone)


async def _ack(
    engine: Engine, acks: Sequence[Ack], now_ms: int, result_bytes: int
) -> list[Answered | OjsError]:
    refused: dict[int, OjsError] = {}
    for index, one in enumerate(acks):
        try:
            check(one, result_bytes)
        except OjsError as error:
            refused[index] = error
    if not refused:
        return [_answered(outcome, "ack") for outcome in await engine.ack(acks, now_ms)]
    good = [one for index, one in enumerate(acks) if index not in refused]
    outcomes = iter(await engine.ack(good, now_ms) if good else ())
    return [
        refused[index] if index in refused else _answered(next(outcomes), "ack")
        for index in range(len(acks))
    ]


def _answered(outcome: Outcome, verb: str) -> Answered | OjsError:
    if not isinstance(outcome, Done):
        return refusal(outcome, verb)
    job = outcome.job
    return Answered(
        job.id,
        job.state,
        job.attempt,
        job.max_attempts,
        job.finished_at,
        job.due_at,
        -1 if job.more is None else job.more.retry_delay_ms,
        job.visible_until,
    )
