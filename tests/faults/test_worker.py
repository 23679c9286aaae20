"""Workers, servers and networks that fail under load: every job runs, none is lost, none is made twice."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headgate import AsyncHeadgate, DiskBuffer, Headgate, Waits, Worker
from headgate.client.transport.http import HttpTransport
from tests.faults.client import call
from tests.faults.proxy import Proxy
from tests.faults.server import Server, until
from tests.faults.working import CONCURRENCY, KINDS, declare, marked

ROOT = Path(__file__).parents[2]
PATIENT = Waits(tries=200, cap_s=0.2)
OPTIONS: dict[str, Any] = {
    "visibility_timeout": 1,
    "retry": {"max_attempts": 100, "initial_interval": "PT0.1S", "jitter": False,
              "backoff_coefficient": 1.0},
}  # fmt: skip
EXCHANGES = pytest.mark.parametrize("exchange", ["exchange", "standard"])


def url_of(server: Server) -> str:
    host, port = server.address
    return f"http://{host}:{port}"


def worker_process(url: str, marks: Path, exchange: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.working", url, str(marks), exchange],
        cwd=ROOT, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


@contextmanager
def ending(workers: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Nobody outlives the test."""
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def counts(server: Server) -> dict[str, int]:
    stats = call(server.address, "GET", "/ojs/v1/queues/default/stats").json["stats"]
    return {
        state: stats[state]
        for state in ("available", "active", "retryable", "completed", "discarded")
    }


def all_done(server: Server, jobs: int) -> bool:
    found = counts(server)
    assert found["discarded"] == 0
    return found["completed"] == jobs


def wait_for_runs(marks: Path, goal: int) -> None:
    until(lambda: len(marked(marks)) >= goal, 60, "work goes on")


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or ") Z " not in status.read_text()


@EXCHANGES
def test_workers_that_are_killed_lose_nothing(tmp_path: Path, exchange: str) -> None:
    jobs, kills, marks = 900, 3, tmp_path / "marks"
    workers: list[subprocess.Popen[bytes]] = []
    with Server("memory:") as server, ending(workers), Headgate(url_of(server)) as hg:
        hg.enqueue_batch(
            {"type": KINDS[n % 3], "args": [str(marks), n], **OPTIONS} for n in range(jobs)
        )
        workers += [worker_process(url_of(server), marks, exchange) for _ in range(2)]
        for kill in range(kills):
            goal = (kill + 1) * jobs // (kills + 2)
            wait_for_runs(marks, goal)
            victim = workers.pop(0)
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            workers.append(worker_process(url_of(server), marks, exchange))
        until(lambda: all_done(server, jobs), 60, "all jobs end")
        runs = Counter(n for n, _ in marked(marks))
        assert set(runs) == set(range(jobs))
        # Only what a killed worker had run and not yet answered for runs again.
        assert sum(runs.values()) - jobs <= kills * 2 * CONCURRENCY
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(20) == 0
        pids = {pid for _, pid in marked(marks)}
        until(lambda: not any(map(lives, pids)), 20, "children go with their workers")


@EXCHANGES
def test_a_server_that_is_killed_and_restarted_loses_and_doubles_nothing(
    tmp_path: Path, exchange: str
) -> None:
    marks = tmp_path / "marks"
    workers: list[subprocess.Popen[bytes]] = []
    with Server(tmp_path / "store.db") as server, ending(workers):
        url, port = url_of(server), server.address[1]
        workers.append(worker_process(url, marks, exchange))
        made: list[str] = []

        async def produce(hg: AsyncHeadgate, kind: str) -> None:
            while not enough.is_set():
                n = len(made)
                made.append("")
                job = await hg.enqueue(kind, str(marks), n, **OPTIONS)
                made[n] = job.id

        enough = asyncio.Event()

        async def story() -> None:
            hg = AsyncHeadgate(transport=HttpTransport(url), retry=PATIENT)
            async with hg, asyncio.TaskGroup() as group:
                for kind in KINDS:
                    group.create_task(produce(hg, kind))
                for restart in range(3):
                    goal = (restart + 1) * 150
                    await asyncio.to_thread(wait_for_runs, marks, goal)
                    server.signal(signal.SIGKILL)
                    await asyncio.to_thread(server.wait)
                    await asyncio.to_thread(server.start, "--port", str(port))
                enough.set()

        asyncio.run(story())
        until(lambda: all_done(server, len(made)), 60, "all jobs end")
        assert len(set(made)) == len(made)
        assert {n for n, _ in marked(marks)} == set(range(len(made)))
        assert sum(counts(server).values()) == len(made)


@EXCHANGES
def test_a_network_that_drops_delays_and_truncates_loses_and_doubles_nothing(
    tmp_path: Path, exchange: str
) -> None:
    jobs, marks = 400, tmp_path / "marks"

    async def story(server: Server) -> Proxy:
        proxy = Proxy(*server.address, Random(7), 0.1)
        async with proxy.listening() as url:
            hg = AsyncHeadgate(transport=HttpTransport(url), retry=PATIENT, timeout=2)
            declare(hg)
            worker = Worker(
                hg, concurrency=CONCURRENCY, exchange=exchange == "exchange", queues=["default"],
                heartbeat=0.2, wait=0.3, poll=0.05,
            )  # fmt: skip
            await worker.start()
            async with hg, asyncio.timeout(90):
                for n in range(0, jobs, 8):
                    single = (
                        hg.enqueue("coroutine", str(marks), m, **OPTIONS) for m in range(n, n + 4)
                    )
                    await asyncio.gather(*single)
                    await hg.enqueue_batch(
                        {"type": "thread", "args": [str(marks), m], **OPTIONS}
                        for m in range(n + 4, n + 8)
                    )
                await asyncio.to_thread(until, lambda: all_done(server, jobs), 60, "all jobs end")
                await worker.stop()
        return proxy

    with Server("memory:") as server:
        proxy = asyncio.run(story(server))
        assert min(proxy.dropped, proxy.lost, proxy.truncated, proxy.delayed) > 0
        assert {n for n, _ in marked(marks)} == set(range(jobs))
        assert sum(counts(server).values()) == jobs


BUFFERING = """
import sys
from headgate import DiskBuffer, Headgate
hg = Headgate("http://127.0.0.1:1", buffer=DiskBuffer(sys.argv[1]))
while True:
    print(hg.enqueue("a.b", "x").id, flush=True)
"""


def test_a_disk_buffer_survives_the_kill_of_its_process(tmp_path: Path) -> None:
    path = tmp_path / "buffer.db"
    producer = subprocess.Popen(
        [sys.executable, "-c", BUFFERING, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert producer.stdout is not None
    with ending([]):
        told = [producer.stdout.readline().strip() for _ in range(50)]
        producer.send_signal(signal.SIGKILL)
        told += producer.stdout.read().split()
        producer.wait()
        producer.stdout.close()
    told = [line for line in told if len(line) == 36]
    assert len(told) >= 50
    with Server("memory:") as server:
        buffer = DiskBuffer(path)
        kept = len(buffer)
        hg = Headgate(url_of(server), buffer=buffer)
        hg.flush(timeout=20)
        there = {job.id for job in hg.admin.list_jobs(queue="default", most=None)}
        hg.close()
    assert set(told) <= there
    # The last one may have been kept without its id having been told.
    assert len(there) == kept
    assert kept - len(told) <= 1
