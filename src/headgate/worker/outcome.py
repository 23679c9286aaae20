"""How a run ended, and what the server is told of it."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from headgate.client.errors import OjsError, SerializationError
from headgate.client.values import encode
from headgate.core.times import instant_text
from headgate.worker.signals import Discard, RateLimited, Retry, Signal, Snooze

MAX_FRAMES = 50
MAX_BACKTRACE = 10_000
MAX_MESSAGE = 10_000


class Ack(Struct):
    """The job is done."""

    job_id: str
    claim: int
    result: bytes | None = None
    """JSON."""


class Nack(Struct):
    """The attempt failed, or the job is given back."""

    job_id: str
    claim: int
    error: dict[str, Any]
    requeue: bool = False
    """No attempt is charged."""
    after_ms: int | None = None
    """Not before so much later."""
    hold: bool = False
    """The error holds the job's rate key, so that giving the job back does not run it again at once."""


class Nothing(Struct):
    """The job is not this worker's any more; nobody wants to hear of it."""

    job_id: str


Outcome: TypeAlias = Ack | Nack | Nothing


def done(job: Mapping[str, Any], result: object) -> Outcome:
    """A handler returned; what it returned may still turn out to be no JSON."""
    try:
        data = None if result is None else encode(result, f"the result of {job['type']}")
    except SerializationError as error:
        return failed(job, error, retryable=False)
    return Ack(job["id"], claim_of(job), data)


def failed(job: Mapping[str, Any], error: BaseException, *, retryable: bool | None = None) -> Nack:
    """A handler raised."""
    code = error.code if isinstance(error, OjsError) else "handler_error"
    body: dict[str, Any] = {
        "code": code,
        "type": type_of(error),
        "message": str(error)[:MAX_MESSAGE] or type(error).__name__,
    }
    frames = backtrace(error)
    if frames:
        body["backtrace"] = frames
    if retryable is not None:
        body["retryable"] = retryable
    return Nack(job["id"], claim_of(job), body)


def signalled(
    job: Mapping[str, Any], signal: Signal, now_ms: int, deferrals: int, most_deferrals: int
) -> Nack:
    """A handler decided. Beyond so many deferrals, another one counts as a failed attempt."""
    body: dict[str, Any] = {"type": type(signal).__name__, "message": str(signal)}
    nack = Nack(job["id"], claim_of(job), body)
    match signal:
        case Discard():
            body["code"] = "discarded_by_handler"
            body["retryable"] = False
            directive = "DEAD_LETTER" if signal.dead_letter else "DISCARD"
            body["details"] = {"directive": directive}
        case Retry():
            body["code"] = "retry"
            body["retryable"] = True
            nack.after_ms = signal.after_ms
        case RateLimited():
            until_ms = signal.until_ms(now_ms)
            body["code"] = "rate_limited"
            body["retryable"] = True
            if job.get("rate_limit"):
                body["rate_limit_until"] = instant_text(until_ms)
                if signal.key is not None:
                    body["rate_limit_key"] = signal.key
                nack.hold = True
            else:
                nack.after_ms = max(0, until_ms - now_ms)
            nack.requeue = True
        case Snooze():
            body["code"] = "snoozed"
            body["retryable"] = True
            nack.after_ms = signal.after_ms
            nack.requeue = True
        case _:
            body["code"] = "handler_error"
    if nack.requeue:
        body["details"] = {"deferrals": deferrals + 1}
        if deferrals >= most_deferrals:
            nack.requeue = False
            body["message"] += f" (put off {deferrals} times, which is the most there may be)"
    return nack


def stopped(job: Mapping[str, Any], why: str) -> Outcome:
    """The worker interrupted the handler."""
    body: dict[str, Any]
    match why:
        case "cancelled" | "lost":
            return Nothing(job["id"])
        case "timeout":
            limit_s = timeout_s(job)
            body = {
                "code": "timeout",
                "type": "timeout",
                "message": f"the attempt took longer than {limit_s:g} s",
                "details": {"timeout_kind": "execution", "limit_seconds": limit_s},
            }
            return Nack(job["id"], claim_of(job), body)
        case _:
            body = {
                "code": "shutdown",
                "type": "shutdown",
                "message": "the worker ended before the job did",
                "retryable": True,
            }
            return Nack(job["id"], claim_of(job), body, requeue=True)


def died(job: Mapping[str, Any], how: str) -> Nack:
    """The process that ran the handler is gone."""
    body = {"code": "handler_panic", "type": "ProcessDied", "message": how}
    return Nack(job["id"], claim_of(job), body)


def unknown(job: Mapping[str, Any]) -> Nack:
    """No handler here; another worker may have one, so the attempt merely failed."""
    body = {
        "code": "no_handler",
        "type": "NoHandler",
        "message": f"this worker has no handler for {job['type']}",
        "retryable": True,
    }
    return Nack(job["id"], claim_of(job), body)


def too_large(nack_of: Ack, message: str) -> Nack:
    """The server does not store such a result, and keeps the job active until it hears something else."""
    body = {
        "code": "RESULT_TOO_LARGE",
        "type": "ResultTooLarge",
        "message": message,
        "retryable": False,
    }
    return Nack(nack_of.job_id, nack_of.claim, body)


def claim_of(job: Mapping[str, Any]) -> int:
    """The number of the reservation; 0 where the server counts none."""
    return int(job.get("claim") or 0)


def timeout_s(job: Mapping[str, Any]) -> float:
    """What this attempt may take; 0 for no limit."""
    if job.get("timeout_ms"):
        return float(job["timeout_ms"]) / 1000
    return float(job.get("timeout") or 0)


def type_of(error: BaseException) -> str:
    """The name that `non_retryable` can list: bare for what Python brings, else with its module."""
    kind = type(error)
    module = kind.__module__
    return (
        kind.__qualname__ if module in {"builtins", "__main__"} else f"{module}.{kind.__qualname__}"
    )


def backtrace(error: BaseException) -> list[str]:
    """The last frames, innermost last, without their source lines and values."""
    frames = traceback.extract_tb(error.__traceback__)[-MAX_FRAMES:]
    found = [f"{one.filename}:{one.lineno} in {one.name}" for one in frames]
    while sum(map(len, found)) > MAX_BACKTRACE:
        found.pop(0)
    return found
