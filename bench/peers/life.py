"""What one round says of a peer: latency on an idle system, enqueues, and all of them worked off."""

from __future__ import annotations

import time
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from bench.peers.actors import Actor, waited
from bench.peers.role import STAMP_BYTES
from bench.peers.stage import Ready, Stage, stage
from bench.processes import Failed
from bench.sizes import Size

_FIRST_S = 30.0
"""Until the first job must have run."""
_GAP_S = 0.1
"""Between two jobs whose latency is measured, so that each meets an idle system."""
_WARM_SHARE = 0.1
"""Of the jobs, which do not count because connections, threads and caches are made meanwhile."""


class Found(Struct):
    """What one round says of a peer."""

    worked: float
    """Jobs a second."""
    worker_us: float
    store_us: float
    """CPU time for each job."""
    single: float
    batch: float
    latency_ms: float


def life(one: Ready, configuration: str, directory: Path, size: Size) -> Found:
    """Latency on an idle system first, then all that was enqueued meanwhile is worked off; each with an empty store."""
    with (
        stage(one, configuration, directory) as there,
        there.producer() as producer,
        there.worker() as worker,
    ):
        took_ms = latency_ms(there, producer, worker, max(3, size.wakes // 15))
    with stage(one, configuration, directory) as there, there.producer() as producer:
        single = producer.ask(do="single", seconds=size.load_s)
        batch = producer.ask(do="batch", seconds=size.load_s)
        count = single["count"] + batch["count"]
        with there.worker() as worker:
            worked, worker_us, store_us = work_off(there, worker, count, size)
    return Found(
        worked,
        worker_us,
        store_us,
        single["count"] / single["seconds"],
        batch["count"] / batch["seconds"] if batch["count"] else 0.0,
        took_ms,
    )


def latency_ms(there: Stage, producer: Actor, worker: Actor, times: int) -> float:
    """The median from the call that enqueues to the first line of the job."""
    took: list[float] = []
    for number in range(-1, times):
        begun = producer.ask(do="stamp")["begun"]
        until = (number + 2) * STAMP_BYTES
        for _ in waited(worker, _FIRST_S, "the job"):
            if there.stamps.stat().st_size >= until:
                break
        ran = int(there.stamps.read_bytes()[until - STAMP_BYTES : until])
        if number >= 0:  # the first one met a worker that had yet to start
            took.append((ran - begun) / 1e6)
        time.sleep(_GAP_S)
    return median(took)


def work_off(there: Stage, worker: Actor, count: int, size: Size) -> tuple[float, float, float]:
    """Jobs a second from when the worker is warm until none is left or the time is over, and CPU time for each: the worker's, the store's."""
    done = there.marks.stat
    for _ in waited(worker, _FIRST_S, "the first job"):
        if done().st_size:
            break
    warm_until = time.monotonic() + size.warm_s
    for _ in waited(worker, _FIRST_S, "the end of its start"):
        if done().st_size >= count * _WARM_SHARE or time.monotonic() > warm_until:
            break
    before, at = done().st_size, time.monotonic()
    worker_s, store_s = worker.cpu_s(), there.started.cpu_s()
    over = at + 2 * size.load_s
    for _ in waited(worker, 2 * size.load_s + _FIRST_S, "the last job"):
        if done().st_size >= count or time.monotonic() > over:
            break
    if done().st_size >= count and there.ready.peer.store == "headgate":
        # Where it can be seen, the last answers count too, to our own disadvantage.
        for _ in waited(worker, _FIRST_S, "the last answer"):
            if answered(there.started.address) >= count:
                break
    worked, seconds = done().st_size - before, time.monotonic() - at
    if not worked:
        raise Failed(f"no job ran in {seconds:.1f} s: {worker.said()}")
    return (
        worked / seconds,
        (worker.cpu_s() - worker_s) / worked * 1e6,
        (there.started.cpu_s() - store_s) / worked * 1e6,
    )


def answered(address: str) -> int:
    """How many jobs a Headgate server knows to be completed."""
    url = urlsplit(address)
    connection = HTTPConnection(url.hostname or "", url.port)
    try:
        connection.request("GET", "/ojs/v1/queues/default/stats")
        found = msgspec.json.decode(connection.getresponse().read())
        return int(found["stats"]["completed"])
    finally:
        connection.close()
