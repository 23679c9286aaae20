"""Processes: functions that run in a fresh one, and what one has used of the machine."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Coroutine
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import uvloop
from msgspec import Struct

P = ParamSpec("P")
T = TypeVar("T")

_PAGE = os.sysconf("SC_PAGE_SIZE")


class Failed(Exception):
    """What ran in another process did not come to its end; the message is its traceback."""


def fresh(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function of some module in a process of its own, which has done nothing before."""
    return _fresh(function, args, kwargs, killed=False)


def fresh_and_killed(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The same; when the function has returned, the process kills itself and cleans up nothing."""
    return _fresh(function, args, kwargs, killed=True)


def _fresh(function: Callable[..., T], args: Any, kwargs: Any, *, killed: bool) -> T:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_call, args=(theirs, killed, function, args, kwargs))
    process.start()
    theirs.close()
    try:
        value, failure = ours.recv()
    except EOFError:
        value, failure = None, "the process ended without a word"
    except BaseException:
        process.kill()
        raise
    finally:
        process.join()
    if failure:
        raise Failed(failure)
    result: T = value
    return result


def _call(
    theirs: Connection, killed: bool, function: Callable[..., Any], args: Any, kwargs: Any
) -> None:
    try:
        theirs.send((function(*args, **kwargs), ""))
    except Exception:  # noqa: BLE001 - told to the process that asked
        theirs.send((None, traceback.format_exc()))
    if killed:
        os.kill(os.getpid(), signal.SIGKILL)


def on_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run on the kind of loop that the server uses."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


class Used(Struct):
    """CPU time of a process in seconds."""

    loop_s: float
    """By its main thread, which runs the event loop."""
    others_s: float
    """By all others: the journal, its reader, the checkpointer."""

    def since(self, before: Used) -> Used:
        return Used(self.loop_s - before.loop_s, self.others_s - before.others_s)


def used(pid: int) -> Used:
    """Threads that have ended are not seen any more; the server's live as long as it does."""
    loop_ns = others_ns = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        ns = int((thread / "schedstat").read_text().split()[0])
        if thread.name == str(pid):
            loop_ns = ns
        else:
            others_ns += ns
    return Used(loop_ns / 1e9, others_ns / 1e9)


def resident_bytes(pid: int) -> int:
    """The memory that a process really holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
