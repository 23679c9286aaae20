"""The server with faults built in: `python -m tests.faults.serve`, with the options of `headgate serve` and these.

--die-at POINT --die-nth N   kill itself when the committer reaches the point for the N-th time
--fold idle|busy             fold and copy the log back all the time, between commits or inside them
--busy-ms N                  how long to wait for a file that somebody else has locked
--as-nobody                  give up the rights of root once everything is imported
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import itertools
import os
import signal
import sys
from collections.abc import Callable

from headgate import runtime
from headgate.cli import main as cli
from headgate.cli import serve
from headgate.engines.local import journal, store
from headgate.engines.local.engine import LocalEngine
from headgate.server import configuration, logs

POINTS = ("before commit", "inside commit", "inside fold", "after commit")
NOBODY = 65_534
_IMPORTED = (serve, configuration, logs)
"""What a command imports when it runs must be there before root's files are out of reach."""


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--die-at", choices=POINTS)
    parser.add_argument("--die-nth", type=int, default=1)
    parser.add_argument("--fold", choices=("idle", "busy"))
    parser.add_argument("--busy-ms", type=int)
    parser.add_argument("--as-nobody", action="store_true")
    asked, rest = parser.parse_known_args(arguments)
    if asked.die_at is not None:
        at = killer(asked.die_at, asked.die_nth)
        LocalEngine.open = functools.partial(  # type: ignore[method-assign]
            LocalEngine.open, at_fault_point=at
        )
    if asked.fold is not None:
        journal.FOLD_RECORDS = 20
        journal.CHECKPOINT_BYTES = 64 << 10
        if asked.fold == "idle":
            journal.FOLD_AFTER_S = 0.01
        else:
            journal.FOLD_BACKLOG = 50
    if asked.busy_ms is not None:
        store.BUSY_MS = asked.busy_ms
    if asked.as_nobody:
        with contextlib.suppress(ImportError):
            importlib.import_module("uvloop")
        importlib.import_module("encodings.idna")
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
    assert callable(runtime.run)
    sys.exit(cli.main(["serve", *rest]))


def killer(point: str, nth: int) -> Callable[[str], None]:
    passed = itertools.count(1)

    def at(reached: str) -> None:
        if reached == point and next(passed) == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    return at


if __name__ == "__main__":
    main(sys.argv[1:])
