"""A blocked caller's thread runs what it is handed, and nothing is lost on the way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

from headgate.client.sides import background, lent

_seen: ContextVar[str] = ContextVar("seen", default="")


def through(function: Callable[[], Any], *, lend: bool = True) -> Any:
    """The function's result, by way of the loop."""

    async def step() -> Any:
        caller = lent.get()
        assert caller is not None
        return await caller.run(function)

    return background().run(step(), lend=lend)


def test_it_runs_in_the_thread_that_called() -> None:
    assert through(threading.get_ident) == threading.get_ident()


def test_without_being_asked_nobody_lends() -> None:
    with pytest.raises(AssertionError):
        through(threading.get_ident, lend=False)


def test_calls_inside_of_calls() -> None:
    assert through(lambda: through(lambda: through(threading.get_ident))) == threading.get_ident()


def test_what_the_caller_set_is_seen() -> None:
    token = _seen.set("yes")
    try:
        assert through(_seen.get) == "yes"
    finally:
        _seen.reset(token)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_errors_come_back(error: type[BaseException]) -> None:
    def fails() -> None:
        raise error("out")

    with pytest.raises(error):
        through(fails)
    assert through(lambda: 1) == 1


def test_an_error_that_no_future_carries() -> None:
    def stops() -> None:
        raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration"):
        through(stops)


def test_an_interrupt_cancels_what_waits() -> None:
    ended = threading.Event()

    async def step() -> None:
        caller = lent.get()
        assert caller is not None
        try:
            await caller.run(interrupts)
        finally:
            ended.set()

    def interrupts() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        background().run(step(), lend=True)
    assert ended.wait(10)


def test_several_at_once_take_turns() -> None:
    order: list[int] = []

    async def step() -> None:
        caller = lent.get()
        assert caller is not None
        await asyncio.gather(*(caller.run(lambda n=n: order.append(n)) for n in range(5)))  # type: ignore[misc]

    background().run(step(), lend=True)
    assert order == [0, 1, 2, 3, 4]
