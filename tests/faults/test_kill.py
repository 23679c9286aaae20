"""A server that is killed again and again forgets nothing that it answered and repeats nothing.

The seed is random; `HEADGATE_KILL_SEED` repeats a run's decisions (not its timing, which is the operating system's).
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.faults.client import Address, Connection
from tests.faults.ledger import Ledger
from tests.faults.load import LOOSE, QUEUES, VISIBILITY_MS, Load, wall_ms
from tests.faults.serve import POINTS
from tests.faults.server import FAULTY, PRODUCT, Server

KILLS = 44
KILLS_AT_POINT = 4
LOOKERS = 8


@pytest.fixture
def random() -> Random:
    seed = int(os.environ.get("HEADGATE_KILL_SEED", Random().randrange(1 << 32)))
    print(f"HEADGATE_KILL_SEED={seed}")
    return Random(seed)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "killed.db")
    yield server
    server.kill()


@pytest.mark.timeout(300)
def test_killed_at_any_moment(server: Server, random: Random) -> None:
    ledger = Ledger()
    answers = unanswered = 0
    for number in range(KILLS):
        if number % 6 == 5:
            _kill_while_it_starts(server, random)
        entry, more = random.choice(
            ((PRODUCT, ()), (FAULTY, ("--fold", "idle")), (FAULTY, ("--fold", "busy")))
        )
        server.start(*more, entry=entry)
        asyncio.run(_verify(server.address, ledger))
        load = Load(ledger, random)
        asyncio.run(_load_until_killed(server, load, random.uniform(0.05, 0.6)))
        answers += load.answers
        unanswered += load.unanswered
    _finish(server, ledger)
    assert answers > 50 * KILLS, "hardly anything was asked of the server"
    assert unanswered > KILLS, "it was killed when nothing went on"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("point", POINTS)
def test_killed_inside(point: str, server: Server, random: Random) -> None:
    ledger = Ledger()
    for _ in range(KILLS_AT_POINT):
        nth = random.randrange(1, 60)
        fold = "busy" if point == "inside commit" else random.choice(("idle", "busy"))
        server.start("--fold", fold, "--die-at", point, "--die-nth", str(nth), entry=FAULTY)
        asyncio.run(_verify_and_load(server, ledger, Load(ledger, random)))
        assert server.wait(10) == -9, server.errors
    _finish(server, ledger)


def _kill_while_it_starts(server: Server, random: Random) -> None:
    server.launch()
    time.sleep(random.uniform(0.0, 0.6))
    server.kill()


async def _load_until_killed(server: Server, load: Load, after_s: float) -> None:
    running = asyncio.create_task(load.run(server.address))
    await asyncio.wait({running}, timeout=after_s)
    assert running.done() or server.running, server.errors
    server.kill()
    await running


async def _verify_and_load(server: Server, ledger: Ledger, load: Load) -> None:
    """It kills itself as soon as the load has brought it to its point."""
    await _verify(server.address, ledger)
    async with asyncio.timeout(20):
        await load.run(server.address)


async def _verify(address: Address, ledger: Ledger) -> None:
    """Look at everything that may have changed."""
    jobs = iter(ledger.unsettled())

    async def look() -> None:
        async with Connection.open(address) as connection:
            for job in jobs:
                reply = await connection.request("GET", f"/ojs/v1/jobs/{job.id}")
                assert reply.status in (200, 404), reply
                record = reply.json["job"] if reply.status == 200 else None
                job.seen(record, wall_ms(), ledger.fetching)

    async with asyncio.TaskGroup() as group:
        for _ in range(LOOKERS):
            group.create_task(look())
    ledger.settled()


def _finish(server: Server, ledger: Ledger) -> None:
    """Whatever is alive can be worked off; then everything is compared with everything."""
    server.start()
    asyncio.run(_verify(server.address, ledger))
    asyncio.run(_work_off(server.address, ledger))
    asyncio.run(_compare(server.address, ledger))
    assert server.stop() == 0, server.errors
    with sqlite3.connect(server.store.removeprefix("sqlite:///")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    database.close()


async def _work_off(address: Address, ledger: Ledger) -> None:
    """Unanswered fetches give their jobs back, retries and schedules fall due."""
    until = time.monotonic() + 15
    lease_ms = 20 * VISIBILITY_MS
    wish = {"queues": list(QUEUES), "count": 200, "wait_ms": 200, "worker_id": "last"}
    async with Connection.open(address) as connection:
        while ledger.going_on():
            waiting = [job.id for job in ledger.going_on()]
            assert time.monotonic() < until, f"never came: {waiting}"
            reply = await connection.post(
                "/workers/fetch", {**wish, "visibility_timeout_ms": lease_ms}
            )
            for record in reply.json["jobs"]:
                job = ledger.jobs[record["id"]]
                claim = job.fetched(record, "last", lease_ms)
                claim.given_back = True
                ack = {"job_id": job.id, "claim": claim.number}
                assert (await connection.post("/workers/ack", ack)).status == 200
                job.ended("completed")


async def _compare(address: Address, ledger: Ledger) -> None:
    async with Connection.open(address) as connection:
        records = [record async for record in _records(connection)]
        ledger.compare(records, wall_ms())
        for queue in (*QUEUES, LOOSE):
            reply = await connection.request("GET", f"/ojs/v1/queues/{queue}/stats")
            states = [record["state"] for record in records if record["queue"] == queue]
            assert reply.status == 200 or (reply.status == 404 and not states)
            if states:
                counts = reply.json["queue"].items()
                shown = {state: n for state, n in counts if type(n) is int and n}
                assert shown == Counter(states), queue


async def _records(connection: Connection) -> AsyncIterator[dict[str, Any]]:
    page = 1
    while True:
        path = f"/ojs/v1/admin/jobs?per_page=100&page={page}&sort=created_at&order=asc"
        reply = await connection.request("GET", path)
        assert reply.status == 200, reply
        for record in reply.json["items"]:
            yield record
        if page * 100 >= reply.json["pagination"]["total"]:
            return
        page += 1
