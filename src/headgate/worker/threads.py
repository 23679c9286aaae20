"""Handlers that block, in threads that can be interrupted."""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import queue
import threading
from collections.abc import Callable
from typing import Any

from headgate.worker.signals import Interrupted


class Thread:
    """Runs one function after the other; each with a way to stop it."""

    def __init__(self, name: str) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._inside = False
        self.abandoned = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def run(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """The result, on the loop that asks. Raises Interrupted where it was interrupted."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        scope = contextvars.copy_context()

        def work() -> None:
            result: Any = None
            error: BaseException | None = None
            try:
                result = scope.run(self._guarded, function)
            except BaseException as raised:  # noqa: BLE001 - whatever it is, the loop decides
                error = raised
            try:
                loop.call_soon_threadsafe(_settle, future, result, error)
            except RuntimeError:
                # The loop is closed: nobody waits any more.
                return

        self._work.put(work)
        return future

    def interrupt(self) -> None:
        """Raise Interrupted in the function, as soon as it executes Python code again."""
        with self._lock:
            if self._inside:
                _raise_in(self._thread.ident, Interrupted)

    def end(self) -> None:
        """When what runs has ended."""
        self._work.put(None)

    def _guarded(self, function: Callable[[], Any]) -> Any:
        """An interrupt that comes too late for the function must not hit what comes after it."""
        try:
            with self._lock:
                self._inside = True
            return function()
        finally:
            self._leave()

    def _leave(self) -> None:
        while True:
            try:
                with self._lock:
                    self._inside = False
                    _raise_in(self._thread.ident, None)
            except Interrupted:
                continue
            return

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except Interrupted:
                continue


class Threads:
    """As many threads as there are functions at the same time."""

    def __init__(self) -> None:
        self._idle: list[Thread] = []
        self._made = 0

    def take(self) -> Thread:
        if self._idle:
            return self._idle.pop()
        self._made += 1
        return Thread(f"headgate-job-{self._made}")

    def give(self, thread: Thread) -> None:
        if thread.abandoned:
            thread.end()
        else:
            self._idle.append(thread)

    def end(self) -> None:
        for thread in self._idle:
            thread.end()
        self._idle.clear()


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration | SystemExit | KeyboardInterrupt | GeneratorExit):
        # These would end the loop that gets them.
        future.set_exception(RuntimeError(f"the handler raised {error!r}"))
    else:
        future.set_exception(error)


def _raise_in(thread: int | None, error: type[BaseException] | None) -> None:
    if thread is not None:
        target = None if error is None else ctypes.py_object(error)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), target)
