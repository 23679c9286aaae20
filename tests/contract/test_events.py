"""Events: pages of them, and following them as they come."""

from __future__ import annotations

from headgate.core.retry import Failure
from headgate.engines.contract import QUEUE_OPENED, Ack, Event, Fail, Fetch, Interest, Replay
from tests.contract.home import NOW, Home, draft, drafts, fetch, push, story

ALL = Interest()


def subjects(events: list[Event]) -> list[str]:
    return [event.subject for event in events]


@story
async def test_pages_follow_each_other_without_gap_or_repetition(home: Home) -> None:
    async with home.engine() as engine:
        await push(engine, drafts(25))
        cursor, seen = 0, []
        sizes = []
        while True:
            page = await engine.events(cursor, 10, Interest(kinds=["job.*"]), NOW)
            seen += page.events
            sizes.append(len(page.events))
            cursor = page.cursor
            if not page.has_more:
                break
        assert sizes == [10, 10, 5]
        assert subjects(seen) == [f"j{number}" for number in range(25)]
        numbers = [event.number for event in seen]
        assert numbers == sorted(set(numbers))
        nothing = await engine.events(cursor, 10, ALL, NOW)
        assert (nothing.events, nothing.has_more) == ([], False)
        assert nothing.cursor == cursor
        await push(engine, [draft(99)])
        assert subjects((await engine.events(cursor, 10, ALL, NOW)).events) == ["j99"]


@story
async def test_a_page_that_is_exactly_full_promises_no_more(home: Home) -> None:
    async with home.engine() as engine:
        await push(engine, drafts(10))
        page = await engine.events(0, 10, Interest(kinds=["job.enqueued"]), NOW)
        assert (len(page.events), page.has_more) == (10, False)


@story
async def test_the_cursor_passes_over_what_is_of_no_interest(home: Home) -> None:
    async with home.engine() as engine:
        await push(engine, [*drafts(5), draft(7, queue="other")])
        page = await engine.events(0, 10, Interest(queues=["other"], kinds=["job.*"]), NOW)
        assert subjects(page.events) == ["j7"]
        none = await engine.events(page.cursor, 10, Interest(queues=["never"]), NOW)
        assert none.events == []
        await push(engine, [draft(8)])
        assert subjects((await engine.events(none.cursor, 10, ALL, NOW)).events) == ["j8"]


@story
async def test_every_member_of_an_interest_must_hold(home: Home) -> None:
    async with home.engine() as engine:
        await push(engine, [draft(1), draft(2, type="u"), draft(3, queue="p"), draft(4)])
        await fetch(engine, 1)
        await engine.ack([Ack("j1")], NOW)

        async def shown(**interest: object) -> list[tuple[str, str]]:
            page = await engine.events(0, 100, Interest(**interest), NOW)  # type: ignore[arg-type]
            return [(event.subject, event.kind) for event in page.events]

        assert await shown(job_id="j1") == [
            ("j1", "job.enqueued"),
            ("j1", "job.started"),
            ("j1", "job.completed"),
        ]
        assert await shown(job_types=["u"]) == [("j2", "job.enqueued")]
        assert await shown(queues=["p"], kinds=["job.*"]) == [("j3", "job.enqueued")]
        assert await shown(kinds=["job.started", "job.completed"]) == [
            ("j1", "job.started"),
            ("j1", "job.completed"),
        ]
        assert await shown(kinds=["*"], job_id="j4") == [("j4", "job.enqueued")]
        assert await shown(kinds=["job.started"], job_id="j4") == []
        assert await shown(kinds=["job"]) == []


@story
async def test_only_so_many_are_kept(home: Home) -> None:
    async with home.engine(events_kept=10) as engine:
        await push(engine, drafts(25))
        page = await engine.events(0, 100, ALL, NOW)
        assert subjects(page.events) == [f"j{number}" for number in range(15, 25)]


