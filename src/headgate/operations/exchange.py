"""EXCHANGE: one round trip for a batch of work: answers to old jobs, a sign of life, new jobs.

It saves a worker that runs many small jobs one request per job; what it means is what the single verbs mean, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from headgate.core.dead_letters import moved_to
from headgate.core.errors import OjsError
from headgate.core.job import Job
from headgate.core.states import DISCARDED
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
from headgate.operations import owners
from headgate.operations.ack import check
from headgate.operations.fail import key_of
from headgate.operations.outcomes import refusal
from headgate.operations.waiting import Gone, never

T = TypeVar("T")


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
    tenant: str = ""
    """Only its jobs exist; "" is everybody's."""
    hold_keys: Mapping[int, str] = {}
    """By the index of a nack, the key that its error names."""


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
    dead_letter_queue: str = ""
    """Where it stands now, as a dead letter."""


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
    acks = await _acks(engine, asked, now_ms, result_bytes) if asked.acks else []
    fails = await _fails(engine, asked, now_ms) if asked.fails else []
    extends: list[Answered | OjsError] = []
    ids: list[str] = []
    if asked.extends:
        extends, ids = await _extends(engine, asked, now_ms)
    if test_hooks:
        ids = [one.job_id for one in asked.extends]
    beat = await beating.beat(
        engine, asked.report, ids, asked.visibility_ms, now_ms, test_hooks=test_hooks
    )
    return Exchanged(acks, fails, extends, beat)


async def fetch(
    engine: Engine, asked: Asked, now_us: Callable[[], int], gone: Gone = never
) -> list[Job]:
    """New jobs; it waits for them only when no answer waits with it."""
    if asked.fetch is None:
        return []
    wait_ms = 0 if asked.acks or asked.fails else asked.wait_ms
    return await fetching.fetch(engine, asked.fetch, now_us, wait_ms=wait_ms, gone=gone)


async def _acks(
    engine: Engine, asked: Asked, now_ms: int, result_bytes: int
) -> list[Answered | OjsError]:
    refused = await _not_theirs(engine, asked, asked.acks, now_ms)
    for index, one in enumerate(asked.acks):
        try:
            check(one, result_bytes)
        except OjsError as error:
            refused.setdefault(index, error)
    good = _without(asked.acks, refused)
    done = [_answered(one, "ack") for one in await engine.ack(good, now_ms)] if good else []
    return _together(done, refused)


async def _fails(engine: Engine, asked: Asked, now_ms: int) -> list[Answered | OjsError]:
    refused = await _not_theirs(engine, asked, asked.fails, now_ms)
    for index, key in asked.hold_keys.items():
        one = asked.fails[index]
        if index not in refused:
            try:
                field = f"nacks[{index}].error.rate_limit_key"
                one.hold_key = await key_of(engine, one.job_id, key, now_ms, field)
            except OjsError as error:
                refused[index] = error
    good = _without(asked.fails, refused)
    outcomes = await engine.fail(good, now_ms) if good else []
    done = [
        _answered(outcome, "nack", requeued=one.failure.requeue)
        for one, outcome in zip(good, outcomes, strict=True)
    ]
    return _together(done, refused)


async def _extends(
    engine: Engine, asked: Asked, now_ms: int
) -> tuple[list[Answered | OjsError], list[str]]:
    """The answers, and which jobs were not active any more."""
    refused = await _not_theirs(engine, asked, asked.extends, now_ms)
    good = _without(asked.extends, refused)
    worker = asked.report.worker
    outcomes = await engine.extend(worker, good, asked.visibility_ms, now_ms) if good else []
    # Those that are active have just been extended; of the others the beat tells which were cancelled.
    ids = [one.job.id for one in outcomes if isinstance(one, WrongState)]
    return _together([_answered(one, "extend") for one in outcomes], refused), ids


async def _not_theirs(
    engine: Engine, asked: Asked, items: Sequence[Ack | Fail | Extend], now_ms: int
) -> dict[int, OjsError]:
    """By their index, the items about jobs that do not exist for this tenant."""
    if not asked.tenant:
        return {}
    found = [await owners.refused(engine, one.job_id, asked.tenant, now_ms) for one in items]
    return {index: error for index, error in enumerate(found) if error is not None}


def _without(items: Sequence[T], refused: Mapping[int, OjsError]) -> Sequence[T]:
    if not refused:
        return items
    return [one for index, one in enumerate(items) if index not in refused]


def _together(
    done: list[Answered | OjsError], refused: Mapping[int, OjsError]
) -> list[Answered | OjsError]:
    """What was carried out, and what was refused before, in the order asked."""
    if not refused:
        return done
    rest = iter(done)
    return [refused[n] if n in refused else next(rest) for n in range(len(done) + len(refused))]


def _answered(outcome: Outcome, verb: str, *, requeued: bool = False) -> Answered | OjsError:
    if not isinstance(outcome, Done):
        return refusal(outcome, verb)
    job = outcome.job
    more = job.more
    answered = Answered(
        job.id,
        job.state,
        job.attempt,
        job.max_attempts,
        job.finished_at,
        job.due_at,
        -1 if more is None else more.retry_delay_ms,
        job.visible_until,
    )
    if more is not None and more.origin and moved_to(job, requeued=requeued):
        answered.state = DISCARDED
        answered.attempt = more.buried_attempts
        answered.finished_at = more.buried_at
        answered.dead_letter_queue = job.queue
    return answered
