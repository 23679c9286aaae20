"""Many clients at once, over HTTP, against a real server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.faults.client import Address, Connection, Reply, call
from tests.faults.server import Server, until

T = TypeVar("T")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    path: Path = tmp_path_factory.mktemp("store") / "busy.db"
    with Server(path) as server:
        yield server.address


@contextlib.asynccontextmanager
async def connections(address: Address, count: int) -> AsyncIterator[list[Connection]]:
    async with contextlib.AsyncExitStack() as stack:
        opening = [Connection.open(address) for _ in range(count)]
        yield [await stack.enter_async_context(each) for each in opening]


async def together(
    step: Callable[[Connection], Coroutine[Any, Any, T]], address: Address, count: int
) -> list[T]:
    """The step on so many connections at the same time."""
    async with connections(address, count) as opened:
        return await asyncio.gather(*map(step, opened))


def fetch(queue: str, **more: Any) -> dict[str, Any]:
    return {"queues": [queue], **more}


def job(queue: str, *args: Any, **options: Any) -> dict[str, Any]:
    return {"type": "busy.test", "args": list(args), "options": {"queue": queue, **options}}


def test_no_job_is_given_out_twice_and_none_is_forgotten(address: Address) -> None:
    jobs, fetchers = 2_000, 32
    for start in range(0, jobs, 500):
        batch = {"jobs": [job("crowd", start + n) for n in range(500)]}
        assert call(address, "POST", "/ojs/v1/jobs/batch", batch).status == 201

    async def work(connection: Connection) -> list[int]:
        taken: list[int] = []
        while True:
            reply = await connection.post("/workers/fetch", fetch("crowd", count=7))
            found = reply.json["jobs"]
            if not found:
                return taken
            taken += [record["args"][0] for record in found]

    shares = asyncio.run(together(work, address, fetchers))
    assert sorted(number for share in shares for number in share) == list(range(jobs))
    assert sum(map(bool, shares)) > fetchers // 2, "they did not work side by side"


@pytest.mark.parametrize(("on_conflict", "loser"), [("reject", 409), ("ignore", 200)])
def test_one_of_many_equal_jobs_wins(on_conflict: str, loser: int, address: Address) -> None:
    unique = {"keys": ["type", "queue", "args"], "on_conflict": on_conflict}
    wish = job(f"unique-{on_conflict}", "same", unique=unique)

    async def push(connection: Connection) -> Reply:
        return await connection.post("/jobs", wish)

    replies = asyncio.run(together(push, address, 16))
    assert sorted(reply.status for reply in replies) == sorted([201, *[loser] * 15])
    winner = next(reply.json["job"]["id"] for reply in replies if reply.status == 201)
    for reply in replies:
        if reply.status == 200:
            assert reply.json["job"]["id"] == winner
        elif reply.status == 409:
            assert reply.json["error"]["details"]["existing_job_id"] == winner
    left = call(address, "POST", "/ojs/v1/workers/fetch", fetch(wish["options"]["queue"], count=99))
    assert [record["id"] for record in left.json["jobs"]] == [winner]


def test_everybody_who_waits_is_served(address: Address) -> None:
    count = 100

    async def wait(connection: Connection) -> int:
        reply = await connection.post("/workers/fetch", fetch("waiting", wait_ms=20_000))
        (record,) = reply.json["jobs"]
        return int(record["args"][0])

    async def run() -> list[int]:
        async with connections(address, count) as producers:
            waiting = asyncio.create_task(together(wait, address, count))
            for number, producer in enumerate(producers):
                producer.send("POST", "/ojs/v1/jobs", job("waiting", number))
                if number % 10 == 0:
                    await asyncio.sleep(0.01)
            for producer in producers:
                assert (await producer.receive()).status == 201
            async with asyncio.timeout(10):
                return await waiting

    assert sorted(asyncio.run(run())) == list(range(count))


def test_who_leaves_while_waiting_claims_nothing(address: Address) -> None:
    async def run() -> None:
        async with connections(address, 20) as leaving:
            for connection in leaving:
                connection.send("POST", "/ojs/v1/workers/fetch", fetch("left", wait_ms=20_000))
            await asyncio.sleep(0.2)

    asyncio.run(run())
    # The server is told of the departures before it is told of the job: one loop, one order.
    assert call(address, "POST", "/ojs/v1/jobs", job("left")).status == 201
    found = call(address, "POST", "/ojs/v1/workers/fetch", fetch("left"))
    (record,) = found.json["jobs"]
    assert record["attempt"] == 1


def test_a_claim_that_could_not_be_delivered_comes_back(address: Address) -> None:
    wish = job("undelivered", "once")
    pushed = call(address, "POST", "/ojs/v1/jobs", wish).json["job"]["id"]

    async def run() -> None:
        async with Connection.open(address) as connection:
            body = fetch("undelivered", worker_id="gone", visibility_timeout_ms=400)
            connection.send("POST", "/ojs/v1/workers/fetch", body)

    asyncio.run(run())
    path = f"/ojs/v1/jobs/{pushed}"

    def state() -> str:
        return str(call(address, "GET", path).json["job"]["state"])

    until(lambda: state() == "active", 2, "the fetch is carried out")
    assert call(address, "POST", "/ojs/v1/workers/fetch", fetch("undelivered")).json["jobs"] == []
    until(lambda: state() == "available", 3, "the job comes back")
    (record,) = call(address, "POST", "/ojs/v1/workers/fetch", fetch("undelivered")).json["jobs"]
    assert (record["id"], record["attempt"], record["claim"]) == (pushed, 2, 2)
    late = {"job_id": pushed, "worker_id": "gone", "claim": 1}
    assert call(address, "POST", "/ojs/v1/workers/ack", late).status == 409


def test_an_ack_and_a_cancel_at_once_agree_on_one_end(address: Address) -> None:
    count = 30
    batch = {"jobs": [job("race", n) for n in range(count)]}
    assert call(address, "POST", "/ojs/v1/jobs/batch", batch).status == 201
    found = call(address, "POST", "/ojs/v1/workers/fetch", fetch("race", count=count))
    ids = [record["id"] for record in found.json["jobs"]]

    async def run() -> None:
        async with connections(address, 2) as (worker, operator):
            for number, job_id in enumerate(ids):
                asks = [(worker, "POST", "/ojs/v1/workers/ack", {"job_id": job_id})]
                asks.insert(number % 2, (operator, "DELETE", f"/ojs/v1/jobs/{job_id}", {}))
                for connection, method, path, body in asks:
                    connection.send(method, path, body)
                acked, cancelled = await worker.receive(), await operator.receive()
                assert sorted((acked.status, cancelled.status)) == [200, 409]
                look = await worker.request("GET", f"/ojs/v1/jobs/{job_id}")
                end = "completed" if acked.status == 200 else "cancelled"
                assert look.json["job"]["state"] == end

    asyncio.run(run())
