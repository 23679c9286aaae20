from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.bounds import Load
from headgate.core.envelope import SCHEDULED_FIRST, Envelope
from headgate.core.errors import (
    Conflict,
    Duplicate,
    InvalidRequest,
    JobTypeNotAllowed,
    OjsError,
    PermissionDenied,
    PolicyInvalid,
    QueueDraining,
    QueueFull,
    QueueNotFound,
    TenantLimitExceeded,
)
from headgate.core.job import Job
from headgate.core.limits import Use
from headgate.core.queues import Resolved
from headgate.core.retry import RetryPolicy
from headgate.core.tenants import TenantLimits
from headgate.engines import contract
from headgate.engines.contract import (
    Draft,
    Draining,
    Full,
    Held,
    IdTaken,
    Pushed,
    TenantFull,
    TenantView,
    Unwanted,
)
from headgate.operations.bulk_push import push_each
from headgate.operations.push import (
    NOBODY,
    Producer,
    accepted,
    at_index,
    draft_of,
    push,
    push_all,
)

NOW = 1_770_892_200_000
FRESH = "019461a8-1a2b-7c3d-8e4f-5a6b7c8d9e0f"
GIVEN = "01900000-0000-7000-8000-000000000001"


class Settled:
    """An engine that knows nothing but the settings of queues."""

    def __init__(self, **settings: Any) -> None:
        self._settings = Resolved(**settings)

    def settings(self, queue: str) -> Resolved:
        return self._settings


SYSTEM: Any = Settled()


def draft(
    engine: Any = SYSTEM, producer: Producer = NOBODY, boost: int = 0, **members: Any
) -> Draft:
    envelope = Envelope("a.b", b'"args":[],"meta":{}', b"[]", **members)
    return draft_of(engine, envelope, NOW, lambda _: FRESH, producer, boost)


def test_a_plain_job_is_available_now() -> None:
    found = draft()
    job = found.job
    assert (found.unique, found.named) == (None, False)
    assert (job.id, job.type, job.queue, job.state) == (FRESH, "a.b", "default", "available")
    assert (job.created_at, job.due_at, job.expires_at, job.more) == (NOW, 0, 0, None)
    assert (job.timeout_ms, job.visibility_ms, job.max_attempts) == (1_800_000, 0, 3)


def test_an_id_of_the_producer_may_exist() -> None:
    found = draft(id=GIVEN)
    assert (found.job.id, found.named) == (GIVEN, True)


@given(
    st.integers(NOW - 5, NOW + 5) | st.just(0),
    st.booleans(),
    st.integers(NOW - 5, NOW + 5) | st.just(0),
    st.integers(0, 5),
)
def test_the_first_state_and_the_expiry_follow_from_the_times(
    scheduled_at: int, pending: bool, expires_at: int, ttl_ms: int
) -> None:
    job = draft(
        scheduled_at=scheduled_at, pending=pending, expires_at=expires_at, enqueue_ttl_ms=ttl_ms
    ).job
    if pending:
        assert (job.state, job.due_at) == ("pending", 0)
    elif scheduled_at > NOW:
        assert (job.state, job.due_at) == ("scheduled", scheduled_at)
    else:
        assert (job.state, job.due_at) == ("available", 0)
    ends = [at for at in (expires_at, ttl_ms and NOW + ttl_ms) if at]
    assert job.expires_at == min(ends, default=0)
    by_ttl = bool(ttl_ms) and (not expires_at or NOW + ttl_ms < expires_at)
    assert (job.more is not None and job.more.expires_as == "enqueue_ttl_expired") == by_ttl


def test_the_job_beats_its_queue_and_the_queue_the_defaults() -> None:
    policy = RetryPolicy(max_attempts=7, jitter=False)
    queue = Settled(timeout_ms=5_000, retry=policy)
    assert (draft(queue).job.timeout_ms, draft(queue).job.retry) == (5_000, policy)
    job = draft(queue, timeout_ms=9, retry=b'{"max_attempts":2}').job
    assert (job.timeout_ms, job.max_attempts) == (9, 2)
    assert job.retry == RetryPolicy(max_attempts=2, jitter=False)


def test_equal_policies_share_one_record() -> None:
    given = msgspec.json.encode({"max_attempts": 4})
    assert draft(retry=given).job.retry is draft(retry=bytes(bytearray(given))).job.retry
    long = msgspec.json.encode({"max_attempts": 4, "x": "y" * 2_000})
    assert draft(retry=long).job.retry == draft(retry=given).job.retry


