"""One key at which very many queues, tenants or lanes wait: its opening and closing look at few of them, and nobody misses anything.

Looks and moves are counted, not timed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from headgate.core.gates import LimitsChange
from headgate.core.limits import Use
from headgate.core.pools import Pool, Starvation
from headgate.engines.contract import TOLD_QUEUES, Ack, Event, Fetch, Interest
from headgate.engines.local.groups import Groups
from headgate.engines.local.queue import Queue
from tests.contract.home import story
from tests.flow.floor import Floor, floor

MANY = 300
NAMES = tuple(f"q{n:03}" for n in range(MANY))
POOL = Pool("p", NAMES, weights=(1,) * MANY)
ONE = Use("k", change=LimitsChange(concurrency=1))


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often groups are asked who is first, shown, hidden, or let a lane move."""
    found: Counter[str] = Counter()

    def count(owner: type, name: str) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        def counted(self: Any, *args: Any, **named: Any) -> Any:
            found[name] += 1
            return original(self, *args, **named)

        monkeypatch.setattr(owner, name, counted)

    for name in ("first", "show", "hide", "move"):
        count(Groups, name)
    count(Queue, "meet_actor")
    return found


async def told(there: Floor, since: int) -> list[Event]:
    await there.engine.settled()
    page = await there.engine.events(since, 1_000, Interest(kinds=["rate_limit.*"]), there.now)
    return page.events


async def last_event(there: Floor) -> int:
    await there.engine.settled()
    return (await there.engine.events(0, 10_000, Interest(), there.now)).cursor


@pytest.mark.parametrize("strategy", ["strict", "round-robin", "weighted"])
@pytest.mark.parametrize("starvation", [False, True])
@story
async def test_an_opening_looks_at_few_of_the_queues_that_wait(
    looks: Counter[str], strategy: Any, starvation: bool
) -> None:
    async with floor() as there:
        pool = Pool(
            "p",
            NAMES,
            weights=tuple(range(1, MANY + 1)),
            strategy=strategy,
            starvation=Starvation(enabled=starvation, ratio=0.001),
        )
        await there.engine.set_pool(pool, there.now)
        for name in NAMES:
            await there.push(3, name, uses=[ONE])
        (job,) = await there.take(pool="p", finish=False)
        # The first opening finds out who is concerned.
        await there.engine.ack([Ack(job.id, "w", job.claim)], there.now)
        (job,) = await there.take(pool="p", finish=False)
        served: Counter[str] = Counter()
        for _ in range(2 * MANY):
            looks.clear()
            await there.engine.ack([Ack(job.id, "w", job.claim)], there.now)
            (job,) = await there.take(pool="p", finish=False)
            served[job.queue] += 1
            await there.engine.settled()
            assert sum(looks.values()) < 20
        if strategy == "round-robin":
            assert set(served.values()) == {2}
        there.engine.check()


@story
async def test_a_few_queues_are_told_at_each_opening_and_closing() -> None:
    async with floor() as there:
        for name in NAMES:
            await there.push(2, name, uses=[ONE])
        since = await last_event(there)
        (job,) = await there.take(queues=NAMES[-1:], finish=False)
        events = await told(there, since)
        assert [(each.kind, each.queue) for each in events] == [
            ("rate_limit.exceeded", name) for name in NAMES[:TOLD_QUEUES]
        ]
        since = events[-1].number
        await there.engine.ack([Ack(job.id, "w", job.claim)], there.now)
        events = await told(there, since)
        assert [(each.kind, each.queue) for each in events] == [
            ("rate_limit.released", name) for name in NAMES[:TOLD_QUEUES]
        ]
        assert all(each.data and each.data["job_id"] for each in events)


@story
async def test_others_are_told_when_the_first_ones_have_nothing_left() -> None:
    async with floor() as there:
        waiting = [(await there.push(1, name, uses=[ONE]))[0] for name in NAMES[:8]]
        await there.push(1, "other", uses=[ONE])
        await there.take(queues=["other"], finish=False)
        since = await last_event(there)
        for job in waiting[:2]:
            await there.engine.cancel(job.id, "", "", there.now)
        events = await told(there, since)
        assert [(each.kind, each.queue) for each in events] == [
            ("rate_limit.exceeded", name) for name in NAMES[TOLD_QUEUES : TOLD_QUEUES + 2]
        ]


