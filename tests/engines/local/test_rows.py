from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from headgate.core.job import Job, More, Step
from headgate.core.retry import DEFAULT, RetryPolicy
from headgate.core.states import STATES
from headgate.engines.local.rows import (
    CHANGED,
    CHANGING,
    COLUMNS,
    KEYS,
    LASTING,
    POOL,
    STORED,
    changed,
    job_of,
    kin_of,
    present,
    stored,
)

NOT_KEPT = {"alarm", "lane"}
"""Where a job stands in memory."""

texts = st.text(max_size=8)
instants = st.integers(0, 2**53)
raws = st.sampled_from([Raw(b"{}"), Raw(b'{"a":[1,2.50]}'), Raw(b"7")])
steps = st.builds(
    Step,
    event=texts,
    was=texts,
    state=texts,
    at=instants,
    began=instants,
    attempt=st.integers(0, 50),
    worker=texts,
    by=texts,
    reason=texts,
    times=st.integers(1, 9),
)
mores = st.builds(
    More,
    errors=st.lists(raws, max_size=3),
    reason=texts,
    retry_delay_ms=st.integers(-1, 10**9),
    deferrals=st.integers(0, 200),
    activated_at=instants,
    cancelled_while_active=st.booleans(),
    progress=st.none() | st.floats(0, 1),
    progress_data=st.none() | st.binary(max_size=8),
    progress_message=st.none() | texts,
    progress_at=instants,
    checkpoint_sequence=st.integers(0, 9),
    lease_ms=instants,
    give_up_at=instants,
    expires_as=texts,
    stall_ms=instants,
    heard_at=instants,
    re_enqueued_at=instants,
    trace_id=texts,
    postponed_by=texts,
    origin=texts,
    buried_at=instants,
    buried_for=texts,
    buried_attempts=st.integers(0, 50),
    result_ttl_ms=st.integers(-1, 10**9),
    back_at=instants,
    trail=st.lists(steps, max_size=3),
    trail_lost=st.integers(0, 9),
    forgotten_at=instants,
    first_enqueued_at=st.integers(-1, 2**53),
    was_scheduled=st.booleans(),
    replays=st.integers(0, 9),
)
retries = st.just(DEFAULT) | st.builds(
    RetryPolicy,
    max_attempts=st.integers(0, 50),
    coefficient=st.floats(1, 1e300),
    non_retryable=st.lists(texts, max_size=2).map(tuple),
    on_exhaustion=st.sampled_from(["discard", "dead_letter"]),
)
jobs = st.builds(
    Job,
    id=texts,
    type=texts,
    queue=texts,
    priority=st.integers(-100, 100),
    fixed=st.binary(max_size=8),
    created_at=instants,
    max_attempts=st.integers(0, 50),
    timeout_ms=instants,
    visibility_ms=instants,
    expires_at=instants,
    retry=retries,
    unique=st.none() | texts,
    tenant=texts,
    keys=st.lists(st.tuples(texts, texts), max_size=2).map(tuple),
    state=st.sampled_from(STATES),
    seq=instants,
    attempt=st.integers(0, 50),
    claim=instants,
    enqueued_at=instants,
    due_at=instants,
    started_at=instants,
    visible_until=instants,
    finished_at=instants,
    worker=texts,
    pool=texts,
    result=st.none() | st.binary(max_size=8),
    dead=st.booleans(),
    more=st.none() | mores,
)


def kept(job: Job) -> dict[str, Any]:
    """All that must survive; the rare members only where they say something."""
    members = {name: getattr(job, name) for name in Job.__struct_fields__ if name not in NOT_KEPT}
    members["more"] = job.more and {n: getattr(job.more, n) for n in More.__struct_fields__}
    return members


def on_disk(record: tuple[Any, ...]) -> tuple[Any, ...]:
    """The record as the journal gives it back."""
    return tuple(msgspec.msgpack.decode(msgspec.msgpack.encode(record)))


def test_every_member_of_a_job_has_a_column() -> None:
    renamed = {"unique": "unique_key"}
    members = {renamed.get(name, name) for name in Job.__struct_fields__} - NOT_KEPT
    assert set(COLUMNS) == members
    assert len(COLUMNS) == len(members)


def test_the_generated_jobs_reach_every_rare_member() -> None:
    found = set(More.__struct_fields__)
    assert found == set(mores.wrapped_strategy.kwargs)  # type: ignore[attr-defined]


@given(jobs, texts)
def test_a_stored_job_reads_back(job: Job, was: str) -> None:
    record = on_disk(stored(job, was))
    assert len(record) == STORED
    assert record[:2] == (job.id, was)
    assert kept(job_of((record[0], *record[2:]))) == kept(job)


@given(jobs, jobs)
def test_a_change_carries_all_that_can_change(before: Job, after: Job) -> None:
    for column in ("id", *LASTING):
        name = {"unique_key": "unique"}.get(column, column)
        setattr(after, name, getattr(before, name))
    whole = on_disk(stored(before, ""))
    change = on_disk(changed(after, before.state))
    assert len(change) == CHANGED == 2 + len(CHANGING)
    assert change[1] == before.state
    assert kept(job_of((change[0], *change[2:], *whole[CHANGED:]))) == kept(after)


@given(jobs, texts)
def test_records_of_schema_1_are_still_read(job: Job, was: str) -> None:
    job.pool, job.keys = "", ()
    whole, change = stored(job, was), changed(job, was)
    old_whole = (*whole[:POOL], *whole[POOL + 1 : KEYS], *whole[KEYS + 1 :])
    old_change = (*change[:POOL], *change[POOL + 1 :])
    assert present(old_whole) == whole
    assert present(old_change) == change
    assert present(whole) is whole
    assert present(change) is change


def test_the_usual_retry_policy_and_no_rare_members_take_no_room() -> None:
    plain = Job("i", "t", "q", 0, b"{}", 1)
    row = dict(zip(COLUMNS, (stored(plain, "")[0], *stored(plain, "")[2:]), strict=True))
    assert row["retry"] == b""
    assert row["more"] is None
    assert job_of(tuple(row.values())).retry is DEFAULT


@pytest.mark.parametrize(
    ("fixed", "kin"),
    [
        (b'"args":[],"meta":{}', []),
        (b'"args":[],"meta":{"tenant_id":"a"}', []),
        (b'"args":[{"parent_id":"a"}],"meta":{"root_id":"b"}', []),
        (b'"args":[],"meta":{},"parent_id":"a"', [("parent", "a")]),
        (b'"args":[],"meta":{},"root_id":null,"parent_id":7,"workflow_id":"f"', [("workflow", "f")]),
        (b'"args":[],"meta":{},"parent_id":"' + b"a" * 256 + b'"', []),
        (
            b'"args":[],"meta":{},"parent_id":"a","workflow_id":"f","root_id":"r"',
            [("parent", "a"), ("root", "r"), ("workflow", "f")],
        ),
    ],
)  # fmt: skip
def test_whom_a_job_names(fixed: bytes, kin: list[tuple[str, str]]) -> None:
    assert kin_of(fixed) == kin
