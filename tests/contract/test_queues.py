"""Queues: when they exist, what holds in them, and forgetting everything."""

from __future__ import annotations

import pytest

from headgate.core.errors import InvalidRequest
from headgate.core.retry import Failure
from headgate.core.unique import UniquePolicy
from headgate.engines.contract import (
    Ack,
    Draft,
    Fail,
    Fetch,
    Held,
    IdTaken,
    Interest,
    Left,
    NotEmpty,
    Page,
    Query,
    Report,
    Unwanted,
)
from tests.contract.home import NOW, Home, draft, drafts, fetch, found, push, story

GONE = Left("deleted", 0)


@story
async def test_a_queue_comes_into_being_with_its_first_job(home: Home) -> None:
    async with home.engine() as engine:
        assert [queue.name for queue in await engine.queues(NOW)] == ["default"]
        assert await engine.queue("q", NOW) is None
        await fetch(engine)
        assert await engine.queue("q", NOW) is None
        await push(engine, [draft(1)])
        assert [queue.name for queue in await engine.queues(NOW)] == ["default", "q"]


@story
async def test_a_strict_server_takes_jobs_only_for_queues_that_were_created(home: Home) -> None:
    async with home.engine(strict_queues=True) as engine:
        assert await engine.push([draft(1)], NOW) == [Unwanted("q")]
        both = await engine.push([draft(1, queue="default"), draft(2)], NOW)
        assert both == [Held(), Unwanted("q")]
        assert await engine.find("j1", NOW) is None
        assert await engine.queue("q", NOW) is None
        assert await engine.create_queue("q", {}, NOW)
        await push(engine, [draft(2)])


@story
async def test_what_cannot_be_merged_changes_nothing_and_creates_nothing(home: Home) -> None:
    async with home.engine() as engine:
        for change in (engine.configure, engine.create_queue):
            with pytest.raises(InvalidRequest):
                await change("q", {"visibility_timeout": 5, "retention": 7}, NOW)
            assert await engine.queue("q", NOW) is None
        assert engine.settings("q").visibility_ms == 30_000


@story
async def test_the_policy_shows_in_every_queue_that_says_nothing(home: Home) -> None:
    async with home.engine() as engine:
        await engine.configure("own", {"visibility_timeout": 5}, NOW)
        await engine.create_queue("plain", {}, NOW)
        await engine.configure("_default", {"visibility_timeout": 9}, NOW)
        shown = {queue.name: queue.resolved.visibility_ms for queue in await engine.queues(NOW)}
        assert shown == {"default": 9_000, "own": 5_000, "plain": 9_000}
        assert engine.settings("unheard-of").visibility_ms == 9_000
        assert (await engine.default_policy()).visibility_timeout == 9
        await engine.configure("own", {"visibility_timeout": None}, NOW)
        assert engine.settings("own").visibility_ms == 9_000


@story
async def test_only_an_empty_queue_is_removed_and_its_settings_go_with_it(home: Home) -> None:
    async with home.engine() as engine:
        assert await engine.remove_queue("q", "reject", "", "t", NOW) is None
        await engine.configure("q", {"visibility_timeout": 5}, NOW)
        await engine.pause("q", "admin", NOW)
        await push(engine, drafts(2))
        assert await engine.remove_queue("q", "reject", "", "t", NOW) == NotEmpty(2)
        await engine.cancel("j0", "admin", "", NOW)
        await engine.cancel("j1", "admin", "", NOW)
        assert await engine.remove_queue("q", "reject", "", "t", NOW) == GONE
        assert await engine.queue("q", NOW) is None
        assert await engine.remove_queue("q", "reject", "", "t", NOW) is None
        # What has ended is kept for its time.
        assert await engine.find("j0", NOW) is not None
        await push(engine, [draft(2)])
        assert await fetch(engine) == ["j2"]
        assert engine.settings("q").visibility_ms == 30_000
        assert await engine.remove_queue("default", "reject", "", "t", NOW) == GONE
        assert await engine.queue("default", NOW) is not None


