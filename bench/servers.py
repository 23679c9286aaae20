"""The servers that are measured, as processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from bench.load import Address

_LISTENING = re.compile(r"listening on http://([\d.]+):(\d+)")
_ROOT = Path(__file__).parent.parent
_STOP_S = 30


class Running(NamedTuple):
    address: Address
    pid: int


@contextmanager
def headgate(configuration: str, directory: Path) -> Iterator[Running]:
    """`headgate serve` on an empty store."""
    with TemporaryDirectory(prefix="headgate-bench-", dir=directory) as place:
        store = "memory:" if configuration == "memory" else f"sqlite:///{place}/headgate.db"
        durability = "normal" if configuration == "normal" else "full"
        command = ("headgate", "serve", "--port", "0", "--store", store, "--durability", durability)
        with _running(*command, "--log-level", "warning") as running:
            yield running


@contextmanager
def bare(answer_bytes: int) -> Iterator[Running]:
    with _running("bench.bare", str(answer_bytes)) as running:
        yield running


@contextmanager
def _running(*command: str) -> Iterator[Running]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HEADGATE_")}
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=_ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        found = _LISTENING.search(said)
        if found is None:
            raise RuntimeError(f"{command[0]} did not start: {said!r}")
        yield Running((found[1], int(found[2])), process.pid)
        process.terminate()
        process.communicate(timeout=_STOP_S)
    finally:
        process.kill()
        process.communicate()
