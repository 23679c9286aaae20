"""What workers send, and the answers that are written for them by hand because they are many."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, json

from headgate.core.errors import TooLarge
from headgate.core.history import TracedFailure
from headgate.core.job import Job
from headgate.core.retry import Failure
from headgate.core.states import DISCARDED, RETRYABLE
from headgate.core.times import LONGEST_MS, instant_text
from headgate.wire.jobs import completed_at, job_json
from headgate.wire.shapes import FetchedJob, JobRecord

MAX_WORKER_ID = 255
MAX_MESSAGE = 65_536
MAX_DETAILS = 65_536

_encode = json.Encoder().encode

WorkerId = Annotated[str, Meta(min_length=1, max_length=MAX_WORKER_ID)]
JobId = Annotated[str, Meta(min_length=1, max_length=64)]
Claim = Annotated[int, Meta(ge=0)]
Milliseconds = Annotated[int, Meta(ge=0, le=LONGEST_MS)]
Text = Annotated[str, Meta(max_length=1_024)]
Names = Annotated[list[Annotated[str, Meta(max_length=255)]], Meta(max_length=1_000)]


class FetchRequest(Struct):
    queues: Annotated[list[str], Meta(min_length=1)]
    count: Annotated[int, Meta(ge=1)] | None = None
    worker_id: WorkerId | None = None
    visibility_timeout_ms: Milliseconds | None = None
    wait_ms: Milliseconds | None = None
    """How long to wait for a job when there is none."""


class AckRequest(Struct):
    job_id: JobId
    worker_id: WorkerId | None = None
    claim: Claim | None = None
    """Of the fetched job: refuses the answer when the reservation is another one by now."""
    result: Raw | UnsetType = UNSET
    """Any JSON value."""


class JobAckRequest(Struct):
    """As AckRequest; the job is named by the path."""

    worker_id: WorkerId | None = None
    claim: Claim | None = None
    result: Raw | UnsetType = UNSET


class JobError(Struct):
    """What went wrong in an attempt."""

    code: Annotated[str, Meta(min_length=1, max_length=255)]
    message: str
    """Cut after 65,536 characters."""
    type: Annotated[str, Meta(max_length=255)] | None = None
    retryable: bool | None = None
    details: dict[str, Any] | None = None
    backtrace: list[str] | str | None = None


class NackRequest(Struct):
    job_id: JobId
    error: JobError
    worker_id: WorkerId | None = None
    claim: Claim | None = None
    requeue: bool | None = None
    """Give the job back without charging the attempt."""


class JobNackRequest(Struct):
    """As NackRequest; the job is named by the path."""

    error: JobError
    worker_id: WorkerId | None = None
    claim: Claim | None = None
    requeue: bool | None = None


class HeartbeatRequest(Struct):
    worker_id: WorkerId
    active_jobs: list[JobId] | int | None = None
    """The ids of the jobs that it runs, or only how many."""
    active_job_ids: list[JobId] | None = None
    state: str | None = None
    visibility_timeout_ms: Milliseconds | None = None
    hostname: Text | None = None
    pid: int | None = None
    queues: Names | None = None
    concurrency: Annotated[int, Meta(ge=0)] | None = None
    labels: Raw | UnsetType = UNSET
    version: Text | None = None
    pool: Annotated[str, Meta(max_length=128)] | None = None


class RegisterRequest(Struct):
    worker_id: WorkerId
    state: str | None = None
    hostname: Text | None = None
    pid: int | None = None
    queues: Names | None = None
    concurrency: Annotated[int, Meta(ge=0)] | None = None
    labels: Raw | UnsetType = UNSET
    version: Text | None = None
    pool: Annotated[str, Meta(max_length=128)] | None = None
    started_at: str | None = None


class DeregisterRequest(Struct):
    worker_id: WorkerId


class FetchAnswer(Struct):
    jobs: list[FetchedJob]


class AckAnswer(Struct):
    acknowledged: bool
    id: str
    job_id: str
    state: str
    completed_at: str
    job: JobRecord


class NackAnswer(Struct):
    id: str
    job_id: str
    state: str
    attempt: int
    max_attempts: int
    job: JobRecord
    next_attempt_at: str | UnsetType = UNSET
    retry_delay_ms: int | UnsetType = UNSET
    discarded_at: str | UnsetType = UNSET
    completed_at: str | UnsetType = UNSET


class HeartbeatAnswer(Struct):
    state: str
    directive: str
    jobs_extended: list[str]
    cancelled_jobs: list[str]
    server_time: str


class BeatAnswer(Struct):
    acknowledged: bool
    state: str


class HealthAnswer(Struct):
    worker_id: str
    state: str
    stale: bool
    """Nothing was heard of it for long, but it is not given up yet."""
    active_jobs: int
    last_heartbeat_at: str


class RegisterAnswer(Struct):
    ok: bool
    worker_id: str
    server_time: str
    heartbeat_interval: int
    heartbeat_timeout: int
    visibility_timeout_default: int


class DeregisterAnswer(Struct):
    ok: bool
    worker_id: str
    requeued: int


def failure_of(error: JobError, *, requeue: bool, field: str = "error") -> Failure:
    """What the attempt reported. Raises TooLarge where it reports too much to be kept."""
    if error.details is not None and len(_encode(error.details)) > MAX_DETAILS:
        raise TooLarge(field=f"{field}.details", expected=f"at most {MAX_DETAILS} bytes")
    message = error.message[:MAX_MESSAGE]
    frames = error.backtrace
    if isinstance(frames, str):
        frames = frames.splitlines()
    if not frames:
        return Failure(
            error.code, message, error.type or "", error.retryable, error.details, requeue
        )
    return TracedFailure(
        error.code,
        message,
        error.type or "",
        error.retryable,
        error.details,
        requeue,
        tuple(frames),
    )


def value_of(value: Raw | UnsetType) -> bytes | None:
    """A value of its own, which does not keep its whole request alive; null counts as absent."""
    if value is UNSET:
        return None
    found = bytes(value)
    return None if found == b"null" else found


def ack_json(job: Job, now_ms: int) -> bytes:
    text = (
        f'{{"acknowledged":true,"id":"{job.id}","job_id":"{job.id}","state":"{job.state}",'
        f'"completed_at":"{instant_text(job.finished_at)}","job":'
    )
    return b"%b%b}" % (text.encode(), job_json(job, now_ms))


def nack_json(job: Job, now_ms: int) -> bytes:
    text = (
        f'{{"id":"{job.id}","job_id":"{job.id}","state":"{job.state}",'
        f'"attempt":{job.attempt},"max_attempts":{job.max_attempts},'
    )
    if job.state == RETRYABLE:
        text += f'"next_attempt_at":"{instant_text(job.due_at)}",'
        if job.more is not None and job.more.retry_delay_ms >= 0:
            text += f'"retry_delay_ms":{job.more.retry_delay_ms},'
    elif job.state == DISCARDED:
        text += f'"discarded_at":"{instant_text(job.finished_at)}",'
        if completed_at(job):
            text += f'"completed_at":"{instant_text(job.finished_at)}",'
    return b'%b"job":%b}' % (text.encode(), job_json(job, now_ms))
