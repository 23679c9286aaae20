"""Workers at a real server, with the exchange and with the standard requests alone."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from headgate import (
    AsyncJob,
    AsyncJobContext,
    Discard,
    ExecutionError,
    JobContext,
    RateLimit,
    RateLimited,
    Retry,
    RetryPolicy,
    Snooze,
    Worker,
    current,
)
from headgate.client.context import Context
from headgate.client.declared import RunIn
from headgate.worker.signals import Interrupted
from tests.worker import handlers
from tests.worker.conftest import connect, disconnect, until, working
from tests.worker.handlers import noted

FAST = RetryPolicy(max_attempts=3, initial_interval="10ms", jitter=False, backoff="constant")
EXCHANGES = pytest.mark.parametrize("exchange", [None, False], ids=["exchange", "standard"])
pytestmark = [EXCHANGES, pytest.mark.filterwarnings("error")]


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        try:
            async with asyncio.timeout(60):
                await story()
        finally:
            await disconnect()

    asyncio.run(within())


async def ended(job: Any) -> Any:
    return (await job.wait(timeout=30)).record


def test_handlers_run_where_they_belong(url: str, exchange: bool | None) -> None:
    hg = connect(url)

    @hg.job
    async def double(context: AsyncJobContext, n: int) -> int:
        assert current() is context
        return 2 * n

    @hg.job
    def thread(n: int) -> int:
        context = current()
        assert context is not None
        assert context.attempt == 1
        return n + 1

    process = hg.job(run_in="process", type="process")(handlers.add)

    async def story() -> None:
        async with working(hg, exchange=exchange) as worker:
            jobs = [
                await double.enqueue(4),
                await thread.enqueue(4),
                await process.enqueue(4, b=5),
            ]
            assert [(await job.wait(timeout=30)).result for job in jobs] == [8, 5, 9]
            assert worker.counts.completed == 3

    run(story)


def test_many_jobs_each_once(url: str, exchange: bool | None) -> None:
    hg = connect(url)
    seen: list[int] = []

    @hg.job
    async def one(n: int) -> None:
        seen.append(n)

    async def story() -> None:
        await one.enqueue_many([(n,) for n in range(2_000)])
        worker = Worker(hg, exchange=exchange, burst=True, concurrency=50, wait=0.2, poll=0.05)
        await worker.serve()
        assert sorted(seen) == list(range(2_000))
        assert (await hg.queue("default").stats())["completed"] == 2_000

    run(story)


def test_no_more_jobs_at_once_than_allowed(url: str, exchange: bool | None) -> None:
    hg = connect(url)
    now = most = 0

    @hg.job
    async def one() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.005)
        now -= 1

    async def story() -> None:
        await one.enqueue_many([()] * 60)
        await Worker(hg, exchange=exchange, burst=True, concurrency=7, poll=0.05, wait=0.2).serve()
        assert most == 7

    run(story)


@pytest.mark.parametrize("run_in", ["loop", "thread", "process"])
def test_a_failure_is_told_and_tried_again(url: str, exchange: bool | None, run_in: RunIn) -> None:
    hg = connect(url)

    async def coroutine() -> None:
        handlers.fail()

    task: Any = hg.job(run_in=run_in, retry=FAST, type="fails")(
        coroutine if run_in == "loop" else handlers.fail
    )

    async def story() -> None:
        async with working(hg, exchange=exchange):
            record = await ended(await task.enqueue())
        assert record["state"] == "discarded"
        assert [one["attempt"] for one in record["errors"]] == [1, 2, 3]
        error = record["error"]
        assert (error["code"], error["type"]) == ("handler_error", "LookupError")
        assert error["message"] == "no such thing"
        assert "in fail" in error["backtrace"][-1]

    run(story)


@pytest.mark.parametrize("run_in", ["thread", "process"])
def test_a_handler_that_wants_to_leave_does_not_take_the_worker_along(
    url: str, exchange: bool | None, run_in: RunIn
) -> None:
    hg = connect(url)
    leaves = hg.job(run_in=run_in, retry=1)(handlers.leave)

    @hg.job
    async def after() -> str:
        return "still here"

    async def story() -> None:
        async with working(hg, exchange=exchange):
            record = await ended(await leaves.enqueue())
            assert "SystemExit" in record["error"]["message"]
            assert (await (await after.enqueue()).wait(timeout=20)).result == "still here"

    run(story)


def test_a_process_that_dies_fails_its_job_only(
    url: str, exchange: bool | None, marks: Path
) -> None:
    hg = connect(url)
    dies = hg.job(run_in="process", retry=1)(handlers.die)
    adds = hg.job(run_in="process")(handlers.add)

    async def story() -> None:
        async with working(hg, exchange=exchange, processes=1):
            record = await ended(await dies.enqueue(str(marks)))
            assert record["error"]["code"] == "handler_panic"
            assert "exit code 7" in record["error"]["message"]
            assert (await (await adds.enqueue(1)).wait(timeout=20)).result == 3

    run(story)


@pytest.mark.parametrize("run_in", ["loop", "thread", "process"])
def test_a_timeout_stops_the_handler(
    url: str, exchange: bool | None, run_in: RunIn, marks: Path
) -> None:
    hg = connect(url)

    async def sleeps(path: str) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            handlers.note(path, "stopped")

    function: Any = {"loop": sleeps, "thread": handlers.spin, "process": handlers.sleep_long}[
        run_in
    ]
    # A process of its own has to start within that time.
    timeout = 5 if run_in == "process" else 1
    task = hg.job(run_in=run_in, retry=1, timeout=timeout, type="slow")(function)

    async def story() -> None:
        async with working(hg, exchange=exchange) as worker:
            record = await ended(await task.enqueue(str(marks)))
            assert record["error"]["type"] == "timeout"
            await until(lambda: not worker.active(), "the handler stops")
            before = noted(marks)
            await asyncio.sleep(0.1)
            assert noted(marks) == before
            assert {"loop": "stopped", "thread": "spin", "process": "begun"}[run_in] in before
            assert "ended" not in before

    run(story)


@pytest.mark.parametrize("run_in", ["loop", "thread", "process"])
def test_a_cancelled_job_is_interrupted(
    url: str, exchange: bool | None, run_in: RunIn, marks: Path
) -> None:
    hg = connect(url)

    async def sleeps(path: str) -> None:
        handlers.note(path, "begun")
        try:
            await asyncio.sleep(60)
        finally:
            handlers.note(path, "stopped")

    function: Any = {"loop": sleeps, "thread": handlers.spin, "process": handlers.sleep_long}[
        run_in
    ]
    task = hg.job(run_in=run_in, type="slow")(function)

    async def story() -> None:
        async with working(hg, exchange=exchange) as worker:
            job = await task.enqueue(str(marks))
            await until(lambda: noted(marks), "the job begins")
            await job.cancel()
            await until(lambda: not worker.active(), "the handler stops")
            assert (await job.refresh()).state == "cancelled"
            assert worker.counts.dropped == 1

    run(story)


def test_a_thread_may_ask_whether_it_shall_stop(
    url: str, exchange: bool | None, marks: Path
) -> None:
    hg = connect(url)

    @hg.job
    def polite(context: JobContext, path: str) -> str:
        try:
            return handlers.wait_until_told(context, path)
        except Interrupted:
            handlers.note(path, context.cancelled_because)
            raise

    async def story() -> None:
        async with working(hg, exchange=exchange) as worker:
            job = await polite.enqueue(str(marks))
            await until(lambda: noted(marks), "the job begins")
            await job.cancel()
            await until(lambda: not worker.active(), "the handler stops")
            assert noted(marks)[:2] == ["begun", "cancelled"]

    run(story)


def test_progress_and_checkpoints_of_coroutines(url: str, exchange: bool | None) -> None:
    hg = connect(url)

    @hg.job(retry=FAST)
    async def steps(context: AsyncJobContext) -> int:
        await context.progress(0.5, "half", data={"n": 1})
        if context.attempt == 1:
            await context.checkpoint({"n": 7})
            raise ConnectionError("first try")
        context.set_result(context.saved["n"])
        return 0

    async def story() -> None:
        async with working(hg, exchange=exchange):
            job = await steps.enqueue()
            assert (await job.wait(timeout=20)).result == 7
            assert (await job.progress())["message"] == "half"
            assert await job.checkpoint() == {"n": 7}

    run(story)


@pytest.mark.parametrize("run_in", ["thread", "process"])
def test_progress_and_checkpoints_of_functions(
    url: str, exchange: bool | None, run_in: RunIn
) -> None:
    hg = connect(url)
    report = hg.job(run_in=run_in, retry=FAST)(handlers.report)

    async def story() -> None:
        async with working(hg, exchange=exchange):
            assert (await (await report.enqueue()).wait(timeout=30)).result == 1

    run(story)


# what handlers decide


def test_discard_ends_the_job(url: str, exchange: bool | None) -> None:
    hg = connect(url)
    plain = hg.job(retry=FAST, type="plain")(_discarding)
    dead = hg.job(retry=FAST, run_in="process")(handlers.give_up)

    async def story() -> None:
        async with working(hg, exchange=exchange):
            one, two = await plain.enqueue(), await dead.enqueue()
            assert (await ended(one))["attempt"] == 1
            assert (await ended(two))["state"] == "discarded"
        letters = await hg.admin.list_dead()
        assert [letter.id for letter in letters] == [two.id]

    run(story)


async def _discarding() -> None:
    raise Discard("pointless")


def test_retry_charges_an_attempt(url: str, exchange: bool | None) -> None:
    hg = connect(url)
    starts: list[int] = []

    @hg.job(retry=FAST)
    async def again(context: AsyncJobContext) -> None:
        starts.append(context.attempt)
        raise Retry("not yet")

    async def story() -> None:
        async with working(hg, exchange=exchange):
            await ended(await again.enqueue())
        assert starts == [1, 2, 3]

    run(story)


def test_snooze_puts_off_and_charges_nothing(url: str, exchange: bool | None) -> None:
    hg = connect(url)
    starts: list[tuple[int, float]] = []

    @hg.job(retry=1)
    async def snoozing(context: AsyncJobContext) -> str:
        starts.append((context.attempt, asyncio.get_running_loop().time()))
        if len(starts) < 5:
            raise Snooze(0.1)
        return "done"

    async def story() -> None:
        async with working(hg, exchange=exchange) as worker:
            job = await snoozing.enqueue()
            assert (await job.wait(timeout=20)).result == "done"
            assert worker.counts.deferred == 4
        assert [attempt for attempt, _ in starts] == [1] * 5
        assert all(b[1] - a[1] >= 0.09 for a, b in pairwise(starts))

    run(story)


def test_a_limited_job_without_a_key_is_put_off(url: str, exchange: bool | None) -> None:
    hg = connect(url)
    starts: list[int] = []

    @hg.job(retry=1)
    def asks(context: JobContext) -> str:
        starts.append(context.attempt)
        if len(starts) < 3:
            raise RateLimited(retry_after=0.05)
        return "done"

    async def story() -> None:
        async with working(hg, exchange=exchange):
            assert (await (await asks.enqueue()).wait(timeout=20)).result == "done"
        assert starts == [1, 1, 1]

    run(story)


def test_retry_may_choose_its_delay(url: str, exchange: bool | None) -> None:
    hg = connect(url)

    @hg.job(retry=RetryPolicy(max_attempts=2, initial_interval="1m"))
    async def again(context: AsyncJobContext) -> int:
        if context.attempt == 1:
            raise Retry(after=0.05)
        return context.attempt

    async def story() -> None:
        async with working(hg, exchange=exchange):
            assert (await (await again.enqueue()).wait(timeout=20)).result == 2

    run(story)


def test_deferrals_are_counted_whoever_runs_the_job(url: str, exchange: bool | None) -> None:
    hg = connect(url)
    seen: list[int] = []

    @hg.job(retry=1)
    async def never(context: AsyncJobContext) -> None:
        seen.append(context.deferrals)
        raise Snooze(0.01)

    async def story() -> None:
        job = await never.enqueue()
        for goal in (2, 4):
            async with working(hg, exchange=exchange, most_deferrals=100):
                await until(lambda goal=goal: len(seen) >= goal, "it is put off")
        async with working(hg, exchange=exchange, most_deferrals=4):
            await ended(job)
        assert seen == list(range(len(seen)))

    run(story)


def test_deferrals_have_a_ceiling_of_their_own(url: str, exchange: bool | None) -> None:
    hg = connect(url)
    starts: list[int] = []

    @hg.job(retry=1, rate_limit=RateLimit("k"))
    async def never(context: AsyncJobContext) -> None:
        starts.append(context.attempt)
        raise Snooze(0.01)

    async def story() -> None:
        async with working(hg, exchange=exchange, most_deferrals=3):
            record = await ended(await never.enqueue())
        assert record["state"] == "discarded"
        assert "put off 3 times" in record["error"]["message"]
        assert len(starts) == 4

    run(story)


# what workers do not have, and what surrounds them


def test_a_job_without_a_handler_fails_and_says_so(url: str, exchange: bool | None) -> None:
    hg = connect(url)

    async def story() -> None:
        job = await hg.enqueue("unknown.type", retry=FAST)
        async with working(hg, exchange=exchange, queues=["default"]):
            record = await ended(job)
        assert record["error"]["code"] == "no_handler"
        assert record["attempt"] == 3

    run(story)


def test_arguments_that_do_not_fit_fail_the_job(url: str, exchange: bool | None) -> None:
    hg = connect(url)
    hg.job(type="add", run_in="thread")(handlers.add)

    async def story() -> None:
        jobs = [await hg.enqueue("add", *args, retry=1) for args in (("x",), (), (1, 2, 3))]
        async with working(hg, exchange=exchange):
            found = [(await ended(job))["error"]["message"] for job in jobs]
        assert "argument a of add" in found[0]
        assert "needs a" in found[1]
        assert "takes 2 arguments" in found[2]

    run(story)


def test_a_result_that_is_no_json_or_too_large_fails_the_job(
    url: str, exchange: bool | None
) -> None:
    hg = connect(url)

    @hg.job(retry=FAST)
    async def odd() -> object:
        return object()

    @hg.job(retry=FAST)
    async def large() -> str:
        return "x" * (2 << 20)

    async def story() -> None:
        async with working(hg, exchange=exchange):
            one, two = await odd.enqueue(), await large.enqueue()
            assert (await ended(one))["error"]["code"] == "serialization_error"
            assert (await ended(two))["error"]["code"] == "RESULT_TOO_LARGE"
            assert two.attempt == 1

    run(story)


def test_middleware_surrounds_runs_and_cannot_hide_failures(
    url: str, exchange: bool | None
) -> None:
    hg = connect(url)
    seen: list[str] = []

    async def outer(context: Context, following: Callable[[], Awaitable[Any]]) -> Any:
        seen.append(f"outer {context.type}")
        return await following()

    async def swallowing(context: Context, following: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return (await following()) + 1
        except LookupError:
            seen.append("swallowed")
            return "fine"

    @hg.job
    async def good() -> int:
        return 1

    bad = hg.job(retry=1, type="bad")(handlers.fail)

    async def story() -> None:
        async with working(hg, exchange=exchange, middleware=[outer, swallowing], concurrency=1):
            one = await good.enqueue()
            assert (await one.wait(timeout=20)).result == 2
            with pytest.raises(ExecutionError, match="no such thing"):
                _ = (await (await bad.enqueue()).wait(timeout=20)).result
        assert seen == ["outer good", "outer bad", "swallowed"]

    run(story)


# the end


def test_stopping_lets_jobs_end_and_gives_back_the_rest(
    url: str, exchange: bool | None, marks: Path
) -> None:
    hg = connect(url)
    release = asyncio.Event()

    @hg.job
    async def quick() -> str:
        await release.wait()
        return "done"

    @hg.job
    async def slow() -> None:
        await asyncio.sleep(60)

    blocked = hg.job(type="blocked")(handlers.spin)
    child = hg.job(type="child", run_in="process")(handlers.sleep_long)

    async def story() -> None:
        jobs: list[AsyncJob[Any]] = [
            await quick.enqueue(),
            await slow.enqueue(),
            await blocked.enqueue(str(marks)),
            await child.enqueue(str(marks)),
        ]
        async with working(hg, exchange=exchange) as worker:
            await until(lambda: {"spin", "begun"} <= {*noted(marks)}, "all begin")
            later = await quick.enqueue()
            await until(lambda: len(worker.active()) == 5, "the last one begins")
            release.set()
            await worker.stop(grace=0.3)
        for job in (*jobs, later):
            await job.refresh()
        assert [job.state for job in jobs] == ["completed", "available", "available", "available"]
        assert later.state == "completed"
        assert [job.attempt for job in jobs[1:]] == [0, 0, 0]
        assert (await hg.admin.list_workers()) == []

    run(story)


def test_a_worker_that_stops_takes_nothing_more(url: str, exchange: bool | None) -> None:
    hg = connect(url)

    @hg.job
    async def one() -> None: ...

    async def story() -> None:
        async with working(hg, exchange=exchange):
            await (await one.enqueue()).wait(timeout=20)
        job = await one.enqueue()
        await asyncio.sleep(0.3)
        assert (await job.refresh()).state == "available"

    run(story)


def test_the_server_can_quiet_a_worker(url: str, exchange: bool | None) -> None:
    hg = connect(url)

    @hg.job
    async def one() -> None: ...

    async def story() -> None:
        async with working(hg, exchange=exchange) as worker:
            await (await one.enqueue()).wait(timeout=20)
            await hg.admin.quiet_worker(worker.worker_id)
            serving = asyncio.create_task(worker._told_to_stop())
            await until(lambda: worker.state == "quiet", "the worker hears of it")
            job = await one.enqueue()
            await asyncio.sleep(0.3)
            assert (await job.refresh()).state == "available"
            serving.cancel()

    run(story)


def test_the_server_can_end_a_worker(url: str, exchange: bool | None) -> None:
    hg = connect(url)

    @hg.job(meta={"test_directive": "terminate"})
    async def last() -> None:
        await asyncio.sleep(0.5)

    async def story() -> None:
        job = await last.enqueue()
        await Worker(hg, exchange=exchange, heartbeat=0.1, wait=0.2, poll=0.05).serve()
        assert (await job.refresh()).state == "completed"

    run(story)


def test_signals(url: str, exchange: bool | None) -> None:
    hg = connect(url)

    @hg.job
    async def one() -> None: ...

    async def story() -> None:
        worker = Worker(hg, exchange=exchange, wait=0.2, poll=0.05, heartbeat=0.1)
        serving = asyncio.create_task(worker.serve(signals=True))
        await until(lambda: worker.state == "running", "it starts")
        os.kill(os.getpid(), signal.SIGTSTP)
        await until(lambda: worker.state == "quiet", "it is quiet")
        os.kill(os.getpid(), signal.SIGCONT)
        await until(lambda: worker.state == "running", "it goes on")
        os.kill(os.getpid(), signal.SIGTERM)
        await serving
        assert worker.state == "stopped"

    run(story)


def test_a_second_signal_ends_the_patience(url: str, exchange: bool | None, marks: Path) -> None:
    hg = connect(url)

    @hg.job
    async def slow(path: str) -> None:
        handlers.note(path, "begun")
        await asyncio.sleep(60)

    async def story() -> None:
        job = await slow.enqueue(str(marks))
        worker = Worker(hg, exchange=exchange, wait=0.2, poll=0.05, heartbeat=0.1, grace=60)
        serving = asyncio.create_task(worker.serve(signals=True))
        await until(lambda: noted(marks), "it begins")
        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: worker.state == "terminate", "it ends")
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(10):
            await serving
        assert (await job.refresh()).state == "available"

    run(story)


def test_jobs_are_renewed_as_long_as_they_run(url: str, exchange: bool | None) -> None:
    hg = connect(url)

    @hg.job(visibility_timeout="500ms", retry=1)
    async def long() -> str:
        await asyncio.sleep(1.5)
        return "done"

    async def story() -> None:
        async with working(hg, exchange=exchange):
            assert (await (await long.enqueue()).wait(timeout=20)).result == "done"

    run(story)


def test_a_job_that_was_lost_is_interrupted(url: str, exchange: bool | None) -> None:
    hg = connect(url)
    stopped = asyncio.Event()
    starts = 0

    @hg.job(retry=FAST)
    async def stuck() -> str:
        nonlocal starts
        starts += 1
        if starts > 1:
            return "by the other one"
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()
        return ""

    async def story() -> None:
        job = await stuck.enqueue()
        async with working(hg, exchange=exchange, concurrency=1) as first:
            await until(lambda: starts == 1, "it begins")
            async with working(hg, exchange=exchange):
                # The server gives the first worker up, and its jobs to others.
                gone = {"worker_id": first.worker_id}
                await hg.admin.request("POST", "/workers/deregister", gone)
                assert (await job.wait(timeout=20)).result == "by the other one"
                await stopped.wait()
        assert starts == 2

    run(story)


def test_short_reservations_are_renewed_in_time(url: str, exchange: bool | None) -> None:
    hg = connect(url)

    @hg.job(visibility_timeout="600ms", retry=1)
    async def long() -> str:
        await asyncio.sleep(1.5)
        return "done"

    async def story() -> None:
        async with working(hg, exchange=exchange, heartbeat=5.0):
            assert (await (await long.enqueue()).wait(timeout=20)).result == "done"

    run(story)


def test_a_coroutine_in_a_process_reports_and_gets_large_arguments(
    url: str, exchange: bool | None
) -> None:
    hg = connect(url)
    measure = hg.job(run_in="process")(handlers.measure)

    async def story() -> None:
        async with working(hg, exchange=exchange):
            jobs = [await measure.enqueue("x" * 300_000) for _ in range(2)]
            assert [(await job.wait(timeout=30)).result for job in jobs] == [300_000] * 2
            assert (await jobs[0].progress())["progress"] == 1.0

    run(story)


def test_a_worker_starts_before_its_server(url: str, exchange: bool | None) -> None:
    hg = connect("http://127.0.0.1:1")
    port = int(url.rsplit(":", 1)[1])
    other = connect(url)

    @hg.job
    async def one() -> str:
        return "done"

    async def story() -> None:
        job = await other.enqueue("one")
        async with working(hg, exchange=exchange):
            await asyncio.sleep(0.1)
            transport: Any = hg.parts.core.transport
            transport._port = port
            assert (await job.wait(timeout=20)).result == "done"

    run(story)
