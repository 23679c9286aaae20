"""The rounds: every peer once in each, so that whatever else the machine does meets all of them alike."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import FrameType
from typing import NoReturn
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from bench.peers.actors import Actor, acting, waited
from bench.peers.environments import Environment, Unavailable, prepared
from bench.peers.known import PEERS, headgates
from bench.peers.peer import Peer
from bench.peers.role import STAMP_BYTES
from bench.peers.stores import FSYNC, STORES, Started, redis_server
from bench.processes import Failed
from bench.report import Row, middle
from bench.sizes import Size

_FIRST_S = 30.0
"""Until the first job must have run."""
_GAP_S = 0.1
"""Between two jobs whose latency is measured, so that each meets an idle system."""
_WARM_SHARE = 0.1
"""Of the jobs, which do not count because connections, threads and caches are made meanwhile."""


RATIOS = {
    "Headgate full by it": "Headgate full, coroutines",
    "its threads": "Headgate full, threads",
}
"""Ratios to whom, and what they are called."""
Value = Callable[["Found"], float]


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


class Ready(Struct, frozen=True):
    """A peer with its environment."""

    peer: Peer
    environment: Environment


def measure(
    configuration: str, directory: Path, size: Size, asked: Sequence[str] = ()
) -> list[Row]:
    """Headgate, and the peers whose names begin as asked, or all."""
    peers = [*headgates(configuration), *chosen(asked)]
    ready = list(prepare(peers))
    for one in ready:
        print(f"  {one.peer.name}: {one.peer.how}", file=sys.stderr)
    with ending_with_the_process():
        return beside(ready, configuration, directory, size)


def chosen(asked: Sequence[str], peers: Sequence[Peer] = PEERS) -> list[Peer]:
    begins = tuple(name.lower() for name in asked)
    return [one for one in peers if not begins or one.name.lower().startswith(begins)]


def prepare(peers: Sequence[Peer]) -> Iterator[Ready]:
    """What can be measured on this machine; of the rest, why not."""
    for peer in peers:
        try:
            if peer.store == "redis":
                redis_server()
            yield Ready(peer, prepared(peer.lock))
        except Unavailable as error:
            print(f"  {peer.name} is left out: {error}", file=sys.stderr, flush=True)


def beside(ready: Sequence[Ready], configuration: str, directory: Path, size: Size) -> list[Row]:
    """The rows of all peers, with ratios to every Headgate of the same round."""
    failed: dict[str, str] = {}
    rounds = []
    for number in range(size.rounds):
        found = {}
        for one in ready:
            name = one.peer.name
            if name in failed:
                continue
            print(f"  round {number + 1}: {name}", file=sys.stderr, flush=True)
            try:
                found[name] = life(one, configuration, directory, size)
            except (Failed, Unavailable) as error:
                failed[name] = str(error)
                print(f"  {name} is left out: {error}", file=sys.stderr, flush=True)
        rounds.append(found)
    kept = [one.peer for one in ready if one.peer.name not in failed]
    return middle([rows(kept, found, configuration) for found in rounds])


def rows(peers: Sequence[Peer], found: Mapping[str, Found], configuration: str) -> list[Row]:
    """Of one round. Ratios say what Headgate with full durability does in the same round, by the peer's number."""
    ours = {
        ratio: found[peer.name]
        for peer in peers
        for ratio, name in RATIOS.items()
        if peer.name == name
    }

    def about(
        what: str, unit: str, value: Value, more: Callable[[Found], dict[str, float]]
    ) -> Iterator[Row]:
        for peer in peers:
            this = found[peer.name]
            if not value(this):
                continue
            ratios = {ratio: value(one) / value(this) for ratio, one in ours.items()}
            also = more(this) | ({} if peer.store == "headgate" else ratios)
            where = kept_by(peer, configuration)
            yield Row(f"{what}, {beside_}", peer.name, where, value(this), unit, None, also)

    beside_ = f"beside Redis {FSYNC[configuration]}"

    def used(one: Found) -> dict[str, float]:
        return {"worker's CPU µs": one.worker_us, "store's CPU µs": one.store_us}

    return [
        *about("no-op jobs worked off", "jobs/s", lambda one: one.worked, used),
        *about("enqueued one by one", "jobs/s", lambda one: one.single, lambda _: {}),
        *about("enqueued 100 at once", "jobs/s", lambda one: one.batch, lambda _: {}),
        *about("from enqueue to run, idle", "ms", lambda one: one.latency_ms, lambda _: {}),
    ]


def kept_by(peer: Peer, configuration: str) -> str:
    match peer.store:
        case "headgate":
            return peer.durability
        case "redis":
            return f"Redis {FSYNC[configuration]}"
        case "postgres":
            return "Postgres"
        case "none":
            return "nothing"


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


class Stage(Struct):
    """A peer's empty store, and the files in which its jobs leave their marks."""

    ready: Ready
    place: Path
    started: Started
    marks: Path
    stamps: Path

    @contextmanager
    def producer(self) -> Iterator[Actor]:
        with self._acting("producer", self.ready.peer.produce, asked=True) as actor:
            actor.heard()
            yield actor

    def worker(self) -> AbstractContextManager[Actor]:
        return self._acting("worker", self.ready.peer.work, asked=False)

    def _acting(
        self, what: str, command: Sequence[str], *, asked: bool
    ) -> AbstractContextManager[Actor]:
        environment = self.ready.environment
        known = {"{bin}": str(environment.bin), "{cores}": str(len(os.sched_getaffinity(0)))}
        variables = {
            "BENCH_STORE": self.started.address,
            "BENCH_MARKS": str(self.marks),
            "BENCH_STAMPS": str(self.stamps),
            "BENCH_MODULES": str(environment.place),
            **dict(self.ready.peer.variables),
        }
        filled = [_filled(part, known) for part in command]
        return acting(what, filled, self.place, variables, asked=asked)


@contextmanager
def stage(one: Ready, configuration: str, directory: Path) -> Iterator[Stage]:
    """Marks are kept in memory where there is such a place, so that they do not disturb what the store writes."""
    memory = Path("/dev/shm")
    near = memory if os.access(memory, os.W_OK) else directory
    with (
        TemporaryDirectory(prefix="headgate-bench-", dir=directory) as place,
        TemporaryDirectory(prefix="headgate-bench-", dir=near) as seen,
    ):
        marks, stamps = Path(seen, "marks"), Path(seen, "stamps")
        marks.touch()
        stamps.touch()
        store = STORES[one.peer.store](one.peer.durability or configuration, Path(place))
        with store as started:
            yield Stage(one, Path(place), started, marks, stamps)


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


@contextmanager
def ending_with_the_process() -> Iterator[None]:
    """Let a TERM of this process end all that it has started, as an interrupt does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(_number: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(143)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _filled(part: str, known: Mapping[str, str]) -> str:
    for name, value in known.items():
        part = part.replace(name, value)
    return part
