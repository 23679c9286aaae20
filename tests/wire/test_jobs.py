from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from headgate.core import history
from headgate.core.job import Job, More
from headgate.core.states import STATES
from headgate.wire.jobs import error_json, fetched_json, job_json, result_is_over, with_members

ID = "019461a8-1a2b-7c3d-8e4f-5a6b7c8d9e0f"
AT = 1_770_892_200_000
"""2026-02-12T10:30:00.000Z"""
NOT_BY_FAILURE = ("expired", "enqueue_ttl_expired", "overflow", "queue_deleted", "rate_limited")


def text(ms: int) -> str:
    whole = datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole}.{ms % 1000:03}Z"


def slow_record(job: Job, now_ms: int) -> dict[str, Any]:
    """What a record says, one member after the other."""
    more = job.more or More(errors=[])
    fixed = msgspec.json.decode(b"{%b}" % job.fixed)
    over = job.finished_at > 0
    record = {
        "specversion": "1.0",
        "id": job.id,
        "type": job.type,
        "queue": job.queue,
        "priority": job.priority,
        "state": job.state,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "timeout": (job.timeout_ms + 999) // 1000,
        "created_at": text(job.created_at),
        **fixed,
    }
    if job.timeout_ms % 1000:
        record["timeout_ms"] = job.timeout_ms
    if job.state == "scheduled" and more.postponed_by and not over:
        record.pop("scheduled_at", None)
    if job.state == "scheduled" and not over:
        record.setdefault("scheduled_at", text(job.due_at))
    for name, ms in (
        ("enqueued_at", job.enqueued_at),
        ("started_at", job.started_at),
        ("activated_at", more.activated_at),
        ("re_enqueued_at", more.re_enqueued_at),
        ("next_attempt_at", job.due_at if job.state == "retryable" and not over else 0),
        ("cancelled_at", job.finished_at if job.state == "cancelled" else 0),
        ("discarded_at", job.finished_at if job.state == "discarded" else 0),
    ):
        if ms:
            record[name] = text(ms)
    by_failure = job.state == "discarded" and more.reason not in NOT_BY_FAILURE
    if over and (job.state == "completed" or by_failure):
        record["completed_at"] = text(job.finished_at)
    if job.worker:
        record["worker_id"] = job.worker
    if more.retry_delay_ms >= 0 and not over:
        record["retry_delay_ms"] = more.retry_delay_ms
    if more.errors:
        record["errors"] = [msgspec.json.decode(each) for each in more.errors]
        if job.state != "completed":
            record["error"] = record["errors"][-1]
    if more.origin:
        record["dead_letter"] = {
            "original_queue": more.origin,
            "attempts": more.buried_attempts,
            "reason": more.buried_for,
            "at": text(more.buried_at),
        }
    pruned = more.result_ttl_ms >= 0 and job.finished_at + more.result_ttl_ms <= now_ms
    if job.result is not None and not (over and pruned):
        record["result"] = msgspec.json.decode(job.result)
    return record