@story
async def test_a_follower_gets_all_in_order_from_the_moment_it_came(home: Home) -> None:
    async with home.engine() as engine:
        await push(engine, drafts(3))
        follower = engine.subscribe(Interest(kinds=["job.enqueued"]))
        other = engine.subscribe(Interest(kinds=["job.started"]))
        await push(engine, drafts(8)[3:])
        seen: list[str] = []
        while len(seen) < 5:
            seen += subjects(await follower.next(5))
        assert seen == ["j3", "j4", "j5", "j6", "j7"]
        assert await follower.next(0.01) == []
        assert await other.next(0.01) == []
        follower.close()
        other.close()


@story
async def test_a_follower_that_closed_gets_nothing(home: Home) -> None:
    async with home.engine() as engine:
        follower = engine.subscribe(ALL)
        follower.close()
        await push(engine, [draft(1)])
        assert await follower.next(0.01) == []


@story
async def test_a_follower_far_behind_loses_the_oldest_and_is_told_how_many(home: Home) -> None:
    async with home.engine() as engine:
        follower = engine.subscribe(Interest(kinds=["job.enqueued"]))
        await push(engine, drafts(1_500))
        seen = await follower.next(5)
        while seen[-1].subject != "j1499":
            seen += await follower.next(5)
        note, rest = seen[0], seen[1:]
        assert note.kind == "system.events_dropped"
        assert note.data == {"events_dropped": 500}
        assert subjects(rest) == [f"j{number}" for number in range(500, 1_500)]
        await push(engine, [draft(2_000)])
        assert [event.kind for event in await follower.next(5)] == ["job.enqueued"]
        follower.close()


@story
async def test_listeners_hear_at_once_and_everything(home: Home) -> None:
    heard: list[str] = []
    async with home.engine() as engine:
        engine.listen(lambda event: heard.append(event.kind))
        await engine.push([draft(1)], NOW)
        assert heard == [QUEUE_OPENED, "job.enqueued"]
        await fetch(engine)
        assert heard[2:] == ["job.started"]
        page = await engine.events(0, 100, Interest(), NOW)
        assert QUEUE_OPENED not in [event.kind for event in page.events]


@story
async def test_a_start_tells_the_wait_since_the_job_was_available_last(home: Home) -> None:
    async with home.engine() as engine:
        started: list[int] = []

        def hear(event: Event) -> None:
            if event.kind == "job.started":
                assert event.data is not None
                started.append(event.data["wait_ms"])

        engine.listen(hear)
        now = NOW
        await engine.push([draft(1)], now)
        # Neither the attempts before nor the delays between them are waiting.
        for failure in (
            Failure(code="a", message="it failed"),
            Failure(code="b", message="not now", requeue=True),
            Failure(code="c", message="too busy", requeue=True, retry_after_ms=4_000),
        ):
            now += 30
            (job,) = await engine.fetch(Fetch(["q"], 1, "w"), now)
            now += 7_000
            await engine.fail([Fail(job.id, failure, "w", job.claim, 0.5)], now)
            found = await engine.find(job.id, now)
            assert found is not None
            now = max(now, found.due_at)
            await engine.tick(now)
        (job,) = await engine.fetch(Fetch(["q"], 1, "w"), now + 30)
        assert started == [30, 30, 30, 30]
        # Who begins anew has waited since.
        await engine.fail(
            [Fail(job.id, Failure(code="d", message="no", retryable=False), "w")], now + 40
        )
        await engine.retry(job.id, Replay(), now + 50)
        await engine.fetch(Fetch(["q"], 1, "w"), now + 55)
        assert started[4:] == [5]


@story
async def test_events_tell_whose_the_job_is(home: Home) -> None:
    async with home.engine() as engine:
        await push(engine, [draft(1, tenant="acme"), draft(2)])
        page = await engine.events(0, 10, Interest(kinds=["job.enqueued"]), NOW)
        told = [(event.data or {}).get("tenant_id") for event in page.events]
        assert told == ["acme", None]
