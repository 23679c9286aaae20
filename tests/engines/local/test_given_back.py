"""What a long life must not gather, and a single fetch must not find: traces of gates that closed, of pools, queues and tenants that are gone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headgate.core.gates import LimitsChange, Rate
from headgate.core.job import Job
from headgate.core.limits import Use
from headgate.core.pools import Pool
from headgate.engines.contract import Fetch, Interest
from headgate.engines.local import groups
from headgate.engines.local.groups import Group, Groups
from headgate.engines.local.keys import Key
from headgate.engines.local.lanes import Lane
from tests.contract.home import story
from tests.flow.floor import floor

SECOND = 1_000_000


@story
async def test_openings_that_nobody_asks_for_are_not_gathered() -> None:
    async with floor() as there:
        await there.push(500, uses=[Use("k", change=LimitsChange(rate=Rate(1, SECOND)))])
        await there.push(1_000)
        for _ in range(500):
            there.now_us += SECOND
            assert len(await there.take(3)) == 3
        queue = there.engine._tables.queue("q")
        assert len(queue.groups._openings) < 100


@story
async def test_lanes_that_a_tenant_met_behind_a_closed_gate_are_remembered_once() -> None:
    closed = [Use("k", change=LimitsChange(concurrency=0))]
    async with floor() as there:
        await there.push(1, "other", uses=closed)
        for _ in range(100):
            (job,) = await there.push(1, tenant="a", uses=closed)
            assert await there.engine.fetch(Fetch(["q"], tenant="a"), there.now) == []
            await there.engine.cancel(job.id, "me", "", there.now)
        assert len(there.engine._tables.keys.known["k"]._asides or ()) <= 1


@story
async def test_pools_in_which_nothing_runs_are_not_counted() -> None:
    async with floor() as there:
        await there.push(100)
        for n in range(100):
            assert await there.take(pool=f"p{n}")
        assert there.engine._tables.in_pools == {}


@story
async def test_queues_that_were_only_asked_for_are_forgotten() -> None:
    async with floor() as there:
        key = [Use("k")]
        await there.push(1, "stays", uses=key)
        await there.engine.set_pool(Pool("p", ("pooled",), (1,)), there.now)
        waiter = there.engine.watch(Fetch(["waited"]))
        kept = Fetch(["turns", "stays"], strategy="round-robin")
        assert len(await there.engine.fetch(kept, there.now)) == 1
        queues = there.engine._tables.queues
        before = {name: queues[name] for name in ("stays", "pooled", "waited", "turns")}
        for n in range(5_000):
            await there.engine.why(Fetch([f"asked-{n}"]), there.now)
            if n % 100 == 0:
                await asyncio.sleep(0)
        for n in range(1_500):
            await there.push(1, f"left-{n}", uses=key)
            (job,) = await there.take(queues=[f"left-{n}"])
            await there.engine.delete(job.id, there.now)
            await there.engine.remove_queue(f"left-{n}", "reject", "", "", there.now)
            await asyncio.sleep(0)
        assert len(queues) < 2_000
        assert {name: queues[name] for name in before} == before
        there.engine.check()
        # Those who stood in line before find what comes now.
        (job,) = await there.push(1, "waited")
        assert await waiter.wait(0.1)
        waiter.close()
        (job,) = await there.push(1, "turns")
        assert await there.engine.fetch(kept, there.now) == [job]


@story
async def test_a_queue_that_is_deleted_takes_the_turns_of_its_tenants_along(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "a.db")
    async with floor(path) as there:
        await there.engine.configure("q", {"tenant_fairness": {"enabled": True}}, there.now)
        for n in range(3):
            await there.push(1, tenant=f"t{n}")
            await there.take()
        await there.engine.remove_queue("q", "reject", "", "", there.now)
        await there.engine.settled()
        left = await there.engine.ask(
            lambda c: c.execute("SELECT count(*) FROM things WHERE kind = 'share'").get
        )
        assert left == 0
        await there.engine.configure("q", {"tenant_fairness": {"enabled": True}}, there.now)
        (old,) = await there.push(1, tenant="t0")
        (new,) = await there.push(1, tenant="new")
        assert await there.take(2) == [old, new]


@story
async def test_jobs_to_be_put_off_are_passed_over_once_per_fetch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = 0

    def counted(lane: Lane) -> Key | None:
        nonlocal looks
        looks += 1
        return blocker_of(lane)

    blocker_of = groups.blocker_of
    async with floor() as there:
        for n in range(300):
            closed = Use(f"k{n}", on_limit="reschedule", change=LimitsChange(concurrency=0))
            await there.push(1, uses=[closed])
        free = await there.push(100)
        monkeypatch.setattr(groups, "blocker_of", counted)
        assert await there.take(100) == free
        assert looks < 1_000
        # The next one meets them again.
        assert await there.take(100) == []
        view = await there.engine.queue("q", there.now)
        assert view is not None
        assert view.counts["scheduled"] == 2 * 64
        there.engine.check()


@pytest.mark.parametrize("again", [False, True])
@story
async def test_no_fetch_has_to_hide_what_came_behind_closed_gates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    hidden = 0

    def counted(self: Groups, group: Group) -> None:
        nonlocal hidden
        hidden += 1
        hide(self, group)

    hide = Groups.hide
    path = str(tmp_path / "a.db")
    async with floor(path) as there:
        for n in range(100):
            await there.push(1, uses=[Use(f"k{n}", change=LimitsChange(concurrency=0))])
        free = await there.push(1)
        if not again:
            monkeypatch.setattr(Groups, "hide", counted)
            assert await there.take() == free
    if again:
        async with floor(path) as there:
            monkeypatch.setattr(Groups, "hide", counted)
            assert [job.id for job in await there.take()] == [job.id for job in free]
    assert hidden == 0


@pytest.mark.parametrize("others", [0, 50])
@story
async def test_a_release_names_a_job_of_its_queue_wherever_that_stands(others: int) -> None:
    shut = Use("shut", change=LimitsChange(concurrency=0))
    own = Use("own", change=LimitsChange(concurrency=1))
    async with floor() as there:
        waiting: dict[str, Job] = {}
        for queue in ("a", "b"):
            (waiting[queue],) = await there.push(1, queue, uses=[shut, own])
            for n in range(others):
                await there.push(1, queue, uses=[shut, Use(f"other{n}")])
        await there.push(1, "c", uses=[own])
        assert await there.take(queues=["c"])
        page = await there.engine.events(0, 1_000, Interest(), there.now)
        told = {
            event.queue: event.data["job_id"]
            for event in page.events
            if event.kind == "rate_limit.released"
            and event.data is not None
            and event.data["key"] == "own"
        }
        assert told == {queue: job.id for queue, job in waiting.items()}
