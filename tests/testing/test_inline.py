"""Jobs run where they are enqueued, and fail there."""

from __future__ import annotations

import asyncio
import threading

import pytest

from headgate import Discard
from headgate.testing import PlannedError, inline
from tests.testing.world import World


def test_jobs_have_run_when_enqueue_returns(world: World) -> None:
    with inline(world.hg) as jobs:
        job = world.send.enqueue("a@b", copies=2)
        assert (job.state, job.result, job.refresh().result) == ("completed", 4, 4)
        many = world.send.enqueue_many([("c",), ("d",)])
        assert [one.state for one in many] == ["completed", "completed"]
        assert world.seen == ["a@b", "c", "d"]
        assert set(world.threads) == {threading.get_ident()}
        jobs.assert_completed(world.send, count=3)
        jobs.assert_performed(world.send, count=3)


def test_jobs_that_enqueue_jobs(world: World) -> None:
    with inline(world.hg) as jobs:
        world.outer.enqueue("a")
        world.waits.enqueue("b")
        assert world.seen == ["a", "b"]
        jobs.assert_completed(world.send, count=2)
        assert world.threads[0] == world.threads[2] == threading.get_ident()


def test_errors_come_out_and_nothing_is_retried(world: World) -> None:
    with inline(world.hg) as jobs:
        with pytest.raises(ValueError, match="no 1"):
            world.shaky.enqueue(1)
        assert world.seen == [1]
        (one,) = jobs.all_enqueued(world.shaky)
        jobs.assert_job_state(one.id, "discarded")
        jobs.assert_failed(world.shaky)
        with pytest.raises(ValueError, match="no 2"):
            world.shaky.enqueue_many([(2,), (3,)])
        assert world.seen == [1, 2]
        jobs.assert_enqueued(world.shaky, count=2)


def test_signals_come_out_too(world: World) -> None:
    @world.hg.job
    def gives_up() -> None:
        raise Discard("no")

    with inline(world.hg), pytest.raises(Discard, match="no"):
        gives_up.enqueue()


def test_delays_and_limits_are_ignored(world: World) -> None:
    with inline(world.hg) as jobs:
        assert world.send.schedule(after="1h").enqueue("a").state == "completed"
        for number in range(101):
            world.charge.enqueue(number)
        jobs.assert_completed(world.charge, count=101)
        assert jobs.all_enqueued(world.send)[0].scheduled_at is not None


def test_planned_failures(world: World) -> None:
    with inline(world.hg) as jobs:
        jobs.fail_next(world.send, times=2)
        for _ in range(2):
            with pytest.raises(PlannedError):
                world.send.enqueue("a")
        world.send.enqueue("b")
        assert world.seen == ["b"]


def test_what_others_handle_stays_enqueued(world: World) -> None:
    with inline(world.hg) as jobs:
        job = world.hg.enqueue("someone.elses", 1)
        jobs.assert_job_state(job, "available")
        jobs.assert_enqueued("someone.elses")


def test_pending_jobs_wait(world: World) -> None:
    with inline(world.hg):
        assert world.send.options(pending=True).enqueue("a").state == "pending"
        assert world.send.enqueue("b").state == "completed"
        assert world.seen == ["b"]


def test_what_the_test_runner_raises_passes_through(world: World) -> None:
    @world.hg.job
    def skips() -> None:
        pytest.skip("not here")

    @world.hg.job
    def interrupted() -> None:
        raise KeyboardInterrupt

    with inline(world.hg) as jobs:
        with pytest.raises(pytest.skip.Exception):
            skips.enqueue()
        with pytest.raises(KeyboardInterrupt):
            interrupted.enqueue()
        world.send.enqueue("a")
        jobs.assert_completed(world.send)


def test_with_await(world: World) -> None:
    async def story() -> None:
        with inline(world.hg):
            job = await world.send.aio.enqueue("a")
            assert job.result == 2
            assert (await world.waits.aio.enqueue("b")).state == "completed"
            with pytest.raises(ValueError, match="no 1"):
                await world.shaky.aio.enqueue(1)
            assert set(world.threads) == {threading.get_ident()}

    asyncio.run(story())
    assert world.seen == ["a", "b", 1]