INSTANTS = st.integers(0, 3).map(lambda n: n * 86_400_123 + AT if n else 0)
FIXED = st.sampled_from(
    [
        b'"args":[],"meta":{}',
        b'"args":[{"a":"\\u00e9}"}, 1.50],"meta":{"trace_id":"x"},"x_new":null',
        b'"scheduled_at":"2030-01-01T00:00:00+01:00","args":[1],"meta":{}',
    ]
)
ERRORS = st.lists(
    st.integers(1, 5).map(lambda n: Raw(history.entry(n, "c", "m\n\u2028", "T", AT))), max_size=3
)
MORE = st.none() | st.builds(
    More,
    errors=ERRORS,
    reason=st.sampled_from(["", "attempts_exhausted", *NOT_BY_FAILURE]),
    retry_delay_ms=st.integers(-1, 5_000),
    activated_at=INSTANTS,
    re_enqueued_at=INSTANTS,
    postponed_by=st.sampled_from(["", "stripe"]),
    origin=st.sampled_from(["", "mail"]),
    buried_at=INSTANTS.map(lambda ms: ms or AT),
    buried_for=st.sampled_from(["attempts_exhausted", 'odd"\n']),
    buried_attempts=st.integers(0, 9),
    result_ttl_ms=st.integers(-1, 3).map(lambda n: n * 86_400_000 if n > 0 else n),
)
JOBS = st.builds(
    Job,
    id=st.just(ID),
    type=st.just("email.send"),
    queue=st.just("mail"),
    priority=st.integers(-100, 100),
    fixed=FIXED,
    created_at=st.just(AT),
    max_attempts=st.integers(0, 9),
    timeout_ms=st.sampled_from([1, 999, 1_000, 1_800_000, 2_500]),
    state=st.sampled_from(STATES),
    attempt=st.integers(0, 9),
    enqueued_at=INSTANTS,
    due_at=INSTANTS.map(lambda ms: ms or AT),
    started_at=INSTANTS,
    finished_at=INSTANTS,
    worker=st.sampled_from(["", "w-1", 'w"\\\n\u00e9']),
    result=st.sampled_from([None, b'{"a":[1, 2]}', b"0"]),
    more=MORE,
)


@given(JOBS, INSTANTS.map(lambda ms: ms + AT))
def test_a_record_says_what_its_members_say_one_by_one(job: Job, now_ms: int) -> None:
    record = job_json(job, now_ms)
    assert msgspec.json.decode(record) == slow_record(job, now_ms)
    assert record.count(b'"scheduled_at":') <= 1


def test_a_new_job_is_exactly_this() -> None:
    job = Job(ID, "email.send", "default", 0, b'"args":["a@b.c"],"meta":{}', AT, enqueued_at=AT)
    assert job_json(job, AT).decode() == (
        '{"specversion":"1.0","id":"019461a8-1a2b-7c3d-8e4f-5a6b7c8d9e0f","type":"email.send",'
        '"queue":"default","priority":0,"state":"available","attempt":0,"max_attempts":3,'
        '"timeout":1800,"created_at":"2026-02-12T10:30:00.000Z",'
        '"enqueued_at":"2026-02-12T10:30:00.000Z","args":["a@b.c"],"meta":{}}'
    )


def test_a_fetched_job_names_its_reservation() -> None:
    job = Job(ID, "t", "q", 0, b'"args":[],"meta":{}', AT, state="active", claim=7)
    found = msgspec.json.decode(fetched_json(job, AT))
    assert found == {**slow_record(job, AT), "claim": 7}


@pytest.mark.parametrize(
    ("ttl_ms", "later_ms", "over"),
    [(-1, 10**9, False), (0, 0, True), (1_000, 999, False), (1_000, 1_000, True)],
)
def test_a_result_is_over_when_its_time_is(ttl_ms: int, later_ms: int, over: bool) -> None:
    job = Job(ID, "t", "q", 0, b'"args":[]', AT, state="completed", finished_at=AT)
    job.result = b"1"
    job.more = More(errors=[], result_ttl_ms=ttl_ms)
    assert result_is_over(job, AT + later_ms) == over
    assert ("result" in msgspec.json.decode(job_json(job, AT + later_ms))) != over


def test_the_newest_error_is_the_jobs_until_it_succeeds() -> None:
    job = Job(ID, "t", "q", 0, b'"args":[]', AT)
    assert error_json(job) is None
    job.more = More(errors=[Raw(b'{"attempt":1}'), Raw(b'{"attempt":2}')])
    assert error_json(job) == b'{"attempt":2}'
    job.state = "completed"
    assert error_json(job) is None


def test_members_are_added_at_the_end() -> None:
    assert with_members(b'{"a":1}', b'"b":2') == b'{"a":1,"b":2}'
