"""DEAD LETTER: look at, try again, forget."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from headgate.core import queues, retry
from headgate.core.errors import (
    InvalidRequest,
    JobTypeNotAllowed,
    NotFound,
    QueueNotFound,
    TooLarge,
)
from headgate.core.job import Job
from headgate.core.states import AVAILABLE, RETRYABLE, SCHEDULED
from headgate.engines.contract import Done, Engine, Replay
from headgate.operations.outcomes import done

_MEMBERS = msgspec.json.Decoder(dict[str, Raw])
_OBJECT = msgspec.json.Decoder(dict[str, Any])
_encode = msgspec.json.Encoder().encode


class Override(Struct, forbid_unknown_fields=True):
    """What a job that is tried again shall have instead of what it had."""

    queue: str | None = None
    args: Raw = Raw()
    meta: Raw = Raw()
    retry: dict[str, Any] | None = None
    """Laid over the job's own policy, member by member."""


async def look_up(engine: Engine, job_id: str, now_ms: int) -> Job:
    job = await engine.find(job_id, now_ms)
    if job is None or not job.dead:
        raise NotFound(f"there is no dead letter {job_id}", details={"job_id": job_id})
    return job


async def try_again(
    engine: Engine,
    job_id: str,
    override: Override | None,
    now_ms: int,
    *,
    meta_bytes: int,
    strict: bool = False,
    by: str = "",
) -> Job:
    """Give the job back to its queue, or to another one, with attempt 0.

    When `strict`, the other one has to exist.
    """
    job = await look_up(engine, job_id, now_ms)
    changes = Replay() if override is None else _changes(engine, job, override, meta_bytes)
    changes.by = by
    if strict and changes.queue and await engine.queue(changes.queue, now_ms) is None:
        raise QueueNotFound(f"there is no queue {changes.queue}", field="override.queue")
    return done(await engine.retry(job_id, changes, now_ms), "retry").job


async def delete(engine: Engine, job_id: str, by: str, now_ms: int) -> Done:
    """One that waits in a dead letter queue is cancelled first; one that a worker has is refused."""
    job = await look_up(engine, job_id, now_ms)
    if job.state in (AVAILABLE, SCHEDULED, RETRYABLE):
        done(await engine.cancel(job_id, by, "dead letter deleted", now_ms), "delete")
    return done(await engine.delete(job_id, now_ms), "delete")


def _changes(engine: Engine, job: Job, override: Override, meta_bytes: int) -> Replay:
    members: dict[str, Raw] = {}
    if _is_given(override.args):
        members["args"] = _opens_with(override.args, b"[", "override.args", "an array")
    if _is_given(override.meta):
        members["meta"] = _opens_with(override.meta, b"{", "override.meta", "an object")
        if len(bytes(override.meta)) > meta_bytes:
            raise TooLarge(field="override.meta", expected=f"at most {meta_bytes} bytes")
    policy = None
    if override.retry is not None:
        policy = retry.policy_from(override.retry, job.retry, path="override.retry")
    if override.queue is not None:
        queues.check_name(override.queue, field="override.queue")
        if not engine.settings(override.queue).takes(job.type):
            raise JobTypeNotAllowed(
                f"the queue {override.queue} takes no jobs of type {job.type}",
                field="override.queue",
            )
    return Replay(
        queue=override.queue,
        fixed=_rewritten(job.fixed, members, override.retry),
        retry=policy,
        max_attempts=None if policy is None else policy.max_attempts,
    )


def _rewritten(fixed: bytes, given: dict[str, Raw], policy: dict[str, Any] | None) -> bytes | None:
    """The job's members with some of them replaced; None when all of them stay."""
    if not given and policy is None:
        return None
    members = _MEMBERS.decode(b"{%b}" % fixed)
    members.update(given)
    if policy is not None:
        known = _OBJECT.decode(members["retry"]) if "retry" in members else {}
        members["retry"] = Raw(_encode({**known, **policy}))
    return _encode(members)[1:-1]


def _is_given(value: Raw) -> bool:
    return bytes(value) not in {b"", b"null"}


def _opens_with(value: Raw, first: bytes, field: str, expected: str) -> Raw:
    if not bytes(value).startswith(first):
        raise InvalidRequest(field=field, expected=expected)
    # A Raw that came out of a request keeps the whole request alive.
    return value.copy()
