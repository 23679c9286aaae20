from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from headgate.server.deadlines import Deadlines
from tests.server.instantly import Loop


class Client:
    """Misses deadlines, and remembers when."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.missed: list[tuple[str, float]] = []
        self.deadlines = Deadlines(self.loop, self.miss("send"), self.miss("take"))

    def miss(self, what: str) -> Callable[[], None]:
        return lambda: self.missed.append((what, round(self.loop.time(), 3)))


def run(test: Callable[[Client], Awaitable[None]]) -> Client:
    async def main() -> Client:
        client = Client()
        await test(client)
        await asyncio.sleep(1_000)
        return client

    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(main())


def test_a_missed_deadline_is_told_once() -> None:
    async def test(client: Client) -> None:
        client.deadlines.send_within(30)
        client.deadlines.take_within(60)

    assert run(test).missed == [("send", 30), ("take", 60)]


def test_a_kept_deadline_is_not_told() -> None:
    async def test(client: Client) -> None:
        client.deadlines.send_within(30)
        client.deadlines.take_within(60)
        client.deadlines.sent()
        client.deadlines.taken()

    assert run(test).missed == []


def test_a_new_deadline_replaces_the_old_one() -> None:
    async def test(client: Client) -> None:
        client.deadlines.send_within(30)
        await asyncio.sleep(20)
        client.deadlines.send_within(30)

    async def sooner(client: Client) -> None:
        client.deadlines.send_within(30)
        client.deadlines.send_within(5)

    assert run(test).missed == [("send", 50)]
    assert run(sooner).missed == [("send", 5)]


def test_a_busy_connection_hardly_ever_sets_a_timer() -> None:
    async def test(client: Client) -> None:
        loop = client.loop
        assert isinstance(loop, Loop)
        before = loop.instantly.wakes
        for _ in range(10_000):
            client.deadlines.send_within(120)
            await asyncio.sleep(0.01)
            client.deadlines.sent()
        assert loop.instantly.wakes - before <= 10_001

    assert run(test).missed == []


def test_after_the_end_nothing_is_told() -> None:
    async def test(client: Client) -> None:
        client.deadlines.send_within(30)
        client.deadlines.stop()

    assert run(test).missed == []
