"""One implementation, two sides: what is written as a coroutine is a plain function for those who do not await.

A public method is written once, as a coroutine under `verb`. On an object of the async side it is that coroutine; on one of the sync side it runs on a loop in the background and gives its result. Type checkers see the two signatures for what they are.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

P = ParamSpec("P")
T = TypeVar("T")


class SyncSide:
    """Calls block."""


class AsyncSide:
    """Calls are awaited."""


class verb(Generic[P, T]):  # noqa: N801 - it reads as a keyword
    """A coroutine method of a class that has a sync and an async side.

    It must not call verbs of its own object: on the sync side they would wait for the loop that runs it.
    """

    def __init__(self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__
        self.__name__ = method.__name__

    @overload
    def __get__(self, side: None, owner: type[Any]) -> verb[P, T]: ...
    @overload
    def __get__(self, side: SyncSide, owner: type[Any]) -> Callable[P, T]: ...
    @overload
    def __get__(self, side: AsyncSide, owner: type[Any]) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, side: object, owner: type[Any]) -> object:
        if side is None:
            return self
        bound = self._method.__get__(side, owner)
        if isinstance(side, AsyncSide):
            return bound

        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            found: T = background().run(bound(*args, **kwargs))
            return found

        call.__doc__ = self.__doc__
        call.__name__ = self.__name__
        return call


class reading(Generic[T]):  # noqa: N801 - it reads as a keyword
    """As `verb` for what is read like an attribute: `part.name`, or `await part.name`."""

    def __init__(self, method: Callable[[Any], Coroutine[Any, Any, T]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, side: None, owner: type[Any]) -> reading[T]: ...
    @overload
    def __get__(self, side: SyncSide, owner: type[Any]) -> T: ...
    @overload
    def __get__(self, side: AsyncSide, owner: type[Any]) -> Coroutine[Any, Any, T]: ...
    def __get__(self, side: object, owner: type[Any]) -> object:
        if side is None:
            return self
        step = self._method(side)
        return step if isinstance(side, AsyncSide) else background().run(step)


class Background:
    """An event loop in a thread of its own, for callers that do not await."""

    def __init__(self) -> None:
        self.loop = new_loop()
        self.pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="headgate", daemon=True)
        self._thread.start()

    def run(self, task: Coroutine[Any, Any, T]) -> T:
        """The task's result; an interrupt cancels the task."""
        if threading.current_thread() is self._thread:
            task.close()
            raise RuntimeError(
                "a call that blocks was made where it would wait for itself; "
                "use AsyncHeadgate, or .aio, in coroutines that the client runs"
            )
        future: Future[T] = asyncio.run_coroutine_threadsafe(task, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


_background: Background | None = None
_starting = threading.Lock()


def background() -> Background:
    """The loop of this process: a forked child gets one of its own."""
    global _background  # noqa: PLW0603 - there is one per process
    found = _background
    if found is None or found.pid != os.getpid():
        with _starting:
            found = _background
            if found is None or found.pid != os.getpid():
                found = _background = Background()
    return found


def _fresh_lock() -> None:
    global _starting  # noqa: PLW0603
    _starting = threading.Lock()


if hasattr(os, "register_at_fork"):
    # Another thread may have held the lock when the process forked.
    os.register_at_fork(after_in_child=_fresh_lock)


def new_loop() -> asyncio.AbstractEventLoop:
    with suppress(ImportError):
        import uvloop  # noqa: PLC0415 - not there on every system

        return cast("asyncio.AbstractEventLoop", uvloop.new_event_loop())
    return asyncio.new_event_loop()
