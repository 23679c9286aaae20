from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from headgate import runtime
from headgate.engines.local.store import StoreUnusable
from headgate.server.app import Application
from headgate.server.configuration import SettingInvalid
from headgate.server.settings import Settings
from tests.server.driver import Exchange


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("memory:", ":memory:"),
        ("sqlite:///jobs.db", "jobs.db"),
        ("sqlite:///data/jobs.db", "data/jobs.db"),
        ("sqlite:////var/lib/jobs.db", "/var/lib/jobs.db"),
        ("sqlite:///:memory:x", ":memory:x"),
    ],
)
def test_a_store_is_a_path_below_here_or_from_the_root(url: str, path: str) -> None:
    assert runtime.store_path(url) == path


@pytest.mark.parametrize(
    "url",
    ["", "memory", "jobs.db", "sqlite:jobs.db", "sqlite://jobs.db", "sqlite:///", "sqlite:////",
     "redis://x", "sqlite:///a?mode=ro", "sqlite:///:memory:"],
)  # fmt: skip
def test_another_store_is_refused_by_name(url: str) -> None:
    with pytest.raises(SettingInvalid, match=r"^store: must be"):
        runtime.store_path(url)


class Life:
    """The server side of the lifespan protocol."""

    def __init__(self, app: Application) -> None:
        self.app = app
        self.incoming: asyncio.Queue[Any] = asyncio.Queue()
        self.outgoing: asyncio.Queue[Any] = asyncio.Queue()

    async def __aenter__(self) -> Application:
        self.task = asyncio.create_task(
            self.app({"type": "lifespan"}, self.incoming.get, self.outgoing.put)
        )
        await self.incoming.put({"type": "lifespan.startup"})
        assert (await self.outgoing.get())["type"] == "lifespan.startup.complete"
        return self.app

    async def __aexit__(self, *_error: object) -> None:
        await self.incoming.put({"type": "lifespan.shutdown"})
        assert (await self.outgoing.get())["type"] == "lifespan.shutdown.complete"
        await self.task


def test_under_any_server_it_opens_with_the_lifespan_and_keeps_what_it_was_given(
    tmp_path: Path,
) -> None:
    settings = Settings(store=f"sqlite:///{tmp_path}/jobs.db")
    body = json.dumps({"type": "a.b", "args": [1], "options": {"queue": "q"}}).encode()

    async def run() -> None:
        async with Life(runtime.application(settings)) as app:
            reply = await Exchange("POST", "/in/ojs/v1/jobs", body, root_path="/in").run(app)
            assert reply.status == 201
        async with Life(runtime.application(settings)) as app:
            path = f"/ojs/v1/jobs/{reply.json['job']['id']}"
            assert (await Exchange("GET", path).run(app)).json["job"]["queue"] == "q"

    asyncio.run(run())


def test_time_passes_without_requests() -> None:
    async def run() -> None:
        async with Life(runtime.application(Settings(store="memory:"))) as app:
            body = b'{"type":"a.b","args":[],"options":{"scheduled_at":"+PT0.05S"}}'
            job = (await Exchange("POST", "/ojs/v1/jobs", body).run(app)).json["job"]
            assert job["state"] == "scheduled"
            # A fetch that waits looks only when it is told to.
            waiting = Exchange(
                "POST", "/ojs/v1/workers/fetch", b'{"queues":["default"],"wait_ms":10000}'
            )
            found = (await asyncio.wait_for(waiting.run(app), 5)).json["jobs"]
            assert [each["id"] for each in found] == [job["id"]]

    asyncio.run(run())


def test_a_store_that_cannot_be_opened_stops_the_start(tmp_path: Path) -> None:
    app = runtime.application(Settings(store=f"sqlite:///{tmp_path}/no/jobs.db"))

    async def run() -> None:
        with pytest.raises(StoreUnusable):
            await Life(app).app({"type": "lifespan"}, _startup, _ignore)

    asyncio.run(run())


async def _startup() -> Any:
    return {"type": "lifespan.startup"}


async def _ignore(message: Any) -> None:
    assert message["type"] == "lifespan.startup.failed"
    assert "no" in message["message"]
