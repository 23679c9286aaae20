"""Finished jobs disappear when their time is over, and nothing else does."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

from headgate.core.retry import Failure, RetryPolicy
from headgate.core.times import DAY_MS, HOUR_MS, MINUTE_MS
from headgate.engines.contract import Ack, Fail, Fetch
from headgate.engines.local.engine import LocalEngine
from headgate.engines.local.retention import Retention
from tests.contract.home import NOW, Home, draft, fetch, push, story, until

BURIED = RetryPolicy(max_attempts=1, on_exhaustion="dead_letter")


async def gone(engine: LocalEngine, at_ms: int, *numbers: int) -> None:
    """These are there just before this instant, and forgotten within a few seconds of it."""
    for number in numbers:
        assert await engine.find(f"j{number}", at_ms - 1) is not None
    now_ms = at_ms

    async def forgotten() -> bool:
        nonlocal now_ms
        found = [await engine.find(f"j{number}", now_ms) for number in numbers]
        # Time goes on only when everything is done that was due by now.
        if engine.next_due() > now_ms and any(found):
            now_ms += 10
            assert now_ms < at_ms + 60_000
        return not any(found)

    await until(forgotten)


@story
async def test_each_end_has_its_own_time(home: Home) -> None:
    async with home.engine() as engine:
        keep = {"completed": "PT1M", "cancelled": "PT1H", "discarded": "P1D"}
        await engine.configure("q", {"retention": keep}, NOW)
        await push(engine, [draft(n) for n in range(1, 6)])
        await push(engine, [draft(6, queue="other")])
        assert len(await fetch(engine, 3)) == 3
        await engine.ack([Ack("j1")], NOW)
        await engine.fail([Fail("j2", Failure("DISCARD", "m"))], NOW)
        await engine.cancel("j3", "admin", "", NOW)
        await engine.cancel("j6", "admin", "", NOW)
        await gone(engine, NOW + MINUTE_MS, 1)
        await gone(engine, NOW + HOUR_MS, 3)
        await gone(engine, NOW + DAY_MS, 2)
        end = NOW + DAY_MS + MINUTE_MS
        assert await engine.find("j6", end) is not None
        view = await engine.queue("q", end)
        assert view is not None
        assert {state: jobs for state, jobs in view.counts.items() if jobs} == {"available": 2}
        engine.check()


@story
async def test_dead_letters_are_kept_longer(home: Home) -> None:
    async with home.engine() as engine:
        await push(engine, [draft(1, retry=BURIED, max_attempts=1), draft(2)])
        assert len(await fetch(engine, 2)) == 2
        await engine.fail([Fail("j1", Failure("E", "m"))], NOW)
        await engine.ack([Ack("j2")], NOW)
        await gone(engine, NOW + 7 * DAY_MS, 2)
        stats = await engine.dead_letter_stats(NOW + 41 * DAY_MS)
        assert (stats.total, stats.by_queue, stats.oldest_at) == (1, {"q": 1}, NOW)
        await gone(engine, NOW + 180 * DAY_MS, 1)


@story
async def test_a_shorter_retention_holds_for_what_has_ended_already(home: Home) -> None:
    async with home.engine() as engine:
        await push(engine, [draft(1)])
        await fetch(engine)
        await engine.ack([Ack("j1")], NOW)
        await engine.tick(NOW + 60_000)
        assert await engine.find("j1", NOW + 60_000) is not None
        await engine.configure("q", {"retention": {"completed": "PT30S"}}, NOW + 60_000)
        await gone(engine, NOW + 60_001, 1)


@story
async def test_what_is_over_after_a_restart_is_forgotten_too(durable: Home) -> None:
    async with durable.engine() as engine:
        await push(engine, [draft(1), draft(2)])
        await fetch(engine)
        await engine.ack([Ack("j1")], NOW)
    later = NOW + 8 * DAY_MS
    async with durable.engine(later) as engine:
        await gone(engine, later, 1)
        assert await engine.find("j2", later) is not None


@story
async def test_an_id_is_free_again_when_its_job_is_forgotten(home: Home) -> None:
    async with home.engine() as engine:
        await push(engine, [draft(1)])
        await fetch(engine)
        await engine.ack([Ack("j1")], NOW)
        assert (await engine.delete("j1", NOW)).__class__.__name__ == "Done"
        await push(engine, [draft(1)])
        assert await fetch(engine) == ["j1"]


@story
async def test_dead_letters_in_a_queue_of_their_own_are_bounded_by_age_and_number(
    home: Home,
) -> None:
    async with home.engine() as engine:
        settings = {"dead_letter_queue": "dead", "dead_letter_ttl": "PT1H"}
        await engine.configure("q", settings, NOW)
        once = RetryPolicy(max_attempts=1)
        letters = [draft(n, retry=once, max_attempts=1) for n in range(4)]
        await push(engine, [*letters, draft(9, queue="dead")])
        for n in range(4):
            at = NOW + n * MINUTE_MS
            await fetch(engine, now_ms=at)
            await engine.fail([Fail(f"j{n}", Failure("E", "m"))], at)
        later = NOW + 4 * MINUTE_MS
        stats = await engine.dead_letter_stats(later)
        assert (stats.total, stats.by_queue) == (4, {"q": 4})
        assert (stats.oldest_at, stats.newest_at) == (NOW, NOW + 3 * MINUTE_MS)
        # One of them is being looked at, so it stays.
        taken = await engine.fetch(Fetch(["dead"], 2, "w"), later)
        assert [job.id for job in taken] == ["j9", "j0"]
        await engine.configure("q", {"dead_letter_max_size": 2}, later)
        await gone(engine, later, 1)
        later += 20_000
        assert (await engine.dead_letter_stats(later)).total == 3
        await engine.ack([Ack("j0"), Ack("j9")], later)
        await gone(engine, NOW + HOUR_MS + 2 * MINUTE_MS, 2)
        await gone(engine, NOW + HOUR_MS + 3 * MINUTE_MS, 3)
        view = await engine.queue("dead", NOW + HOUR_MS + 5 * MINUTE_MS)
        assert view is not None
        assert {state: jobs for state, jobs in view.counts.items() if jobs} == {"completed": 2}
        engine.check()


async def at_rest(engine: LocalEngine, now_ms: int) -> None:
    """Return when everything is done that was due, which has ended when it is known when it begins again."""
    await engine.tick(now_ms)

    async def rests() -> bool:
        return now_ms < engine.next_due() <= now_ms + DAY_MS

    await until(rests)


@story
async def test_a_queue_that_comes_later_may_keep_its_jobs_shorter_than_all_others(
    home: Home,
) -> None:
    async with home.engine() as engine:
        await at_rest(engine, NOW)
        now = NOW + 5_000
        await at_rest(engine, now)
        await engine.create_queue("q", {"retention": {"completed": "PT5S"}}, now)
        await push(engine, [draft(1)], now)
        await fetch(engine, now_ms=now)
        await engine.ack([Ack("j1")], now)
        await gone(engine, now + 5_000, 1)


@story
async def test_a_policy_may_be_shorter_than_what_every_queue_says_so_far(home: Home) -> None:
    async with home.engine() as engine:
        keep = dict.fromkeys(("completed", "cancelled", "discarded"), "P9D")
        await engine.configure("default", {"retention": keep}, NOW)
        await engine.configure("_default", {"retention": {"cancelled": "PT5S"}}, NOW)
        await at_rest(engine, NOW)
        now = NOW + 5_000
        await at_rest(engine, now)
        await push(engine, [draft(1)], now)
        await engine.cancel("j1", "admin", "", now)
        await gone(engine, now + 5_000, 1)


@story
async def test_what_comes_while_it_forgets_is_not_forgotten_about(home: Home) -> None:
    look_ahead = Retention._next
    has_looked, may_end = asyncio.Event(), asyncio.Event()

    async def look_ahead_slowly(self: Retention) -> int:
        found = await look_ahead(self)
        has_looked.set()
        await may_end.wait()
        return found

    async with home.engine() as engine:
        settings = {"dead_letter_queue": "dead", "dead_letter_max_size": 1}
        await engine.configure("q", settings, NOW)
        once = RetryPolicy(max_attempts=1)
        await push(engine, [draft(n, retry=once, max_attempts=1) for n in range(3)])
        with patch.object(Retention, "_next", look_ahead_slowly):
            await engine.tick(NOW)
            await has_looked.wait()
            for n in range(3):
                assert await fetch(engine) == [f"j{n}"]
                await engine.fail([Fail(f"j{n}", Failure("E", "m"))], NOW)
            # It rings for them before it has come to its end.
            now = NOW + 1_000
            await engine.tick(now)
            may_end.set()
            await at_rest(engine, now)
        await gone(engine, now, 0, 1)


@story
async def test_who_keeps_dead_letters_has_nothing_to_do_for_months(home: Home) -> None:
    async with home.engine() as engine:
        await push(engine, [draft(1, retry=BURIED, max_attempts=1)])
        await fetch(engine)
        await engine.fail([Fail("j1", Failure("E", "m"))], NOW)
        now = NOW + 40 * DAY_MS
        for _ in range(5):
            await at_rest(engine, now)
            now += 2_000
        await at_rest(engine, now)
        assert engine.next_due() > now + HOUR_MS
