"""What a handler knows of its job."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from headgate import AsyncJobContext, JobContext, Waits
from headgate.client.context import current, enter
from headgate.client.core import Core
from tests.client.fakes import FakeClock, FakeServer, answer

JOB: dict[str, Any] = {
    "id": "j", "type": "a.b", "queue": "q", "args": [], "attempt": 2, "max_attempts": 3,
    "meta": {"k": 1}, "tags": ["t"], "checkpoint": {"n": 1}, "workflow_id": "w", "deferrals": 4,
}  # fmt: skip


def core(server: FakeServer | None = None) -> Core:
    found = server or FakeServer(answer(200, {}))
    return Core(found, clock=FakeClock(), waits=Waits(), timeout_s=5)


def test_the_record_by_its_members() -> None:
    context = JobContext(core(), JOB, "worker")
    assert (context.id, context.type, context.queue) == ("j", "a.b", "q")
    assert (context.attempt, context.max_attempts, context.deferrals) == (2, 3, 4)
    assert (context.meta, context.tags, context.saved) == ({"k": 1}, ["t"], {"n": 1})
    assert (context.workflow_id, context.parent_results) == ("w", [])
    least = JobContext(core(), {"id": "j", "type": "a.b", "args": []})
    assert (least.queue, least.attempt, least.saved, dict(least.meta)) == ("default", 1, None, {})


def test_records_name_the_job(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    JobContext(core(), JOB).log.info("hello")
    (record,) = caplog.records
    assert getattr(record, "ojs.job_id") == "j"


def test_reports_are_requests() -> None:
    server = FakeServer(answer(200, {"cancelled_jobs": ["j"]}))
    context = AsyncJobContext(core(server), JOB, "worker")

    async def story() -> None:
        await context.progress(0.25, "a quarter", data={1})
        await context.checkpoint((1, 2))
        assert not context.cancelled
        await context.heartbeat()
        assert context.cancelled_because == "cancelled"

    asyncio.run(story())
    assert [(one.method, one.path, one.body) for one in server.asked] == [
        ("PUT", "/jobs/j/progress", {"progress": 0.25, "message": "a quarter", "data": [1]}),
        ("PUT", "/jobs/j/checkpoint", {"state": [1, 2]}),
        ("POST", "/workers/heartbeat", {"worker_id": "worker", "active_jobs": ["j"]}),
    ]


@pytest.mark.parametrize("first", ["wait", "interrupt"])
def test_a_wait_ends_when_the_job_shall_stop(first: str) -> None:
    context = JobContext(core(), JOB)
    assert not context.wait_cancelled(0)
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(context.wait_cancelled(20)))
    if first == "wait":
        thread.start()
    context.interrupt("timeout")
    context.interrupt("shutdown")
    if first == "interrupt":
        thread.start()
    thread.join(20)
    assert found == [True]
    assert context.cancelled_because == "timeout"


def test_a_result_can_be_set() -> None:
    context = JobContext(core(), JOB)
    assert context.outcome(1) == 1
    context.set_result(None)
    assert context.outcome(1) is None


def test_each_thread_has_its_own_job() -> None:
    context = JobContext(core(), JOB)
    found: list[Any] = []

    def inside() -> None:
        enter(context)
        found.append(current())

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert found == [context]
    assert current() is None
