"""The wire form of a job record.

A record is written by putting strings together: most of it, `fixed`, is JSON already, and this is part of every answer.
Members that are not set are left out; nothing is ever null.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from msgspec import json

from headgate.core.envelope import SCHEDULED_FIRST, unscheduled
from headgate.core.job import Job, More
from headgate.core.states import CANCELLED, COMPLETED, DISCARDED, RETRYABLE, SCHEDULED
from headgate.core.times import instant_text

_NOT_BY_FAILURE: Final = frozenset(
    {"expired", "enqueue_ttl_expired", "overflow", "queue_deleted", "rate_limited"}
)
"""Reasons of discarded jobs that never got to an end of their own; they have no completed_at."""


def job_json(job: Job, now_ms: int) -> bytes:
    """The whole record; a result whose time is over by `now_ms` is left out."""
    created = instant_text(job.created_at)
    text = (
        f'{{"specversion":"1.0","id":"{job.id}","type":"{job.type}","queue":"{job.queue}",'
        f'"priority":{job.priority},"state":"{job.state}","attempt":{job.attempt},'
        f'"max_attempts":{job.max_attempts},"timeout":{-(-job.timeout_ms // 1000)},'
        f'"created_at":"{created}"'
    )
    if job.enqueued_at:
        at = created if job.enqueued_at == job.created_at else instant_text(job.enqueued_at)
        text += f',"enqueued_at":"{at}"'
    if job.started_at:
        text += f',"started_at":"{instant_text(job.started_at)}"'
    if job.worker:
        text += f',"worker_id":{_quoted(job.worker)}'
    if job.timeout_ms % 1000:
        text += f',"timeout_ms":{job.timeout_ms}'
    if job.finished_at:
        text += _ended(job)
    elif job.state == RETRYABLE:
        text += f',"next_attempt_at":"{instant_text(job.due_at)}"'
    fixed = job.fixed
    if job.state == SCHEDULED and not job.finished_at:
        if job.more is not None and job.more.postponed_by:
            # Its producer's own time has passed; it was put off since.
            fixed = unscheduled(fixed)
        if not fixed.startswith(SCHEDULED_FIRST):
            text += f',"scheduled_at":"{instant_text(job.due_at)}"'
    parts = [text.encode(), b",", fixed]
    if job.more is not None:
        _rare(job, job.more, parts)
    if job.result is not None and not result_is_over(job, now_ms):
        parts += (b',"result":', job.result)
    parts.append(b"}")
    return b"".join(parts)


def with_members(record: bytes, members: bytes) -> bytes:
    """The same object with more members at its end: JSON without braces, never empty."""
    return b"%b,%b}" % (record[:-1], members)


def fetched_json(job: Job, now_ms: int) -> bytes:
    """The record for the worker that just got the job: with the number of its reservation."""
    return with_members(job_json(job, now_ms), b'"claim":%d' % job.claim)


def array_json(records: Iterable[bytes]) -> bytes:
    return b"[%b]" % b",".join(records)


def completed_at(job: Job) -> int:
    """When the job came to an end of its own, successful or not; 0 when it did not."""
    if job.state == COMPLETED:
        return job.finished_at
    if job.state == DISCARDED:
        reason = job.more.reason if job.more is not None else ""
        return 0 if reason in _NOT_BY_FAILURE else job.finished_at
    return 0


def error_json(job: Job) -> bytes | None:
    """The newest entry of the error history, which a success makes void."""
    if job.more is None or not job.more.errors or job.state == COMPLETED:
        return None
    return bytes(job.more.errors[-1])


def result_is_over(job: Job, now_ms: int) -> bool:
    """Whether the result was to be kept for a time, and that time has passed."""
    if job.more is None or job.more.result_ttl_ms < 0 or not job.finished_at:
        return False
    return now_ms >= job.finished_at + job.more.result_ttl_ms


def _ended(job: Job) -> str:
    at = instant_text(job.finished_at)
    if job.state == COMPLETED:
        return f',"completed_at":"{at}"'
    if job.state == CANCELLED:
        return f',"cancelled_at":"{at}"'
    if job.state == DISCARDED:
        if completed_at(job):
            return f',"discarded_at":"{at}","completed_at":"{at}"'
        return f',"discarded_at":"{at}"'
    return ""


def _rare(job: Job, more: More, parts: list[bytes]) -> None:
    text = ""
    if more.retry_delay_ms >= 0 and not job.finished_at:
        text += f',"retry_delay_ms":{more.retry_delay_ms}'
    if more.deferrals:
        text += f',"deferrals":{more.deferrals}'
    if more.activated_at:
        text += f',"activated_at":"{instant_text(more.activated_at)}"'
    if more.re_enqueued_at:
        text += f',"re_enqueued_at":"{instant_text(more.re_enqueued_at)}"'
    if more.origin:
        text += (
            f',"dead_letter":{{"original_queue":"{more.origin}","attempts":{more.buried_attempts},'
            f'"reason":{_quoted(more.buried_for)},"at":"{instant_text(more.buried_at)}"}}'
        )
    if text:
        parts.append(text.encode())
    if more.errors:
        if job.state != COMPLETED:
            parts += (b',"error":', bytes(more.errors[-1]))
        parts += (b',"errors":', array_json(map(bytes, more.errors)))


@lru_cache(maxsize=1_024)
def _quoted(text: str) -> str:
    return json.encode(text).decode()
