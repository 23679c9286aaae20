"""Answers out of structs, and job records among them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from headgate.core.job import Job
from headgate.server.route import Answer
from headgate.wire.jobs import array_json, job_json

_encode = msgspec.json.Encoder().encode


def answer(body: Any, status: int = 200) -> Answer:
    return Answer(_encode(body), status)


def job_raw(job: Job, now_ms: int) -> msgspec.Raw:
    """A job record to stand inside another body."""
    return msgspec.Raw(job_json(job, now_ms))


def jobs_raw(jobs: Iterable[Job], now_ms: int) -> msgspec.Raw:
    return msgspec.Raw(array_json(job_json(job, now_ms) for job in jobs))
