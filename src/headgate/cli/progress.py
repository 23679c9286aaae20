"""Work that takes its time: a bar for whoever watches, and following tasks of the server to their end."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any, Final, TextIO

from headgate.cli.refusal import Refusal

if TYPE_CHECKING:
    from headgate.client.app import Headgate

_LOOK_AGAIN_S: Final = 0.1
_WIDTH: Final = 30


class Bar:
    """Shows how far something is, on a terminal only; the standard output stays free of it."""

    def __init__(self, what: str, stream: TextIO | None = None) -> None:
        self._what = what
        self._stream = sys.stderr if stream is None else stream
        self._on = self._stream.isatty()

    def at(self, done: int, total: int) -> None:
        if self._on:
            self._stream.write(f"\r{bar(self._what, done, total)}")
            self._stream.flush()

    def end(self) -> None:
        """Take the bar away: what is said next stands in its place."""
        if self._on:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def bar(what: str, done: int, total: int) -> str:
    part = min(1.0, done / total) if total else 1.0
    full = round(part * _WIDTH)
    return f"{what} [{'#' * full}{'.' * (_WIDTH - full)}] {part * 100:3.0f} % of {total:,}"


def add_no_wait(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--no-wait",
        action="store_true",
        help="do not wait for the end of what the server does in slices",
    )


def followed(
    client: Headgate, asked: argparse.Namespace, answer: dict[str, Any], what: str
) -> dict[str, Any]:
    """The answer to a command for many jobs, when all of it is done; `task` is then how it ended."""
    task = answer.get("task")
    if task is None or task["finished"] or asked.no_wait:
        return answer
    progress = Bar(what)
    try:
        while not task["finished"]:
            progress.at(task["done"] + task["skipped"], task["matched"])
            time.sleep(_LOOK_AGAIN_S)
            task = client.admin.request("GET", f"/admin/tasks/{task['id']}")["task"]
    except KeyboardInterrupt:
        raise Refusal(f"the server goes on with the task {task['id']} by itself", 130) from None
    finally:
        progress.end()
    return {**answer, "task": task}


def amounts(answer: dict[str, Any], done: str) -> tuple[int, int, str]:
    """How many jobs were done and skipped, and the task that goes on, or ""."""
    task = answer.get("task")
    if task is None:
        return answer[done], answer["skipped"], ""
    return task["done"], task["skipped"], "" if task["finished"] else task["id"]