@story
async def test_a_batch_that_is_refused_leaves_no_trace(home: Home) -> None:
    async with home.engine() as engine:
        await push(engine, [draft(1)])
        cursor = (await engine.events(0, 100, Interest(), NOW)).cursor
        refused = await engine.push([draft(5, queue="new"), draft(1), draft(5)], NOW)
        assert refused == [Held(), IdTaken("j1"), IdTaken("j5")]
        assert await engine.find("j5", NOW) is None
        assert await engine.queue("new", NOW) is None
        assert (await engine.events(cursor, 100, Interest(), NOW)).events == []
        engine.check()


@story
async def test_reset_forgets_everything_and_cursors_still_point_forward(home: Home) -> None:
    async with home.engine() as engine:
        await engine.configure("_default", {"visibility_timeout": 9}, NOW)
        await push(engine, drafts(5))
        await fetch(engine, 2)
        await engine.beat(Report("w"), ["j0"], 0, NOW)
        await engine.direct("w", "quiet", NOW)
        await engine.pause("q", "admin", NOW)
        await engine.remember("s", "k", b"v", NOW + 10_000, NOW)
        await engine.save_checkpoint("j0", b"{}", NOW)
        cursor = (await engine.events(0, 100, Interest(), NOW)).cursor
        await engine.reset(NOW + 1)
        assert [queue.name for queue in await engine.queues(NOW + 1)] == ["default"]
        assert (await engine.find_all(Query(), Page(), NOW + 1)).total == 0
        assert await engine.workers(NOW + 1) == []
        assert await engine.recall("s", "k", NOW + 1) is None
        assert engine.settings("q").visibility_ms == 30_000
        await push(engine, [draft(1)], NOW + 1)
        assert await engine.checkpoint("j0", NOW + 1) is None
        assert await fetch(engine, 1, NOW + 1) == ["j1"]
        page = await engine.events(cursor, 100, Interest(kinds=["job.*"]), NOW + 1)
        assert [event.kind for event in page.events] == ["job.enqueued", "job.started"]
        engine.check()
    if home.path != ":memory:":
        async with home.engine(NOW + 2) as engine:
            assert (await engine.find_all(Query(), Page(), NOW + 2)).total == 1


@story
async def test_only_a_job_that_takes_a_schedule_loses_its_own_words(home: Home) -> None:
    said = b'"scheduled_at":"2030-01-01T02:00:00+02:00",'
    policy = UniquePolicy(on_conflict="replace_except_schedule")

    def later(number: int, due_at: int) -> Draft:
        fixed = said + b'"args":[],"meta":{}'
        found = draft(number, state="scheduled", due_at=due_at, unique="u", fixed=fixed)
        found.unique = policy
        return found

    async with home.engine() as engine:
        (first,) = await push(engine, [later(1, NOW + 5_000)])
        assert first.fixed.startswith(said)
        (second,) = await push(engine, [later(2, NOW + 9_000)])
        assert (second.due_at, second.fixed) == (NOW + 5_000, b'"args":[],"meta":{}')


@story
async def test_jobs_that_move_into_a_queue_on_its_way_out_go_its_way(home: Home) -> None:
    async with home.engine() as engine:
        await push(engine, [draft(1), draft(2), draft(3, state="scheduled", due_at=NOW + 9_000)])
        await push(engine, [draft(4, queue="b")])
        assert await fetch(engine) == ["j1"]
        (other,) = await engine.fetch(Fetch(["b"], 1, "w"), NOW)
        # Both have a job that runs, so both drain.
        left = await engine.remove_queue("b", "discard", "", "t1", NOW)
        assert left == Left("draining", 0)
        assert await engine.remove_queue("q", "move", "b", "t2", NOW) == Left("draining", 2)
        await engine.fail([Fail("j1", Failure("E", "m", requeue=True), "w")], NOW)
        for number in (1, 2, 3):
            assert (await found(engine, number)).state == "discarded"
        await engine.ack([Ack(other.id, "w")], NOW)
        await engine.settled()
        assert [queue.name for queue in await engine.queues(NOW)] == ["default"]
        engine.check()
