"""Waiting for room: producers before queues that are full."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from headgate.engines.contract import Draft, Duplicate, Engine, Full, Held, PushOutcome
from headgate.operations.waiting import Gone, never, unless_gone

Drafts: TypeAlias = Callable[[int], Awaitable[Sequence[Draft]]]
"""Makes the jobs as they want to enter at that time."""


async def in_line(
    engine: Engine,
    drafts: Drafts,
    now_ms: Callable[[], int],
    block_ms: int = 0,
    gone: Gone = never,
) -> list[PushOutcome]:
    """Push all jobs or none; where they only lack room, wait for it in the order of arrival.

    The last refusal, with what was in the way at that time, stands when the time is up, when nobody may wait any more or when the client has left; then nothing is enqueued.
    Whoever is let in enters with the settings and at the time of that moment.
    """
    now = now_ms()
    wanted = await drafts(now)
    waits = block_ms > 0
    outcomes = await engine.push(wanted, now, waits=waits)
    if not waits or not _lack_room(outcomes):
        return outcomes
    # Nothing may be awaited in between: whoever asks later must not come to stand in front.
    place = engine.park(wanted)
    if place is None:
        _turn_away(engine, wanted, outcomes, now)
        return outcomes
    leaving: asyncio.Future[None] | None = None
    try:
        deadline = now + block_ms
        leaving = asyncio.ensure_future(gone())
        while _lack_room(outcomes):
            left_ms = deadline - now_ms()
            if left_ms <= 0 or not await unless_gone(place.wait(left_ms / 1000), leaving):
                break
            now = now_ms()
            wanted = await drafts(now)
            outcomes = await engine.push(wanted, now, place=place, waits=True)
        else:
            return outcomes
        if not leaving.done():
            _turn_away(engine, wanted, outcomes, now_ms())
        return outcomes
    finally:
        place.close()
        if leaving is not None:
            leaving.cancel()


def _turn_away(
    engine: Engine, wanted: Sequence[Draft], outcomes: Sequence[PushOutcome], now_ms: int
) -> None:
    """What was no refusal as long as there was time to wait is one now."""
    for draft, outcome in zip(wanted, outcomes, strict=True):
        if isinstance(outcome, Full):
            engine.turn_away(draft, outcome, now_ms)


def _lack_room(outcomes: Sequence[PushOutcome]) -> bool:
    """Whether nothing is in the way but full queues that let producers wait."""
    waits = False
    for outcome in outcomes:
        match outcome:
            case Full() if outcome.may_wait:
                waits = True
            case Held() | Duplicate(ignore=True):
                pass
            case _:
                return False
    return waits
