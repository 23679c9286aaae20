"""The processes of a measurement: each in a session of its own, so that all it starts can be found and ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bench.processes import Failed

ROOT = Path(__file__).parent.parent.parent
_ASKED_S = 5.0
"""How long one that is asked to end may take."""
_STOP_S = 10.0
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_TAIL = 2_000
_BEGAN = 19
"""Where the time of its start stands in what `_stat` gives."""


class Actor:
    """A running process with all of its descendants."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], said: Path) -> None:
        self.name = name
        self._process = process
        self._said = said
        self._began = _stat(process.pid)[_BEGAN]

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """Raises Failed when it has ended, with the last that it said."""
        if (code := self._process.poll()) is not None:
            raise Failed(f"{self.name} ended with {code}: {self.said()}")

    def said(self) -> str:
        return self._said.read_text(errors="replace")[-_TAIL:]

    def ask(self, **order: Any) -> dict[str, Any]:
        """One line to it, one line back."""
        stdin = self._process.stdin
        assert stdin is not None
        with suppress(BrokenPipeError):
            stdin.write(json.dumps(order).encode() + b"\n")
            stdin.flush()
        return self.heard()

    def heard(self) -> dict[str, Any]:
        """The next line from it."""
        stdout = self._process.stdout
        assert stdout is not None
        line = stdout.readline()
        if not line:
            self._process.wait(_STOP_S)
            self.check()
        found: dict[str, Any] = json.loads(line)
        return found

    def cpu_s(self) -> float:
        """CPU time of all that belongs to it, those that have ended included."""
        return cpu_s(self.pid)

    def stop(self) -> None:
        """Ask it to end, then end whatever is left of it; nothing of it runs afterwards."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        started = self._family()
        if self._process.poll() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_ASKED_S)
        left = started | self._family()
        for pid, began in left.items():
            if _lives(pid, began):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + _STOP_S
        while any(_lives(*one) for one in left.items()) and time.monotonic() < until:
            time.sleep(0.001)
        self._process.wait()

    def _family(self) -> dict[int, str]:
        stat = _stat(self.pid)
        # One that has ended may have left its number to somebody else.
        return {} if stat and stat[_BEGAN] != self._began else members(self.pid)


@contextmanager
def acting(
    name: str,
    command: Sequence[str],
    place: Path,
    variables: Mapping[str, str],
    *,
    asked: bool = False,
    user: int | None = None,
) -> Iterator[Actor]:
    """Run it until the end of the block. With `asked` it takes orders on its standard input."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HEADGATE_", "OJS_"))}
    said = place / f"{name}.txt"
    pipe = subprocess.PIPE if asked else None
    with said.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT if user is None else place,
            env={**kept, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **variables},
            stdin=pipe or subprocess.DEVNULL,
            stdout=pipe or output,
            stderr=output,
            start_new_session=True,
            user=user,
        )
    actor = Actor(name, process, said)
    try:
        yield actor
    finally:
        actor.stop()


def members(leader: int) -> dict[int, str]:
    """The processes of a leader's session, and its descendants, which may have left that session; with the times of their starts."""
    stats = {int(one.name): _stat(int(one.name)) for one in Path("/proc").glob("[0-9]*")}
    session, family = str(leader), {leader}
    family |= {pid for pid, fields in stats.items() if fields[3:4] == [session]}
    while more := {pid for pid, of in stats.items() if of and int(of[1]) in family} - family:
        family |= more
    return {pid: stats[pid][_BEGAN] for pid in family if stats.get(pid)}


def _lives(pid: int, began: str) -> bool:
    """Whether it still runs: its number may have gone to somebody else, but not with the time of its start."""
    fields = _stat(pid)
    return bool(fields) and fields[_BEGAN] == began and fields[0] not in "ZX"


def cpu_s(leader: int) -> float:
    """CPU time of a process and its family, those of them that have ended included."""
    return sum(sum(map(int, _stat(pid)[11:15])) for pid in members(leader)) * _TICK_S


def _stat(pid: int) -> list[str]:
    """What follows the name of a process in its `stat`; nothing when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text.rpartition(")")[2].split()


def waited(actor: Actor, seconds: float, what: str) -> Iterator[None]:
    """Look again and again, until the time is over or the actor has ended; both raise Failed."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        yield
        actor.check()
        time.sleep(0.002)
    raise Failed(f"{actor.name}: {what} did not happen within {seconds:g} s: {actor.said()}")
