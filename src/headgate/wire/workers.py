"""What workers send, and the answers that are written for them by hand because they are many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, json

from headgate.core.dead_letters import moved_to
from headgate.core.errors import InvalidRequest, TooLarge
from headgate.core.history import TracedFailure
from headgate.core.job import Job
from headgate.core.retry import Failure
from headgate.core.states import DISCARDED, RETRYABLE
from headgate.core.times import LONGEST_MS, instant_text, resolve_instant
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
    pool: str | None = None
    """Which the worker belongs to; where the server knows it, its settings take the place of what is asked for here."""
    strategy: str | None = None
    """strict (default), round-robin, weighted or least-loaded: which queue is next."""
    weights: dict[str, int] | None = None
    """By queue, with the strategy weighted; 1 where none is given."""
    explain: bool | None = None
    """Whether an empty answer says why: true for every queue, false not at all, else what is out of the ordinary."""


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

    message: str
    """Cut after 65,536 characters."""
    code: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    """The type stands for it where it is absent; one of them there must be."""
    type: Annotated[str, Meta(max_length=255)] | None = None
    retryable: bool | None = None
    details: dict[str, Any] | None = None
    backtrace: list[str] | str | None = None
    rate_limit_until: str | None = None
    """Until then no other job with this key starts; an instant, or `+` and a duration."""
    rate_limit_key: str | None = None
    """Which of the job's keys; the first where it is not said."""


class NackRequest(Struct):
    job_id: JobId
    error: JobError
    worker_id: WorkerId | None = None
    claim: Claim | None = None
    requeue: bool | None = None
    """Give the job back without charging the attempt."""
    retry_after_ms: Milliseconds | None = None
    """Not before so much later; without it a retry follows the job's policy."""


class JobNackRequest(Struct):
    """As NackRequest; the job is named by the path."""

    error: JobError
    worker_id: WorkerId | None = None
    claim: Claim | None = None
    requeue: bool | None = None
    retry_after_ms: Milliseconds | None = None


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
    next_at: str | UnsetType = UNSET
    """When something is known to open, where there was nothing."""
    reasons: dict[str, str] | UnsetType = UNSET
    """By queue, why there was nothing."""


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
    dead_letter_queue: str | UnsetType = UNSET
    """Where the job stands now, as a dead letter."""


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


def failure_of(
    error: JobError,
    *,
    requeue: bool,
    retry_after_ms: int | None = None,
    field: str = "error",
) -> Failure:
    """What the attempt reported. Raises TooLarge where it reports too much to be kept, and InvalidRequest where it does not say what it is."""
    code = error.code or error.type
    if not code:
        raise InvalidRequest(f"{field}.code is missing", field=f"{field}.code", expected="given")
    if error.details is not None and len(_encode(error.details)) > MAX_DETAILS:
        raise TooLarge(field=f"{field}.details", expected=f"at most {MAX_DETAILS} bytes")
    # A worker that merely gives a job back says nothing of when.
    put_off = retry_after_ms is not None or error.rate_limit_until is not None
    found: dict[str, Any] = {
        "code": code,
        "message": error.message[:MAX_MESSAGE],
        "type": error.type or "",
        "retryable": error.retryable,
        "details": error.details,
        "requeue": requeue,
        "retry_after_ms": retry_after_ms,
        "deferred": requeue and put_off,
    }
    frames = error.backtrace
    if isinstance(frames, str):
        frames = frames.splitlines()
    if not frames:
        return Failure(**found)
    return TracedFailure(**found, backtrace=tuple(frames))


def hold_until(error: JobError, now_ms: int, *, field: str = "error") -> int:
    """Until when the attempt was told to leave the job's key alone; 0 when it was not, or when that is over."""
    if error.rate_limit_until is None:
        return 0
    try:
        until, _ = resolve_instant(error.rate_limit_until, now_ms)
    except ValueError as refused:
        raise InvalidRequest(str(refused), field=f"{field}.rate_limit_until") from None
    return until if until > now_ms else 0


def why_json(next_at: int, reasons: Mapping[str, str]) -> bytes:
    """The members of an empty answer that say why it is empty; each begins with its comma."""
    text = b""
    if next_at:
        text += b',"next_at":"%b"' % instant_text(next_at).encode()
    if reasons:
        text += b',"reasons":' + _encode(reasons)
    return text


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


def nack_json(job: Job, now_ms: int, *, requeued: bool = False) -> bytes:
    queue = moved_to(job, requeued=requeued)
    if queue and job.more is not None:
        at = instant_text(job.more.buried_at)
        text = (
            f'{{"id":"{job.id}","job_id":"{job.id}","state":"{DISCARDED}",'
            f'"attempt":{job.more.buried_attempts},"max_attempts":{job.max_attempts},'
            f'"discarded_at":"{at}","completed_at":"{at}","dead_letter_queue":"{queue}",'
        )
        return b'%b"job":%b}' % (text.encode(), job_json(job, now_ms))
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
