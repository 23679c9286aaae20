"""Flow control from the Python side: limits, full queues, pools, explanations, at a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from headgate import (
    AsyncJobContext,
    Breaker,
    ConflictError,
    MemoryBuffer,
    NotFoundError,
    QueueFullError,
    QueuePausedError,
    RateLimit,
    RateLimited,
    Waits,
    Worker,
)
from tests.worker.conftest import connect, disconnect, until, working

EXCHANGES = pytest.mark.parametrize("exchange", [None, False], ids=["exchange", "standard"])


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        try:
            async with asyncio.timeout(60):
                await story()
        finally:
            await disconnect()

    asyncio.run(within())


@EXCHANGES
def test_a_key_limits_how_many_run_at_once(url: str, exchange: bool | None) -> None:
    hg = connect(url)
    running: dict[str, int] = {}
    most: dict[str, int] = {}

    @hg.job(rate_limit=RateLimit("customer:{customer}", concurrency=2))
    async def one(customer: str) -> None:
        running[customer] = running.get(customer, 0) + 1
        most[customer] = max(most.get(customer, 0), running[customer])
        await asyncio.sleep(0.01)
        running[customer] -= 1

    async def story() -> None:
        await one.enqueue_many([(name,) for name in ("a", "b") * 15])
        async with working(hg, exchange=exchange, concurrency=10):
            stats = hg.queue("default").stats

            async def done() -> bool:
                return bool((await stats())["completed"] == 30)

            await until(done, "all jobs end")
        assert most == {"a": 2, "b": 2}

    run(story)


def test_a_key_and_its_jobs(url: str) -> None:
    hg = connect(url)
    limit = hg.limits["reports"]

    async def story() -> None:
        made = [
            await hg.enqueue("a.b", n, rate_limit=RateLimit("reports", concurrency=2, rate="100/m"))
            for n in range(5)
        ]
        assert [job.id for job in await limit.allowed] == [job.id for job in made[:2]]
        assert [job.id for job in await limit.rate_limited] == [job.id for job in made[2:]]
        state = await limit.inspect()
        assert (state["concurrency"]["limit"], state["rate"]["limit"]) == (2, 100)
        await limit.override(concurrency=0, lasting="1h")
        assert await limit.allowed == []
        assert "override" in await limit.inspect()
        explained = await hg.explain(made[0])
        assert "reports" in str(explained)
        await limit.release()
        assert len(await limit.allowed) == 2
        assert [one["key"] for one in await hg.limits.all()] == ["reports"]
        with pytest.raises(NotFoundError):
            await hg.limits["nobody"].inspect()

    run(story)


@EXCHANGES
def test_a_limit_of_somebody_else_holds_the_key_and_charges_nothing(
    url: str, exchange: bool | None
) -> None:
    hg = connect(url)
    starts: list[tuple[int, int, float]] = []

    @hg.job(rate_limit=RateLimit("api", concurrency=1), retry=1)
    async def call(context: AsyncJobContext, n: int) -> str:
        starts.append((n, context.attempt, asyncio.get_running_loop().time()))
        if len(starts) == 1:
            raise RateLimited("429 of theirs", retry_after=0.5)
        return "done"

    async def story() -> None:
        first, second = await call.enqueue(1), await call.enqueue(2)
        async with working(hg, exchange=exchange, concurrency=5):
            assert (await first.wait(timeout=20)).result == "done"
            assert (await second.wait(timeout=20)).result == "done"
        assert [(n, attempt) for n, attempt, _ in starts] == [(1, 1), (1, 1), (2, 1)]
        assert starts[1][2] - starts[0][2] >= 0.4

    run(story)


def test_a_full_queue_refuses_and_says_how_full_it_is(url: str) -> None:
    hg = connect(url, retry=Waits(tries=1))

    async def story() -> None:
        await hg.queue("small").configure(max_depth=3)
        for _ in range(2):
            await hg.enqueue("a.b", queue="small")
        job = await hg.enqueue("a.b", queue="small")
        assert job.pressure == 1.0
        with pytest.raises(QueueFullError) as raised:
            await hg.enqueue("a.b", queue="small")
        error = raised.value
        assert (error.depth, error.bound, error.queue) == (3, 3, "small")
        assert error.retry_after_s is not None
        assert error.retry_after_s >= 1

    run(story)


def test_a_batch_beyond_the_bound_goes_in_as_far_as_there_is_room(url: str) -> None:
    hg = connect(url, retry=Waits(tries=1))

    async def story() -> None:
        await hg.queue("small").configure(max_depth=3)
        with pytest.raises(QueueFullError) as raised:
            await hg.enqueue_batch([{"type": "a.b", "args": [], "queue": "small"}] * 8)
        assert raised.value.extra["accepted"] == 3
        assert (await hg.queue("small").stats())["available"] == 3

    run(story)


@EXCHANGES
def test_kept_jobs_go_in_when_workers_made_room(url: str, exchange: bool | None) -> None:
    buffer = MemoryBuffer()
    hg = connect(url, buffer=buffer, breaker=Breaker(cooldown_s=0.1), retry=Waits(cap_s=0.2))
    done: list[int] = []

    @hg.job(queue="small")
    async def one(n: int) -> None:
        done.append(n)

    async def story() -> None:
        await hg.queue("small").configure(max_depth=3)
        jobs = [await one.enqueue(n) for n in range(20)]
        assert [job.state for job in jobs[:3]] == ["available"] * 3
        assert {job.state for job in jobs[3:]} == {"buffered"}
        async with working(hg, exchange=exchange, concurrency=1):
            await jobs[-1].wait(timeout=30)
            await hg.flush(timeout=10)
            await until(lambda: len(done) == 20, "all jobs run")
        assert sorted(done) == list(range(20))

    run(story)


def test_the_server_may_hold_an_enqueue_until_there_is_room(url: str) -> None:
    hg = connect(url, block=10, retry=Waits(tries=1))

    @hg.job(queue="small")
    async def one() -> None: ...

    async def story() -> None:
        await hg.queue("small").configure(max_depth=1, overflow="block")
        await one.enqueue()
        held = asyncio.create_task(one.enqueue())
        await asyncio.sleep(0.1)
        assert not held.done()
        async with working(hg):
            await (await held).wait(timeout=20)

    run(story)


@EXCHANGES
def test_a_pool_decides_what_its_workers_serve(url: str, exchange: bool | None) -> None:
    hg = connect(url)

    @hg.job(queue="mine")
    async def mine() -> str:
        return "mine"

    @hg.job(queue="theirs")
    async def theirs() -> str:
        return "theirs"

    async def story() -> None:
        await hg.pools["general"].set(["mine"], strategy="weighted", weights={"mine": 1})
        one, other = await mine.enqueue(), await theirs.enqueue()
        async with working(hg, exchange=exchange, pool="general"):
            assert (await one.wait(timeout=20)).result == "mine"
            await asyncio.sleep(0.3)
            assert (await other.refresh()).state == "available"
            pools = {pool["name"]: pool for pool in await hg.pools.all()}
            assert pools["general"]["active_workers"] == 1
        assert "mine" in {share["name"] for share in await hg.pools.shares()}
        await hg.pools["general"].delete()

    run(story)


def test_a_queue_can_be_moved_and_drained(url: str) -> None:
    hg = connect(url)

    async def story() -> None:
        await hg.queue("new").configure(concurrency=5)
        job = await hg.enqueue("a.b", queue="old")
        with pytest.raises(ConflictError):
            await hg.queue("old").delete()
        await hg.queue("old").delete("move", to="new")
        assert (await job.refresh()).queue == "new"
        await hg.queue("new").drain()
        with pytest.raises(QueuePausedError):
            await hg.enqueue("a.b", queue="new")
        await hg.queue("new").resume()
        await hg.enqueue("a.b", queue="new")

    run(story)


def test_a_worker_introduces_itself_with_its_pool_and_queues(url: str) -> None:
    hg = connect(url)

    async def story() -> None:
        await hg.pools["general"].set(["a", "b"])
        worker = Worker(hg, queues=["a", "b"], pool="general", labels={"zone": "x"}, wait=0.2)
        await worker.start()
        (found,) = await hg.admin.list_workers()
        await worker.stop()
        assert (found["id"], found["queues"], found["pool"]) == (
            worker.worker_id,
            ["a", "b"],
            "general",
        )
        assert found["metadata"] == {"zone": "x"}

    run(story)
