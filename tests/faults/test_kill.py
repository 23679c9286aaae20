"""A server that is killed again and again forgets nothing that it answered and repeats nothing.

The seed is random; `HEADGATE_KILL_SEED` repeats a run's decisions (not its timing, which is the operating system's).
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.faults.client import NoAnswer
from tests.faults.ledger import Ledger
from tests.faults.load import Load
from tests.faults.serve import POINTS
from tests.faults.server import FAULTY, PRODUCT, Server
from tests.faults.verify import compare, verify, work_off

KILLS = 50
"""Under load; more while it starts."""
KILLS_AT_POINT = 4


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
        server.entry, more = random.choice(
            ((PRODUCT, ()), (FAULTY, ("--fold", "idle")), (FAULTY, ("--fold", "busy")))
        )
        server.start(*more)
        asyncio.run(verify(server.address, ledger))
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
        server.entry = FAULTY
        server.start("--fold", fold, "--die-at", point, "--die-nth", str(nth))
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
    """It kills itself as soon as the load, or what it does by itself at its start, has brought it to its point."""
    died = False
    try:
        await verify(server.address, ledger)
    except* NoAnswer:
        died = True
    if died:
        return
    async with asyncio.timeout(20):
        await load.run(server.address)


def _finish(server: Server, ledger: Ledger) -> None:
    """Whatever is alive can be worked off; then everything is compared with everything."""
    server.entry = PRODUCT
    server.start()
    asyncio.run(verify(server.address, ledger))
    asyncio.run(work_off(server.address, ledger))
    asyncio.run(compare(server.address, ledger))
    assert server.stop() == 0, server.errors
    with sqlite3.connect(server.store.removeprefix("sqlite:///")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    database.close()
