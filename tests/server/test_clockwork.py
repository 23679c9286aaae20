from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from headgate.core.errors import BackendUnavailable
from headgate.server.duties.clockwork import AFTER_FAILURE_S, LONGEST_S, Clockwork
from tests.server.instantly import Loop

NEVER = 1 << 62


class ToyEngine:
    """Due things are numbers; a tick removes up to `most` of those that are due."""

    def __init__(self, *due: int, most: int = 1_000) -> None:
        self.due = sorted(due)
        self.most = most
        self.ticks: list[tuple[int, list[int]]] = []
        self.failures: list[Exception] = []
        self.sooner: Callable[[], None] = lambda: None

    def next_due(self) -> int:
        return self.due[0] if self.due else NEVER

    def on_sooner(self, call: Callable[[], None]) -> None:
        self.sooner = call

    def add(self, due: int) -> None:
        first = self.next_due()
        self.due = sorted([*self.due, due])
        if due < first:
            self.sooner()

    async def tick(self, now_ms: int) -> None:
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        done = [due for due in self.due if due <= now_ms][: self.most]
        self.due = self.due[len(done) :]
        self.ticks.append((now_ms, done))


class World:
    def __init__(self, engine: ToyEngine, loop: Loop) -> None:
        self.engine = engine
        self.loop = loop
        self.ahead_ms = 0
        self.clockwork = Clockwork(engine, self.now_ms)  # type: ignore[arg-type]

    def now_ms(self) -> int:
        return round(self.loop.time() * 1000) + self.ahead_ms


def run(engine: ToyEngine, test: Callable[[World], Awaitable[None]]) -> World:
    found: list[World] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Loop)
        here = World(engine, loop)
        found.append(here)
        here.clockwork.start()
        await test(here)
        await here.clockwork.stop()

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(main())
    return found[0]


def sleep(seconds: float) -> Callable[[World], Awaitable[None]]:
    async def test(_here: World) -> None:
        await asyncio.sleep(seconds)

    return test


def test_what_is_due_happens_when_it_is_due() -> None:
    engine = ToyEngine(1_500, 1_500, 4_000)
    run(engine, sleep(10))
    assert [done for _, done in engine.ticks] == [[1_500, 1_500], [4_000]]
    for now_ms, done in engine.ticks:
        assert done[-1] <= now_ms <= done[-1] + 2


def test_an_idle_engine_is_left_alone() -> None:
    engine = ToyEngine()
    here = run(engine, sleep(80_000))
    assert not engine.ticks
    assert here.loop.instantly.wakes == 1  # the test's own


def test_something_sooner_is_not_missed() -> None:
    async def test(here: World) -> None:
        await asyncio.sleep(1)
        here.engine.add(20_000)
        here.engine.add(5_000)
        here.engine.add(30_000)
        await asyncio.sleep(25)
        here.engine.add(26_500)
        await asyncio.sleep(10)

    engine = ToyEngine()
    run(engine, test)
    assert [done for _, done in engine.ticks] == [[5_000], [20_000], [26_500], [30_000]]
    assert all(now_ms - done[-1] <= 2 for now_ms, done in engine.ticks)


def test_something_sooner_that_comes_during_a_tick_is_not_missed() -> None:
    class Growing(ToyEngine):
        async def tick(self, now_ms: int) -> None:
            await super().tick(now_ms)
            if len(self.ticks) < 3:
                self.add(now_ms + 50)

    engine = Growing(1_000, 9_000)
    run(engine, sleep(5))
    assert [done for _, done in engine.ticks] == [[1_000], [1_050], [1_100]]


def test_much_that_is_due_at_once_leaves_room_for_others() -> None:
    turns = 0

    async def test(_here: World) -> None:
        nonlocal turns
        for _ in range(200):
            await asyncio.sleep(0.0005)
            turns += len(engine.ticks) < 50

    engine = ToyEngine(*[1] * 500, most=10)
    run(engine, test)
    assert len(engine.ticks) == 50
    assert turns >= 50


def test_a_machine_that_slept_is_noticed() -> None:
    async def test(here: World) -> None:
        await asyncio.sleep(1)
        here.ahead_ms = 3_600_000
        await asyncio.sleep(LONGEST_S + 1)

    engine = ToyEngine(3_000_000)
    run(engine, test)
    assert [done for _, done in engine.ticks] == [[3_000_000]]


@pytest.mark.parametrize("error", [BackendUnavailable("full"), KeyError("a fault")])
def test_a_failed_tick_is_tried_again_later(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    engine = ToyEngine(1_000)
    engine.failures = [error, error]
    with caplog.at_level(logging.WARNING):
        run(engine, sleep(10))
    ((now_ms, done),) = engine.ticks
    assert done == [1_000]
    assert 0 <= now_ms - (1_000 + 2 * AFTER_FAILURE_S * 1000) <= 5
    assert len(caplog.records) == 2


def test_after_the_end_nothing_happens_any_more() -> None:
    async def test(here: World) -> None:
        here.engine.add(1_000)
        await here.clockwork.stop()
        here.engine.add(500)
        await asyncio.sleep(10)

    engine = ToyEngine()
    run(engine, test)
    assert not engine.ticks


def test_the_end_waits_for_a_tick_that_has_begun() -> None:
    async def test(here: World) -> None:
        here.engine.add(0)
        await asyncio.sleep(0.001)
        await asyncio.sleep(0)

    engine = ToyEngine()
    run(engine, test)
    assert len(engine.ticks) == 1
