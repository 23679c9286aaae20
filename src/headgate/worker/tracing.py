"""OpenTelemetry spans for producers and workers; the extra `otel` installs what they need.

`hg.middleware.add(trace_enqueues())` and `Worker(hg, middleware=[trace_runs()])`. The context travels in the job's `meta`; a run's span is linked to the one that enqueued it. No arguments and no results get into spans.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer

from headgate.client.context import Context
from headgate.client.draft import Draft, Enqueued, EnqueueMiddleware, EnqueueNext
from headgate.version import VERSION
from headgate.worker.run import Middleware
from headgate.worker.signals import Signal


def trace_enqueues(tracer: Tracer | None = None) -> EnqueueMiddleware:
    """A PRODUCER span around every enqueue, whose context goes along in `meta`."""
    spans = tracer or trace.get_tracer("headgate", VERSION)

    async def around(draft: Draft, following: EnqueueNext) -> Enqueued | None:
        with spans.start_as_current_span(
            f"{draft.queue} enqueue",
            kind=SpanKind.PRODUCER,
            attributes=_attributes("publish", draft.id, draft.type, draft.queue),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            propagate.inject(draft.meta)
            try:
                return await following(draft)
            except Exception as error:
                _failed(span, error)
                raise

    return around


def trace_runs(tracer: Tracer | None = None) -> Middleware:
    """A CONSUMER span around every run, linked to the span that enqueued the job."""
    spans = tracer or trace.get_tracer("headgate", VERSION)

    async def around(context: Context, following: Callable[[], Awaitable[Any]]) -> Any:
        carrier = {name: text for name, text in context.meta.items() if isinstance(text, str)}
        origin = trace.get_current_span(propagate.extract(carrier)).get_span_context()
        with spans.start_as_current_span(
            f"{context.queue} process",
            kind=SpanKind.CONSUMER,
            links=[Link(origin)] if origin.is_valid else [],
            attributes={
                **_attributes("process", context.id, context.type, context.queue),
                "ojs.job.attempt": context.attempt,
                "ojs.worker.id": context.worker_id,
            },
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                return await following()
            except Signal:
                raise
            except BaseException as error:
                _failed(span, error)
                span.set_attribute("ojs.job.error.attempt", context.attempt)
                raise

    return around


def _attributes(kind: str, job_id: str, job_type: str, queue: str) -> dict[str, str]:
    return {
        "messaging.system": "ojs",
        "messaging.operation.type": kind,
        "messaging.destination.name": queue,
        "messaging.message.id": job_id,
        "ojs.job.id": job_id,
        "ojs.job.type": job_type,
        "ojs.job.queue": queue,
    }


def _failed(span: Span, error: BaseException) -> None:
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_attribute("error.message", str(error))
    span.set_status(Status(StatusCode.ERROR, type(error).__qualname__))
