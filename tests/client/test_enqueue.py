"""What producers do when the server cannot take their jobs, or does not say whether it did."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from headgate import (
    AsyncHeadgate,
    Breaker,
    BufferFullError,
    CircuitOpenError,
    DiskBuffer,
    Draft,
    DuplicateJobError,
    Enqueued,
    MemoryBuffer,
    OjsConnectionError,
    QueueFullError,
    ValidationError,
    Waits,
)
from headgate.client.draft import EnqueueNext
from headgate.client.pressure.buffer import Kept
from tests.client.fakes import Asked, FakeClock, FakeServer, accepted, answer, cut, full, refused

T = TypeVar("T")


def run(step: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(step)


def client(server: FakeServer, clock: FakeClock, **more: Any) -> AsyncHeadgate:
    return AsyncHeadgate(transport=server, clock=clock, **more)


def ids(asked: Iterable[Asked]) -> list[str]:
    return [one.body["id"] for one in asked]


# waiting and sending again


def test_a_full_queue_is_asked_again_after_retry_after_and_then_twice_as_late() -> None:
    server, clock = FakeServer(full("3"), full("3"), full("1"), accepted), FakeClock()
    job = run(client(server, clock).enqueue("a.b"))
    assert clock.slept == [3, 6, 12]
    assert job.state == "available"
    assert len(set(ids(server.asked))) == 1


def test_without_retry_after_the_first_wait_is_a_second() -> None:
    server, clock = FakeServer(full(), full(), accepted), FakeClock()
    run(client(server, clock).enqueue("a.b"))
    assert clock.slept == [1, 2]


def test_no_wait_is_longer_than_the_cap() -> None:
    server, clock = FakeServer(full("20"), full(), full("500"), accepted), FakeClock()
    run(client(server, clock, retry=Waits(tries=9, cap_s=25)).enqueue("a.b"))
    assert clock.slept == [20, 25, 25]


def test_after_so_many_tries_the_refusal_is_raised() -> None:
    server, clock = FakeServer(full("2", depth=7, bound=7)), FakeClock()
    with pytest.raises(QueueFullError) as raised:
        run(client(server, clock, retry=Waits(tries=3), breaker=False).enqueue("a.b"))
    assert len(server.asked) == 3
    assert (raised.value.depth, raised.value.bound) == (7, 7)
    assert raised.value.retry_after_s == 2
    assert (raised.value.operation, raised.value.queue) == ("enqueue", "default")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422])
def test_what_cannot_get_better_is_raised_at_once(status: int) -> None:
    server, clock = FakeServer(refused(status, "x")), FakeClock()
    with pytest.raises(Exception, match="x"):
        run(client(server, clock).enqueue("a.b"))
    assert len(server.asked) == 1
    assert clock.slept == []


def test_failures_are_tried_again_soon_and_jittered() -> None:
    server = FakeServer(cut(), refused(503, "backend_unavailable"), cut(uncertain=False), accepted)
    clock = FakeClock()
    run(client(server, clock).enqueue("a.b"))
    assert len(clock.slept) == 3
    for n, slept in enumerate(clock.slept):
        assert 0.05 * 2**n <= slept <= 0.15 * 2**n


def test_a_server_that_stays_away_is_given_up() -> None:
    server, clock = FakeServer(cut(uncertain=False)), FakeClock()
    with pytest.raises(OjsConnectionError):
        run(client(server, clock).enqueue("a.b"))
    assert len(server.asked) == 5


# never twice


def taken(asked: Asked) -> Any:
    body = asked.body["jobs"][0] if "jobs" in asked.body else asked.body
    return refused(409, "duplicate", details={"existing_job_id": body["id"]})


@pytest.mark.parametrize("lost", [cut(), refused(500, "backend_error"), refused(502, "")])
def test_a_lost_answer_does_not_enqueue_twice(lost: Any) -> None:
    server = FakeServer(lost, taken)
    job = run(client(server, FakeClock()).enqueue("a.b", 1))
    assert ids(server.asked) == [job.id, job.id]
    assert job.state == "available"


def test_a_lost_answer_to_a_batch_does_not_enqueue_twice() -> None:
    server = FakeServer(cut(), taken)
    jobs = run(
        client(server, FakeClock()).enqueue_batch([{"type": "a.b", "args": [n]} for n in (1, 2)])
    )
    assert [job.record["args"] for job in jobs] == [[1], [2]]
    assert server.asked[0].body == server.asked[1].body


def test_an_id_that_was_there_before_is_a_duplicate() -> None:
    with pytest.raises(DuplicateJobError):
        run(client(FakeServer(taken), FakeClock()).enqueue("a.b"))


def test_a_unique_key_of_another_job_is_a_duplicate_even_after_a_lost_answer() -> None:
    other = refused(409, "duplicate", details={"existing_job_id": "another"})
    with pytest.raises(DuplicateJobError) as raised:
        run(client(FakeServer(cut(), other), FakeClock()).enqueue("a.b"))
    assert raised.value.existing_job_id == "another"


# batches


def test_a_batch_is_split_into_requests_of_a_size_that_servers_take() -> None:
    server = FakeServer(accepted)
    jobs = run(
        client(server, FakeClock()).enqueue_batch({"type": "a.b", "args": [n]} for n in range(1200))
    )
    assert [job.record["args"] for job in jobs] == [[n] for n in range(1200)]
    assert [len(asked.body["jobs"]) for asked in server.asked] == [500, 500, 200]


def test_large_jobs_are_split_by_bytes() -> None:
    server = FakeServer(accepted)
    large = {"type": "a.b", "args": ["x" * (1 << 20)]}
    run(client(server, FakeClock()).enqueue_batch([large] * 7))
    assert [len(asked.body["jobs"]) for asked in server.asked] == [3, 3, 1]


def test_a_refused_batch_says_how_many_jobs_were_taken_before() -> None:
    server = FakeServer(accepted, accepted, refused(422, "queue_paused"))
    with pytest.raises(Exception, match="queue_paused") as raised:
        run(
            client(server, FakeClock()).enqueue_batch(
                {"type": "a.b", "args": []} for _ in range(1500)
            )
        )
    assert getattr(raised.value, "extra", {}) == {"accepted": 1000}


def limited(most: int, status: int, code: str, **error: Any) -> Any:
    def reply(asked: Asked) -> Any:
        if len(asked.body.get("jobs", [1])) > most:
            return refused(status, code, **error)
        return accepted(asked)

    return reply


@pytest.mark.parametrize(
    "reply",
    [
        limited(100, 413, "BATCH_SIZE_EXCEEDED"),
        limited(100, 413, "envelope_too_large"),
        limited(100, 429, "QUEUE_FULL", queue="default", depth=0, bound=100),
    ],
)
def test_a_batch_larger_than_the_server_takes_at_once_is_split_further(reply: Any) -> None:
    server = FakeServer(reply)
    jobs = run(
        client(server, FakeClock()).enqueue_batch({"type": "a.b", "args": [n]} for n in range(300))
    )
    assert [job.record["args"] for job in jobs] == [[n] for n in range(300)]


# the breaker


def test_the_breaker_opens_after_five_refusals_and_lets_one_try_after_ten_seconds() -> None:
    server, clock = FakeServer(full("0")), FakeClock()
    hg = client(server, clock, retry=Waits(tries=1))

    async def story() -> None:
        for _ in range(5):
            with pytest.raises(QueueFullError):
                await hg.enqueue("a.b")
        with pytest.raises(CircuitOpenError) as raised:
            await hg.enqueue("a.b")
        assert raised.value.retry_after_s == 10
        assert len(server.asked) == 5
        clock.s += 9.9
        with pytest.raises(CircuitOpenError):
            await hg.enqueue("a.b")
        clock.s += 0.1
        with pytest.raises(QueueFullError):
            await hg.enqueue("a.b")
        with pytest.raises(CircuitOpenError):
            await hg.enqueue("a.b")
        assert len(server.asked) == 6
        server.script = [accepted]
        clock.s += 10
        await hg.enqueue("a.b")
        await hg.enqueue("a.b")
        assert len(server.asked) == 8

    run(story())


def test_another_queue_is_not_behind_the_same_breaker() -> None:
    def reply(asked: Asked) -> Any:
        return full("0", queue="a") if asked.body.get("queue") == "a" else accepted(asked)

    server, clock = FakeServer(reply), FakeClock()
    hg = client(server, clock, retry=Waits(tries=1), breaker=Breaker(after=2, cooldown_s=5))

    async def story() -> None:
        for _ in range(2):
            with pytest.raises(QueueFullError):
                await hg.enqueue("a.b", queue="a")
        with pytest.raises(CircuitOpenError):
            await hg.enqueue("a.b", queue="a")
        assert (await hg.enqueue("a.b", queue="b")).state == "available"

    run(story())


def test_only_one_request_tries_while_the_breaker_is_half_open() -> None:
    server, clock = FakeServer(full("0")), FakeClock()
    hg = client(server, clock, retry=Waits(tries=1), breaker=Breaker(after=1))

    async def story() -> None:
        with pytest.raises(QueueFullError):
            await hg.enqueue("a.b")
        clock.s += 10
        found = await asyncio.gather(*(hg.enqueue("a.b") for _ in range(4)), return_exceptions=True)
        assert [type(one) for one in found].count(CircuitOpenError) == 3
        assert len(server.asked) == 2

    run(story())


# the buffer

Make = Callable[..., MemoryBuffer | DiskBuffer]


@pytest.fixture(params=["memory", "disk"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    made: list[MemoryBuffer | DiskBuffer] = []

    def buffer(**more: Any) -> MemoryBuffer | DiskBuffer:
        if request.param == "memory":
            made.append(MemoryBuffer(**more))
        else:
            made.append(DiskBuffer(tmp_path / "buffer.db", **more))
        return made[-1]

    yield buffer
    for one in made:
        one.close()


async def drained_to(most: int, buffer: MemoryBuffer | DiskBuffer) -> None:
    for _ in range(5_000):
        if len(buffer) <= most:
            return
        await asyncio.sleep(0.001)
    raise AssertionError("the buffer is not drained")


def test_refused_jobs_are_kept_and_sent_when_there_is_room(make: Make) -> None:
    server, clock = FakeServer(full("2"), full("2"), full("2"), accepted), FakeClock()
    hg = client(server, clock, buffer=make())

    async def story() -> None:
        job = await hg.enqueue("a.b", 1)
        assert job.state == "buffered"
        await hg.flush(timeout=10)
        assert ids(server.asked) == [job.id] * 4
        assert clock.slept == [2, 4]

    run(story())


def test_kept_jobs_of_a_queue_go_in_their_order(make: Make) -> None:
    server, clock = FakeServer(cut()), FakeClock()
    hg = client(server, clock, buffer=make())

    async def story() -> None:
        jobs = [await hg.enqueue("a.b", n) for n in range(5)]
        server.script = [accepted]
        server.asked.clear()
        await hg.flush(timeout=10)
        sent = [one for asked in server.asked for one in asked.body.get("jobs", [asked.body])]
        assert [one["id"] for one in sent] == [job.id for job in jobs]

    run(story())


def test_a_full_queue_does_not_hold_up_the_others(make: Make) -> None:
    def reply(asked: Asked) -> Any:
        bodies = asked.body.get("jobs", [asked.body])
        stuck = any(body.get("queue") == "a" for body in bodies)
        return full("1", queue="a") if stuck else accepted(asked)

    server, clock = FakeServer(full("0")), FakeClock()
    buffer = make()
    hg = client(server, clock, buffer=buffer, breaker=False)

    async def story() -> None:
        await hg.enqueue("a.b", queue="a")
        await hg.enqueue("a.b", queue="b")
        server.script = [reply]
        await drained_to(1, buffer)
        assert [job.queue for job in buffer.first(9, 1 << 20, ())] == ["a"]
        assert len(buffer) == 1
        await hg.close(timeout=0.01)

    run(story())


def test_kept_jobs_fill_the_room_that_there_is(make: Make) -> None:
    room = 0

    def reply(asked: Asked) -> Any:
        nonlocal room
        jobs = asked.body.get("jobs", [asked.body])
        if len(jobs) > room:
            found = full("1", depth=10 - room, bound=10)
            room += 3
            return found
        room -= len(jobs)
        return accepted(asked)

    server, clock = FakeServer(reply), FakeClock()
    hg = client(server, clock, buffer=make(), breaker=False)

    async def story() -> None:
        for n in range(12):
            await hg.enqueue("a.b", n)
        await hg.flush(timeout=10)
        # Halving its way down from a hundred would have taken longer than a minute.
        assert sum(clock.slept) <= 4
        assert len(server.asked) <= 12 + 2 * 6

    run(story())


def test_a_full_buffer_refuses_and_keeps_nothing_of_what_does_not_fit(make: Make) -> None:
    buffer = make(max_jobs=3)
    hg = client(FakeServer(full("1")), FakeClock(), buffer=buffer, breaker=False)

    async def story() -> None:
        await hg.enqueue_batch([{"type": "a.b", "args": []}] * 2)
        with pytest.raises(BufferFullError) as raised:
            await hg.enqueue_batch([{"type": "a.b", "args": []}] * 2)
        assert isinstance(raised.value.__cause__, QueueFullError)
        assert len(buffer) == 2
        await hg.enqueue("a.b")
        assert len(buffer) == 3
        await hg.close(timeout=0.01)

    run(story())


def test_a_kept_job_that_did_arrive_is_not_sent_for_ever(make: Make) -> None:
    server = FakeServer(cut(), taken)
    buffer = make()
    hg = client(server, FakeClock(), buffer=buffer)

    async def story() -> None:
        await hg.enqueue("a.b")
        await hg.flush(timeout=10)
        assert len(buffer) == 0
        assert buffer.rejected() == []
        await hg.close()

    run(story())


def test_a_kept_job_that_the_server_never_takes_does_not_hold_up_the_rest(make: Make) -> None:
    def picky(asked: Asked) -> Any:
        for index, body in enumerate(asked.body.get("jobs", [asked.body])):
            if body["args"] == ["bad"]:
                return refused(400, "invalid_request", details={"index": index})
        return accepted(asked)

    server = FakeServer(cut())
    buffer = make()
    hg = client(server, FakeClock(), buffer=buffer)

    async def story() -> None:
        for what in ("good", "bad", "fine"):
            await hg.enqueue("a.b", what)
        server.script = [picky]
        await hg.flush(timeout=10)
        assert [(job.body.count(b"bad"), why) for job, why in buffer.rejected()] == [
            (1, "invalid_request")
        ]

    run(story())


def test_a_buffer_is_bounded_in_bytes_too(make: Make) -> None:
    buffer = make(max_bytes=100)
    assert buffer.put([Kept("a", "q", b"x" * 60)])
    assert not buffer.put([Kept("b", "q", b"x" * 60)])
    assert buffer.put([Kept("c", "q", b"x" * 40)])
    (first, second) = buffer.first(9, 1 << 20, ())
    assert (first.id, second.id) == ("a", "c")
    assert buffer.first(9, 70, ()) == [first]
    assert buffer.first(9, 1 << 20, {"q"}) == []
    buffer.remove([first])
    assert buffer.put([Kept("d", "q", b"x" * 60)])
    assert len(buffer) == 2


def test_what_an_earlier_process_left_on_disk_is_sent_without_being_asked_for(
    tmp_path: Path,
) -> None:
    first = DiskBuffer(tmp_path / "buffer.db")
    first.put([Kept("old", "q", b'{"id":"old","type":"a.b","args":[]}')])
    first.close()
    server = FakeServer(accepted)
    second = DiskBuffer(tmp_path / "buffer.db")
    hg = client(server, FakeClock(), buffer=second)

    async def story() -> None:
        await hg.enqueue("a.b")
        await drained_to(0, second)
        assert "old" in ids(server.asked)
        await hg.close()

    run(story())


def test_a_file_that_is_no_buffer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="cannot be used"):
        DiskBuffer(tmp_path)
    (tmp_path / "text").write_text("not a database, but long enough to be looked at" * 100)
    with pytest.raises(ValidationError, match="cannot be used"):
        DiskBuffer(tmp_path / "text")


# middleware


def test_middleware_may_change_drop_and_refuse_and_runs_in_order() -> None:
    seen: list[str] = []

    def named(name: str) -> Any:
        async def around(draft: Draft, following: EnqueueNext) -> Enqueued | None:
            seen.append(f"{name} before")
            draft.meta["by"] = [*draft.meta.get("by", []), name]
            done = await following(draft)
            seen.append(f"{name} after")
            return done

        return around

    async def dropping(draft: Draft, following: EnqueueNext) -> Enqueued | None:
        return None if draft.body["args"] == ["drop"] else await following(draft)

    server = FakeServer(accepted)
    hg = client(server, FakeClock(), middleware=[named("outer")])
    hg.middleware.add(named("inner"))
    hg.middleware.add(dropping)
    job = run(hg.enqueue("a.b"))
    assert job.record["meta"] == {"by": ["outer", "inner"]}
    assert seen == ["outer before", "inner before", "inner after", "outer after"]
    with pytest.raises(ValidationError, match="dropped"):
        run(hg.enqueue("a.b", "drop"))
    assert len(server.asked) == 1
    hg.middleware.remove(dropping)
    assert run(hg.enqueue("a.b", "drop")).state == "available"


def test_middleware_sees_each_job_of_a_batch_and_the_batch_stays_one() -> None:
    results: list[str] = []

    async def around(draft: Draft, following: EnqueueNext) -> Enqueued | None:
        if draft.body["args"] == [1]:
            return None
        draft.meta["n"] = draft.body["args"][0]
        done = await following(draft)
        results.append(done.record["state"] if done else "")
        return done

    server = FakeServer(accepted)
    hg = client(server, FakeClock(), middleware=[around])
    jobs = run(hg.enqueue_batch([{"type": "a.b", "args": [n]} for n in range(4)]))
    assert [job.record["meta"]["n"] for job in jobs] == [0, 2, 3]
    assert results == ["available"] * 3
    assert len(server.asked) == 1


def test_an_error_in_middleware_sends_nothing_of_the_batch() -> None:
    async def around(draft: Draft, following: EnqueueNext) -> Enqueued | None:
        if draft.body["args"] == [2]:
            raise LookupError("no such tenant")
        return await following(draft)

    server = FakeServer(accepted)
    hg = client(server, FakeClock(), middleware=[around])
    with pytest.raises(LookupError, match="no such tenant"):
        run(hg.enqueue_batch([{"type": "a.b", "args": [n]} for n in range(4)]))
    assert server.asked == []


def test_a_refused_batch_is_refused_in_every_middleware() -> None:
    met: list[str] = []

    async def around(draft: Draft, following: EnqueueNext) -> Enqueued | None:
        try:
            return await following(draft)
        except QueueFullError:
            met.append(draft.id)
            raise

    hg = client(
        FakeServer(full("1")), FakeClock(), middleware=[around], retry=Waits(tries=1), breaker=False
    )
    with pytest.raises(QueueFullError):
        run(hg.enqueue_batch([{"type": "a.b", "args": [n]} for n in range(3)]))
    assert len(met) == 3


# the rest of a request


def test_tenant_and_block_timeout_are_told() -> None:
    server = FakeServer(accepted)
    run(client(server, FakeClock(), tenant="acme", block=12).enqueue("a.b"))
    assert server.asked[0].headers == {"x-ojs-tenant": "acme", "ojs-block-timeout": "12"}


def test_pressure_and_deduplication_are_told() -> None:
    record = {"id": "x", "type": "a.b", "state": "active"}
    server = FakeServer(
        answer(200, {"job": record, "deduplicated": True}, **{"x-ojs-queue-pressure": "0.84"})
    )
    job = run(client(server, FakeClock()).enqueue("a.b"))
    assert (job.id, job.deduplicated, job.pressure) == ("x", True, 0.84)
