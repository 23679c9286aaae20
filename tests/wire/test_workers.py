from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headgate.core.errors import InvalidRequest
from headgate.core.job import Job, More
from headgate.wire.workers import JobError, NackAnswer, hold_until, nack_json, why_json

NOW = 1_770_892_200_000
"""2026-02-12T10:30:00.000Z"""
ID = "019461a8-1a2b-7c3d-8e4f-5a6b7c8d9e0f"


@pytest.mark.parametrize(
    ("given", "until"),
    [
        (None, 0),
        ("2026-02-12T10:30:00.001Z", NOW + 1),
        ("2026-02-12T12:30:01+02:00", NOW + 1_000),
        ("+PT90S", NOW + 90_000),
        ("2026-02-12T10:30:00Z", 0),
        ("1999-01-01T00:00:00Z", 0),
    ],
)
def test_a_hold_lasts_until_an_instant_that_is_to_come(given: str | None, until: int) -> None:
    assert hold_until(JobError("c", "m", rate_limit_until=given), NOW) == until


@pytest.mark.parametrize("given", ["", "soon", "2026-02-12T10:30:00", "PT5S", "+5", "1770892200"])
def test_what_is_no_instant_is_refused(given: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        hold_until(JobError("c", "m", rate_limit_until=given), NOW, field="nacks[2].error")
    assert caught.value.details["field"] == "nacks[2].error.rate_limit_until"


def test_an_empty_answer_says_only_what_is_known() -> None:
    assert why_json(0, {}) == b""
    assert why_json(NOW, {}) == b',"next_at":"2026-02-12T10:30:00.000Z"'
    assert why_json(0, {"mail": "paused"}) == b',"reasons":{"mail":"paused"}'


def buried(**members: Any) -> Job:
    more = More(
        errors=[], origin="mail", buried_at=NOW, buried_for="attempts_exhausted", buried_attempts=3
    )
    return Job(ID, "a", "mail.dead", 0, b'"args":[],"meta":{}', NOW, 3, more=more, **members)


def test_a_nack_that_made_a_dead_letter_says_where_it_stands() -> None:
    found = msgspec.json.decode(nack_json(buried(), NOW), type=NackAnswer)
    assert (found.state, found.dead_letter_queue) == ("discarded", "mail.dead")
    assert (found.attempt, found.max_attempts) == (3, 3)
    assert found.discarded_at == found.completed_at == "2026-02-12T10:30:00.000Z"
    assert found.job.state == "available"
    assert found.job.dead_letter != msgspec.UNSET


@pytest.mark.parametrize(
    ("job", "requeued", "state"),
    [
        (buried(), True, "available"),
        (buried(state="retryable", due_at=NOW), False, "retryable"),
        (buried(state="discarded", finished_at=NOW), False, "discarded"),
        (Job(ID, "a", "mail", 0, b'"args":[],"meta":{}', NOW), True, "available"),
    ],
)
def test_what_goes_on_in_its_queue_is_no_new_dead_letter(
    job: Job, requeued: bool, state: str
) -> None:
    found = msgspec.json.decode(nack_json(job, NOW, requeued=requeued), type=NackAnswer)
    assert (found.state, found.dead_letter_queue) == (state, msgspec.UNSET)
