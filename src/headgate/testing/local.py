"""A server inside the program: engine in memory, all routes, no network.

Every request takes the way that it takes in a server, from the decoding of its body to the answer, so nothing is imitated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, urlencode

from headgate import clock, ids
from headgate.client.errors import OjsConnectionError
from headgate.client.sides import background
from headgate.client.transport.contract import Answer
from headgate.core.times import DAY_MS
from headgate.engines.contract import QueueView
from headgate.engines.local.engine import LocalEngine
from headgate.engines.local.timers import NEVER
from headgate.server.context import Context
from headgate.server.pipeline import Pipeline
from headgate.server.route import Stream
from headgate.server.routes import ROUTES
from headgate.server.settings import Settings
from headgate.testing.clock import VirtualClock
from headgate.wire.manifest import EXTENSIONS

T = TypeVar("T")
_NEVER_DEAD_MS: Final = 3650 * DAY_MS
"""Workers that have nothing to do say nothing; what a worker that crashes held is lost with its lease."""
_NOT_YET: Final = 408
_LOOK_AGAIN_S: Final = 1.0
_SETTINGS: Final = Settings(store="memory:")


class LocalServer:
    """Lives on the loop of clients that block; whoever else asks is brought there."""

    def __init__(self, time: VirtualClock, seed: int) -> None:
        self.time = time
        self.dice = ids.dice(seed)
        self._home = background().loop
        self.engine: LocalEngine = background().run(self._open())
        context = Context(
            engine=self.engine,
            settings=_SETTINGS,
            now_ms=time.now_ms,
            new_id=ids.uuid7,
            uniform=self.dice.random,
            now_us=time.now_us,
        )
        context.started_at = time.now_ms()
        self._pipeline = Pipeline(context, ROUTES, EXTENSIONS)

    async def _open(self) -> LocalEngine:
        return await LocalEngine.open(
            ":memory:",
            now_ms=self.time.now_ms(),
            heartbeat_timeout_ms=_NEVER_DEAD_MS,
            elapsed_s=clock.elapsed_s,
        )

    def end(self) -> None:
        """Everything is gone."""
        background().run(self.engine.close())

    async def here(self, step: Coroutine[Any, Any, T]) -> T:
        """Carry out a step on the loop of the server; without waits of its own, nothing comes in between."""
        if asyncio.get_running_loop() is self._home:
            return await step
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(step, self._home))

    # time

    def next_due_us(self) -> int | None:
        """When something happens by itself; None when nothing will."""
        due_ms = self.engine.next_due()
        return None if due_ms >= NEVER // 1_000 else due_ms * 1000

    async def tick(self) -> None:
        """Let happen what is due."""
        await self.here(self.engine.tick(self.time.now_ms()))

    async def views(self) -> list[QueueView]:
        """All queues, by name."""
        return await self.here(self.engine.queues(self.time.now_ms()))

    # as a transport

    async def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float,
    ) -> Answer:
        path, _, query = path.partition("?")
        waits_s = 0.0
        asked = dict(parse_qsl(query))
        if asked.get("wait") == "true":
            # A clock that somebody moves cannot be waited for: it is moved here, a little at a time.
            waits_s = float(asked.get("timeout", 30))
            query = urlencode({**asked, "timeout": 0})
        while True:
            answer = await self.here(self._answer(method, path, query, body or b"", headers or {}))
            if answer.status != _NOT_YET or waits_s <= 0:
                return answer
            await asyncio.sleep(0)
            await self.time.sleep(min(_LOOK_AGAIN_S, waits_s))
            waits_s -= _LOOK_AGAIN_S

    async def close(self) -> None:
        """Nothing is open."""

    async def _answer(
        self, method: str, path: str, query: str, body: bytes, headers: Mapping[str, str]
    ) -> Answer:
        given = [(name.lower().encode(), text.encode("latin-1")) for name, text in headers.items()]
        # A producer that waits for room would wait for workers that only run when it does not.
        given = [one for one in given if one[0] != b"ojs-block-timeout"]
        pipeline = self._pipeline
        request = pipeline.open(method, path, query.encode(), given)
        status = 500
        try:
            found = request.answer or await pipeline.finish(request, body)
            if isinstance(found, Stream):
                await found.chunks.aclose()
                raise OjsConnectionError(f"{path} streams, which needs a real server")
            status = found.status
            answered = {name.decode(): text.decode("latin-1") for name, text in found.headers}
            return Answer(status, answered, found.body)
        finally:
            pipeline.close(request, status)
