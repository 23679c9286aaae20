"""What the server is told of a run that ended."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from headgate import Discard, RateLimited, Retry, Snooze
from headgate.worker.outcome import Ack, Nack, Nothing, done, failed, signalled, stopped, timeout_s
from headgate.worker.signals import Signal

NOW_MS = 1_800_000_000_000
JOB: dict[str, Any] = {"id": "j", "type": "a.b", "claim": 4, "timeout": 30}
LIMITED = {**JOB, "rate_limit": {"key": "k"}}


def told(signal: Signal, job: dict[str, Any] = JOB, deferrals: int = 0) -> Nack:
    return signalled(job, signal, NOW_MS, deferrals, 3)


def test_a_result() -> None:
    assert done(JOB, {"a": [1]}) == Ack("j", 4, b'{"a":[1]}')
    assert done(JOB, None) == Ack("j", 4, None)


def test_a_result_that_is_no_json_fails_for_good() -> None:
    outcome = done(JOB, object())
    assert isinstance(outcome, Nack)
    assert outcome.error["code"] == "serialization_error"
    assert outcome.error["retryable"] is False


class OwnError(Exception):
    """Of this module."""


def test_a_failure_says_where_and_what_and_no_values() -> None:
    def raising(secret: str) -> None:
        raise OwnError("x" * 20_000)

    with pytest.raises(OwnError) as raised:
        raising("password")
    nack = failed(JOB, raised.value)
    assert nack.error["type"] == "tests.worker.test_outcome.OwnError"
    assert len(nack.error["message"]) == 10_000
    assert nack.error["backtrace"][-1].endswith(" in raising")
    assert "password" not in str(nack.error)
    assert "retryable" not in nack.error


def test_a_deep_failure_keeps_its_last_frames() -> None:
    def deep(n: int) -> None:
        if not n:
            raise ValueError
        deep(n - 1)

    with pytest.raises(ValueError, match=r"^$") as raised:
        deep(200)
    nack = failed(JOB, raised.value)
    frames = nack.error["backtrace"]
    assert len(frames) <= 50
    assert sum(map(len, frames)) <= 10_000
    assert frames[-1].endswith(" in deep")
    assert nack.error["message"] == "ValueError"


@pytest.mark.parametrize(
    "signal",
    [RateLimited(until="2027-01-15T08:05:00Z"), RateLimited(retry_after="5m"),
     RateLimited(until=datetime(2027, 1, 15, 8, 5, tzinfo=UTC))],
)  # fmt: skip
def test_a_limit_holds_the_key_and_charges_nothing(signal: RateLimited) -> None:
    nack = told(signal, LIMITED)
    assert nack.requeue
    assert nack.hold
    assert nack.after_ms is None
    assert nack.error["rate_limit_until"] == "2027-01-15T08:05:00.000Z"
    assert "rate_limit_key" not in nack.error


def test_a_limit_may_choose_its_key() -> None:
    assert told(RateLimited(retry_after=1, key="b"), LIMITED).error["rate_limit_key"] == "b"


def test_a_limit_without_a_time_holds_for_a_minute() -> None:
    assert told(RateLimited(), LIMITED).error["rate_limit_until"] == "2027-01-15T08:01:00.000Z"


def test_a_limit_of_a_job_without_a_key_puts_the_job_off() -> None:
    nack = told(RateLimited(retry_after=7))
    assert (nack.requeue, nack.after_ms, nack.hold) == (True, 7_000, False)
    assert "rate_limit_until" not in nack.error


def test_snooze() -> None:
    nack = told(Snooze("2m"))
    assert (nack.requeue, nack.after_ms, nack.error["code"]) == (True, 120_000, "snoozed")


@pytest.mark.parametrize("signal", [Snooze(1), RateLimited(retry_after=1)])
def test_deferrals_end_at_their_ceiling(signal: Signal) -> None:
    assert told(signal, LIMITED, 2).requeue
    nack = told(signal, LIMITED, 3)
    assert not nack.requeue
    assert nack.error["retryable"] is True
    assert "3 times" in nack.error["message"]


def test_retry() -> None:
    assert told(Retry("x", after="1m")).after_ms == 60_000
    nack = told(Retry("x"))
    assert (nack.requeue, nack.after_ms, nack.error["message"]) == (False, None, "x")


@pytest.mark.parametrize(("dead", "directive"), [(False, "DISCARD"), (True, "DEAD_LETTER")])
def test_discard(dead: bool, directive: str) -> None:
    nack = told(Discard("why", dead_letter=dead))
    assert nack.error["details"] == {"directive": directive}
    assert not nack.requeue


def test_both_times_at_once_make_no_sense() -> None:
    with pytest.raises(TypeError):
        RateLimited(until="2027-01-15T08:05:00Z", retry_after=1)


@pytest.mark.parametrize("why", ["cancelled", "lost"])
def test_nobody_hears_of_jobs_that_are_not_ours(why: str) -> None:
    assert stopped(JOB, why) == Nothing("j")


def test_a_timeout_says_its_limit() -> None:
    outcome = stopped(JOB, "timeout")
    assert isinstance(outcome, Nack)
    assert outcome.error["details"] == {"timeout_kind": "execution", "limit_seconds": 30.0}
    assert not outcome.requeue


def test_the_end_of_the_worker_gives_the_job_back() -> None:
    outcome = stopped(JOB, "shutdown")
    assert isinstance(outcome, Nack)
    assert outcome.requeue
    assert (outcome.error["type"], outcome.claim) == ("shutdown", 4)


@pytest.mark.parametrize(
    ("job", "seconds"),
    [({"timeout": 5}, 5), ({"timeout": 3, "timeout_ms": 2500}, 2.5), ({}, 0), ({"timeout": 0}, 0)],
)
def test_timeouts(job: dict[str, Any], seconds: float) -> None:
    assert timeout_s(job) == seconds
