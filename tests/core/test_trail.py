from __future__ import annotations

import pytest

from headgate.core import trail
from headgate.core.job import WAS_SCHEDULED, Job, More, Step
from headgate.core.states import TRANSITIONS
from headgate.core.trail import Change


def job(**members: object) -> Job:
    given: dict[str, object] = {"enqueued_at": 10, **members}
    return Job("j", "t", "q", 0, b"", 10, **given)  # type: ignore[arg-type]


def told(given: Job) -> list[tuple[int, str, str]]:
    return [(change.at, change.event, change.state) for change in trail.history(given)]


def test_a_usual_job_keeps_no_record_and_its_history_is_whole() -> None:
    done = job(state="completed", started_at=20, finished_at=30, attempt=1, worker="w")
    assert done.more is None
    assert trail.history(done) == [
        Change(10, "push", "", "available"),
        Change(20, "fetch", "available", "active", 1, "w"),
        Change(30, "ack", "active", "completed", 1, "w"),
    ]


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"state": "available"}, [(10, "push", "available")]),
        ({"state": "scheduled", "enqueued_at": 0}, [(10, "push", "scheduled")]),
        ({"state": "pending", "enqueued_at": 0}, [(10, "push", "pending")]),
        (
            {"enqueued_at": 15, "due_at": WAS_SCHEDULED},
            [(10, "push", "scheduled"), (15, "due", "available")],
        ),
        (
            {"enqueued_at": 15, "more": More(activated_at=15)},
            [(10, "push", "pending"), (15, "activate", "available")],
        ),
        ({"enqueued_at": 15}, [(10, "push", "available")]),
    ],
)
def test_how_a_job_came_in_follows_from_its_times(
    members: dict[str, object], expected: list[tuple[int, str, str]]
) -> None:
    assert told(job(**members)) == expected


def test_an_attempt_that_failed_is_told_with_its_start() -> None:
    failed = job(state="active", started_at=20, attempt=1, worker="w")
    trail.attempt_over(failed, "fail", "retryable", "", 25)
    failed.state = "retryable"
    failed.started_at = 99
    assert trail.history(failed)[1:] == [
        Change(20, "fetch", "available", "active", 1, "w"),
        Change(25, "fail", "active", "retryable", 1, "w"),
    ]


def requeued(at: int, worker: str) -> Step:
    return Step("requeue", "active", "retryable", at, at - 1, 1, worker)


def test_a_job_that_was_scheduled_stays_one_when_it_is_put_off() -> None:
    given = job(enqueued_at=15, due_at=WAS_SCHEDULED, state="active", started_at=20, attempt=1)
    trail.attempt_over(given, "fail", "retryable", "", 25)
    given.due_at = 90
    assert told(given)[:2] == [(10, "push", "scheduled"), (15, "due", "available")]


def test_turns_in_a_row_are_counted_and_nothing_else_is() -> None:
    given = job(state="active")
    more = given.rare()
    for at in range(100, 1_100, 10):
        trail.write(given, requeued(at, f"w{at}"))
        trail.write(given, Step("due", "retryable", "available", at + 5))
    assert [(step.event, step.at, step.times) for step in more.trail] == [
        ("requeue", 1_090, 100),
        ("due", 1_095, 1),
    ]
    assert more.trail[0].worker == "w1090"
    trail.write(given, Step("fail", "active", "retryable", 2_000, 1_999, 1, "w"))
    trail.write(given, Step("due", "retryable", "available", 2_001))
    trail.write(given, requeued(2_010, "w"))
    assert [step.event for step in more.trail] == ["requeue", "due", "fail", "due", "requeue"]


def test_jobs_that_wait_for_different_keys_are_told_apart() -> None:
    given = job()
    more = given.rare()
    for key in ("a", "a", "b"):
        trail.write(given, Step("reschedule", "available", "scheduled", 1, reason=key))
    assert [(step.reason, step.times) for step in more.trail] == [("a", 2), ("b", 1)]


def test_the_oldest_steps_go_first_and_are_counted() -> None:
    given = job(state="available", more=More(errors=[]))
    assert given.more is not None
    for at in range(trail.MOST + 7):
        trail.write(given, Step("fail", "active", "available", at + 2, at + 1, at, "w"))
    assert len(given.more.trail) == trail.MOST
    assert given.more.trail_lost == 7
    assert trail.history(given)[0] == Change(8, "fetch", "available", "active", 7, "w")


def test_what_was_forgotten_stays_forgotten_until_the_job_begins_anew() -> None:
    done = job(state="completed", started_at=20, finished_at=30, attempt=1)
    trail.forget(done.rare(), 40)
    assert trail.history(done) == []
    failed = job(state="discarded", finished_at=30, more=More(errors=[]))
    assert failed.more is not None
    trail.forget(failed.more, 40)
    trail.write(failed, Step("retry", "discarded", "available", 50, by="ada"))
    failed.state, failed.started_at = "active", 60
    assert told(failed) == [(50, "retry", "available"), (60, "fetch", "active")]


def test_a_job_that_ended_before_there_were_trails_tells_its_end() -> None:
    old = job(state="discarded", finished_at=30, more=More(errors=[], reason="overflow"))
    assert trail.history(old)[1:] == [
        Change(30, "overflow", "", "discarded", reason="overflow"),
    ]
    assert told(job(state="cancelled", finished_at=30))[1:] == [(30, "cancel", "cancelled")]
    trail.forget(old.rare(), 40)
    assert trail.history(old) == []


@pytest.mark.parametrize(
    ("reason", "event"),
    [
        ("expired", "expire"),
        ("enqueue_ttl_expired", "expire"),
        ("rate_limited", "drop"),
        ("overflow", "overflow"),
        ("queue_deleted", "queue_deleted"),
        ("total_timeout", "total_timeout"),
        ("attempts_exhausted", "fail"),
    ],
)
def test_what_led_to_a_discard_is_a_trigger_of_the_state_table(reason: str, event: str) -> None:
    assert trail.trigger_of(reason) == event
    assert event in {step.trigger for step in TRANSITIONS if step.target == "discarded"}
