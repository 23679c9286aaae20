"""What one exchange asks for, and how its items are answered."""

from __future__ import annotations

from typing import Annotated, Any, Protocol

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from headgate.core.states import ACTIVE, RETRYABLE
from headgate.core.times import instant_text
from headgate.wire.shapes import FetchedJob
from headgate.wire.workers import Claim, JobError, JobId, Milliseconds, WorkerId


class AckItem(Struct):
    job_id: JobId
    claim: Claim | None = None
    result: Raw | UnsetType = UNSET


class NackItem(Struct):
    job_id: JobId
    error: JobError
    claim: Claim | None = None
    requeue: bool | None = None
    retry_after_ms: Milliseconds | None = None


class ExtendItem(Struct):
    job_id: JobId
    claim: Claim | None = None


class FetchPart(Struct):
    queues: Annotated[list[str], Meta(min_length=1)]
    count: Annotated[int, Meta(ge=1)] | None = None
    visibility_timeout_ms: Milliseconds | None = None
    wait_ms: Milliseconds | None = None
    """Only honoured in an exchange without acks and nacks."""
    pool: str | None = None
    """Which the worker belongs to; the exchange registers it there."""
    strategy: str | None = None
    weights: dict[str, int] | None = None
    explain: bool | None = None


class ExchangeRequest(Struct):
    worker_id: WorkerId
    acks: list[AckItem] | None = None
    nacks: list[NackItem] | None = None
    extend: list[ExtendItem | JobId] | None = None
    """Jobs that go on: objects, or plain ids."""
    fetch: FetchPart | None = None
    state: str | None = None
    visibility_timeout_ms: Milliseconds | None = None
    """For the jobs in `extend`."""


class ItemAnswer(Struct):
    job_id: str
    state: str | UnsetType = UNSET
    attempt: int | UnsetType = UNSET
    max_attempts: int | UnsetType = UNSET
    next_attempt_at: str | UnsetType = UNSET
    retry_delay_ms: int | UnsetType = UNSET
    finished_at: str | UnsetType = UNSET
    visible_until: str | UnsetType = UNSET
    dead_letter_queue: str | UnsetType = UNSET
    """Where it stands now, as a dead letter."""
    error: dict[str, Any] | UnsetType = UNSET


class ExchangeAnswer(Struct):
    acks: list[ItemAnswer]
    nacks: list[ItemAnswer]
    extend: list[ItemAnswer]
    state: str
    directive: str
    cancelled_jobs: list[str]
    server_time: str
    jobs: list[FetchedJob]
    next_at: str | UnsetType = UNSET
    reasons: dict[str, str] | UnsetType = UNSET


class Answered(Protocol):
    """What a job was right after a step."""

    @property
    def job_id(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def max_attempts(self) -> int: ...
    @property
    def finished_at(self) -> int: ...
    @property
    def due_at(self) -> int: ...
    @property
    def retry_delay_ms(self) -> int: ...
    @property
    def visible_until(self) -> int: ...
    @property
    def dead_letter_queue(self) -> str: ...


def answered_json(item: Answered) -> bytes:
    """One item of an exchange."""
    text = (
        f'{{"job_id":"{item.job_id}","state":"{item.state}",'
        f'"attempt":{item.attempt},"max_attempts":{item.max_attempts}'
    )
    if item.finished_at:
        text += f',"finished_at":"{instant_text(item.finished_at)}"'
        if item.dead_letter_queue:
            text += f',"dead_letter_queue":"{item.dead_letter_queue}"'
    elif item.state == RETRYABLE:
        text += f',"next_attempt_at":"{instant_text(item.due_at)}"'
        if item.retry_delay_ms >= 0:
            text += f',"retry_delay_ms":{item.retry_delay_ms}'
    elif item.state == ACTIVE:
        text += f',"visible_until":"{instant_text(item.visible_until)}"'
    return f"{text}}}".encode()
