"""A clock that tests move and a server that does what a test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from headgate.client.errors import OjsConnectionError
from headgate.client.transport.contract import Answer

Reply = Callable[["Asked"], Answer]


class FakeClock:
    """Sleeping moves it on at once."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self.start_ms = now_ms
        self.s = 0.0
        self.slept: list[float] = []

    def now_ms(self) -> int:
        return self.start_ms + round(self.s * 1000)

    def elapsed_s(self) -> float:
        return self.s

    async def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 6))
        self.s += seconds
        await asyncio.sleep(0)


class Asked:
    def __init__(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str] | None
    ) -> None:
        self.method = method
        self.path = path.removeprefix("/ojs/v1")
        self.body: Any = None if body is None else json.loads(body)
        self.headers = dict(headers or {})

    def __repr__(self) -> str:
        return f"{self.method} {self.path}"


class FakeServer:
    """Answers in the order of its script; the last entry stays. An entry is an answer, an error or a function."""

    def __init__(self, *script: Answer | BaseException | Reply) -> None:
        self.script: list[Answer | BaseException | Reply] = list(script)
        self.asked: list[Asked] = []
        self.url = "fake:"
        self.closed = 0

    async def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float,
    ) -> Answer:
        asked = Asked(method, path, body, headers)
        self.asked.append(asked)
        await asyncio.sleep(0)
        entry = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(entry, BaseException):
            raise entry
        return entry if isinstance(entry, Answer) else entry(asked)

    async def close(self) -> None:
        self.closed += 1


def answer(status: int, body: object = None, **headers: str) -> Answer:
    data = b"" if body is None else json.dumps(body).encode()
    return Answer(status, {name.replace("_", "-"): text for name, text in headers.items()}, data)


def accepted(asked: Asked) -> Answer:
    """What a server with room says to any enqueue."""
    if asked.path == "/jobs/batch":
        jobs = [{**job, "state": "available"} for job in asked.body["jobs"]]
        return answer(201, {"jobs": jobs, "count": len(jobs)})
    return answer(201, {"job": {**asked.body, "state": "available"}})


def refused(status: int, code: str, retry_after: str | None = None, **error: Any) -> Answer:
    headers = {} if retry_after is None else {"retry_after": retry_after}
    return answer(status, {"error": {"code": code, "message": code, **error}}, **headers)


def full(retry_after: str | None = None, queue: str = "default", **more: Any) -> Answer:
    return refused(429, "QUEUE_FULL", retry_after, queue=queue, retryable=True, **more)


def cut(*, uncertain: bool = True) -> OjsConnectionError:
    return OjsConnectionError("the connection broke", uncertain=uncertain)
