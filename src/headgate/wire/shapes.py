"""What a job looks like on the wire, for the document that describes the server.

Nothing is decoded or encoded with these: `envelope.py` reads jobs and `jobs.py` writes them, which the tests hold against these shapes.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from headgate.core.limits import KEY, MAX_KEY, MAX_USES
from headgate.wire.envelope import JOB_ID, JOB_TYPE, MAX_PRIORITY, MAX_TYPE

_Id = Annotated[str, Meta(pattern=f"^{JOB_ID.pattern}$")]
_Type = Annotated[str, Meta(pattern=f"^{JOB_TYPE.pattern}$", max_length=MAX_TYPE)]
_Queue = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9\-.]*$", max_length=128)]
_Priority = Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)]
_Instant = Annotated[str, Meta(description="RFC 3339 with a zone, or `+` and a duration from now")]
_Seconds = Annotated[int, Meta(ge=0)]
_State = Literal[
    "scheduled", "available", "pending", "active", "retryable", "completed", "cancelled",
    "discarded",
]  # fmt: skip


class Rate(Struct):
    limit: Annotated[int, Meta(ge=1)]
    period: Annotated[str, Meta(description="An ISO 8601 duration above zero")]


class RatePolicy(Struct):
    """A key that the job passes; a limit that is given replaces that of the key, null clears it, absent leaves it."""

    key: Annotated[str, Meta(pattern=f"^{KEY.pattern}$", max_length=MAX_KEY)]
    concurrency: Annotated[int, Meta(ge=0)] | UnsetType | None = UNSET
    """How many jobs may be active at a time; 0 holds all of them."""
    rate: Rate | UnsetType | None = UNSET
    """How many may start in any period."""
    throttle: Rate | UnsetType | None = UNSET
    """The same, evenly spaced."""
    on_limit: Literal["wait", "reschedule", "drop"] | UnsetType = UNSET
    scope: Literal["global", "tenant"] | UnsetType = UNSET
    """tenant: a key of this name for each tenant."""


_Policies = Annotated[list[RatePolicy], Meta(min_length=1, max_length=MAX_USES)]


class JobOptions(Struct):
    """Settings of a new job. They may as well stand beside `options`, which then win."""

    queue: _Queue | UnsetType = UNSET
    priority: _Priority | UnsetType = UNSET
    timeout_ms: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    timeout: _Seconds | UnsetType = UNSET
    scheduled_at: _Instant | UnsetType = UNSET
    delay_until: _Instant | UnsetType = UNSET
    """Another name for scheduled_at."""
    expires_at: _Instant | UnsetType = UNSET
    retry: dict[str, Any] | UnsetType = UNSET
    retry_policy: dict[str, Any] | UnsetType = UNSET
    """Another name for retry."""
    unique: dict[str, Any] | UnsetType = UNSET
    unique_key: Annotated[str, Meta(min_length=1, max_length=256)] | UnsetType = UNSET
    """A fingerprint that the producer computed itself."""
    tags: list[str] | UnsetType = UNSET
    visibility_timeout_ms: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    visibility_timeout: _Seconds | str | UnsetType = UNSET
    """Seconds, or an ISO 8601 duration."""
    pending: bool | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    """Laid over meta."""
    rate_limit: RatePolicy | _Policies | UnsetType = UNSET
    """One key, or up to four that all have to be open."""
    schema: Annotated[str, Meta(min_length=1)] | UnsetType = UNSET
    version: int | str | UnsetType = UNSET
    total_timeout: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    enqueue_ttl: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    grace_period: _Seconds | UnsetType = UNSET
    heartbeat_timeout: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    result_ttl: Annotated[int, Meta(ge=-1)] | UnsetType = UNSET
    parent_id: Annotated[str, Meta(min_length=1)] | UnsetType = UNSET
    workflow_id: Annotated[str, Meta(min_length=1)] | UnsetType = UNSET
    root_id: Annotated[str, Meta(min_length=1)] | UnsetType = UNSET


class JobRequest(JobOptions, kw_only=True):
    """A new job. Members that nobody knows are kept and come back unchanged."""

    type: _Type
    args: list[Any]
    specversion: Literal["1.0"] | UnsetType = UNSET
    id: _Id | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = UNSET
    options: JobOptions | UnsetType = UNSET


class BatchShape(Struct):
    """All of them or none."""

    jobs: list[JobRequest]


class BulkShape(Struct):
    jobs: list[JobRequest]
    atomicity: Literal["partial", "atomic"] | UnsetType = UNSET
    """partial, the default: what one job refuses does not stop the rest"""
    idempotency_key: str | UnsetType = UNSET
    """Instead of the header of this name, which wins."""


class AttemptError(Struct):
    """An entry of a job's error history."""

    attempt: int
    code: str
    message: str
    type: str
    occurred_at: str
    details: dict[str, Any] | UnsetType = UNSET
    backtrace: list[str] | UnsetType = UNSET


class DeadLetter(Struct):
    original_queue: str
    attempts: int
    """That it had there."""
    reason: str
    at: str


class JobRecord(Struct):
    """A job; members that are not set are absent, and those that its producer sent stand beside these."""

    specversion: str
    id: str
    type: str
    queue: str
    args: list[Any]
    meta: dict[str, Any]
    priority: int
    state: _State
    attempt: int
    max_attempts: int
    timeout: int
    created_at: str
    timeout_ms: int | UnsetType = UNSET
    """Where the timeout is no whole number of seconds."""
    enqueued_at: str | UnsetType = UNSET
    scheduled_at: str | UnsetType = UNSET
    started_at: str | UnsetType = UNSET
    worker_id: str | UnsetType = UNSET
    next_attempt_at: str | UnsetType = UNSET
    retry_delay_ms: int | UnsetType = UNSET
    deferrals: int | UnsetType = UNSET
    """How often its handlers put it off without being charged an attempt."""
    activated_at: str | UnsetType = UNSET
    re_enqueued_at: str | UnsetType = UNSET
    completed_at: str | UnsetType = UNSET
    cancelled_at: str | UnsetType = UNSET
    discarded_at: str | UnsetType = UNSET
    error: AttemptError | UnsetType = UNSET
    errors: list[AttemptError] | UnsetType = UNSET
    result: Any | UnsetType = UNSET
    dead_letter: DeadLetter | UnsetType = UNSET
    """Of a job that stands in a dead letter queue."""


class FetchedJob(JobRecord, kw_only=True):
    """A job for the worker that just got it."""

    claim: int
    """The number of its reservation, for acks, nacks and heartbeats."""
    checkpoint: Any | UnsetType = UNSET
    """What the last worker saved."""
