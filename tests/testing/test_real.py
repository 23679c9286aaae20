"""The same assertions at a real server with real workers."""

from __future__ import annotations

import asyncio

import pytest

from headgate import DuplicateJobError, OjsConnectionError
from headgate.testing import real
from tests.testing.world import World


def test_jobs_go_through_server_and_worker(world: World) -> None:
    with real(world.hg) as jobs:
        job = world.outer.enqueue("a@b")
        world.news.enqueue(1)
        with pytest.raises(DuplicateJobError):
            world.news.enqueue(1)
        jobs.assert_enqueued(world.outer, args=("a@b",), count=1)
        jobs.assert_job_state(job, "available")
        with pytest.raises(AssertionError, match="to be performed, found 0"):
            jobs.assert_performed(world.outer)
        assert jobs.drain() == 3
        assert sorted(map(str, world.seen)) == ["1", "a@b"]
        jobs.assert_completed(world.outer)
        jobs.assert_completed(world.send)
        assert job.wait(timeout=5).result
        url = jobs.url
    with pytest.raises(OjsConnectionError), real(world.hg, url=url):
        world.send.enqueue("nobody listens any more")


def test_planned_failures(world: World) -> None:
    with real(world.hg) as jobs:
        jobs.fail_next(world.send)
        world.send.enqueue("a")
        assert jobs.drain("mail") == 1
        jobs.assert_failed(world.send)
        jobs.clear()
        jobs.refute_enqueued()
        assert world.seen == []


def test_with_await(world: World) -> None:
    async def story() -> None:
        with real(world.hg) as jobs:
            await world.send.aio.enqueue("a")
            assert await jobs.aio.drain() == 1
            await jobs.aio.assert_completed(world.send)

    asyncio.run(story())
