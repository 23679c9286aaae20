"""The job that everything is measured with."""

from __future__ import annotations

from headgate import ids
from headgate.core.job import Job
from headgate.engines.contract import Draft
from headgate.engines.local.engine import LocalEngine
from headgate.operations.push import draft_of
from headgate.wire.envelope import read_envelope

QUEUE = "mail"
ENVELOPE = (
    b'{"type":"email.send","queue":"mail","args":[{"to":"someone@example.com",'
    b'"template":"order-confirmation","order":4711,"lines":[{"sku":"A-100","count":2},'
    b'{"sku":"B-205","count":1}],"total":"129.90","currency":"EUR"}],"meta":{"source":"shop",'
    b'"release":"2026.02.1"},"retry":{"max_attempts":5,"backoff":"exponential"}}'
)
"""313 bytes."""
BATCH = 100


def batch(count: int) -> bytes:
    """The body of a request that enqueues many."""
    return b'{"jobs":[%b]}' % b",".join([ENVELOPE] * count)


def drafts(engine: LocalEngine, count: int, now_ms: int) -> list[Draft]:
    """Jobs as they come out of requests, each with bytes of its own."""
    return [
        draft_of(engine, read_envelope(ENVELOPE, now_ms), now_ms, ids.uuid7) for _ in range(count)
    ]


def first(jobs: list[Job]) -> Job:
    (job,) = jobs
    return job
