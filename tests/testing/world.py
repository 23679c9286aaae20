"""An application for tests of the testing kit, new for each of them."""

from __future__ import annotations

import threading
from typing import Any

from headgate import Headgate, JobContext, RateLimit, RetryPolicy, Unique, Waits
from headgate.client.tasks import Task


class World:
    """Its server does not exist: whoever asks it by mistake fails."""

    def __init__(self) -> None:
        self.hg = Headgate("http://127.0.0.1:9", breaker=False, retry=Waits(tries=1))
        self.seen: list[Any] = []
        self.threads: list[int] = []
        hg, seen = self.hg, self.seen

        @hg.job(queue="mail", meta={"team": "a", "kind": "mail"})
        def send(address: str, copies: int = 1) -> int:
            self.threads.append(threading.get_ident())
            seen.append(address)
            return copies * 2

        @hg.job(queue="mail", unique=Unique(key="news:{week}"))
        def news(week: int) -> None:
            seen.append(week)

        @hg.job(retry=RetryPolicy(max_attempts=3, initial_interval="10s", jitter=False))
        def shaky(number: int) -> str:
            seen.append(number)
            raise ValueError(f"no {number}")

        @hg.job(queue="outer")
        def outer(address: str) -> str:
            return send.enqueue(address).id

        @hg.job(queue="async")
        async def waits(address: str) -> str:
            self.threads.append(threading.get_ident())
            return (await send.aio.enqueue(address)).id

        @hg.job
        def tells(context: JobContext, number: int) -> int:
            context.progress(0.5, "half")
            context.checkpoint({"number": number})
            return context.attempt

        @hg.job(queue="pay", rate_limit=RateLimit("stripe", rate="100/m"))
        def charge(number: int) -> int:
            return number

        @hg.job(queue="pay", rate_limit=RateLimit("slots", concurrency=3))
        def slot(number: int) -> int:
            return number

        self.send: Task[..., int] = send
        self.news: Task[..., None] = news
        self.shaky: Task[..., str] = shaky
        self.outer: Task[..., str] = outer
        self.waits: Task[..., str] = waits
        self.tells: Task[..., int] = tells
        self.charge: Task[..., int] = charge
        self.slot: Task[..., int] = slot
