from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from headgate.core.errors import NotFound
from headgate.core.gates import GateState, Limits, Override, Rate
from headgate.core.job import Job, More
from headgate.core.pools import Pool
from headgate.core.queues import Resolved
from headgate.engines.contract import Barrier, Explanation, KeyView, PoolView
from headgate.operations.explain import Told, explain, place_text

NOW = 1_770_000_000_000


def job(state: str = "available", **more: Any) -> Job:
    more = {"enqueued_at": NOW - 90_000, **more}
    return Job("j1", "mail.send", "mail", 0, b'"args":[]', NOW - 90_000, state=state, **more)


class Oracle:
    """An engine that was told what to say."""

    def __init__(
        self, said: Explanation | None, keys: Sequence[KeyView] = (), pools: Sequence[Pool] = ()
    ) -> None:
        self._said = said
        self._keys = {view.key: view for view in keys}
        self._pools = pools

    def settings(self, _queue: str) -> Resolved:
        return Resolved(limits=Limits(rate=Rate(9, 3_600_000_000)))

    async def pools(self, _now_ms: int) -> list[PoolView]:
        return [PoolView(pool, 0, 0) for pool in self._pools]

    async def explain(self, _job_id: str, _now_ms: int) -> Explanation | None:
        return self._said

    async def key(self, key: str, _now_ms: int) -> KeyView | None:
        return self._keys.get(key)


def told(one: Job, *barriers: Barrier, place: int = 0, **more: Any) -> Told:
    engine: Any = Oracle(Explanation(one, place, list(barriers), 1), **more)
    return asyncio.run(explain(engine, one.id, NOW))


def test_a_job_that_nobody_knows() -> None:
    engine: Any = Oracle(None)
    with pytest.raises(NotFound):
        asyncio.run(explain(engine, "j1", NOW))


@pytest.mark.parametrize(
    ("state", "attempts", "said"),
    [
        (
            "available",
            1,
            "1 attempt (attempts_exhausted). POST /ojs/v1/dead-letter/j1/retry returns it there.",
        ),
        ("active", 3, "3 attempts (attempts_exhausted)."),
    ],
)
def test_a_dead_letter_says_where_it_came_from(state: str, attempts: int, said: str) -> None:
    more = More(errors=[])
    more.origin, more.buried_for = "orders", "attempts_exhausted"
    more.buried_at, more.buried_attempts = NOW - 60_000, attempts
    assert told(job(state, more=more)).summary[1] == (
        "It is a dead letter: it left the queue orders at 2026-02-02T02:39:00.000Z (1 min ago) "
        f"after {said}"
    )


def test_a_job_with_nothing_in_its_way() -> None:
    assert told(job()).summary == [
        "The job is available in the queue mail since 2026-02-02T02:38:30.000Z (1 min 30 s ago).",
        "No job of its queue would be taken before it.",
        "Nothing is in its way: the next fetch of the queue mail takes it.",
    ]
    assert told(job(), place=10_000).summary[1:] == [
        "10,000+ jobs of its queue would be taken before it.",
        "Nothing is in its way but those before it: workers fetch them first.",
    ]


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1_000, "1,000"),
        (9_999, "9,999"),
        (10_000, "10,000+"),
        (10**6, "10,000+"),
    ],
)
def test_places_are_capped(place: int, text: str) -> None:
    assert place_text(place) == text


def test_a_full_key_names_its_holders_and_what_to_do() -> None:
    barrier = Barrier("concurrency", "key", "stripe", 2, 5, ("a", "b"))
    found = told(job(), barrier, place=3)
    assert found.summary[1:] == [
        "3 jobs of its queue would be taken before it if nothing were in the way.",
        "The key stripe lets 2 run at a time and 5 are held by a, b and 3 more.",
        (
            "PUT /ojs/v1/rate-limits/stripe overrides the limit; if a holder is stuck, "
            "POST /ojs/v1/jobs/a/cancel frees its place."
        ),
    ]


def test_a_key_of_a_tenant_is_reached_through_the_tenant() -> None:
    barrier = Barrier("hold", "key", "@acme/stripe", opens_at=NOW + 3_723_000, reason="429")
    (reason,) = told(job(), barrier).barriers
    assert reason.summary == (
        "The key stripe of the tenant acme is held until 2026-02-02T03:42:03.000Z (in 1 h 2 min) (429)."
    )
    assert reason.remedy == "DELETE /ojs/v1/rate-limits/stripe?tenant=acme lifts the hold."


def test_gates_of_queues_and_tenants_lead_to_their_own_settings() -> None:
    for scope, name, path in (
        ("queue", "/queue/mail", "/ojs/v1/admin/queues/mail/rate-limit"),
        ("queue", "mail", "/ojs/v1/admin/queues/mail/rate-limit"),
        ("tenant", "/tenant/acme", "/ojs/v1/admin/tenants/acme/limits"),
    ):
        (reason,) = told(job(), Barrier("concurrency", scope, name, 1, 1)).barriers
        assert reason.barrier.name in {"mail", "acme"}
        assert reason.summary == (
            f"The {scope} {reason.barrier.name} lets 1 run at a time and 1 is held."
        )
        assert reason.remedy == f"PUT {path} changes the limit."


