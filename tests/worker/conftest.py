from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headgate import AsyncHeadgate, Worker
from headgate.client.transport.http import HttpTransport
from tests.cli.served import Served, servers


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with servers(tmp_path_factory.mktemp("served")) as serve:
        yield serve("--store", "memory:", "--test-hooks")


@pytest.fixture
def url(served: Served) -> str:
    """An empty server."""
    status, _ = served.ask("POST", "/ojs/v1/admin/reset", {})
    assert status in {200, 204}
    return f"http://127.0.0.1:{served.port}"


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    """Where handlers leave their marks."""
    return tmp_path / "marks"


@asynccontextmanager
async def working(hg: AsyncHeadgate, **more: Any) -> AsyncIterator[Worker]:
    """A worker that runs meanwhile."""
    settings: dict[str, Any] = {"wait": 0.2, "poll": 0.05, "heartbeat": 0.1, "grace": 5.0}
    worker = Worker(hg, **(settings | more))
    await worker.start()
    try:
        yield worker
    finally:
        await worker.stop()


async def until(found: Callable[[], Any] | Callable[[], Awaitable[Any]], what: str) -> None:
    """Look again and again at what another process does."""
    for _ in range(2_000):
        seen = found()
        if isinstance(seen, Awaitable):
            seen = await seen
        if seen:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{what}: not in time")


_connected: list[AsyncHeadgate] = []


def connect(url: str, **more: Any) -> AsyncHeadgate:
    hg = AsyncHeadgate(transport=HttpTransport(url), **more)
    _connected.append(hg)
    return hg


async def disconnect() -> None:
    """Close all clients of a test, on its loop."""
    while _connected:
        await _connected.pop().close()
