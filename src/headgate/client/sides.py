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
from contextvars import ContextVar
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar, cast, overload

from headgate.client.lent import Lent

P = ParamSpec("P")
T = TypeVar("T")


class SyncSide:
    """Calls block."""

    lends = False
    """Whether the caller's thread runs meanwhile what it is handed."""


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
            lends = isinstance(side, SyncSide) and side.lends
            found: T = background().run(bound(*args, **kwargs), lend=lends)
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

    def run(self, task: Coroutine[Any, Any, T], *, lend: bool = False) -> T:
        """The task's result; an interrupt cancels the task."""
        if self.is_here():
            task.close()
            raise RuntimeError(
                "a call that blocks was made where it would wait for itself; "
                "use AsyncHeadgate, or .aio, in coroutines that the client runs"
            )
        caller = Lent() if lend or lending.get() else None
        token = lent.set(caller)
        try:
            future: Future[T] = asyncio.run_coroutine_threadsafe(task, self.loop)
        finally:
            lent.reset(token)
        try:
            return future.result() if caller is None else caller.serve(future)
        except BaseException:
            future.cancel()
            raise

    def is_here(self) -> bool:
        """Whether this is its thread."""
        return threading.current_thread() is self._thread

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


lending: Final[ContextVar[bool]] = ContextVar("headgate_lending", default=False)
"""Whether callers that block run meanwhile what they are handed: tests want handlers in their own thread."""
lent: Final[ContextVar[Lent | None]] = ContextVar("headgate_lent", default=None)
"""Inside a call: the thread that waits for it, where it is lent."""
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
