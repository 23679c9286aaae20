from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from headgate.core.bounds import Load
from headgate.core.errors import JobTypeNotAllowed
from headgate.core.job import Job
from headgate.engines.contract import Draft, Duplicate, Full, Held, Pushed, PushOutcome, TenantFull
from headgate.operations.line import in_line

JOB = Job("j", "a", "q", 0, b'"args":[]', 1)
LOAD = Load("jobs", 5, 5)
BLOCKED = Full("q", LOAD, "block", False, 1)
REJECTED = Full("q", LOAD, "reject", False, 1)
NEVER = Full("q", LOAD, "block", True, 1)
LET_IN = Pushed(JOB)


class Door:
    """An engine with one queue that writes down what is asked of it; it is its own place in line."""

    def __init__(self, answers: Sequence[list[PushOutcome]], woken: Sequence[bool] = ()) -> None:
        self.said: list[str] = []
        self._answers = list(answers)
        self._woken = list(woken)
        self.has_room_in_line = True
        self.asked = asyncio.Event()

    async def push(
        self, drafts: Sequence[Draft], now_ms: int, *, place: Any = None, waits: bool = False
    ) -> list[PushOutcome]:
        how = " from the line" if place is self else "" if waits else " at once"
        self.said.append(f"push at {now_ms}{how}")
        return self._answers.pop(0)

    def park(self, drafts: Sequence[Draft]) -> Door | None:
        self.said.append("park")
        return self if self.has_room_in_line else None

    def turn_away(self, draft: Draft, full: Full, now_ms: int) -> None:
        self.said.append(f"{draft.job.id} turned away by {full.queue} at {now_ms}")

    async def wait(self, timeout_s: float) -> bool:
        self.said.append(f"wait {timeout_s}")
        self.asked.set()
        if not self._woken:
            await asyncio.get_running_loop().create_future()
        return self._woken.pop(0)

    def close(self) -> None:
        self.said.append("leave")


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


def run(
    door: Any,
    times: list[int],
    block_ms: int = 1_000,
    gone: Callable[[], Awaitable[None]] = forever,
    made: list[int] | None = None,
    breaks_at: int = -1,
) -> list[PushOutcome]:
    async def drafts(now_ms: int) -> Sequence[Draft]:
        if made is not None:
            made.append(now_ms)
        if now_ms == breaks_at:
            raise JobTypeNotAllowed("no longer")
        return (Draft(JOB),)

    async def live() -> list[PushOutcome]:
        return await in_line(door, drafts, lambda: times.pop(0), block_ms, gone)

    return asyncio.run(live())


@pytest.mark.parametrize(
    "outcomes",
    [
        [LET_IN],
        [REJECTED],
        [NEVER],
        [TenantFull("t", "max_scheduled", 5, 5, 1)],
        [Duplicate(JOB, "f", ignore=False)],
        [Held(), BLOCKED, REJECTED],
        [BLOCKED, NEVER],
        [BLOCKED, Duplicate(JOB, "f", ignore=False)],
    ],
)
def test_only_what_lacks_nothing_but_room_waits(outcomes: list[PushOutcome]) -> None:
    door = Door([outcomes])
    assert run(door, [7]) == outcomes
    assert door.said == ["push at 7"]


def test_who_does_not_ask_for_it_never_waits() -> None:
    door = Door([[BLOCKED]])
    assert run(door, [7], block_ms=0) == [BLOCKED]
    assert door.said == ["push at 7 at once"]


def test_it_waits_in_line_and_enters_at_the_time_when_it_may() -> None:
    door = Door([[BLOCKED, Held()], [BLOCKED, Held()], [LET_IN, LET_IN]], [True, True])
    made: list[int] = []
    assert run(door, [100, 150, 400, 450, 700], made=made) == [LET_IN, LET_IN]
    assert door.said == [
        "push at 100",
        "park",
        "wait 0.95",
        "push at 400 from the line",
        "wait 0.65",
        "push at 700 from the line",
        "leave",
    ]
    assert made == [100, 400, 700], "it enters as it would have been made just then"


def test_another_refusal_ends_the_wait() -> None:
    door = Door([[BLOCKED], [REJECTED]], [True])
    assert run(door, [0, 0, 0]) == [REJECTED]
    assert door.said[-1] == "leave"


@pytest.mark.parametrize(
    ("woken", "times"),
    [([False], [0, 0, 1_002]), ([], [0, 1_000, 1_002]), ([True], [0, 0, 999, 1_001, 1_002])],
)
def test_it_ends_when_the_time_is_up(woken: list[bool], times: list[int]) -> None:
    door = Door([[BLOCKED], [BLOCKED]], woken)
    assert run(door, times) == [BLOCKED]
    assert door.said[-2:] == ["j turned away by q at 1002", "leave"]
    assert times == []


def test_a_line_that_is_too_long_takes_nobody() -> None:
    door = Door([[BLOCKED]])
    door.has_room_in_line = False
    assert run(door, [0]) == [BLOCKED]
    assert door.said == ["push at 0", "park", "j turned away by q at 0"]


def test_nothing_is_pushed_for_a_client_that_has_left() -> None:
    async def gone() -> None:
        return

    for woken in ([], [True]):
        door = Door([[BLOCKED]], woken)
        assert run(door, [0, 0], gone=gone) == [BLOCKED]
        assert door.said == ["push at 0", "park", "wait 1.0", "leave"]


def test_a_failure_while_waiting_leaves_the_line() -> None:
    class Broken(Door):
        async def wait(self, timeout_s: float) -> bool:
            raise RuntimeError("broken")

    door = Broken([[BLOCKED]])
    with pytest.raises(RuntimeError):
        run(door, [0, 0])
    assert door.said[-1] == "leave"


def test_a_client_whose_leaving_cannot_be_told_leaves_the_line() -> None:
    def gone() -> Awaitable[None]:
        raise RuntimeError("broken")

    door = Door([[BLOCKED]])
    with pytest.raises(RuntimeError):
        run(door, [0, 0], gone=gone)
    assert door.said == ["push at 0", "park", "leave"]


def test_a_job_that_its_queue_does_not_take_any_more_leaves_the_line() -> None:
    door = Door([[BLOCKED]], [True])
    with pytest.raises(JobTypeNotAllowed):
        run(door, [0, 0, 5], breaks_at=5)
    assert door.said == ["push at 0", "park", "wait 1.0", "leave"]


def test_a_wait_that_is_broken_off_leaves_the_line() -> None:
    async def live() -> Door:
        door: Any = Door([[BLOCKED]])

        async def drafts(_now_ms: int) -> Sequence[Draft]:
            return (Draft(JOB),)

        waiting = asyncio.ensure_future(in_line(door, drafts, lambda: 0, 1_000, forever))
        await door.asked.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        found: Door = door
        return found

    assert asyncio.run(live()).said[-1] == "leave"
