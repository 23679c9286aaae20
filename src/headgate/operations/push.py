"""PUSH: from what a producer asks for to a job, one or many at once.

What only looks at the request and at the settings of its queue is decided here; everything that other jobs have a say in is decided by the engine, in the same step that accepts the job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, assert_never

import msgspec
from msgspec import Struct, json

from headgate.core import errors, unique
from headgate.core.envelope import Envelope
from headgate.core.errors import (
    InvalidRequest,
    JobTypeNotAllowed,
    OjsError,
    PermissionDenied,
    SchemaInvalid,
)
from headgate.core.job import Job, More
from headgate.core.limits import full_key
from headgate.core.queues import Resolved
from headgate.core.retry import RetryPolicy, policy_from
from headgate.core.states import AVAILABLE, PENDING, SCHEDULED
from headgate.core.unique import UniquePolicy
from headgate.engines.contract import (
    Draft,
    Draining,
    Duplicate,
    Engine,
    Full,
    Held,
    IdTaken,
    Pushed,
    PushOutcome,
    TenantFull,
    Unwanted,
)
from headgate.operations.line import in_line
from headgate.operations.waiting import Gone, never

_LONGEST_REMEMBERED = 1_024
"""Bytes of a retry policy that is worth remembering."""
LOWEST, HIGHEST = -100, 100
"""No boost raises a priority above the one or lowers it below the other."""


class Producer(Struct, frozen=True):
    """Who enqueues: queues may take jobs only from some."""

    name: str = ""
    tests: bool = False
    """A test suite, whose jobs may ask to be refused."""


NOBODY = Producer()


async def push(
    engine: Engine,
    envelope: Envelope,
    producer: Producer,
    now_ms: Callable[[], int],
    new_id: Callable[[int], str],
    *,
    block_ms: int = 0,
    gone: Gone = never,
) -> Pushed | Duplicate:
    """Enqueue one job; a Duplicate is one that its producer wants instead.

    Before a full queue that lets producers wait, it waits for up to `block_ms`.
    """

    async def draft(now: int) -> Sequence[Draft]:
        boost = await boost_of(engine, envelope.tenant, now) if envelope.tenant else 0
        return (draft_of(engine, envelope, now, new_id, producer, boost),)

    if block_ms <= 0:
        now = now_ms()
        (outcome,) = await engine.push(await draft(now), now)
    else:
        (outcome,) = await in_line(engine, draft, now_ms, block_ms, gone)
    return accepted(outcome)


async def push_all(
    engine: Engine,
    envelopes: Sequence[Envelope],
    producer: Producer,
    now_ms: Callable[[], int],
    new_id: Callable[[int], str],
    *,
    block_ms: int = 0,
    gone: Gone = never,
) -> list[Pushed | Duplicate]:
    """Enqueue all jobs or none; the refusal names the first item that is to blame.

    Before full queues that let producers wait, it waits for up to `block_ms`, for room for all of them.
    """

    async def drafts(now: int) -> Sequence[Draft]:
        boosts = await boosts_of(engine, envelopes, now)
        found = []
        for index, envelope in enumerate(envelopes):
            try:
                boost = boosts[envelope.tenant]
                found.append(draft_of(engine, envelope, now, new_id, producer, boost))
            except OjsError as error:
                raise at_index(error, index) from None
        return found

    outcomes = await in_line(engine, drafts, now_ms, block_ms, gone)
    for index, outcome in enumerate(outcomes):
        if not isinstance(outcome, Held):
            try:
                accepted(outcome)
            except OjsError as error:
                raise at_index(error, index) from None
    return [accepted(outcome) for outcome in outcomes]


async def boost_of(engine: Engine, tenant: str, now_ms: int) -> int:
    """What the priority of this tenant's jobs is raised by."""
    known = await engine.tenant(tenant, now_ms)
    return 0 if known is None else known.limits.priority_boost


