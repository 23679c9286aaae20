"""What the outcome of a step means to the one who asked for it."""

from __future__ import annotations

from typing import assert_never

from headgate.core.errors import Conflict, NotFound, OjsError, QueueDraining, QueueNotFound
from headgate.engines.contract import (
    Done,
    Draining,
    Missing,
    NotHolder,
    Outcome,
    Unwanted,
    WrongState,
)


def done(outcome: Outcome, verb: str) -> Done:
    """The outcome of a step that was carried out; raises the refusal that any other one means."""
    if isinstance(outcome, Done):
        return outcome
    raise refusal(outcome, verb)


def refusal(outcome: Missing | WrongState | NotHolder | Unwanted | Draining, verb: str) -> OjsError:
    match outcome:
        case Unwanted(queue):
            return QueueNotFound(f"there is no queue {queue}", details={"queue": queue})
        case Draining(queue):
            return QueueDraining(
                f"the queue {queue} is draining and takes no new jobs", details={"queue": queue}
            )
        case Missing():
            return no_job(outcome.job_id)
        case WrongState(job):
            return Conflict(
                f"cannot {verb} the job: it is {job.state}",
                details={"job_id": job.id, "state": job.state},
            )
        case NotHolder(job, held_by, claim):
            return Conflict(
                f"cannot {verb} the job: its reservation is another one",
                details={
                    "job_id": job.id,
                    "state": job.state,
                    "held_by": held_by,
                    "claim": claim,
                },
            )
        case _:
            assert_never(outcome)


def no_job(job_id: str) -> NotFound:
    return NotFound(f"there is no job {job_id}", details={"job_id": job_id})
