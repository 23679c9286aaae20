"""Rate limiting (seed 000), sentence by sentence: feedback, HTTP, events and metrics, examples (9 to 14)."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.core.times import instant_ms
from tests.flow.world import MINUTE, SECOND, World, chosen, in_world


@in_world()
async def test_000_9_1_the_hold_closes_the_key_for_jobs_of_all_queues_and_no_other_key(
    world: World,
) -> None:
    first = await world.limited("k", "a")
    others = [await world.limited("k", queue) for queue in ("a", "b")]
    free = await world.limited("other", "b")
    await world.take("a", count=1)
    await world.nack(first, requeue=True, rate_limit_until="+PT20S")
    assert await world.take("a", "b") == [free]
    await world.later(20 * SECOND)
    # Requeued: it has its place again, and the attempt was not charged.
    assert await world.take("a", "b") == [first, *others]
    assert (await world.job(first))["attempt"] == 1


@pytest.mark.parametrize("way", ["nack", "nack by path", "exchange"])
@in_world()
async def test_000_9_1_the_example_is_taken_as_it_stands(world: World, way: str) -> None:
    world.now_ms = instant_ms("2026-02-13T12:00:00Z")
    job = await world.limited("stripe-api")
    await world.take(worker_id="w")
    said: dict[str, Any] = {
        "error": {
            "type": "RateLimitExceeded",
            "message": "Stripe API rate limit exceeded",
            "rate_limit_until": "2026-02-13T12:05:00Z",
        }
    }
    match way:
        case "nack":
            await world.finish("/workers/nack", {"job_id": job, **said})
        case "nack by path":
            await world.finish(f"/jobs/{job}/nack", said)
        case _:
            nacks = [{"job_id": job, **said}]
            await world.finish("/workers/exchange", {"worker_id": "w", "nacks": nacks})
    shown = await world.job(job)
    assert shown["state"] == "retryable"
    assert chosen(shown["error"], "code", "type", "message") == {
        "code": "RateLimitExceeded",
        "type": "RateLimitExceeded",
        "message": "Stripe API rate limit exceeded",
    }
    assert (await world.key("stripe-api"))["hold"]["until"] == "2026-02-13T12:05:00.000Z"
    await world.later(5 * MINUTE - 1)
    assert await world.take() == []
    await world.later(1)
    assert await world.take() == [job]


@in_world()
async def test_000_9_1_a_hold_is_never_shortened_and_the_past_is_ignored(world: World) -> None:
    jobs = [await world.limited() for _ in range(3)]
    await world.take()
    await world.nack(jobs[0], requeue=True, rate_limit_until="+PT20S")
    await world.nack(jobs[1], requeue=True, rate_limit_until="+PT5S")
    await world.nack(jobs[2], requeue=True, rate_limit_until=world.at(-SECOND))
    assert (await world.key())["hold"]["until"] == world.at(20 * SECOND)
    assert len(await world.events("rate_limit.dynamic_adjusted")) == 1


@in_world()
async def test_000_9_1_the_feedback_of_an_answer_that_is_refused_holds_nothing(
    world: World,
) -> None:
    await world.limited()
    (job,) = await world.fetch()
    before = await world.everything()
    error = {"code": "c", "message": "429", "rate_limit_until": "+PT1H"}
    late = {"job_id": job["id"], "claim": job["claim"] + 1, "error": error}
    assert (await world.call("POST", "/workers/nack", late)).status == 409
    assert await world.everything() == before


@in_world()
async def test_000_10_1_only_limits_that_the_key_has_are_shown(world: World) -> None:
    await world.limited("a", concurrency=5)
    await world.limited("b", rate={"limit": 100, "period": "PT1M"})
    await world.limited("c", throttle={"limit": 10, "period": "PT1S"})
    await world.take()
    assert await world.key("a") == {
        "key": "a",
        "concurrency": {"limit": 5, "active": 1, "available": 4},
        "waiting_count": 0,
    }
    assert await world.key("b") == {
        "key": "b",
        "rate": {
            "limit": 100,
            "period": "PT1M",
            "current_count": 1,
            "window_resets_at": world.at(MINUTE),
        },
        "waiting_count": 0,
    }
    assert await world.key("c") == {
        "key": "c",
        "throttle": {"limit": 10, "period": "PT1S", "next_allowed_at": world.at(100)},
        "waiting_count": 0,
    }
    assert (await world.call("GET", "/rate-limits/nobody")).status == 404


@in_world()
async def test_000_10_1_waiting_count_is_the_number_of_jobs_that_wait_for_the_key(
    world: World,
) -> None:
    for _ in range(10):
        await world.limited(concurrency=3)
    assert (await world.key())["waiting_count"] == 7
    held = await world.take()
    assert (await world.key())["waiting_count"] == 7
    await world.ack(held[0])
    assert (await world.key())["waiting_count"] == 6
    allowed, limited = await world.key_jobs()
    assert (len(allowed), len(limited)) == (3, 6)


@in_world()
async def test_000_10_2_an_override_replaces_only_what_it_names(world: World) -> None:
    await world.limited(concurrency=5, rate={"limit": 9, "period": "PT1M"})
    await world.put("/rate-limits/k", {"rate": {"limit": 1, "period": "PT1S"}})
    shown = await world.key()
    assert (shown["concurrency"]["limit"], shown["rate"]["limit"]) == (5, 1)
    await world.put("/rate-limits/k", {"concurrency": None})
    shown = await world.key()
    assert "concurrency" not in shown
    assert shown["rate"]["limit"] == 9, "an override is replaced as a whole"


@in_world()
async def test_000_10_2_an_override_grants_no_fresh_window_when_it_ends(world: World) -> None:
    rate = {"limit": 2, "period": "PT1M"}
    jobs = [await world.limited(rate=rate) for _ in range(6)]
    assert await world.run() == jobs[:2]
    override = {"rate": {"limit": 1, "period": "PT1M"}, "expires_at": world.at(10 * SECOND)}
    await world.put("/rate-limits/k", override)
    await world.later(10 * SECOND)
    assert await world.run() == []
    await world.later(50 * SECOND)
    assert await world.run() == jobs[2:4]


@pytest.mark.parametrize("ends_first", ["hold", "override", "both"])
@in_world()
async def test_000_10_2_a_hold_and_an_override_both_have_to_be_over(
    world: World, ends_first: str
) -> None:
    hold_s, override_s = {"hold": (20, 30), "override": (30, 20), "both": (30, 30)}[ends_first]
    first = await world.limited(concurrency=1)
    second = await world.limited()
    await world.take()
    await world.nack(first, requeue=True, rate_limit_until=f"+PT{hold_s}S")
    override = {"concurrency": 0, "expires_at": world.at(override_s * SECOND)}
    await world.put("/rate-limits/k", override)
    barriers = (await world.get(f"/jobs/{second}/explain"))["barriers"]
    assert [(b["kind"], b["opens_at"]) for b in barriers if b["scope"] == "key"] == [
        ("hold", world.at(hold_s * SECOND)),
        ("concurrency", world.at(override_s * SECOND)),
    ]
    empty = await world.call("POST", "/workers/fetch", {"queues": ["default"]})
    assert (empty.body["jobs"], empty.body["next_at"]) == ([], world.at(30 * SECOND))
    await world.later(30 * SECOND - 1)
    assert await world.take() == []
    await world.later(1)
    assert await world.take() == [first]
    assert await world.take() == [], "its own limit holds again"
    assert await world.key() == {
        "key": "k",
        "concurrency": {"limit": 1, "active": 1, "available": 0},
        "waiting_count": 1,
    }


@in_world()
async def test_000_10_2_an_override_that_ends_with_the_window_lets_the_limit_and_no_more_start(
    world: World,
) -> None:
    rate = {"limit": 2, "period": "PT1M"}
    jobs = [await world.limited(rate=rate) for _ in range(6)]
    assert await world.run() == jobs[:2]
    override = {"rate": {"limit": 1, "period": "PT1M"}, "expires_at": world.at(MINUTE)}
    await world.put("/rate-limits/k", override)
    await world.later(MINUTE - 1)
    assert await world.run() == []
    assert (await world.key())["override"] == override
    await world.later(1)
    assert await world.run() == jobs[2:4]
    shown = await world.key()
    assert "override" not in shown
    assert shown["rate"]["current_count"] == 2


@in_world()
async def test_000_10_3_all_keys_are_listed_page_by_page(world: World) -> None:
    for number in range(25):
        await world.limited(f"key-{number:02}", concurrency=2)
    await world.take("default", count=1)
    first = await world.get("/rate-limits")
    assert first["pagination"] == {"total": 25, "page": 1, "per_page": 20}
    assert first["items"][0] == {
        "key": "key-00",
        "concurrency": {"limit": 2, "active": 1, "available": 1},
        "waiting_count": 0,
    }
    second = await world.get("/rate-limits?page=2")
    keys = [item["key"] for item in first["items"] + second["items"]]
    assert keys == [f"key-{number:02}" for number in range(25)]


@in_world()
async def test_000_10_3_a_key_is_forgotten_when_nothing_is_left_of_it(world: World) -> None:
    await world.limited("gone", concurrency=1)
    await world.limited("windowed", rate={"limit": 5, "period": "PT1M"})
    await world.run()
    assert [item["key"] for item in (await world.get("/rate-limits"))["items"]] == ["windowed"]
    await world.later(MINUTE)
    assert (await world.get("/rate-limits"))["pagination"]["total"] == 0
    # And when it comes again, it is new.
    await world.limited("gone")
    assert await world.key("gone") == {"key": "gone", "waiting_count": 0}


@in_world()
async def test_000_11_1_exceeded_and_released_are_told_once_for_each_key_and_queue(
    world: World,
) -> None:
    await world.limited("k", "a", concurrency=1)
    (first,) = await world.take("a")
    waiting = [await world.limited("k", queue) for queue in ("a", "a", "b")]
    told = await world.events("rate_limit.*")
    assert [(e["type"], e["queue"]) for e in told] == [
        ("rate_limit.exceeded", "a"),
        ("rate_limit.exceeded", "b"),
    ]
    await world.ack(first)
    released = (await world.events("rate_limit.*"))[2:]
    assert sorted((e["type"], e["queue"], e["job_id"]) for e in released) == [
        ("rate_limit.released", "a", waiting[0]),
        ("rate_limit.released", "b", waiting[2]),
    ]


@in_world()
async def test_000_11_1_nothing_is_released_when_nobody_waits_any_more(world: World) -> None:
    first = await world.limited(concurrency=1)
    await world.take()
    second = await world.limited()
    await world.finish(f"/jobs/{second}/cancel")
    await world.ack(first)
    assert [e["type"] for e in await world.events("rate_limit.*")] == ["rate_limit.exceeded"]


@in_world()
async def test_000_11_1_a_dropped_job_is_told_with_key_id_and_type(world: World) -> None:
    await world.limited(concurrency=0)
    job = await world.push(
        type="notification.push", rate_limit={"key": "k", "on_limit": "drop"}, queue="n"
    )
    await world.take("n")
    (told,) = await world.events("rate_limit.dropped")
    assert chosen(told, "key", "job_id", "job_type") == {
        "key": "k",
        "job_id": job,
        "job_type": "notification.push",
    }
    (discarded,) = await world.events("job.discarded")
    assert discarded["job_id"] == job


@in_world()
async def test_000_11_1_feedback_is_told_with_key_until_and_reason(world: World) -> None:
    await world.limited("stripe-api")
    (job,) = await world.take()
    until = world.at(MINUTE)
    await world.nack(job, message="429 from Stripe", requeue=True, rate_limit_until=until)
    (told,) = await world.events("rate_limit.dynamic_adjusted")
    assert chosen(told, "key", "until", "reason") == {
        "key": "stripe-api",
        "until": until,
        "reason": "429 from Stripe",
    }


@pytest.mark.parametrize("tenant", ["acme", "a:b", "a.b_c-d", "_default"])
@in_world()
async def test_000_11_1_events_name_a_tenants_own_key_as_the_job_did(
    world: World, tenant: str
) -> None:
    policy = {"key": "k", "concurrency": 1, "scope": "tenant"}
    meta = {} if tenant == "_default" else {"tenant_id": tenant}
    job: dict[str, Any] = {"meta": meta, "rate_limit": policy}
    first = await world.push(**job)
    await world.take()
    waits = await world.push(**job)
    dropped = await world.push(**{**job, "rate_limit": {**policy, "on_limit": "drop"}})
    later = await world.push(**{**job, "rate_limit": {**policy, "on_limit": "reschedule"}})
    assert await world.take() == []
    await world.nack(first, requeue=True, rate_limit_until="+PT1M")
    await world.put(f"/rate-limits/k?tenant={tenant}", {"concurrency": 2})
    await world.later(MINUTE)
    found = (await world.get("/events?limit=1000"))["events"]
    about = [event for event in found if "key" in event["data"]]
    assert {event["type"] for event in about} == {
        "rate_limit.exceeded",
        "rate_limit.released",
        "rate_limit.dropped",
        "rate_limit.dynamic_adjusted",
        "rate_limit.overridden",
        "job.scheduled",
    }
    for event in about:
        assert chosen(event["data"], "key", "tenant") == {"key": "k", "tenant": tenant}
        assert event["subject"] == ("k" if event["type"].startswith("rate_limit.") else later)
    # Nor does anything else show how the key is kept.
    explained = await world.get(f"/jobs/{later}/explain")
    error = (await world.job(dropped))["error"]
    assert error["message"] == f"k of the tenant {tenant} is closed"
    assert "@" not in str([explained, error, await world.get(f"/jobs/{waits}/explain")])
    lost = await world.call("GET", "/rate-limits/nobody?tenant=acme")
    assert (lost.status, "@" in str(lost.body)) == (404, False)


@in_world()
async def test_000_11_2_the_metrics_have_their_names_and_labels(world: World) -> None:
    for _ in range(5):
        await world.limited("k", "a", concurrency=2)
    held = await world.take("a")
    found = await world.samples()
    assert found['ojs_rate_limit_active{key="k"}'] == 2
    assert found['ojs_rate_limit_waiting{key="k"}'] == 3
    assert found['ojs_rate_limit_exceeded_total{key="k",strategy="concurrency"}'] == 1
    assert 'ojs_rate_limit_wait_duration_seconds_count{key="k"}' not in found
    await world.later(3 * SECOND)
    await world.ack(held[0])
    # What a worker takes its time for is no waiting for the key.
    await world.later(SECOND)
    await world.take("a")
    found = await world.samples()
    assert found['ojs_rate_limit_active{key="k"}'] == 2
    assert found['ojs_rate_limit_wait_duration_seconds_count{key="k"}'] == 1
    assert found['ojs_rate_limit_wait_duration_seconds_sum{key="k"}'] == 3


@in_world()
async def test_000_13_1_a_queue_can_be_limited_and_bounded_at_once(world: World) -> None:
    await world.configure("q", backpressure={"max_depth": 3})
    jobs = [await world.limited("k", "q", concurrency=1) for _ in range(3)]
    assert (await world.enqueue(queue="q")).status == 429
    assert await world.take("q") == jobs[:1]
    assert (await world.enqueue(queue="q")).status == 201


EXAMPLES: list[tuple[str, dict[str, Any], int]] = [
    ("14_1", {"key": "payment-api", "concurrency": 5}, 5),
    ("14_2", {"key": "email-provider", "rate": {"limit": 1000, "period": "PT1H"}}, 8),
    (
        "14_3",
        {
            "key": "tenant:acme-corp:reports",
            "concurrency": 3,
            "throttle": {"limit": 1, "period": "PT1S"},
        },
        1,
    ),
    (
        "14_4",
        {
            "key": "push-notifications",
            "rate": {"limit": 10000, "period": "PT1M"},
            "on_limit": "drop",
        },
        8,
    ),
    (
        "14_5",
        {
            "key": "api.partner.com",
            "concurrency": 10,
            "rate": {"limit": 500, "period": "PT1M"},
            "throttle": {"limit": 10, "period": "PT1S"},
            "on_limit": "wait",
        },
        1,
    ),
]


@pytest.mark.parametrize(
    ("policy", "at_once"), [pytest.param(p, n, id=name) for name, p, n in EXAMPLES]
)
@in_world()
async def test_000_14_the_examples_are_taken_as_they_stand(
    world: World, policy: dict[str, Any], at_once: int
) -> None:
    jobs = [await world.push(rate_limit=policy) for _ in range(8)]
    assert (await world.job(jobs[0]))["rate_limit"] == policy
    assert await world.take() == jobs[:at_once]
    shown = await world.key(policy["key"])
    for name in ("concurrency", "rate", "throttle"):
        if name in policy:
            given = policy[name]
            limits = {"limit": given} if isinstance(given, int) else given
            assert chosen(shown[name], *limits) == limits


@in_world()
async def test_000_14_5_a_job_waits_until_all_three_are_satisfied(world: World) -> None:
    (_, policy, _) = EXAMPLES[4]
    jobs = [await world.push(rate_limit=policy) for _ in range(12)]
    seen = []
    for _ in range(11):
        seen += await world.take()
        await world.later(100)
    assert seen == jobs[:10], "ten are active: the eleventh waits for a slot"
    await world.ack(seen[0])
    assert await world.take() == jobs[10:11]
