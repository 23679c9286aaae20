"""Handles of jobs: waiting, results, errors, and what is asked of the server for them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from headgate import (
    AsyncHeadgate,
    ConflictError,
    ExecutionError,
    Headgate,
    JobNotFoundError,
    MemoryBuffer,
    NotFoundError,
    OjsError,
    OjsTimeoutError,
    SerializationError,
)
from tests.client.fakes import Asked, FakeClock, FakeServer, accepted, answer, cut, refused
from tests.client.test_signature import Point

T = TypeVar("T")


def run(step: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(step)


def record(state: str, **more: Any) -> dict[str, Any]:
    return {"id": "j", "type": "a.b", "queue": "q", "state": state, **more}


class Life:
    """A server with one job, which changes at certain looks."""

    def __init__(self, *looks: dict[str, Any], waits: int = 200) -> None:
        self.looks = list(looks)
        self.waits = waits

    def __call__(self, asked: Asked) -> Any:
        if "/result" in asked.path:
            return refused(408, "request_timeout") if self.waits == 408 else answer(self.waits, {})
        look = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        return answer(200, {"job": look})


def client(server: FakeServer, **more: Any) -> tuple[AsyncHeadgate, FakeClock]:
    clock = FakeClock()
    return AsyncHeadgate(transport=server, clock=clock, **more), clock


def test_wait_gives_the_result() -> None:
    server = FakeServer(Life(record("active"), record("completed", result={"x": 1, "y": 2})))
    hg, _ = client(server)

    async def point() -> Point:
        return Point(0)

    async def story() -> None:
        hg.job(point)
        job = await hg.job_by_id("j")
        with pytest.raises(OjsError, match="has not ended"):
            _ = job.result
        assert (await job.wait(timeout=5)).result == {"x": 1, "y": 2}
        assert server.asked[1].path == "/jobs/j/result?wait=true&timeout=5"

    run(story())


def test_results_are_read_as_the_handler_says() -> None:
    server = FakeServer(accepted)
    hg, _ = client(server)

    @hg.job
    async def point() -> Point:
        return Point(0)

    async def story() -> None:
        job = await point.enqueue()
        server.script = [Life(record("completed", result={"x": 1}))]
        assert (await job.wait()).result == Point(1, 0)
        server.script = [Life(record("completed", result="x"))]
        with pytest.raises(SerializationError):
            _ = (await job.refresh()).result

    run(story())


@pytest.mark.parametrize("state", ["discarded", "cancelled"])
def test_a_job_that_did_not_complete_raises_what_it_said(state: str) -> None:
    error = {"code": "handler_error", "type": "KeyError", "message": "no such key"}
    ended = record(state, error=error, attempt=3)
    hg, _ = client(FakeServer(Life(record("active"), ended)))

    async def story() -> None:
        job = await (await hg.job_by_id("j")).wait()
        with pytest.raises(ExecutionError, match="no such key") as raised:
            _ = job.result
        assert (raised.value.code, raised.value.attempt) == ("handler_error", 3)
        assert raised.value.details == error

    run(story())


def test_wait_gives_up_after_its_time() -> None:
    server = FakeServer(Life(record("active"), waits=404))
    hg, clock = client(server)

    async def story() -> None:
        job = await hg.job_by_id("j")
        with pytest.raises(OjsTimeoutError, match="not ended within 3 s"):
            await job.wait(timeout=3)
        assert sum(clock.slept) == 3

    run(story())


@pytest.mark.parametrize("status", [404, 405, 400, 410])
def test_without_waiting_at_the_server_it_looks_again(status: int) -> None:
    life = Life(record("active"), record("active"), record("completed", result=1), waits=status)
    hg, clock = client(FakeServer(life))

    async def story() -> None:
        assert (await (await hg.job_by_id("j")).wait(timeout=60)).result == 1
        assert clock.slept == [1]

    run(story())


def test_a_wait_that_the_server_ends_is_taken_up_again() -> None:
    life = Life(record("active"), record("active"), record("completed"), waits=408)
    server = FakeServer(life)
    hg, clock = client(server)

    async def story() -> None:
        await (await hg.job_by_id("j")).wait(timeout=100)
        assert len(server.asked) == 5
        assert clock.slept == []

    run(story())


def test_a_server_that_restarts_does_not_end_the_wait() -> None:
    server = FakeServer(
        answer(200, {"job": record("active")}), cut(), cut(), Life(record("completed", result=5))
    )
    hg, _ = client(server)

    async def story() -> None:
        assert (await (await hg.job_by_id("j")).wait(timeout=100)).result == 5

    run(story())


def test_a_buffered_job_can_be_waited_for() -> None:
    def reply(asked: Asked) -> Any:
        if asked.method == "POST":
            return accepted(asked)
        return Life(record("completed", result=7))(asked)

    server = FakeServer(cut(), cut(), refused(404, "not_found"), reply)
    hg, _ = client(server, buffer=MemoryBuffer())

    async def story() -> None:
        job = await hg.enqueue("a.b")
        assert job.state == "buffered"
        assert (await job.wait(timeout=100)).result == 7

    run(story())


def test_changes_are_sent_once() -> None:
    server = FakeServer(Life(record("active")), cut())
    hg, _ = client(server)

    async def story() -> None:
        job = await hg.job_by_id("j")
        with pytest.raises(ConnectionError):
            await job.cancel()
        assert len(server.asked) == 2

    run(story())


@pytest.mark.parametrize(
    ("verb", "method", "path"),
    [("cancel", "DELETE", "/jobs/j"), ("retry", "POST", "/admin/jobs/j/retry"),
     ("activate", "POST", "/jobs/j/activate")],
)  # fmt: skip
def test_changes_show_in_the_record(verb: str, method: str, path: str) -> None:
    server = FakeServer(Life(record("active")), answer(200, {"job": record("changed")}))
    hg, _ = client(server)

    async def story() -> None:
        job = await hg.job_by_id("j")
        assert (await getattr(job, verb)()).state == "changed"
        assert (server.asked[1].method, server.asked[1].path) == (method, path)

    run(story())


def test_errors_name_what_they_are_about() -> None:
    hg, _ = client(FakeServer(refused(404, "not_found", hint="look elsewhere", request_id="r")))

    async def story() -> None:
        with pytest.raises(JobNotFoundError) as raised:
            await hg.job_by_id("a/b")
        error = raised.value
        assert (error.job_id, error.operation, error.code) == ("a/b", "get_job", "not_found")
        assert (error.catalogue, error.hint, error.retryable) == (
            "OJS-3000",
            "look elsewhere",
            False,
        )

    run(story())


def test_what_is_looked_after_is_asked_for_by_its_name() -> None:
    server = FakeServer(answer(200, {"stats": {}, "queues": [], "items": []}))
    hg, clock = client(server)

    async def story() -> None:
        queue = hg.queue("a.b")
        await queue.stats()
        await queue.configure(max_depth=5)
        await queue.pause()
        await queue.resume()
        await queue.drain()
        await queue.delete("move", to="c")
        await hg.limits["k:1"].override(concurrency=None, rate="5/s", lasting="1m")
        await hg.limits["k:1"].release()
        await hg.pools["p"].set(["a"], weights={"a": 1})
        await hg.pools["p"].delete()
        await hg.pools.all()
        await hg.explain("j")

    run(story())
    assert [(one.method, one.path, one.body) for one in server.asked] == [
        ("GET", "/queues/a.b/stats", None),
        ("PUT", "/queues/a.b/config", {"backpressure": {"max_depth": 5}}),
        ("POST", "/queues/a.b/pause", {}),
        ("POST", "/queues/a.b/resume", {}),
        ("POST", "/queues/a.b/drain", {}),
        ("DELETE", "/queues/a.b", {"strategy": "move", "target_queue": "c"}),
        ("PUT", "/rate-limits/k%3A1", {"concurrency": None, "rate": {"limit": 5, "period": "PT1S"},
                                       "expires_at": "2027-01-15T08:01:00.000Z"}),
        ("DELETE", "/rate-limits/k%3A1", None),
        ("PUT", "/admin/pools/p", {"queues": ["a"], "weights": {"a": 1}}),
        ("DELETE", "/admin/pools/p", None),
        ("GET", "/admin/pools", None),
        ("GET", "/jobs/j/explain", None),
    ]  # fmt: skip
    assert clock.slept == []


def test_the_jobs_of_a_key_come_page_by_page() -> None:
    def reply(asked: Asked) -> Any:
        first = "page=1&" in asked.path
        jobs = [record("active", id=f"{n}") for n in range(100 if first else 20)]
        return answer(
            200,
            {"allowed": jobs, "rate_limited": [record("available")], "pagination": {"total": 120}},
        )

    hg, _ = client(FakeServer(reply))

    async def story() -> None:
        assert len(await hg.limits["k"].allowed) == 120
        assert [job.state for job in await hg.limits["k"].rate_limited] == ["available"] * 2

    run(story())


@pytest.mark.parametrize(
    ("error", "kind", "catalogue"),
    [({"code": "conflict"}, ConflictError, "OJS-1005"),
     ({"code": "INVALID_STATE_TRANSITION", "id": "OJS-1005"}, ConflictError, "OJS-1005"),
     ({"code": "x_own", "id": "OJS-3002"}, ConflictError, "OJS-3002"),
     ({"code": "QUEUE_NOT_FOUND"}, NotFoundError, "OJS-1002")],
)  # fmt: skip
def test_both_vocabularies_and_the_numbers_are_understood(
    error: dict[str, Any], kind: type[OjsError], catalogue: str
) -> None:
    hg, _ = client(FakeServer(answer(418, {"error": error})))
    with pytest.raises(kind) as raised:
        run(hg.job_by_id("j"))
    assert raised.value.catalogue == catalogue


def test_the_side_that_blocks_does_the_same() -> None:
    server = FakeServer(accepted)
    hg = Headgate(transport=server, clock=FakeClock())

    @hg.job
    def double(n: int) -> int:
        return 2 * n

    job = double.enqueue(4)
    server.script = [Life(record("active"), record("completed", result=8))]
    assert job.wait(timeout=5).result == 8
    assert hg.queue("q").info() == {"job": record("completed", result=8)}
    with hg:
        pass
    assert server.closed == 1


def test_blocking_where_it_would_wait_for_itself_is_refused() -> None:
    server = FakeServer(accepted)
    hg = Headgate(transport=server, clock=FakeClock())

    async def around(draft: Any, following: Any) -> Any:
        hg.enqueue("b.c")
        return await following(draft)

    hg.middleware.add(around)
    with pytest.raises(RuntimeError, match="wait for itself"):
        hg.enqueue("a.b")