def test_what_few_jobs_have_is_kept_apart() -> None:
    more = draft(
        total_timeout_ms=60_000,
        timeout_ms=60_000,
        heartbeat_timeout_ms=7,
        result_ttl_ms=0,
        meta=b'{"trace_id":"abc"}',
    ).job.more
    assert more is not None
    assert (more.give_up_at, more.stall_ms) == (NOW + 60_000, 7)
    assert (more.result_ttl_ms, more.trace_id) == (0, "abc")
    other = draft(meta=b'{"a":"\\"trace_id\\"","trace_id":5}').job.more
    assert other is None or other.trace_id == ""


def test_the_total_timeout_holds_at_least_one_attempt() -> None:
    with pytest.raises(InvalidRequest) as caught:
        draft(total_timeout_ms=59_999, timeout_ms=60_000)
    assert caught.value.details["field"] == "total_timeout"
    assert draft(total_timeout_ms=1_000).job.timeout_ms == 1_800_000


def test_uniqueness_is_a_policy_and_a_fingerprint() -> None:
    plain = draft(unique=b"{}")
    assert plain.unique is not None
    assert plain.job.unique == draft(unique=b'{"keys":["type"]}').job.unique
    by_queue = draft(unique=b'{"keys":["queue"]}', queue="mail").job.unique
    assert by_queue != plain.job.unique
    assert draft(unique=b"{}", unique_key="mine").job.unique == "mine"
    bare = draft(unique_key="mine")
    assert bare.unique is not None
    assert bare.unique.on_conflict == "reject"


def test_what_a_producer_said_of_the_schedule_is_kept() -> None:
    fixed = SCHEDULED_FIRST + b'"2030-01-01T02:00:00+02:00","args":[],"meta":{}'
    for on_conflict in (b"replace", b"replace_except_schedule"):
        envelope = Envelope("a", fixed, b"[]", unique=b'{"on_conflict":"%b"}' % on_conflict)
        assert draft_of(SYSTEM, envelope, NOW, lambda _: FRESH).job.fixed == fixed


@pytest.mark.parametrize(
    ("members", "error"),
    [
        ({"retry": b"[]"}, PolicyInvalid),
        ({"retry": b'{"max_attempts":-1}'}, PolicyInvalid),
        ({"unique": b"[]"}, PolicyInvalid),
        ({"unique": b'{"keys":["meta"]}'}, PolicyInvalid),
        ({"unique": b'{"meta_keys":["a"]}'}, PolicyInvalid),
    ],
)
def test_policies_that_break_their_rules_are_refused(
    members: dict[str, Any], error: type[OjsError]
) -> None:
    with pytest.raises(error):
        draft(**members)


def test_a_queue_may_take_only_some_types() -> None:
    assert draft(Settled(allowed_job_types=("a.*",))).job.type == "a.b"
    with pytest.raises(JobTypeNotAllowed):
        draft(Settled(allowed_job_types=("b.*",)))


@pytest.mark.parametrize(
    ("name", "fits"), [("shop", True), ("shop-2", True), ("blog", False), ("", False)]
)
def test_a_queue_may_take_jobs_from_some_producers_only(name: str, fits: bool) -> None:
    queue = Settled(producers=("shop", "shop-*"))
    if fits:
        assert draft(queue, Producer(name), queue="orders").job.queue == "orders"
        return
    with pytest.raises(PermissionDenied) as caught:
        draft(queue, Producer(name), queue="orders")
    assert caught.value.details == {"queue": "orders"}
    assert "orders" in caught.value.message


def test_without_a_word_about_producers_a_queue_takes_jobs_from_all() -> None:
    assert draft(producer=Producer("anybody")).job.id == FRESH


@pytest.mark.parametrize(
    ("priority", "boost", "expected"),
    [(0, 0, 0), (5, 10, 15), (95, 10, 100), (-95, -10, -100), (-100, 100, 0), (100, 0, 100)],
)
def test_a_tenants_boost_moves_the_priority_within_its_limits(
    priority: int, boost: int, expected: int
) -> None:
    assert draft(priority=priority, boost=boost, tenant="acme").job.priority == expected


