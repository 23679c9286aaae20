"""Threads that run one function after the other, and can be interrupted in each."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from functools import partial

import pytest

from headgate.worker.signals import Interrupted
from headgate.worker.threads import Threads


def raising(error: type[BaseException]) -> None:
    raise error


def test_results_errors_and_the_next_function() -> None:
    async def story() -> None:
        threads = Threads()
        thread = threads.take()
        assert await thread.run(lambda: 5) == 5
        with pytest.raises(LookupError):
            await thread.run(partial(raising, LookupError))
        for leaving in (SystemExit, KeyboardInterrupt, StopIteration, GeneratorExit):
            with pytest.raises(RuntimeError, match=leaving.__name__):
                await thread.run(partial(raising, leaving))
        assert await thread.run(lambda: 6) == 6
        threads.give(thread)
        threads.end()

    asyncio.run(story())


def test_an_interrupt_ends_the_function_and_not_the_thread() -> None:
    begun = threading.Event()

    def spin() -> None:
        begun.set()
        while True:
            time.sleep(0.001)

    async def story() -> None:
        threads = Threads()
        thread = threads.take()
        running = thread.run(spin)
        await asyncio.to_thread(begun.wait, 20)
        thread.interrupt()
        with pytest.raises(Interrupted):
            await running
        assert await thread.run(lambda: 6) == 6
        threads.give(thread)
        threads.end()

    asyncio.run(story())


def test_an_interrupt_that_comes_too_late_hits_nobody() -> None:
    async def story() -> None:
        threads = Threads()
        thread = threads.take()
        for n in range(300):
            running = thread.run(partial(int, n))
            thread.interrupt()
            with contextlib.suppress(Interrupted):
                assert await running == n
            thread.interrupt()
            assert await thread.run(lambda: "next") == "next"
        threads.give(thread)
        threads.end()

    asyncio.run(story())


def test_an_interrupt_keeps_a_function_from_beginning() -> None:
    async def story() -> None:
        threads = Threads()
        blocked = threads.take()
        go = threading.Event()
        first = blocked.run(go.wait)
        ran: list[int] = []
        # Whichever thread takes it, it was interrupted before anybody could begin.
        other = threads.take()
        with other._lock:
            second = other.run(lambda: ran.append(1))
            other._struck = True
        with pytest.raises(Interrupted):
            await second
        assert ran == []
        go.set()
        assert await first
        for thread in (blocked, other):
            threads.give(thread)
        threads.end()

    asyncio.run(story())


def serving() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name.startswith("headgate-job")}


def ended(threads: set[threading.Thread]) -> bool:
    for one in threads:
        one.join(20)
    return not any(one.is_alive() for one in threads)


def test_there_are_as_many_threads_as_functions_at_the_same_time() -> None:
    before = serving()
    threads = Threads()

    async def story() -> None:
        together = threading.Barrier(20)
        for _ in range(3):
            taken = [threads.take() for _ in range(20)]
            # Nobody gets past the barrier unless all of them run at once.
            running = [one.run(partial(together.wait, 20)) for one in taken]
            assert sorted(await asyncio.gather(*running)) == list(range(20))
            for one in taken:
                threads.give(one)

    asyncio.run(story())
    made = serving() - before
    assert len(made) == 20
    threads.end()
    assert ended(made)


def test_a_function_that_nobody_waits_for_takes_no_thread_from_others() -> None:
    before = serving()
    threads = Threads()
    go, begun = threading.Event(), threading.Event()
    inside: list[threading.Thread] = []

    def stuck() -> None:
        inside.append(threading.current_thread())
        begun.set()
        go.wait(20)

    async def story() -> None:
        left = threads.take()
        left.run(stuck)
        await asyncio.to_thread(begun.wait, 20)
        threads.give(left)
        for n in range(3):
            other = threads.take()
            assert await other.run(partial(int, n)) == n
            threads.give(other)
        assert len(serving() - before) == 2
        go.set()
        # Its thread has been replaced, so it ends, and the other one goes on.
        await asyncio.to_thread(inside[0].join, 20)
        assert not inside[0].is_alive()
        other = threads.take()
        assert await other.run(partial(int, 7)) == 7
        threads.give(other)

    asyncio.run(story())
    made = serving() - before
    assert len(made) == 1
    threads.end()
    assert ended(made)


def test_interrupts_hit_only_whom_they_are_meant_for() -> None:
    """Many functions in one line, half of them interrupted at any moment of their lives."""

    def spin(n: int) -> int:
        for _ in range(50):
            time.sleep(0)
        return n

    async def one(threads: Threads, n: int) -> bool:
        thread = threads.take()
        try:
            running = thread.run(partial(spin, n))
            if n % 2:
                for _ in range(n % 7):
                    await asyncio.sleep(0)
                thread.interrupt()
                with contextlib.suppress(Interrupted):
                    return bool(await running == n)
                return False
            assert await running == n
            return True
        finally:
            threads.give(thread)

    async def story() -> None:
        threads = Threads()
        found = await asyncio.gather(*(one(threads, n) for n in range(400)))
        assert not all(found)
        assert all(found[::2])
        threads.end()

    asyncio.run(story())


def test_one_set_of_threads_serves_several_loops() -> None:
    threads = Threads()

    async def story() -> int:
        thread = threads.take()
        try:
            found: int = await thread.run(partial(int, 5))
            return found
        finally:
            threads.give(thread)

    assert [asyncio.run(story()) for _ in range(3)] == [5, 5, 5]
    threads.end()
