from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headgate.core.errors import InvalidRequest
from headgate.core.job import Job
from headgate.engines.contract import Fetch, Why, WorkerView
from headgate.operations.fetch import check_pool, fetch, why

JOB = Job("j", "a", "q", 0, b'"args":[]', 1)
WANTED = Fetch(("q",))


class Line:
    """An engine of one line that writes down what is asked of it."""

    def __init__(self, found: list[list[Job]], woken: list[bool]) -> None:
        self.said: list[str] = []
        self._found = found
        self._woken = woken

    async def fetch(self, wanted: Fetch, now_ms: int) -> list[Job]:
        self.said.append(f"look at {now_ms}")
        return self._found.pop(0)

    def watch(self, wanted: Fetch) -> Line:
        self.said.append("register")
        return self

    async def wait(self, timeout_s: float) -> bool:
        self.said.append(f"wait {timeout_s}")
        if not self._woken:
            await asyncio.get_running_loop().create_future()
        return self._woken.pop(0)

    def close(self) -> None:
        self.said.append("leave")


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


def run(
    line: Any, times: list[int], wait_ms: int, gone: Callable[[], Awaitable[None]] = forever
) -> list[Job]:
    async def live() -> list[Job]:
        return await fetch(line, WANTED, lambda: times.pop(0) * 1_000, wait_ms=wait_ms, gone=gone)

    return asyncio.run(live())


def test_without_waiting_it_only_looks() -> None:
    line = Line([[]], [])
    assert run(line, [7], 0) == []
    assert line.said == ["look at 7"]


def test_what_is_there_is_taken_without_standing_in_line() -> None:
    line = Line([[JOB]], [])
    assert run(line, [7], 1_000) == [JOB]
    assert line.said == ["look at 7"]


def test_it_looks_again_when_it_has_registered_and_whenever_it_is_woken() -> None:
    line = Line([[], [], [], [JOB]], [True, True])
    assert run(line, [0, 0, 0, 100, 150, 400, 400], 1_000) == [JOB]
    assert line.said == [
        "look at 0",
        "register",
        "look at 0",
        "wait 1.0",
        "look at 100",
        "wait 0.85",
        "look at 400",
        "leave",
    ]


@pytest.mark.parametrize(
    ("found", "woken", "times"),
    [
        ([[], []], [False], [0, 0, 0]),
        ([[], [], []], [True], [0, 0, 0, 1_000, 1_000]),
    ],
)
def test_it_ends_when_the_time_is_up(
    found: list[list[Job]], woken: list[bool], times: list[int]
) -> None:
    line = Line(found, woken)
    assert run(line, times, 1_000) == []
    assert line.said[-1] == "leave"
    assert times == []


def test_it_claims_nothing_for_a_client_that_has_left() -> None:
    async def gone() -> None:
        return

    line = Line([[], [], [JOB]], [])
    assert run(line, [0, 0, 0], 1_000, gone) == []
    assert line.said == ["look at 0", "register", "look at 0", "wait 1.0", "leave"]


def test_every_look_tells_the_time_to_the_microsecond() -> None:
    seen: list[tuple[int, int]] = []

    class Precise(Line):
        async def fetch(self, wanted: Fetch, now_ms: int) -> list[Job]:
            seen.append((now_ms, wanted.micros))
            return await super().fetch(wanted, now_ms)

    line: Any = Precise([[], [], [JOB]], [True])
    times = [1_000_001, 1_000_002, 1_000_003, 1_750_999, 1_751_000]

    async def live() -> list[Job]:
        return await fetch(line, Fetch(("q",)), lambda: times.pop(0), wait_ms=1_000)

    assert asyncio.run(live()) == [JOB]
    assert seen == [(1_000, 1), (1_000, 2), (1_750, 999)]


class Asked:
    """An engine that knows why, and one worker."""

    def __init__(self, next_at: int = 0, **reasons: str) -> None:
        self.found = Why(next_at, reasons)

    async def why(self, wanted: Fetch, now_ms: int) -> Why:
        assert (now_ms, wanted.micros) == (7, 5)
        return self.found

    async def worker(self, worker: str, now_ms: int) -> WorkerView | None:
        if worker != "w":
            return None
        return WorkerView("w", "running", "running", 0, 0, False, [], pool="gpu")


@pytest.mark.parametrize(
    ("explain", "told"),
    [
        (True, {"a": "empty", "b": "unknown", "c": "paused", "d": "blocked"}),
        (False, {"c": "paused", "d": "blocked"}),
    ],
)
def test_what_is_ordinary_is_only_told_when_asked_for(explain: bool, told: dict[str, str]) -> None:
    engine: Any = Asked(9, a="empty", b="unknown", c="paused", d="blocked")
    found = asyncio.run(why(engine, Fetch(("a",)), 7_005, explain=explain))
    assert (found.next_at, found.reasons) == (9, told)


@pytest.mark.parametrize(
    ("worker", "pool", "fits"),
    [("w", "", True), ("w", "gpu", True), ("w", "mail", False), ("new", "mail", True), ("", "mail", True)],
)  # fmt: skip
def test_a_worker_fetches_for_the_pool_that_it_registered_with(
    worker: str, pool: str, fits: bool
) -> None:
    engine: Any = Asked()
    step = check_pool(engine, Fetch(("q",), worker=worker, pool=pool), 1, "fetch.pool")
    if fits:
        asyncio.run(step)
        return
    with pytest.raises(InvalidRequest) as caught:
        asyncio.run(step)
    assert caught.value.details["field"] == "fetch.pool"
    assert "gpu" in caught.value.message


def test_a_failure_while_waiting_leaves_the_line() -> None:
    class Broken(Line):
        async def wait(self, timeout_s: float) -> bool:
            raise RuntimeError("broken")

    line = Broken([[], []], [])
    with pytest.raises(RuntimeError):
        run(line, [0, 0, 0], 1_000)
    assert line.said[-1] == "leave"
