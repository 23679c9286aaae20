"""The public API as type checkers must see it. It is checked, never run."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, assert_type

from headgate import (
    AsyncHeadgate,
    AsyncJob,
    AsyncJobContext,
    AsyncTask,
    Headgate,
    Job,
    JobContext,
    Rate,
    RateLimit,
    Worker,
)


@dataclass
class Order:
    number: int


hg = Headgate()
ahg = AsyncHeadgate("http://localhost:8080", token="secret")


@hg.job
def plain(customer: str, pages: int = 1) -> dict[str, int]:
    return {customer: pages}


@hg.job(queue="reports", rate_limit=RateLimit("r:{order}", concurrency=2, rate=Rate(100, per=60)))
async def coroutine(order: Order) -> str:
    return str(order.number)


@hg.job(run_in="process", timeout="5m", retry=3, tags=["a"], unique=True)
def heavy(context: JobContext, number: int) -> int:
    context.progress(0.5)
    assert_type(context.attempt, int)
    return number


@ahg.job
async def awaiting(context: AsyncJobContext, text: str) -> None:
    await context.checkpoint({"text": text})


def blocking() -> None:
    job = plain.enqueue("acme", pages=3)
    assert_type(job, Job[dict[str, int]])
    assert_type(job.wait(timeout=30).result, dict[str, int])
    assert_type(coroutine.enqueue(Order(1)).result, str)
    assert_type(heavy.enqueue(number=4), Job[int])
    assert_type(plain.schedule(after="5m").enqueue("acme"), Job[dict[str, int]])
    assert_type(plain.options(priority=5, delay=1.5).enqueue("acme"), Job[dict[str, int]])
    assert_type(plain.enqueue_many([("a",), plain.call("b", pages=2)]), list[Job[dict[str, int]]])
    assert_type(hg.enqueue("other.type", 1, "two", priority=3), Job[Any])
    assert_type(hg.queue("reports").stats(), dict[str, Any])
    hg.queue("reports").configure(max_depth=100, rate="5/s", concurrency=None)
    assert_type(hg.limits["reports"].allowed, list[Job[Any]])
    hg.limits["reports"].override(concurrency=1, lasting="10m")
    hg.pools["general"].set(["a", "b"], strategy="weighted", weights={"a": 2, "b": 1})
    Worker(hg, queues=["reports"], concurrency=20, pool="general").run()


async def nonblocking() -> None:
    job = await awaiting.enqueue("x")
    assert_type(job, AsyncJob[None])
    assert_type((await job.wait(5)).result, None)
    assert_type((await plain.aio.enqueue("acme")).result, dict[str, int])
    assert_type(await ahg.limits["reports"].rate_limited, list[AsyncJob[Any]])
    assert_type(await ahg.queue("reports").stats(), dict[str, Any])
    assert_type(hg.aio, AsyncHeadgate)
    async with ahg:
        await Worker(ahg).serve()


def given(task: AsyncTask[[int], str]) -> Coroutine[Any, Any, AsyncJob[str]]:
    return task.enqueue(1)
