"""Waiting for work: nobody stands in front of a job that nobody was told of."""

from __future__ import annotations

import asyncio
from typing import Literal, get_args

import pytest

from headgate.core.pools import Pool
from headgate.core.retry import Failure
from headgate.engines.contract import Fail, Fetch, Report, Watch
from headgate.engines.local.engine import LocalEngine
from tests.contract.home import NOW, Home, draft, drafts, fetch, push, story

AT_ONCE_S = 0.0
LONG_S = 20.0
Q = Fetch(["q"], 1, "w")


async def told(*watches: Watch) -> list[bool]:
    return [await watch.wait(AT_ONCE_S) for watch in watches]


@story
async def test_work_that_came_between_looking_and_waiting_is_not_missed(home: Home) -> None:
    async with home.engine() as engine:
        watch = engine.watch(Q)
        assert await fetch(engine) == []
        await push(engine, [draft(1)])
        assert await watch.wait(LONG_S)
        assert await fetch(engine) == ["j1"]
        watch.close()


How = Literal["push", "due", "requeue", "lost", "resume", "activate", "retry"]


@pytest.mark.parametrize("how", get_args(How))
@story
async def test_whatever_makes_a_job_available_wakes(home: Home, how: How) -> None:
    async with home.engine() as engine:
        match how:
            case "push":
                pass
            case "due":
                await push(engine, [draft(1, state="scheduled", due_at=NOW + 50)])
            case "activate":
                await push(engine, [draft(1, state="pending")])
            case "requeue" | "lost" | "retry":
                await push(engine, [draft(1)])
                await fetch(engine, worker="first")
            case "resume":
                await engine.pause("q", "admin", NOW)
                await push(engine, [draft(1)])
        watch = engine.watch(Q)
        assert await fetch(engine) == []
        waiting = asyncio.create_task(watch.wait(LONG_S))
        await asyncio.sleep(0)
        later = NOW + 50
        match how:
            case "push":
                await push(engine, [draft(1)], later)
            case "due":
                await engine.tick(later)
            case "activate":
                await engine.activate("j1", later)
            case "requeue":
                await engine.fail([Fail("j1", Failure("E", "m", requeue=True), "first")], later)
            case "lost":
                later = NOW + 30_000
                await engine.tick(later)
            case "retry":
                await engine.fail([Fail("j1", Failure("E", "m"), "first")], later)
                later = NOW + 30_000
                await engine.tick(later)
            case "resume":
                await engine.resume("q", "admin", later)
        assert await waiting
        assert await fetch(engine, now_ms=later) == ["j1"]
        watch.close()


@story
async def test_a_wake_up_that_is_not_used_passes_on(home: Home) -> None:
    async with home.engine() as engine:
        first, second = engine.watch(Q), engine.watch(Q)
        await push(engine, [draft(1)])
        assert await told(first) == [True]
        assert await told(second) == [False]
        first.close()
        assert await told(second) == [True]
        second.close()


@story
async def test_a_waiter_that_is_cancelled_passes_its_wake_up_on(home: Home) -> None:
    async with home.engine() as engine:
        first, second = engine.watch(Q), engine.watch(Q)
        waiting = asyncio.create_task(first.wait(LONG_S))
        await asyncio.sleep(0)
        await engine.push([draft(1)], NOW)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        first.close()
        assert await told(second) == [True]
        second.close()


@story
async def test_many_jobs_wake_as_many_as_can_use_them(home: Home) -> None:
    async with home.engine() as engine:
        watches = [engine.watch(Q) for _ in range(5)]
        got: list[str] = []

        async def serve(watch: Watch) -> None:
            while await watch.wait(0.2):
                found = await engine.fetch(Q, NOW)
                got.extend(job.id for job in found)
                if found:
                    break
            watch.close()

        serving = [asyncio.create_task(serve(watch)) for watch in watches]
        await asyncio.sleep(0)
        await push(engine, drafts(4))
        await asyncio.gather(*serving)
        assert sorted(got) == ["j0", "j1", "j2", "j3"]


@story
async def test_work_of_other_queues_wakes_nobody(home: Home) -> None:
    async with home.engine() as engine:
        watch = engine.watch(Fetch(["q", "r"], 1, "w"))
        await push(engine, [draft(1, queue="other"), draft(2, state="pending")])
        assert await told(watch) == [False]
        await push(engine, [draft(3, queue="r")])
        assert await told(watch) == [True]
        watch.close()


async def ended(engine: LocalEngine, why: str) -> None:
    match why:
        case "reports":
            await engine.beat(Report("w", "quiet"), [], 0, NOW)
        case "directed":
            await engine.direct("w", "terminate", NOW)
        case _:
            await engine.close()


@pytest.mark.parametrize("why", ["reports", "directed", "closed"])
@story
async def test_who_gets_no_more_work_need_not_wait_for_it(home: Home, why: str) -> None:
    engine = await LocalEngine.open(
        home.path, now_ms=NOW, elapsed_s=asyncio.get_running_loop().time
    )
    await engine.beat(Report("w"), [], 0, NOW)
    watch = engine.watch(Q)
    waiting = asyncio.create_task(watch.wait(LONG_S))
    await asyncio.sleep(0)
    await ended(engine, why)
    assert not await asyncio.wait_for(waiting, 5)
    watch.close()
    if why != "closed":
        await engine.close()


@story
async def test_a_pool_notices_that_a_queue_opens_that_was_closed_before_a_restart(
    durable: Home,
) -> None:
    async with durable.engine() as engine:
        await engine.configure("q", {"rate_limit": {"limit": 1, "period": "PT1S"}}, NOW)
        await engine.set_pool(Pool("default", ("q",), (1,)), NOW)
        await push(engine, drafts(2))
        assert await fetch(engine) == ["j0"]
    async with durable.engine(NOW + 1) as engine:
        watch = engine.watch(Q)
        assert await fetch(engine, now_ms=NOW + 999) == []
        await engine.tick(NOW + 1_000)
        assert await watch.wait(LONG_S)
        assert await fetch(engine, now_ms=NOW + 1_000) == ["j1"]
        watch.close()


@story
async def test_a_worker_whose_pool_is_forgotten_is_served_from_elsewhere(home: Home) -> None:
    """It is silent for too long while it waits; from then on it is anybody, in the pool `default`."""
    async with home.engine() as engine:
        await engine.set_pool(Pool("default", ("q",), (1,)), NOW)
        await engine.beat(Report("w", pool="other"), [], 0, NOW)
        watch = engine.watch(Fetch(["elsewhere"], 1, "w"))
        await push(engine, [draft(1)])
        assert not await watch.wait(AT_ONCE_S)
        later = NOW + 60_000
        await engine.tick(later)
        assert await watch.wait(LONG_S)
        assert await engine.fetch(Fetch(["elsewhere"], 1, "w"), later)
        watch.close()