async def boosts_of(
    engine: Engine, envelopes: Sequence[Envelope], now_ms: int
) -> Mapping[str, int]:
    """The same for everybody who has one of these jobs."""
    tenants = {envelope.tenant for envelope in envelopes}
    return {tenant: await boost_of(engine, tenant, now_ms) if tenant else 0 for tenant in tenants}


def at_index(error: OjsError, index: int) -> OjsError:
    """The same refusal, saying which item of the request it is about."""
    error.details.setdefault("index", index)
    error.message = f"jobs[{index}]: {error.message}"
    return error


def accepted(outcome: PushOutcome) -> Pushed | Duplicate:
    """The outcome where there is a job to give back; raises the refusal that any other one means."""
    match outcome:
        case Pushed():
            return outcome
        case Duplicate(job, unique_key, ignore):
            if ignore:
                return outcome
            raise errors.Duplicate(
                "an equal job exists already",
                existing_job_id=job.id,
                existing_job_state=job.state,
                unique_key=unique_key,
            )
        case IdTaken(job_id):
            raise errors.Duplicate(f"there is a job {job_id} already", existing_job_id=job_id)
        case Draining(queue):
            raise errors.QueueDraining(
                f"the queue {queue} is draining and takes no new jobs", details={"queue": queue}
            )
        case Unwanted(queue):
            raise errors.QueueNotFound(f"there is no queue {queue}", details={"queue": queue})
        case Full():
            raise _full(outcome)
        case TenantFull():
            raise _tenant_full(outcome)
        case Held():
            raise errors.Conflict("rolled back, because another job of the request was refused")
        case _:
            assert_never(outcome)


def _full(outcome: Full) -> errors.QueueFull:
    load = outcome.load
    message = ""
    if outcome.never:
        message = (
            f"queue {outcome.queue} takes at most {load.bound} ({load.measure}), and this is more"
        )
    refusal = errors.QueueFull(
        message,
        queue=outcome.queue,
        depth=load.depth,
        bound=load.bound,
        strategy=outcome.strategy,
        measure=load.measure,
        retry_after_s=outcome.retry_after_s,
    )
    if outcome.never:
        refusal.retryable = False
        refusal.hint = "Send fewer jobs in one request, or raise the queue's bound."
    return refusal


def _tenant_full(outcome: TenantFull) -> errors.TenantLimitExceeded:
    message = ""
    if outcome.never:
        message = (
            f"tenant {outcome.tenant} has a {outcome.limit} of {outcome.maximum}, and this is more"
        )
    refusal = errors.TenantLimitExceeded(
        message,
        tenant_id=outcome.tenant,
        limit=outcome.limit,
        current=outcome.current,
        maximum=outcome.maximum,
        retry_after_s=outcome.retry_after_s,
    )
    if outcome.never:
        refusal.retryable = False
        refusal.hint = "Send fewer jobs in one request, or raise the tenant's limit."
    return refusal


def draft_of(
    engine: Engine,
    envelope: Envelope,
    now_ms: int,
    new_id: Callable[[int], str],
    producer: Producer = NOBODY,
    boost: int = 0,
) -> Draft:
    """The job as it wants to enter. Raises OjsError when it breaks a rule or its queue does not take it."""
    settings = engine.settings(envelope.queue)
    retry = settings.retry
    if envelope.retry is not None:
        retry = _retry_policy(envelope.retry, retry)
    policy = None
    fingerprint = None
    if envelope.unique is not None or envelope.unique_key:
        policy, fingerprint = _uniqueness(envelope)
    if producer.tests and b'"ojs_validate"' in envelope.meta:
        _validate(envelope)
    if not settings.takes(envelope.type):
        raise JobTypeNotAllowed(
            f"the queue {envelope.queue} takes no jobs of type {envelope.type}",
            details={"queue": envelope.queue, "allowed_job_types": settings.allowed_job_types},
        )
    if not settings.takes_from(producer.name):
        raise PermissionDenied(
            f"the queue {envelope.queue} takes no jobs from {producer.name or 'callers without a name'}",
            details={"queue": envelope.queue},
        )
    job = _job(envelope, settings, retry, envelope.id or new_id(now_ms), now_ms)
    if boost:
        job.priority = max(LOWEST, min(HIGHEST, job.priority + boost))
    if policy is not None:
        job.unique = fingerprint
    uses = envelope.uses
    if uses:
        job.keys = tuple([(full_key(use.key, use.scope, job.tenant), use.on_limit) for use in uses])
    return Draft(job, policy, bool(envelope.id), uses)


