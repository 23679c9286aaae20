"""What happens by itself: when, in which order, and how much at once."""

from __future__ import annotations

from headgate.core.retry import Failure
from headgate.engines.contract import Ack, Fail, Interest, Report, WrongState
from tests.contract.home import NOW, Home, draft, drafts, fetch, found, push, story

COUNT = 10_000


@story
async def test_ten_thousand_jobs_due_at_one_instant_all_happen_in_their_order(home: Home) -> None:
    due = NOW + 5_000
    async with home.engine() as engine:
        await push(engine, drafts(COUNT, state="scheduled", due_at=due))
        assert engine.next_due() <= due
        await engine.tick(due - 1)
        assert await fetch(engine, 1, due - 1) == []
        while engine.next_due() <= due:
            await engine.tick(due)
        assert await fetch(engine, COUNT, due) == [f"j{number}" for number in range(COUNT)]
        engine.check()


@story
async def test_nothing_that_expired_is_fetched_however_much_expires_at_once(home: Home) -> None:
    end = NOW + 5_000
    async with home.engine() as engine:
        await push(engine, drafts(COUNT, expires_at=end))
        await push(engine, [draft(COUNT)])
        assert await fetch(engine, 5, end) == [f"j{COUNT}"]
        while engine.next_due() <= end:
            await engine.tick(end)
        view = await engine.queue("q", end)
        assert view is not None
        assert view.counts["discarded"] == COUNT
        assert (await found(engine, 0, end)).finished_at == end


@story
async def test_a_late_ack_is_refused_however_many_reservations_end_at_once(home: Home) -> None:
    async with home.engine() as engine:
        await push(engine, drafts(COUNT))
        assert len(await fetch(engine, COUNT)) == COUNT
        lost = NOW + 30_000
        outcomes = await engine.ack([Ack(f"j{n}", "w", 1) for n in range(COUNT)], lost)
        assert all(isinstance(outcome, WrongState) for outcome in outcomes)
        while engine.next_due() <= lost:
            await engine.tick(lost)
        # Everybody is back in the old place.
        assert await fetch(engine, COUNT, lost, "w2") == [f"j{number}" for number in range(COUNT)]


@story
async def test_things_happen_at_the_instant_they_were_due_not_when_somebody_looked(
    home: Home,
) -> None:
    async with home.engine() as engine:
        await push(
            engine, [draft(1, visibility_ms=1_000), draft(2, state="scheduled", due_at=NOW + 500)]
        )
        await push(engine, [draft(3, expires_at=NOW + 700)])
        await fetch(engine)
        cursor = (await engine.events(0, 100, Interest(), NOW)).cursor
        await engine.tick(NOW + 10_000)
        page = await engine.events(cursor, 100, Interest(), NOW + 10_000)
        assert [(event.subject, event.kind, event.at_ms - NOW) for event in page.events] == [
            ("j2", "job.enqueued", 500),
            ("j3", "job.expired", 700),
            ("j3", "job.discarded", 700),
            ("j1", "job.failed", 1_000),
        ]


@story
async def test_timeout_beats_visibility_at_the_same_instant(home: Home) -> None:
    async with home.engine() as engine:
        await push(engine, [draft(1, visibility_ms=2_000, timeout_ms=2_000)])
        await fetch(engine)
        await engine.tick(NOW + 2_000)
        job = await found(engine, 1, NOW + 2_000)
        assert job.state == "retryable"
        assert job.more is not None
        assert b'"timeout"' in bytes(job.more.errors[-1])


@story
async def test_a_clock_set_back_freezes_nothing(home: Home) -> None:
    async with home.engine() as engine:
        await push(engine, [draft(1)], NOW + 10_000)
        await fetch(engine, 1, NOW)
        assert (await found(engine, 1, NOW)).started_at == NOW + 10_000
        await engine.fail([Fail("j1", Failure("E", "m"), "w")], NOW - 1)
        assert (await found(engine, 1, NOW)).due_at >= NOW + 10_500


@story
async def test_whoever_waits_for_the_next_instant_is_told_when_it_gets_sooner(home: Home) -> None:
    async with home.engine() as engine:
        told: list[int] = []
        engine.on_sooner(lambda: told.append(engine.next_due()))
        await push(engine, [draft(1, state="scheduled", due_at=NOW + 60_000)])
        await push(engine, [draft(2, state="scheduled", due_at=NOW + 90_000)])
        assert min(told) <= NOW + 60_000
        count = len(told)
        await push(engine, [draft(3, state="scheduled", due_at=NOW + 5_000)])
        assert len(told) > count
        assert told[-1] <= NOW + 5_000


@story
async def test_a_silent_worker_is_dead_and_its_jobs_go_back_to_their_places(home: Home) -> None:
    async with home.engine() as engine:
        await push(engine, drafts(4, visibility_ms=10**9))
        await engine.beat(Report("w"), [], 0, NOW)
        assert await fetch(engine, 2) == ["j0", "j1"]
        assert await fetch(engine, 1, NOW + 29_999, "w2") == ["j2"]
        assert await fetch(engine, 4, NOW + 30_000, "w2") == ["j0", "j1", "j3"]
        assert await engine.worker("w", NOW + 30_000) is None
        job = await found(engine, 0, NOW + 30_000)
        assert job.more is not None
        assert b'"worker_death"' in bytes(job.more.errors[-1])
