"""Real servers in processes of their own."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LATE_S = 20.0


class Served:
    """A running server, what it has said, and a way to talk to it."""

    def __init__(self, arguments: tuple[str, ...], where: Path, variables: dict[str, str]) -> None:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("HEADGATE_")}
        with (where / "stderr.txt").open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headgate", "serve", "--port", "0", *arguments],
                cwd=where,
                env={**clean, **variables},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._where = where
        assert self.process.stdout is not None
        self.said: list[str] = []
        for line in self.process.stdout:
            self.said.append(line.rstrip("\n"))
            if line.startswith("store "):
                break
        found = re.search(r"listening on http://(.*):(\d+)$", self.said[0]) if self.said else None
        assert found is not None, self.errors()
        self.host, self.port = found[1], int(found[2])

    def errors(self) -> str:
        return (self._where / "stderr.txt").read_text()

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LATE_S)
        try:
            data = None if body is None else json.dumps(body).encode()
            given = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, path, data, {**given, **(headers or {})})
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read())
        finally:
            connection.close()

    def enqueue(self, **job: Any) -> Any:
        status, body = self.ask("POST", "/ojs/v1/jobs", {"type": "a.b", "args": [], **job})
        assert status == 201
        return body["job"]

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """The exit code; what it still says is added to what it said."""
        assert self.process.stdout is not None
        # Not `communicate`: it does not know the lines that were buffered with the first ones.
        self.said += [line.rstrip("\n") for line in self.process.stdout]
        return self.process.wait(LATE_S)


Serve = Callable[..., Served]


@contextmanager
def servers(where: Path) -> Iterator[Serve]:
    """Starts servers that do not outlive the test."""
    started: list[Served] = []

    def serve(*arguments: str, **variables: str) -> Served:
        served = Served(arguments, where, variables)
        started.append(served)
        return served

    try:
        yield serve
    finally:
        for served in started:
            if served.process.poll() is None:
                served.process.kill()
            served.process.communicate()


def headgate(*arguments: str, where: Path | None = None, **variables: str) -> Any:
    """Run a command that ends by itself."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("HEADGATE_")}
    return subprocess.run(
        [sys.executable, "-m", "headgate", *arguments],
        cwd=where,
        env={**clean, **variables},
        capture_output=True,
        text=True,
        timeout=LATE_S,
        check=False,
    )
