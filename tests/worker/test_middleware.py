"""Ready-made middleware on both sides: records, counts, times, spans."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, Tracer

from headgate import AsyncHeadgate, Discard, QueueFullError, Waits, Worker
from headgate.client.chain import Chain
from headgate.client.context import Context
from headgate.client.middleware import EnqueueMetrics, logging_enqueues
from headgate.worker.middleware import RunMetrics, logging_runs, reporting_errors
from headgate.worker.run import Middleware
from headgate.worker.tracing import trace_enqueues, trace_runs
from tests.client.fakes import FakeClock, FakeServer, full
from tests.worker import handlers
from tests.worker.conftest import connect, disconnect


def worked(
    url: str, *middleware: Middleware, prepare: Callable[[AsyncHeadgate], object] = lambda _: None
) -> None:
    """A good job, a bad one and one that its handler discards."""
    hg = connect(url)
    prepare(hg)

    @hg.job
    async def good(secret: str) -> str:
        return secret

    async def discards() -> None:
        raise Discard("no")

    bad = hg.job(retry=1, type="bad")(handlers.fail)
    ends = hg.job(type="ends")(discards)

    async def story() -> None:
        await good.enqueue("password")
        await bad.enqueue()
        await ends.enqueue()
        await Worker(hg, burst=True, concurrency=1, wait=0.2, middleware=middleware).serve()
        await disconnect()

    asyncio.run(story())


def test_records_name_the_job_and_no_arguments(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    worked(url, logging_runs(), prepare=lambda hg: hg.middleware.add(logging_enqueues()))
    told = [
        (record.levelname, record.getMessage().split(") ")[-1].split(" after")[0])
        for record in caplog.records
        if hasattr(record, "ojs.job_id")
    ]
    assert told == [
        ("INFO", "enqueued"), ("INFO", "enqueued"), ("INFO", "enqueued"),
        ("INFO", "completed"), ("ERROR", "failed"), ("INFO", "discard"),
    ]  # fmt: skip
    assert "password" not in caplog.text
    assert "no such thing" in caplog.text


def test_refusals_are_told(caplog: pytest.LogCaptureFixture) -> None:
    hg = AsyncHeadgate(
        transport=FakeServer(full("1")), clock=FakeClock(), retry=Waits(tries=1),
        middleware=[logging_enqueues(), counts := EnqueueMetrics(iter(range(9)).__next__)],
    )  # fmt: skip
    with pytest.raises(QueueFullError):
        asyncio.run(hg.enqueue("a.b"))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert counts.counts == {("default", "a.b", "refused"): 1}
    assert counts.seconds == {("default", "a.b"): 1}


def test_counts_and_times(url: str) -> None:
    metrics = RunMetrics()
    worked(url, metrics)
    assert metrics.counts == {
        ("default", "good", "completed"): 1,
        ("default", "bad", "failed"): 1,
        ("default", "ends", "discard"): 1,
    }
    assert all(seconds > 0 for seconds in metrics.seconds.values())
    assert metrics.running == 0


def test_only_failures_are_reported(url: str) -> None:
    met: list[tuple[str, str]] = []

    def report(context: Context, error: BaseException) -> None:
        met.append((context.type, str(error)))

    worked(url, reporting_errors(report))
    assert met == [("bad", "no such thing")]


@pytest.fixture
def spans() -> tuple[Tracer, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider.get_tracer("tests"), exporter


def test_spans_of_runs_are_linked_to_those_of_enqueues(
    url: str, spans: tuple[Tracer, InMemorySpanExporter]
) -> None:
    tracer, exporter = spans
    worked(url, trace_runs(tracer), prepare=lambda hg: hg.middleware.add(trace_enqueues(tracer)))
    found: dict[tuple[str, Any], ReadableSpan] = {
        (span.name, (span.attributes or {})["ojs.job.type"]): span
        for span in exporter.get_finished_spans()
    }
    assert len(found) == 6
    enqueued, processed = found["default enqueue", "good"], found["default process", "good"]
    assert (enqueued.kind, processed.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    origin = enqueued.get_span_context()
    assert origin is not None
    assert [link.context.span_id for link in processed.links] == [origin.span_id]
    assert processed.parent is None
    attributes = processed.attributes or {}
    assert attributes["messaging.operation.type"] == "process"
    assert attributes["ojs.job.attempt"] == 1
    assert found["default process", "bad"].status.status_code is StatusCode.ERROR
    assert (found["default process", "bad"].attributes or {})["error.type"] == "LookupError"
    assert found["default process", "ends"].status.status_code is StatusCode.UNSET
    assert "password" not in str([span.to_json() for span in found.values()])


def test_a_failed_enqueue_is_an_error_span(spans: tuple[Tracer, InMemorySpanExporter]) -> None:
    tracer, exporter = spans
    hg = AsyncHeadgate(
        transport=FakeServer(full("1")), clock=FakeClock(), retry=Waits(tries=1),
        middleware=[trace_enqueues(tracer)],
    )  # fmt: skip
    with pytest.raises(QueueFullError):
        asyncio.run(hg.enqueue("a.b"))
    (span,) = exporter.get_finished_spans()
    assert (span.attributes or {})["error.type"] == "QueueFullError"


def test_a_chain_has_an_order() -> None:
    chain = Chain(["b"])
    chain.add("d")
    chain.prepend("a")
    chain.insert_after("b", "c")
    chain.insert_before("a", "0")
    chain.remove("d")
    assert list(chain) == ["0", "a", "b", "c"]
    with pytest.raises(LookupError):
        chain.insert_after("z", "y")
    chain.freeze()
    for change in (chain.add, chain.prepend, chain.remove):
        with pytest.raises(RuntimeError):
            change("x")
