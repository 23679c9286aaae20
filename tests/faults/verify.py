"""Compares a server with what its clients know."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from tests.faults.client import Address, Connection
from tests.faults.ledger import Ledger
from tests.faults.load import LOOSE, QUEUES, VISIBILITY_MS, wall_ms

LOOKERS = 8


async def verify(address: Address, ledger: Ledger) -> None:
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


async def work_off(address: Address, ledger: Ledger) -> None:
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


async def compare(address: Address, ledger: Ledger) -> None:
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
