"""What workers run in the tests. Functions at the top of a module, so that processes find them."""

from __future__ import annotations

import os
import time
from pathlib import Path

from headgate import AsyncJobContext, Discard, JobContext, RateLimited, Retry, Snooze


def add(a: int, b: int = 2) -> int:
    return a + b


def spin(marks: str) -> None:
    """Never ends by itself, and never waits in C."""
    while True:
        note(marks, "spin")
        time.sleep(0.01)


def sleep_long(marks: str) -> None:
    """Waits in C, where only the end of the process stops it."""
    note(marks, "begun")
    time.sleep(60)
    note(marks, "ended")


def die(marks: str) -> None:
    note(marks, "died")
    os._exit(7)


def leave() -> None:
    raise SystemExit(3)


def fail() -> None:
    raise LookupError("no such thing")


def put_off(seconds: float) -> None:
    raise Snooze(seconds)


def limited(seconds: float) -> None:
    raise RateLimited("they said no", retry_after=seconds)


def again(seconds: float) -> None:
    raise Retry("once more", after=seconds)


def give_up() -> None:
    raise Discard("never mind", dead_letter=True)


def report(context: JobContext) -> int:
    context.progress(0.5, "half", data={"n": 1})
    context.checkpoint({"at": context.attempt})
    if context.attempt == 1:
        raise ConnectionError("first try")
    return int(context.saved["at"])


async def measure(context: AsyncJobContext, text: str) -> int:
    await context.progress(1.0)
    return len(text)


def wait_until_told(context: JobContext, marks: str) -> str:
    note(marks, "begun")
    context.wait_cancelled(30)
    note(marks, context.cancelled_because)
    return "stopped"


def note(marks: str, what: str) -> None:
    with Path(marks).open("a") as file:
        file.write(f"{what}\n")


def noted(marks: Path) -> list[str]:
    return marks.read_text().split() if marks.exists() else []
