"""Results of jobs on the wire."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from headgate.core.job import Job
from headgate.core.states import CANCELLED, COMPLETED, DISCARDED
from headgate.wire.jobs import error_json
from headgate.wire.shapes import AttemptError

EVENTS = {COMPLETED: "completed", DISCARDED: "failed", CANCELLED: "cancelled"}
"""What the end of a job is called in a stream."""


class ResultAnswer(Struct):
    job_id: str
    state: str
    result: Any | UnsetType = UNSET
    """Absent while there is none."""
    error: AttemptError | UnsetType = UNSET
    """Of a job that did not complete."""


class ResultsRequest(Struct):
    ids: list[str]


class FoundResult(Struct):
    state: str
    result: Any | UnsetType = UNSET
    error: AttemptError | UnsetType = UNSET
    pruned: bool | UnsetType = UNSET
    """True when there was a result, and its retention has ended."""


class ResultsAnswer(Struct):
    results: dict[str, FoundResult]
    missing: list[str]
    """Ids of jobs that do not exist."""


def result_json(job: Job, *, named: bool = True) -> bytes:
    """What the job came to so far; `named` puts its id first."""
    head = f'{{"job_id":"{job.id}","state":"{job.state}"' if named else f'{{"state":"{job.state}"'
    parts = [head.encode()]
    if job.state == COMPLETED:
        parts += (b',"result":', job.result or b"null")
    elif (error := error_json(job)) is not None:
        parts += (b',"error":', error)
    parts.append(b"}")
    return b"".join(parts)
