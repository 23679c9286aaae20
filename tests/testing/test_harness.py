"""Traffic in virtual time: the real rules, the real engine, no clock of this machine."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from headgate import AsyncHeadgate, QueueFullError, RateLimit, Snooze
from headgate.testing import AsyncHarness, Harness
from tests.testing.world import World


def test_a_quota(world: World) -> None:
    with Harness(world.hg) as harness:
        harness.enqueue_many(world.charge, [(number,) for number in range(500)])
        harness.run_for("PT1M", workers=20)
        assert harness.started("stripe") == 100
        assert harness.completed(task=world.charge) == 100
        harness.run_for("PT1M")
        assert harness.started("stripe") == 200
        harness.run_for("3m")
        assert harness.started("stripe") == 500
        assert harness.now == datetime(2026, 1, 5, 0, 5, tzinfo=UTC)


def test_a_minute_ends_before_the_next_one_begins(world: World) -> None:
    with Harness(world.hg) as harness:
        harness.enqueue_many(world.charge, [(number,) for number in range(101)])
        harness.run_for("60s", workers=200)
        assert harness.started("stripe") == 100
        harness.run_for("1ms")
        assert [start.at_s for start in harness.starts[-2:]] == [0.0, 60.0]


@pytest.mark.parametrize("workers", [1, 2, 3, 20])
def test_slots_and_lengths(world: World, workers: int) -> None:
    with Harness(world.hg) as harness:
        harness.takes(world.slot, "10s")
        harness.enqueue_many(world.slot, [(number,) for number in range(1_000)])
        harness.run_for("1m", workers=workers)
        at_once = min(workers, 3)
        assert harness.started("slots") == 6 * at_once
        assert harness.completed("slots") == 5 * at_once
        assert harness.running("slots") == at_once
        assert harness.counts("pay")["active"] == at_once


def test_lengths_by_arguments_and_from_inside(world: World) -> None:
    with Harness(world.hg) as harness:

        @world.hg.job(queue="own")
        def works(seconds: float) -> float:
            harness.spend(seconds)
            harness.spend("1s")
            return seconds

        harness.takes(world.send, lambda _address, copies=1: copies * 3)
        harness.enqueue(world.send, "a", copies=4)
        harness.enqueue(works, 2.5)
        harness.run_for("3500ms", workers=5)
        assert harness.completed() == 0
        harness.run_for("1ms")
        assert harness.completed(queue="own") == 1
        harness.run_for("8499ms")
        assert harness.completed(queue="mail") == 0
        harness.run_for("1ms")
        assert harness.completed(queue="mail") == 1


def test_retries_take_their_time(world: World) -> None:
    with Harness(world.hg) as harness:
        job = harness.enqueue(world.shaky, 1)
        harness.run_for("1h")
        assert [start.at_s for start in harness.starts] == [0.0, 10.0, 30.0]
        assert [start.attempt for start in harness.starts] == [1, 2, 3]
        assert harness.failed() == 3
        assert job.refresh().state == "discarded"


def test_the_same_seed_gives_the_same_story(world: World) -> None:
    @world.hg.job(queue="jitter", retry={"max_attempts": 5, "initial_interval": "PT7S"})
    def fails() -> None:
        raise OSError

    def story(seed: int) -> list[float]:
        with Harness(world.hg, seed=seed) as harness:
            harness.enqueue_many(fails, [()] * 5)
            harness.run_for("1h")
            return [start.at_s for start in harness.starts]

    assert story(1) == story(1)
    assert story(1) != story(2)
    assert len(story(1)) == 25


def test_timeouts_end_runs(world: World) -> None:
    with Harness(world.hg) as harness:
        harness.takes(world.send, "1h")
        job = harness.enqueue(world.send.options(timeout="5m", retry=1), "a")
        harness.run_for("5m")
        assert harness.running() == 1
        harness.run_for("1ms")
        assert job.refresh().error is not None
        assert job.error["code"] == "timeout"
        assert (job.state, harness.failed()) == ("discarded", 1)


def test_long_runs_keep_their_jobs(world: World) -> None:
    with Harness(world.hg) as harness:
        harness.takes(world.send, "20m")
        job = harness.enqueue(world.send, "a")
        harness.run_for("30m")
        assert (job.refresh().state, job.attempt) == ("completed", 1)


def test_snoozing_jobs_are_kept_too(world: World) -> None:
    @world.hg.job
    def snoozes() -> None:
        if len(harness.starts) == 1:
            raise Snooze("10m")

    with Harness(world.hg) as harness:
        job = harness.enqueue(snoozes)
        harness.run_for("1h")
        assert [start.at_s for start in harness.starts] == [0.0, 600.0]
        assert [start.how for start in harness.starts] == ["deferred", "completed"]
        assert (job.refresh().state, job.attempt) == ("completed", 1)


def test_what_crashed_workers_had_is_run_again(world: World) -> None:
    with Harness(world.hg) as harness:
        harness.takes(world.slot, "20s")
        harness.enqueue_many(world.slot, [(number,) for number in range(5)])
        harness.run_for("5s")
        assert harness.crash() == 3
        harness.run_for("24s")
        assert harness.started("slots") == 3
        harness.run_for("5m")
        assert [start.how for start in harness.starts[:3]] == ["lost"] * 3
        assert harness.completed("slots") == 5
        assert harness.started("slots") == 8


def test_stubs_need_no_handler(world: World) -> None:
    with Harness(world.hg) as harness:
        harness.stub(world.shaky, "well", takes="1s")
        harness.stub("someone.elses", error=OSError("no"))
        fine = harness.enqueue(world.shaky, 1)
        bad = harness.enqueue("someone.elses", 1, queue="there", retry=1)
        none = harness.enqueue("nobodys", queue="there", retry=1)
        harness.run_for("2s")
        assert fine.refresh().result == "well"
        assert world.seen == []
        assert bad.refresh().error["type"] == "OSError"
        assert none.refresh().error["code"] == "no_handler"


def test_handlers_enqueue_through_their_own_application(world: World) -> None:
    with Harness() as harness:
        harness.enqueue(world.outer, "a")
        harness.enqueue(world.waits, "b")
        harness.run_for("1s")
        assert world.seen == ["a", "b"]
        harness.assert_completed(world.send, count=2)


def test_time_passes_for_whoever_waits(world: World) -> None:
    with Harness(world.hg) as harness:
        harness.takes(world.send, "2m")
        job = world.send.enqueue("a")
        assert job.wait(timeout=300).result == 2
        assert harness.now >= datetime(2026, 1, 5, 0, 2, tzinfo=UTC)


def test_a_handler_cannot_let_time_pass(world: World) -> None:
    caught: list[str] = []

    @world.hg.job
    def impatient() -> None:
        try:
            harness.run_for("1s")
        except RuntimeError as error:
            caught.append(str(error))

    with Harness(world.hg) as harness:
        harness.enqueue(impatient)
        harness.run_for("1s")
        assert "cannot let time pass" in caught[0]


def test_pools_and_their_shares(world: World) -> None:
    hg = world.hg

    with Harness(hg) as harness:
        hg.pools["batch"].set(queues=["a", "b"], strategy="weighted", weights={"a": 3, "b": 1})
        for queue in ("a", "b"):
            harness.stub(f"work.{queue}", takes="1s")
            harness.enqueue_many(f"work.{queue}", [(n,) for n in range(400)], queue=queue)
        harness.run_for("20s", workers=4, pool="batch")
        assert (harness.started(queue="a"), harness.started(queue="b")) == (60, 20)


def test_workers_of_several_kinds(world: World) -> None:
    with Harness(world.hg) as harness:
        for queue in ("a", "b"):
            harness.stub(f"work.{queue}", takes="1s")
            harness.enqueue_many(f"work.{queue}", [(n,) for n in range(400)], queue=queue)
        harness.workers("for-a", 2, queues=["a"])
        harness.workers("for-b", 5, queues=["b"])
        harness.run_for("10s", workers=0)
        assert (harness.started(queue="a"), harness.started(queue="b")) == (20, 50)
        harness.workers("for-b", 0)
        harness.run_for("10s")
        assert (harness.started(queue="a"), harness.started(queue="b")) == (40, 50)


def test_tenants_share(world: World) -> None:
    with Harness(world.hg) as harness:
        world.hg.queue("shared").configure(tenant_fairness={"enabled": True})
        harness.stub("work", takes="1s")
        for tenant, jobs in (("big", 500), ("small", 10)):
            harness.enqueue_many("work", [(n,) for n in range(jobs)], queue="shared", tenant=tenant)
        harness.run_for("10s", workers=2)
        assert harness.started(tenant="small") == 10
        assert harness.started(tenant="big") == 10


def test_full_queues_refuse(world: World) -> None:
    with Harness(world.hg) as harness:
        world.hg.queue("mail").configure(max_depth=3)
        for number in range(3):
            world.send.enqueue(str(number))
        with pytest.raises(QueueFullError):
            world.send.enqueue("too many")
        harness.run_for("1s")
        world.send.enqueue("room again")


def test_dead_letter_queues_are_not_served_by_mistake(world: World) -> None:
    with Harness(world.hg) as harness:
        world.hg.queue("default").configure(dead_letter_queue="morgue")
        harness.enqueue(world.shaky, 1)
        harness.run_for("1h")
        assert harness.counts("morgue")["available"] == 1
        harness.run_for("1h", queues=["morgue"])
        assert harness.counts("morgue")["available"] == 0


def test_throttles_meet_the_microsecond(world: World) -> None:
    @world.hg.job(queue="fast", rate_limit=RateLimit("fast", throttle="2000/s"))
    def fast() -> None: ...

    with Harness(world.hg) as harness:
        harness.enqueue_many(fast, [()] * 30)
        harness.run_for("10ms")
        # Workers that wait are woken by the millisecond, as at a server.
        assert 10 <= harness.started("fast") <= 20


def test_a_start_of_its_own(world: World) -> None:
    with Harness(world.hg, start="2030-06-01T12:00:00Z") as harness:
        job = world.send.schedule(at="2030-06-01T13:00:00Z").enqueue("a")
        harness.run_for("59m")
        assert job.refresh().state == "scheduled"
        harness.run_for("1m")
        assert harness.started() == 0
        harness.run_for("1ms")
        assert job.refresh().state == "completed"


def test_wrong_arguments(world: World) -> None:
    with Harness(world.hg) as harness:
        with pytest.raises(Exception, match="workers must be 0 or more"):
            harness.run_for("1s", workers=-1)
        with pytest.raises(Exception, match="length must be seconds"):
            harness.run_for("soon")
        with pytest.raises(TypeError, match="options"):
            harness.enqueue_many(world.send, [("a",)], queue="x")
        with pytest.raises(Exception, match="not an option"):
            harness.enqueue("a.b", colour="red")


def test_a_storm_at_one_instant_is_found_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    @world.hg.job
    def again() -> None:
        raise Snooze(0)

    monkeypatch.setattr("headgate.testing.floor.MOST_TURNS", 100)
    with Harness(world.hg) as harness:
        harness.enqueue(again.options(retry=1_000))
        with pytest.raises(RuntimeError, match="never ends"):
            harness.run_for("1s")


def test_with_await() -> None:
    hg = AsyncHeadgate("http://127.0.0.1:9")

    @hg.job(queue="q")
    async def doubles(number: int) -> int:
        await asyncio.sleep(0)
        return number * 2

    async def story() -> None:
        with AsyncHarness(hg) as harness:
            job = await harness.enqueue(doubles, 4)
            await doubles.enqueue(5)
            await harness.run_for("1s")
            assert harness.completed(task=doubles) == 2
            assert (await job.wait()).result == 8
        with Harness(hg) as harness:
            await doubles.enqueue(6)
            await harness.aio.run_for("1s")
            assert harness.completed() == 1

    asyncio.run(story())
