"""Jobs are kept and not run; what a server would refuse is refused."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest

from headgate import AsyncHeadgate, Discard, DuplicateJobError, RateLimit, RateLimited, Snooze
from headgate.client.draft import Draft, Enqueued, EnqueueNext
from headgate.testing import PlannedError, fake
from tests.testing.world import World


def test_nothing_runs_and_everything_is_noted(world: World) -> None:
    with fake(world.hg) as jobs:
        job = world.send.enqueue("a@b")
        world.send.enqueue_many([("c@d", 2), ("e@f",)])
        world.hg.enqueue("other.type", 1, queue="else")
        assert job.refresh().state == "available"
        assert world.seen == []
        assert [one.args for one in jobs.all_enqueued(world.send)] == [
            ["a@b"],
            ["c@d", 2],
            ["e@f"],
        ]
        assert [one.type for one in jobs.all_enqueued()] == ["send"] * 3 + ["other.type"]
        jobs.assert_enqueued("other.type", args=[1], queue="else", count=1)


def test_what_is_asked_for_must_fit(world: World) -> None:
    with fake(world.hg) as jobs:
        world.send.options(meta={"more": 1}).enqueue("a@b", copies=3)
        jobs.assert_enqueued(world.send, args=("a@b", 3), queue="mail", meta={"team": "a"})
        jobs.assert_enqueued("send", meta={"more": 1, "kind": "mail"}, count=1)
        jobs.assert_enqueued(count=1)
        jobs.refute_enqueued(world.send, args=("a@b",))
        jobs.assert_not_enqueued(world.send, queue="other")
        jobs.refute_enqueued(meta={"team": "b"})
        jobs.refute_enqueued(meta={"missing": None})
        for wrong in (
            {"what": "other"},
            {"args": ("x", 3)},
            {"queue": "other"},
            {"meta": {"team": "b"}},
            {"count": 2},
            {"count": 0},
        ):
            with pytest.raises(AssertionError, match=r"send\('a@b', 3\) in mail"):
                jobs.assert_enqueued(**wrong)
        with pytest.raises(AssertionError, match="expected no job"):
            jobs.refute_enqueued(world.send)


def test_args_are_all_of_them(world: World) -> None:
    with fake(world.hg) as jobs, pytest.raises(TypeError, match="list or tuple"):
        jobs.assert_enqueued("send", args="a@b")


def test_with_nothing_enqueued_it_says_so(world: World) -> None:
    with fake(world.hg) as jobs, pytest.raises(AssertionError, match="nothing was enqueued"):
        jobs.assert_enqueued("send")


def test_uniqueness_is_enforced(world: World) -> None:
    with fake(world.hg) as jobs:
        first = world.news.enqueue(7)
        with pytest.raises(DuplicateJobError):
            world.news.enqueue(7)
        world.news.enqueue(8)
        jobs.assert_enqueued(world.news, count=2)
        first.cancel()
        world.news.enqueue(7)


def test_middleware_runs_and_may_drop(world: World) -> None:
    async def stamp(draft: Draft, following: EnqueueNext) -> Enqueued | None:
        if draft.type == "dropped":
            return None
        draft.meta["stamp"] = 1
        return await following(draft)

    world.hg.middleware.add(stamp)
    with fake(world.hg) as jobs:
        world.send.enqueue("a@b")
        world.hg.enqueue_batch([{"type": "dropped", "args": []}, {"type": "kept", "args": []}])
        jobs.assert_enqueued(count=2)
        jobs.assert_enqueued("send", meta={"stamp": 1})
        jobs.refute_enqueued("dropped")


def test_drain_runs_what_can_run(world: World) -> None:
    with fake(world.hg) as jobs:
        job = world.outer.enqueue("a@b")
        later = world.send.schedule(after="1h").enqueue("later")
        assert jobs.drain() == 2
        assert world.seen == ["a@b"]
        inner = job.refresh().result
        jobs.assert_job_state(inner, "completed")
        jobs.assert_job_state(later, "scheduled")
        jobs.assert_completed(world.send, count=1)
        jobs.assert_performed(world.send, count=1)
        with pytest.raises(AssertionError, match="it is scheduled"):
            jobs.assert_job_state(later, "available")
        with pytest.raises(AssertionError, match="to be completed, found 1"):
            jobs.assert_completed(world.send, count=2)
        with pytest.raises(AssertionError, match="to be failed, found 0"):
            jobs.assert_failed(world.send)
        with pytest.raises(AssertionError, match="to be performed, found 0"):
            jobs.assert_performed(world.send, args=("later",))
        assert jobs.drain(with_scheduled=True) == 1
        assert world.seen == ["a@b", "later"]


def test_drain_of_one_queue_and_of_so_many(world: World) -> None:
    with fake(world.hg) as jobs:
        world.send.enqueue_many([(str(number),) for number in range(5)])
        world.tells.enqueue(1)
        assert jobs.drain("mail", max_jobs=2) == 2
        assert world.seen == ["0", "1"]
        assert jobs.drain("mail") == 3
        assert jobs.drain() == 1


def test_retries_come_when_time_passes(world: World) -> None:
    with fake(world.hg) as jobs:
        jobs.freeze_time()
        job = world.shaky.enqueue(1)
        assert jobs.drain() == 1
        jobs.assert_failed(world.shaky)
        jobs.assert_job_state(job, "retryable")
        jobs.advance_time("9s")
        assert jobs.drain() == 0
        jobs.advance_time("1s")
        assert jobs.drain() == 1
        assert jobs.drain(with_scheduled=True) == 1
        jobs.assert_job_state(job, "discarded")
        assert world.seen == [1, 1, 1]
        assert job.refresh().error is not None


def test_limits_hold_until_time_passes(world: World) -> None:
    with fake(world.hg) as jobs:
        jobs.freeze_time()
        world.charge.enqueue_many([(number,) for number in range(150)])
        assert jobs.drain() == 100
        jobs.advance_time("59s")
        assert jobs.drain() == 0
        assert jobs.drain(with_scheduled=True) == 50


def test_time_goes_on_until_it_is_frozen(world: World) -> None:
    with fake(world.hg) as jobs:
        at = datetime.now(UTC) + timedelta(days=1)
        job = world.send.schedule(at=at).enqueue("tomorrow")
        jobs.freeze_time(at - timedelta(seconds=1))
        jobs.assert_job_state(job, "scheduled")
        jobs.freeze_time(at)
        jobs.assert_job_state(job, "available")
        with pytest.raises(Exception, match="does not go back"):
            jobs.freeze_time("2020-01-01T00:00:00Z")


def test_expired_jobs_do_not_run(world: World) -> None:
    with fake(world.hg) as jobs:
        jobs.freeze_time()
        job = world.send.options(expires="1m").enqueue("late")
        jobs.advance_time("61s")
        assert jobs.drain() == 0
        jobs.assert_job_state(job, "discarded")


def test_failures_can_be_planned(world: World) -> None:
    with fake(world.hg) as jobs:
        jobs.freeze_time()
        jobs.fail_next(world.send, OSError("away"))
        world.send.enqueue_many([("a",), ("b",)])
        jobs.drain()
        assert world.seen == ["b"]
        jobs.assert_failed(world.send, args=("a",))
        jobs.assert_completed(world.send, args=("b",))
        jobs.clear()
        jobs.fail_all()
        world.send.enqueue("c")
        world.tells.enqueue(1)
        assert jobs.drain(with_scheduled=True) > 2
        jobs.assert_failed(count=2)
        assert world.seen == ["b"]


def test_signals_mean_what_they_mean_to_a_worker(world: World) -> None:
    hg, runs = world.hg, []

    @hg.job(queue="signals", rate_limit=RateLimit("api"))
    def limited() -> None:
        runs.append("limited")
        if len(runs) == 1:
            raise RateLimited(retry_after="1m")

    @hg.job(queue="snoozing")
    def snoozes() -> None:
        runs.append("snoozes")
        if runs.count("snoozes") == 1:
            raise Snooze("2m")

    @hg.job(queue="snoozing")
    def gives_up() -> None:
        raise Discard("never mind")

    with fake(hg) as jobs:
        jobs.freeze_time()
        first = limited.enqueue()
        second = limited.enqueue()
        assert jobs.drain("signals") == 1
        assert (first.refresh().state, first.attempt) == ("available", 0)
        jobs.advance_time("59s")
        assert jobs.drain("signals") == 0
        jobs.advance_time("1s")
        assert jobs.drain("signals") == 2
        assert second.refresh().state == "completed"

        lazy, dead = snoozes.enqueue(), gives_up.enqueue()
        assert jobs.drain("snoozing") == 2
        jobs.assert_job_state(dead, "discarded")
        jobs.advance_time("119s")
        assert jobs.drain("snoozing") == 0
        jobs.advance_time("1s")
        assert jobs.drain("snoozing") == 1
        assert (lazy.refresh().state, lazy.attempt) == ("completed", 1)


def test_perform_runs_one_job_and_raises(world: World) -> None:
    with fake(world.hg) as jobs:
        assert jobs.perform(world.send, "a@b", copies=4) == 8
        assert jobs.perform(world.tells, 5) == 1
        with pytest.raises(ValueError, match="no 3"):
            jobs.perform(world.shaky, 3)
        jobs.fail_next(world.send)
        with pytest.raises(PlannedError):
            jobs.perform(world.send, "x")
        jobs.assert_failed(world.shaky)


def test_clear_forgets_everything(world: World) -> None:
    with fake(world.hg) as jobs:
        world.send.enqueue("a")
        jobs.fail_all()
        jobs.clear_all()
        jobs.refute_enqueued()
        assert jobs.drain() == 0
        world.send.enqueue("b")
        assert jobs.drain() == 1
        assert world.seen == ["b"]


def test_the_rest_of_the_client_works_too(world: World) -> None:
    with fake(world.hg) as jobs:
        world.hg.queue("mail").configure(max_depth=1)
        world.send.enqueue("a")
        with pytest.raises(Exception, match="full"):
            world.send.enqueue("b")
        world.hg.queue("mail").pause()
        assert jobs.drain() == 0
        world.hg.queue("mail").resume()
        assert jobs.drain() == 1


def test_handlers_run_in_the_thread_of_the_test(world: World) -> None:
    with fake(world.hg) as jobs:
        world.outer.enqueue("a")
        world.waits.enqueue("b")
        assert jobs.drain() == 4
        plain = [thread for thread in world.threads if thread == threading.get_ident()]
        assert len(plain) == 2
        assert len(world.threads) == 3


def test_whoever_waits_lets_time_pass(world: World) -> None:
    with fake(world.hg):
        job = world.send.enqueue("a")
        with pytest.raises(Exception, match="has not ended within 3600 s"):
            job.wait(timeout=3600)


def test_with_await(world: World) -> None:
    hg = AsyncHeadgate("http://127.0.0.1:9")
    loops = []

    @hg.job(queue="q")
    async def where(number: int) -> int:
        loops.append(asyncio.get_running_loop())
        return number

    async def story() -> None:
        with fake(hg) as jobs:
            job = await where.enqueue(4)
            jobs.assert_enqueued(where, args=[4])
            assert await jobs.aio.drain() == 1
            await jobs.aio.assert_completed(where)
            assert (await job.wait()).result == 4
            assert loops == [asyncio.get_running_loop()]

    asyncio.run(story())
