"""What a test puts in the place of the server is seen by that test alone, and only as long as it lasts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from headgate import OjsConnectionError
from headgate.client.sides import lending
from headgate.testing import Harness, fake, inline, real
from tests.testing.world import World


def asked_the_server(world: World) -> bool:
    try:
        world.hg.queue("mail").stats()
    except OjsConnectionError:
        return True
    return False


def test_everything_is_as_before(world: World) -> None:
    own = world.hg.parts.core
    for mode in (fake, inline, real, Harness):
        with mode(world.hg):
            assert world.hg.parts.core is not own
        assert world.hg.parts.core is own
        assert not lending.get()
    with pytest.raises(ZeroDivisionError), fake(world.hg):
        raise ZeroDivisionError
    assert world.hg.parts.core is own
    assert asked_the_server(world)


def test_one_inside_of_another(world: World) -> None:
    with fake(world.hg) as outside:
        world.send.enqueue("a")
        with inline(world.hg) as inside:
            world.send.enqueue("b")
            inside.assert_completed(world.send, args=("b",))
            inside.refute_enqueued(world.send, args=("a",))
            assert in_thread(lambda: world.send.enqueue("c").state) == "completed"
        world.send.enqueue("d")
        assert [one.args for one in outside.all_enqueued()] == [["a"], ["d"]]
        assert lending.get()


def test_once_at_a_time(world: World) -> None:
    jobs = fake(world.hg)
    with pytest.raises(RuntimeError, match="not in force"):
        jobs.use(world.hg)
    with jobs, pytest.raises(RuntimeError, match="in force already"):
        jobs.open()
    jobs.close()


def test_threads_of_the_test_belong_to_it(world: World) -> None:
    with fake(world.hg) as jobs:
        in_thread(lambda: world.send.enqueue("a").id)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda n: world.send.enqueue(str(n)).id, range(20)))
        jobs.assert_enqueued(world.send, count=21)


def test_tests_side_by_side_do_not_meet(world: World) -> None:
    meeting = threading.Barrier(4)

    def story(number: int) -> list[str]:
        with Harness(world.hg) as harness:
            meeting.wait(10)
            for _ in range(20):
                world.send.enqueue(f"{number}")
            harness.run_for("1s")
            harness.assert_completed(world.send, count=20)
            meeting.wait(10)
            return [one.args[0] for one in harness.all_enqueued()]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(story, range(4))) == [[str(n)] * 20 for n in range(4)]
    assert asked_the_server(world)


def test_tasks_side_by_side_do_not_meet(world: World) -> None:
    async def story(number: int) -> list[str]:
        with fake(world.hg) as jobs:
            for _ in range(5):
                await world.send.aio.enqueue(f"{number}")
                await asyncio.sleep(0)
            return [one.args[0] for one in jobs.all_enqueued()]

    async def all_of_them() -> list[list[str]]:
        return await asyncio.gather(*(story(number) for number in range(3)))

    assert asyncio.run(all_of_them()) == [[str(n)] * 5 for n in range(3)]


def test_in_doubt_nobody_is_asked(world: World) -> None:
    """A thread that no test started must reach neither the wrong test nor the server."""
    ready, done = threading.Barrier(3), threading.Event()

    def story() -> None:
        with fake(world.hg):
            ready.wait(10)
            done.wait(10)

    with ThreadPoolExecutor(2) as pool:
        others = [pool.submit(story) for _ in range(2)]
        ready.wait(10)
        try:
            with pytest.raises(RuntimeError, match="several tests"):
                world.send.enqueue("a")
        finally:
            done.set()
        for other in others:
            other.result()


def test_several_applications(world: World) -> None:
    other = World()
    with fake(world.hg) as jobs:
        jobs.use(other.hg)
        world.send.enqueue("a")
        other.send.enqueue("b")
        jobs.assert_enqueued("send", count=2)
    assert asked_the_server(world)
    assert asked_the_server(other)


def in_thread(call: Callable[[], str]) -> str:
    """Give the result out of a thread that knows nothing of who started it."""
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join(10)
    return found[0]
