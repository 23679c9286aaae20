"""A peer that needs nothing but a file: jobs are lines, the worker reads what was appended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from bench.peers import role

SPOOL = Path(os.environ["BENCH_MARKS"]).with_name("spool")


def put(text: str) -> None:
    with SPOOL.open("a") as file:
        file.write(text)


def work() -> None:
    SPOOL.touch()
    with SPOOL.open() as file:
        while True:
            line = file.readline()
            if not line:
                time.sleep(0.001)
            elif line == "stamp\n":
                role.stamp()
            else:
                role.nop(0)


def main(what: str, file: str = "") -> None:
    match what:
        case "produce":
            role.produce(
                lambda: put("nop\n"), lambda: put("stamp\n"), lambda: put("nop\n" * role.BATCH)
            )
        case "work":
            work()
        case "cling":
            # It ignores what asks it to end, and so does what it has started elsewhere.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            command = [sys.executable, __file__, "sleep"]
            child = subprocess.Popen(command, start_new_session=True)
            Path(file).write_text(f"{os.getpid()} {child.pid}")
            signal.pause()
        case "sleep":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.pause()
        case _:
            sys.exit("no such thing")


if __name__ == "__main__":
    main(*sys.argv[1:])