def _job(
    envelope: Envelope, settings: Resolved, retry: RetryPolicy, job_id: str, now_ms: int
) -> Job:
    timeout_ms = envelope.timeout_ms or settings.timeout_ms
    job = Job(
        job_id,
        envelope.type,
        envelope.queue,
        envelope.priority,
        envelope.fixed,
        now_ms,
        retry.max_attempts,
        timeout_ms,
        envelope.visibility_ms,
        envelope.expires_at,
        retry,
        None,
        envelope.tenant,
    )
    if envelope.pending:
        job.state = PENDING
    elif envelope.scheduled_at > now_ms:
        job.state = SCHEDULED
        job.due_at = envelope.scheduled_at
    else:
        job.state = AVAILABLE
    if (
        envelope.total_timeout_ms
        or envelope.enqueue_ttl_ms
        or envelope.heartbeat_timeout_ms
        or envelope.result_ttl_ms >= 0
        or b'"trace_id"' in envelope.meta
    ):
        _add_rare(job, envelope, now_ms)
    return job


def _add_rare(job: Job, envelope: Envelope, now_ms: int) -> None:
    more = More(errors=[])
    if envelope.total_timeout_ms:
        if envelope.timeout_ms > envelope.total_timeout_ms:
            raise InvalidRequest(field="total_timeout", expected="at least the timeout")
        more.give_up_at = now_ms + envelope.total_timeout_ms
    if envelope.enqueue_ttl_ms:
        ends = now_ms + envelope.enqueue_ttl_ms
        if not job.expires_at or ends < job.expires_at:
            job.expires_at = ends
            more.expires_as = "enqueue_ttl_expired"
    more.stall_ms = envelope.heartbeat_timeout_ms
    more.result_ttl_ms = envelope.result_ttl_ms
    trace_id = _decoded(envelope.meta, "meta").get("trace_id")
    if isinstance(trace_id, str):
        more.trace_id = trace_id
    job.more = more


def _uniqueness(envelope: Envelope) -> tuple[UniquePolicy, str]:
    policy = UniquePolicy()
    if envelope.unique is not None:
        policy = unique.policy_from(_decoded(envelope.unique, "unique"))
    if envelope.unique_key:
        return policy, envelope.unique_key
    return policy, unique.fingerprint(
        policy,
        envelope.type,
        envelope.queue,
        _decoded(envelope.args, "args") if "args" in policy.dimensions else (),
        _decoded(envelope.meta, "meta") if "meta" in policy.dimensions else {},
    )


def _retry_policy(given: bytes, base: RetryPolicy) -> RetryPolicy:
    if len(given) <= _LONGEST_REMEMBERED:
        return _remembered_policy(given, base)
    return policy_from(_decoded(given, "retry"), base)


@lru_cache(maxsize=1_024)
def _remembered_policy(given: bytes, base: RetryPolicy) -> RetryPolicy:
    # Producers send the same few policies over and over, and equal jobs then share one record.
    return policy_from(_decoded(given, "retry"), base)


def _validate(envelope: Envelope) -> None:
    """For test suites: a job that asks for it is refused without arguments."""
    if _decoded(envelope.meta, "meta").get("ojs_validate") is True and not _decoded(
        envelope.args, "args"
    ):
        raise SchemaInvalid(field="args", expected="at least one argument")


def _decoded(source: bytes, field: str) -> Any:
    try:
        return json.decode(source)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest(f"{field} cannot be compared: {error}", field=field) from None