@pytest.mark.parametrize("waits_for", ["its own queue", "a pool"])
@story
async def test_whoever_waits_for_any_of_the_queues_hears_of_the_opening(waits_for: str) -> None:
    async with floor() as there:
        await there.engine.set_pool(POOL, there.now)
        for name in NAMES:
            await there.push(1, name, uses=[ONE])
        await there.push(1, "other", uses=[ONE])
        (job,) = await there.take(queues=["other"], finish=False)
        fetch = Fetch(["q250"]) if waits_for == "its own queue" else Fetch([], pool="p")
        watch = there.engine.watch(fetch)
        assert await there.engine.fetch(fetch, there.now) == []
        waiter = asyncio.ensure_future(watch.wait(30))
        await asyncio.sleep(0)
        assert not waiter.done()
        await there.engine.ack([Ack(job.id, "w", job.claim)], there.now)
        await there.engine.settled()
        assert await asyncio.wait_for(waiter, 1)
        (found,) = await there.engine.fetch(fetch, there.now)
        assert waits_for == "a pool" or found.queue == "q250"
        watch.close()
        there.engine.check()


@story
async def test_an_opening_wakes_those_whose_jobs_also_wait_for_something_else() -> None:
    """Jobs with two keys, one of which is still closed, are no reason to stop, or to wake anybody."""
    shut = Use("shut", change=LimitsChange(concurrency=0))
    async with floor() as there:
        await there.engine.set_pool(POOL, there.now)
        for name in NAMES[:-1]:
            await there.push(1, name, uses=[ONE, shut])
        await there.push(1, NAMES[-1], uses=[ONE])
        await there.push(1, "other", uses=[ONE])
        (job,) = await there.take(queues=["other"], finish=False)
        assert await there.take(pool="p") == []
        await there.engine.ack([Ack(job.id, "w", job.claim)], there.now)
        (found,) = await there.take(pool="p")
        assert found.queue == NAMES[-1]
        there.engine.check()


@story
async def test_a_fetch_by_name_finds_what_an_opening_did_not_show() -> None:
    async with floor() as there:
        await there.engine.set_pool(POOL, there.now)
        for name in NAMES:
            await there.push(2, name, uses=[ONE])
        for n in range(50):
            name = NAMES[(n * 37) % MANY]
            (job,) = await there.take(queues=[name])
            assert job.queue == name
        there.engine.check()


@story
async def test_the_next_opening_is_known_where_it_was_put_off_for_all() -> None:
    async with floor() as there:
        await there.engine.set_pool(POOL, there.now)
        for name in NAMES:
            await there.push(2, name, uses=[Use("k")])
        keys = there.engine._tables.keys
        key = keys.known["k"]
        at = there.now + 60_000
        keys.hold(key, at, "later")
        assert await there.take(pool="p") == []
        keys.hold(key, at + 60_000, "even later")
        why = await there.engine.why(Fetch([NAMES[7]]), there.now)
        assert why.next_at == at + 60_000


@pytest.mark.parametrize("on_limit", ["drop", "reschedule"])
@story
async def test_a_closing_moves_none_of_the_lanes_that_do_not_wait(
    looks: Counter[str], on_limit: Any
) -> None:
    async with floor() as there:
        use = Use("k", on_limit=on_limit, change=LimitsChange(concurrency=1))
        for n in range(MANY):
            await there.push(1, tenant=f"t{n}", uses=[use])
        free = await there.push(3)
        looks.clear()
        (first,) = await there.take(finish=False)
        await there.engine.settled()
        assert sum(looks.values()) < 10
        looks.clear()
        # So many are acted upon; then the free ones come, and the other lanes are not walked through.
        assert await there.take(3) == free
        assert sum(looks.values()) < 3 * 64 + 20
        looks.clear()
        await there.engine.ack([Ack(first.id, "w", first.claim)], there.now)
        await there.engine.settled()
        assert sum(looks.values()) < 10
        there.engine.check()


@story
async def test_a_lane_kept_from_sight_by_another_key_is_met_when_it_does_not_wait() -> None:
    """It waits at one key and not at the other: the closing of the other one has to find it."""
    waits, drops = Use("waits"), Use("drops", on_limit="drop")
    async with floor() as there:
        (job,) = await there.push(1, uses=[waits, drops])
        keys = there.engine._tables.keys
        keys.hold(keys.known["waits"], there.now + 60_000, "")
        assert await there.take() == []
        keys.hold(keys.known["drops"], there.now + 60_000, "")
        assert await there.take() == []
        found = await there.engine.find(job.id, there.now)
        assert found is not None
        assert found.state == "discarded"
        there.engine.check()
