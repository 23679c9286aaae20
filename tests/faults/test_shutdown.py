"""A server that is told to stop while much goes on."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from random import Random

from tests.faults.client import Connection, Reply
from tests.faults.ledger import Ledger
from tests.faults.load import Load
from tests.faults.server import Server
from tests.faults.verify import verify, work_off

PROMPT_S = 3.0
WAITING = 40


def test_stopping_under_load_loses_no_answer(tmp_path: Path) -> None:
    ledger = Ledger()
    random = Random(5)
    server = Server(tmp_path / "stopped.db")
    for _ in range(4):
        with server:
            asyncio.run(verify(server.address, ledger))
            load = Load(ledger, random)
            begun = asyncio.run(_stop_under_load(server, load))
            assert server.wait(PROMPT_S) == 0, server.errors
            assert time.monotonic() - begun < PROMPT_S
            assert "Traceback" not in server.errors
            assert load.answers > 50
    with server:
        asyncio.run(verify(server.address, ledger))
        asyncio.run(work_off(server.address, ledger))


async def _stop_under_load(server: Server, load: Load) -> float:
    running = asyncio.create_task(load.run(server.address))
    await asyncio.sleep(0.4)
    begun = time.monotonic()
    server.signal(signal.SIGTERM)
    await running
    return begun


def test_waiting_fetches_return_empty(tmp_path: Path) -> None:
    with Server(tmp_path / "stopped.db") as server:
        replies, took_s = asyncio.run(_wait_and_stop(server))
        assert all(reply.status == 200 and reply.json == {"jobs": []} for reply in replies)
        assert len(replies) == WAITING
        assert took_s < PROMPT_S
        assert server.wait(PROMPT_S) == 0


async def _wait_and_stop(server: Server) -> tuple[list[Reply], float]:
    async def fetch(waiting: asyncio.Semaphore) -> Reply:
        async with Connection.open(server.address) as connection:
            connection.send("POST", "/ojs/v1/workers/fetch", {"queues": ["q"], "wait_ms": 30_000})
            waiting.release()
            return await connection.receive()

    waiting = asyncio.Semaphore(0)
    fetches = [asyncio.create_task(fetch(waiting)) for _ in range(WAITING)]
    for _ in fetches:
        await waiting.acquire()
    # Whoever was not read yet is answered as well, but then nothing is tested.
    await asyncio.sleep(0.3)
    begun = time.monotonic()
    server.signal(signal.SIGTERM)
    replies = await asyncio.gather(*fetches)
    return replies, time.monotonic() - begun
