"""Threads that run one function after the other, and can be interrupted in each."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from functools import partial
from typing import Any

import pytest

from headgate.worker.signals import Interrupted
from headgate.worker.threads import Thread, Threads


def raising(error: type[BaseException]) -> None:
    raise error


def test_results_errors_and_the_next_function() -> None:
    async def story() -> None:
        thread = Thread("t")
        assert await thread.run(lambda: 5) == 5
        with pytest.raises(LookupError):
            await thread.run(partial(raising, LookupError))
        for leaving in (SystemExit, KeyboardInterrupt, StopIteration, GeneratorExit):
            with pytest.raises(RuntimeError, match=leaving.__name__):
                await thread.run(partial(raising, leaving))
        assert await thread.run(lambda: 6) == 6
        thread.end()

    asyncio.run(story())


def test_an_interrupt_ends_the_function_and_not_the_thread() -> None:
    begun = threading.Event()

    def spin() -> None:
        begun.set()
        while True:
            time.sleep(0.001)

    async def story() -> None:
        thread = Thread("t")
        running = thread.run(spin)
        await asyncio.to_thread(begun.wait, 20)
        thread.interrupt()
        with pytest.raises(Interrupted):
            await running
        assert await thread.run(lambda: 6) == 6
        thread.end()

    asyncio.run(story())


def test_an_interrupt_that_comes_too_late_hits_nobody() -> None:
    async def story() -> None:
        thread = Thread("t")
        for n in range(300):
            running = thread.run(partial(int, n))
            thread.interrupt()
            with contextlib.suppress(Interrupted):
                assert await running == n
            thread.interrupt()
            assert await thread.run(lambda: "next") == "next"
        thread.end()

    asyncio.run(story())


def test_threads_are_used_again_unless_they_were_given_up() -> None:
    threads = Threads()
    first = threads.take()
    threads.give(first)
    assert threads.take() is first
    first.abandoned = True
    threads.give(first)
    second: Any = threads.take()
    assert second is not first
    threads.give(second)
    threads.end()
