"""EVENTS as they come: of a job, of queues, of everything, with those that a reader missed before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import TypeAlias

from msgspec import Struct

from headgate.core.job import Job
from headgate.core.states import ACTIVE, COMPLETED, TERMINAL
from headgate.engines.contract import Engine, Event, Interest
from headgate.operations.waiting import Gone, never, unless_gone

DROPPED = "system.events_dropped"

_PAGE = 1_000


class Gap(Struct, frozen=True):
    """Events after the one that the reader saw last are not kept any longer."""

    after: int


class Present(Struct, frozen=True):
    """What was missed has been shown; nothing that happens from here on is missed."""


class Quiet(Struct, frozen=True):
    """Nothing happened for a while."""


class Stopping(Struct, frozen=True):
    """The server stops."""


class Changed(Struct, frozen=True):
    """The job is in another state than the reader knew."""

    job_id: str
    job_type: str
    queue: str
    before: str
    """"" where nobody knows."""
    after: str
    at_ms: int


Piece: TypeAlias = Event | Gap | Present | Quiet | Stopping | Changed


async def follow(
    engine: Engine,
    interest: Interest,
    now_ms: Callable[[], int],
    *,
    after: int | None,
    quiet_s: float,
    gone: Gone = never,
) -> AsyncGenerator[Piece, None]:
    """Events in order, each once; with `after`, first those since the event of that number.

    Ends after Stopping. Events are shown when they are durable.
    """
    subscription = engine.subscribe(interest)
    leaving = asyncio.ensure_future(gone())
    seen = 0
    try:
        if after is not None:
            if after and not await _is_kept(engine, after, now_ms()):
                yield Gap(after)
            more = True
            seen = after
            while more:
                page = await engine.events(seen, _PAGE, interest, now_ms())
                for event in page.events:
                    yield event
                seen, more = page.cursor, page.has_more
        yield Present()
        while True:
            events = await unless_gone(subscription.next(quiet_s), leaving)
            if events is None:
                yield Stopping()
                return
            if not events:
                yield Quiet()
            for event in events:
                if event.number > seen:
                    yield event
    finally:
        leaving.cancel()
        subscription.close()


async def follow_job(
    engine: Engine,
    job_id: str,
    kinds: Sequence[str],
    now_ms: Callable[[], int],
    *,
    after: int | None,
    quiet_s: float,
    gone: Gone = never,
) -> AsyncGenerator[Piece, None]:
    """The same of one job, its changes of state as well, until it has ended or is forgotten."""
    known = ""
    live = False
    pieces = follow(
        engine, Interest(job_id=job_id), now_ms, after=after, quiet_s=quiet_s, gone=gone
    )
    async with aclosing(pieces):
        async for piece in pieces:
            match piece:
                case Present():
                    live = True
                    job = await _durable(engine, job_id, now_ms())
                    if job is None:
                        return
                    known = job.state
                    yield piece
                    if known in TERMINAL:
                        if wants(kinds, STATE_CHANGED):
                            yield _ended(job)
                        return
                case Event():
                    if wants(kinds, piece.kind):
                        yield piece
                    if live and piece.state and piece.state != known:
                        if wants(kinds, STATE_CHANGED):
                            yield _changed(piece, known)
                        known = piece.state
                        # A dead letter goes on in another queue, in the same step.
                        if known in TERMINAL and await _is_over(engine, job_id, now_ms()):
                            return
                case _:
                    yield piece


STATE_CHANGED = "job.state_changed"
"""What is told in the stream of a job besides its events."""


def wants(kinds: Sequence[str], kind: str) -> bool:
    """Whether events of this kind are asked for; nothing asked for is everything."""
    if not kinds or kind == DROPPED:
        return True
    return any(
        kind == each or (each.endswith("*") and kind.startswith(each[:-1])) for each in kinds
    )


async def _is_kept(engine: Engine, number: int, now_ms: int) -> bool:
    """Whether this event is still there, and so all after it."""
    page = await engine.events(number - 1, 1, Interest(), now_ms)
    return bool(page.events) and page.events[0].number == number


async def _is_over(engine: Engine, job_id: str, now_ms: int) -> bool:
    job = await _durable(engine, job_id, now_ms)
    return job is None or job.state in TERMINAL


async def _durable(engine: Engine, job_id: str, now_ms: int) -> Job | None:
    """The job as nothing can undo it."""
    job = await engine.find(job_id, now_ms)
    await engine.settled()
    return job


def _changed(event: Event, before: str) -> Changed:
    return Changed(event.subject, event.job_type, event.queue, before, event.state, event.at_ms)


def _ended(job: Job) -> Changed:
    before = ""
    if job.state == COMPLETED or (job.more is not None and job.more.cancelled_while_active):
        before = ACTIVE
    return Changed(job.id, job.type, job.queue, before, job.state, job.finished_at)
