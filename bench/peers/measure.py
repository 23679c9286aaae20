"""The rounds: every peer once in each, so that whatever else the machine does meets all of them alike."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from bench.peers.environments import Unavailable, prepared
from bench.peers.known import PEERS, headgates
from bench.peers.life import Found, life
from bench.peers.peer import Peer
from bench.peers.stage import Ready
from bench.peers.stores import FSYNC, redis_server
from bench.processes import Failed
from bench.report import Row, middle
from bench.sizes import Size

RATIOS = {
    "Headgate full by it": "Headgate full, coroutines",
    "its threads": "Headgate full, threads",
}
"""Ratios to whom, and what they are called."""
Value = Callable[[Found], float]


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