def test_windows_and_throttles_say_when_they_open() -> None:
    at = NOW + 20_000
    (rate,) = told(job(), Barrier("rate", "key", "k", 100, 100, opens_at=at)).barriers
    assert rate.summary == (
        "The key k lets 100 start in its window and 100 have started; "
        "the next may at 2026-02-02T02:40:20.000Z (in 20 s)."
    )
    (pace,) = told(job(), Barrier("throttle", "key", "k", 1, 1, opens_at=at)).barriers
    assert pace.summary == (
        "The key k spaces its starts; the next may at 2026-02-02T02:40:20.000Z (in 20 s)."
    )


def test_an_override_is_named_as_the_reason_of_what_it_limits() -> None:
    limits = Limits(0, Rate(1, 60_000_000))
    override = Override(Limits(0), ("concurrency",), NOW + 60_000)
    view = KeyView("k", GateState(limits, 0, 0, 0, None, None, 0, "", override), 1)
    closed = Barrier("concurrency", "key", "k", 0, 1, ("a",))
    used = Barrier("rate", "key", "k", 1, 1, opens_at=NOW + 5_000)
    first, second = told(job(), closed, used, keys=[view]).barriers
    assert first.summary == (
        "The key k has the concurrency 0: none of its jobs may run. "
        "An operator's override says so until 2026-02-02T02:41:00.000Z (in 1 min)."
    )
    assert first.remedy == "DELETE /ojs/v1/rate-limits/k lifts the override."
    assert second.summary == (
        "The key k lets 1 start in any PT1M and 1 has started; "
        "the next may at 2026-02-02T02:40:05.000Z (in 5 s)."
    )
    assert second.remedy == "PUT /ojs/v1/rate-limits/k overrides the limit."


def test_the_window_of_a_queue_is_told() -> None:
    (reason,) = told(job(), Barrier("rate", "queue", "mail", 9, 9, opens_at=NOW)).barriers
    assert "The queue mail lets 9 start in any PT1H and 9 have started" in reason.summary


def test_an_isolated_pool_without_workers_is_named() -> None:
    pools = [
        Pool("gpu", ("mail",), (1,), isolated=True),
        Pool("open", ("mail",), (1,)),
        Pool("other", ("video",), (1,), isolated=True),
    ]
    (reason,) = told(job(), Barrier("no_consumers", "queue", "mail"), pools=pools).barriers
    assert reason.summary == (
        "The queue mail is served to the isolated pool gpu only, and no worker of it is there."
    )
    assert reason.remedy == "Start a worker of the pool gpu."


@pytest.mark.parametrize(
    ("barrier", "words", "remedy"),
    [
        (Barrier("paused", "queue", "mail"), "is paused", "queues/mail/resume"),
        (Barrier("pool", "pool", "gpu", 4, 4), "runs 4 of the 4 jobs", "pools/gpu"),
        (Barrier("isolated", "pool", "gpu"), "pool gpu only", "of the pool gpu"),
        (Barrier("no_consumers", "queue", "mail"), "Nobody fetches", "Start a worker that serves"),
        (Barrier("priority", "queue", "mail", current=7), "7 jobs of a higher", "PATCH"),
        (Barrier("pending", "job", "j1"), "until it is activated", "jobs/j1/activate"),
        (Barrier("retry", "job", "j1", opens_at=NOW + 1_000), "(in 1 s)", "jobs/j1/retry"),
        (Barrier("scheduled", "job", "j1", opens_at=NOW + 1_000), "(in 1 s)", ""),
        (Barrier("something-new", "key", "k"), "something-new of the key k", ""),
    ],
)
def test_every_barrier_is_said_and_has_its_remedy(
    barrier: Barrier, words: str, remedy: str
) -> None:
    (reason,) = told(job(), barrier).barriers
    assert words in reason.summary
    assert remedy in reason.remedy
    assert bool(reason.remedy) == bool(remedy)


def test_two_barriers_with_one_remedy_say_it_once() -> None:
    one = Barrier("rate", "key", "k", 1, 1, opens_at=NOW)
    other = Barrier("throttle", "key", "k", 1, 1, opens_at=NOW)
    summary = told(job(), one, other).summary
    assert summary.count("PUT /ojs/v1/rate-limits/k overrides the limit.") == 1


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (job("active", started_at=NOW - 5_000, visible_until=NOW + 25_000, worker="w", attempt=2),
         "runs by the worker w since 2026-02-02T02:39:55.000Z (5 s ago), attempt 2 of 3"),
        (job("retryable", due_at=NOW + 1_000, attempt=1), "failed, attempt 1 of 3, and is tried"),
        (job("scheduled", due_at=NOW + 172_800_000), "(in 2 d)"),
        (job("scheduled", due_at=NOW, more=More(postponed_by="k")), "The key k was closed"),
        (job("pending"), "until somebody activates it"),
        (job("completed", finished_at=NOW), "is completed since 2026-02-02T02:40:00.000Z (now)"),
        (job("discarded", finished_at=NOW, more=More(reason="expired")), "reason was: expired."),
    ],
)  # fmt: skip
def test_every_state_is_said(one: Job, words: str) -> None:
    first, *rest = told(one, place=-1).summary
    assert words in first
    assert rest == []
