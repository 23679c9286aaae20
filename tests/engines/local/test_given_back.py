"""What a long life must not gather: traces of gates that closed, of pools, queues and tenants that are gone."""

from __future__ import annotations

import pytest

from headgate.core.gates import LimitsChange, Rate
from headgate.core.job import Job
from headgate.core.limits import Use
from headgate.engines.contract import Fetch, Interest
from headgate.engines.local import groups
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
async def test_jobs_to_be_put_off_are_passed_over_once_per_fetch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = 0

    def counted(lane: Lane) -> bool:
        nonlocal looks
        looks += 1
        return actionable(lane)

    actionable = groups.actionable
    async with floor() as there:
        for n in range(300):
            closed = Use(f"k{n}", on_limit="reschedule", change=LimitsChange(concurrency=0))
            await there.push(1, uses=[closed])
        free = await there.push(100)
        monkeypatch.setattr(groups, "actionable", counted)
        assert await there.take(100) == free
        assert looks < 1_000
        # The next one meets them again.
        assert await there.take(100) == []
        view = await there.engine.queue("q", there.now)
        assert view is not None
        assert view.counts["scheduled"] == 2 * 64
        there.engine.check()


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
