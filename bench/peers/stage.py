"""Where a peer acts: its store, its producer, its worker, and the files in which its jobs leave their marks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct

from bench.peers.actors import Actor, acting
from bench.peers.environments import Environment
from bench.peers.peer import Peer
from bench.peers.stores import STORES, Started


class Ready(Struct, frozen=True):
    """A peer with its environment."""

    peer: Peer
    environment: Environment


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


def _filled(part: str, known: Mapping[str, str]) -> str:
    for name, value in known.items():
        part = part.replace(name, value)
    return part
