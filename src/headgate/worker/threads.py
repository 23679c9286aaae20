"""Handlers that block, in threads that can be interrupted.

All threads take from one line, and results come back to the loop by the handful. A function that does not block is so followed by the next one in the thread that is running already: to wake a thread for each, and the loop for each result, costs ten times what the rest of a small job does.
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from headgate.worker.signals import Interrupted


class Threads:
    """As many threads as there are functions at the same time. Any loop may use them."""

    def __init__(self) -> None:
        self._line: queue.SimpleQueue[Thread | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._taken = 0
        self._there = 0
        """Threads that serve the line or will again; never fewer than are taken, so that nobody waits in line behind a function."""
        self._made = 0
        self._homes: WeakKeyDictionary[asyncio.AbstractEventLoop, Home] = WeakKeyDictionary()

    def take(self) -> Thread:
        """A place for one function at a time."""
        with self._lock:
            self._taken += 1
            if self._taken > self._there:
                self._there += 1
                self._made += 1
                name = f"headgate-job-{self._made}"
                threading.Thread(target=self._serve, name=name, daemon=True).start()
        return Thread(self)

    def give(self, thread: Thread) -> None:
        """It is not needed any more, whether or not it still runs something."""
        with self._lock:
            self._taken -= 1
            if thread.leave():
                self._there -= 1

    def end(self) -> None:
        """When what runs has ended."""
        self._line.put(None)

    def put(self, thread: Thread) -> None:
        self._line.put(thread)

    def home(self, loop: asyncio.AbstractEventLoop) -> Home:
        """Where results go that this loop waits for."""
        found = self._homes.get(loop)
        if found is None:
            found = self._homes[loop] = Home()
        return found

    def _serve(self) -> None:
        while True:
            thread = self._line.get()
            if thread is None:
                # The next one shall hear it too.
                self._line.put(None)
                return
            stays = thread.work()
            del thread
            if not stays:
                return


class Thread:
    """Runs one function after the other; each with a way to stop it."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._busy = False
        """A function is in line or runs."""
        self._inside: int | None = None
        """The thread that runs it."""
        self._struck = False
        """It was interrupted."""
        self._left = False
        self._stays = True
        """The thread that ran the last function goes on, because nobody had left before its end."""

    def run(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """The result, on the loop that asks. Raises Interrupted where it was interrupted."""
        loop = asyncio.get_running_loop()
        self._home = self._threads.home(loop)
        self._future: asyncio.Future[Any] = loop.create_future()
        self._scope = contextvars.copy_context()
        self._function = function
        self._struck = False
        self._busy = True
        self._threads.put(self)
        return self._future

    def interrupt(self) -> None:
        """Raise Interrupted in the function, as soon as it executes Python code again; one that has not begun never does."""
        with self._lock:
            if self._busy and not self._struck:
                self._struck = True
                if self._inside is not None:
                    _raise_in(self._inside, Interrupted)

    def leave(self) -> bool:
        """Nobody waits for it any more; whether it is busy all the same, and so ends the thread that it is in."""
        with self._lock:
            self._left = True
            return self._busy

    def work(self) -> bool:
        """In the thread that took it from the line: run the function. Whether that thread shall go on."""
        result: Any = None
        error: BaseException | None = None
        try:
            result = self._scope.run(self._guarded)
        except BaseException as raised:  # noqa: BLE001 - whatever it is, the loop decides
            error = raised
        stays = self._stays
        self._home.put(self._future, result, error)
        return stays

    def _guarded(self) -> Any:
        """An interrupt that comes too late for the function must not hit what comes after it."""
        try:
            with self._lock:
                if self._struck:
                    raise Interrupted
                self._inside = threading.get_ident()
            return self._function()
        finally:
            # Not a function of its own: the interrupt could hit its first line, before any `try`.
            while True:
                try:
                    with self._lock:
                        if self._struck and self._inside is not None:
                            _raise_in(self._inside, None)
                        self._inside = None
                        self._busy = False
                        self._stays = not self._left
                except Interrupted:
                    continue
                break


class Home:
    """Brings results from any thread to one loop, which is woken once for all that are there."""

    def __init__(self) -> None:
        self._results: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._woken = False

    def put(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        self._results.append((future, result, error))
        if not self._woken:
            self._woken = True
            try:
                future.get_loop().call_soon_threadsafe(self._settle)
            except RuntimeError:
                # The loop is closed: nobody waits any more.
                return

    def _settle(self) -> None:
        # Before it looks, so that whoever adds something from now on wakes the loop again.
        self._woken = False
        while self._results:
            _settle(*self._results.popleft())


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


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    target = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), target)