def test_keys_are_kept_by_their_full_names_in_the_order_given() -> None:
    uses = (Use("b", on_limit="drop"), Use("a", "tenant", "reschedule"))
    found = draft(uses=uses, tenant="acme")
    assert found.uses == uses
    assert found.job.keys == (("b", "drop"), ("@acme/a", "reschedule"))
    assert draft(uses=uses).job.keys[1] == ("@_default/a", "reschedule")
    assert (draft().uses, draft().job.keys) == ((), ())


JOB = Job(GIVEN, "a", "q", 0, b'"args":[]', NOW)
LOAD = Load("bytes", 900, 1_000)


@pytest.mark.parametrize("never", [False, True])
def test_a_full_queue_says_how_full_it_is(never: bool) -> None:
    with pytest.raises(QueueFull) as caught:
        accepted(Full("q", LOAD, "block", never, 7))
    refusal = caught.value
    body = refusal.body("r")["error"]
    told = {"queue": "q", "depth": 900, "bound": 1_000, "strategy": "block", "measure": "bytes"}
    assert {name: body[name] for name in told} == told
    assert (refusal.status, body["code"], body["retryable"]) == (429, "QUEUE_FULL", not never)
    assert refusal.headers == {
        "Retry-After": "7",
        "X-OJS-Queue-Depth": "900",
        "X-OJS-Queue-Bound": "1000",
    }


def test_a_tenant_at_its_limit_learns_which() -> None:
    with pytest.raises(TenantLimitExceeded) as caught:
        accepted(TenantFull("acme", "max_queue_depth", 5, 6, 3))
    body = caught.value.body("r")["error"]
    told = {"tenant_id": "acme", "limit": "max_queue_depth", "current": 5, "maximum": 6}
    assert {name: body[name] for name in told} == told
    assert (caught.value.status, caught.value.headers) == (429, {"Retry-After": "3"})


class Counter:
    """An engine that gives a boost to one tenant and takes everything."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.pushed: list[Job] = []

    def settings(self, queue: str) -> Resolved:
        return Resolved()

    async def tenant(self, tenant: str, now_ms: int) -> TenantView | None:
        self.asked.append(tenant)
        if tenant != "acme":
            return None
        return TenantView(tenant, TenantLimits(priority_boost=10), 1, {})

    async def push(self, drafts: Sequence[Draft], now_ms: int, **more: Any) -> list[Pushed]:
        self.pushed += [each.job for each in drafts]
        return [Pushed(each.job) for each in drafts]


def test_each_tenant_of_a_batch_is_looked_up_once() -> None:
    engine: Any = Counter()
    envelopes = [
        Envelope("a", b'"args":[]', b"[]", tenant=tenant)
        for tenant in ("acme", "", "other", "acme", "")
    ]

    async def live() -> None:
        await push_all(engine, envelopes, NOBODY, lambda: NOW, lambda _: FRESH)
        await push_each(engine, envelopes, NOBODY, NOW, lambda _: FRESH, atomic=False)
        await push(engine, envelopes[0], NOBODY, lambda: NOW, lambda _: FRESH)
        await push(engine, envelopes[1], NOBODY, lambda: NOW, lambda _: FRESH)

    asyncio.run(live())
    batch = [10, 0, 0, 10, 0]
    assert [job.priority for job in engine.pushed] == [*batch, *batch, 10, 0]
    assert sorted(engine.asked) == ["acme", "acme", "acme", "other", "other"]


@pytest.mark.parametrize(
    ("outcome", "error", "details"),
    [
        (
            contract.Duplicate(JOB, "f", ignore=False),
            Duplicate,
            {"existing_job_id": GIVEN, "existing_job_state": "available", "unique_key": "f"},
        ),
        (IdTaken(GIVEN), Duplicate, {"existing_job_id": GIVEN}),
        (Draining("q"), QueueDraining, {"queue": "q"}),
        (Unwanted("q"), QueueNotFound, {"queue": "q"}),
        (Held(), Conflict, {}),
    ],
)
def test_refused_outcomes_are_refusals(
    outcome: contract.PushOutcome, error: type[OjsError], details: dict[str, Any]
) -> None:
    with pytest.raises(error) as caught:
        accepted(outcome)
    assert caught.value.details == details
    named = at_index(caught.value, 3)
    assert (named.details["index"], named.message.startswith("jobs[3]: ")) == (3, True)


@pytest.mark.parametrize("outcome", [Pushed(JOB), contract.Duplicate(JOB, "f", ignore=True)])
def test_accepted_outcomes_have_a_job(outcome: Pushed | contract.Duplicate) -> None:
    assert accepted(outcome).job is JOB
