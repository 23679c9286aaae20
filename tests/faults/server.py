"""A real server process that a test starts, kills and starts again on the same file."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.faults.client import Address

PRODUCT = ("-m", "headgate", "serve")
FAULTY = ("-m", "tests.faults.serve")
"""The same server with the faults that `serve.py` lists."""

_ROOT = Path(__file__).parents[2]
_LISTENING = re.compile(r"listening on http://([\d.]+):(\d+)")
_START_S = 30.0


class Refused(Exception):
    """The server did not start; the message is what it wrote on stderr."""


class Server:
    def __init__(self, store: Path | str, *options: str, entry: tuple[str, ...] = PRODUCT) -> None:
        self.store = store if isinstance(store, str) else f"sqlite:///{store}"
        self.options = options
        self.entry = entry
        self.address: Address = ("", 0)
        self.said: list[str] = []
        """The lines of its output until it listened."""
        self._errors = b""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    def launch(self, *more: str) -> Server:
        """Start the process and do not wait for it."""
        assert self._process is None or self._process.poll() is not None
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HEADGATE_")}
        self._process = subprocess.Popen(
            [
                sys.executable,
                *self.entry,
                "--store",
                self.store,
                "--port",
                "0",
                *self.options,
                *more,
            ],
            cwd=_ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        return self

    def start(self, *more: str) -> Server:
        """Return when it is ready; raise Refused when it ends instead."""
        self.launch(*more)
        self.said = []
        output = self.process.stdout
        assert output is not None
        until = time.monotonic() + _START_S
        while True:
            ready, _, _ = select.select([output], [], [], max(0.0, until - time.monotonic()))
            line = output.readline().decode() if ready else ""
            if not line:
                self.kill()
                raise Refused(self.errors)
            self.said.append(line.rstrip())
            found = _LISTENING.search(line)
            if found:
                self.address = (found[1], int(found[2]))
                break
        return self

    @property
    def errors(self) -> str:
        """All that an ended process wrote on stderr."""
        if self.process.stderr is not None and not self.process.stderr.closed:
            self._errors = self.process.stderr.read()
            self.process.stderr.close()
        return self._errors.decode()

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self.wait()

    def stop(self, timeout_s: float = 30) -> int:
        """SIGTERM; gives the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def wait(self, timeout_s: float = 30) -> int:
        code = self.process.wait(timeout_s)
        _ = self.errors
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code


def until(found: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Look again and again: the other process gives no sign that could be waited for."""
    end = time.monotonic() + timeout_s
    while not found():
        assert time.monotonic() < end, f"{what}: not within {timeout_s} s"
        time.sleep(0.01)
