"""Queue configuration (seed 002, 6.5 and 7): which of several values holds, for each setting."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from headgate.server.settings import Token
from tests.flow.world import MINUTE, SECOND, World, chosen, in_world

POLICY = "/queues/_default/config"
SECRETS = {"shop": "s" * 40, "crm-eu": "c" * 40, "cron": "o" * 40, "boss": "b" * 40}


@in_world()
async def test_002_7_3_visibility_of_fetch_over_job_over_queue_over_policy_over_system(
    world: World,
) -> None:
    async def lost_after(seconds: int, asked: dict[str, Any] | None = None, **members: Any) -> None:
        job = await world.push(queue="q", retry={"max_attempts": 9}, **members)
        assert await world.take("q", **(asked or {})) == [job]
        await world.later(seconds * SECOND - 1)
        assert await world.states(job) == ["active"]
        await world.later(1)
        assert await world.states(job) == ["available"]
        await world.finish(f"/jobs/{job}/cancel")

    await lost_after(30)
    await world.put(POLICY, {"visibility_timeout": 50})
    await lost_after(50)
    await world.configure("q", visibility_timeout=40)
    await lost_after(40)
    await lost_after(20, visibility_timeout="PT20S")
    await lost_after(10, {"visibility_timeout_ms": 10_000}, visibility_timeout="PT20S")
    await world.configure("q", visibility_timeout=None)
    await lost_after(50)
    await world.put(POLICY, {"visibility_timeout": None})
    await lost_after(30)


@in_world()
async def test_002_7_3_retries_of_job_over_queue_over_policy_over_system(world: World) -> None:
    async def delays(retry: dict[str, Any] | None = None) -> list[int]:
        members = {} if retry is None else {"retry": retry}
        job = await world.push(queue="q", **members)
        found: list[int] = []
        while await world.take("q") == [job]:
            told = await world.nack(job)
            if told["state"] == "discarded":
                break
            found.append(told["retry_delay_ms"] // SECOND)
            await world.later(told["retry_delay_ms"])
        return found

    steady = {"jitter": False}
    assert await delays(steady) == [1, 2]
    await world.put(
        POLICY, {"default_retry": {"max_attempts": 4, "initial_interval": "PT3S", **steady}}
    )
    assert await delays() == [3, 6, 12]
    await world.configure("q", default_retry={"backoff_coefficient": 3.0})
    assert await delays() == [3, 9, 27]
    assert await delays({"max_attempts": 3, "initial_interval": "PT2S"}) == [2, 6]
    await world.put(POLICY, {"default_retry": {"initial_interval": None}})
    assert await delays() == [1, 3, 9]
    await world.configure("q", default_retry=None)
    await world.put(POLICY, {"default_retry": None})
    assert await delays(steady) == [1, 2]


@pytest.mark.parametrize(
    ("policy", "queue", "days"),
    [(None, None, 7), ("P3D", None, 3), ("P3D", "P1D", 1), ("P3D", "P9D", 9), (None, "P9D", 9)],
)
@in_world(file=True)
async def test_002_7_3_retention_of_queue_over_policy_over_system_also_after_a_restart(
    world: World, policy: str | None, queue: str | None, days: int
) -> None:
    day = 24 * 60 * MINUTE
    await world.put(POLICY, {"retention": {"completed": policy}})
    await world.configure("q", retention={"completed": queue})
    job = await world.push(queue="q")
    await world.run("q")
    await world.later(days * day - 2 * SECOND)
    await world.restart(SECOND)
    assert await world.states(job) == ["completed"]
    await world.later(SECOND - 1)
    assert await world.states(job) == ["completed"]
    await world.later(1)
    await world.gone(job)


@in_world()
async def test_002_7_2_what_the_policy_says_no_longer_is_gone_from_every_queue(
    world: World,
) -> None:
    system = await world.get(POLICY)
    await world.push(queue="old")
    await world.configure("own", concurrency=7, allowed_job_types=["*"])
    policy = {
        "concurrency": 1,
        "max_size": 1,
        "allowed_job_types": ["mail.*"],
        "rate_limit": {"limit": 5, "period": "PT1M"},
        "dead_letter_queue": "graves",
        "dead_letter_ttl": "P1D",
        "tenant_fairness": {"enabled": True},
    }
    await world.put(POLICY, policy)
    assert (await world.enqueue(queue="fresh")).status == 422
    assert (await world.enqueue(queue="old", type="mail.send")).status == 429
    assert (await world.enqueue(queue="own")).status == 201
    shown = (await world.get("/queues/own"))["config"]
    assert chosen(shown, "concurrency", "max_size", "dead_letter_queue") == {
        "concurrency": 7,
        "max_size": 1,
        "dead_letter_queue": "graves",
    }
    assert "dead_letter_queue" not in (await world.configure("graves"))
    assert await world.put(POLICY, dict.fromkeys(policy)) == system
    assert (await world.get("/queues/old"))["config"] == system
    jobs = [await world.push(queue=queue) for queue in ("old", "old", "fresh")]
    assert set(jobs) <= set(await world.take("old", "fresh"))


@pytest.mark.parametrize(
    "policy",
    [
        {
            "concurrency": 10,
            "retention": {"completed": "P7D", "discarded": "P30D"},
            "default_retry": {
                "max_attempts": 3,
                "initial_interval": "PT1S",
                "backoff_coefficient": 2.0,
            },
        },
        {
            "concurrency": 10,
            "default_timeout": 1800,
            "retention": {"completed": "P7D", "discarded": "P30D", "cancelled": "P7D"},
            "default_retry": {
                "max_attempts": 3,
                "initial_interval": "PT1S",
                "backoff_coefficient": 2.0,
                "jitter": True,
                "on_exhaustion": "dead_letter",
            },
        },
    ],
)
@in_world()
async def test_002_7_1_and_13_3_the_example_policies_hold_for_implicit_queues(
    world: World, policy: dict[str, Any]
) -> None:
    await world.put(POLICY, policy)
    await world.push(queue="fresh")
    config = (await world.get("/queues/fresh"))["config"]
    for name, value in policy.items():
        shown = config[name]
        assert (chosen(shown, *value) if isinstance(value, dict) else shown) == value
    jobs = [await world.push(queue="fresh") for _ in range(11)]
    assert len(await world.take("fresh")) == 10
    assert jobs[-1] not in await world.take("fresh")


def tokens() -> tuple[Token, ...]:
    return tuple(
        Token(name, ("admin",) if name == "boss" else ("producer",), sha256(s.encode()).hexdigest())
        for name, s in SECRETS.items()
    )


@in_world(tokens=tokens())
async def test_002_6_5_producers_are_the_names_of_their_tokens(world: World) -> None:
    async def ask(who: str, method: str, path: str, body: Any) -> Any:
        return await world.call(method, path, body, authorization=f"Bearer {SECRETS[who]}")

    config = {"producers": ["shop", "crm-*"]}
    assert (await ask("boss", "PUT", "/queues/q/config", config)).status == 200
    job = {"type": "a", "args": [], "queue": "q", "meta": {"producer": "shop"}}
    for who, allowed in (("shop", True), ("crm-eu", True), ("cron", False), ("boss", False)):
        one = await ask(who, "POST", "/jobs", job)
        many = await ask(who, "POST", "/jobs/batch", {"jobs": [{**job, "queue": "free"}, job]})
        each = await ask(who, "POST", "/jobs/bulk", {"jobs": [job]})
        if allowed:
            assert (one.status, many.status, each.status) == (201, 201, 201), who
        else:
            assert (one.status, many.status, each.status) == (403, 403, 422), who
            assert one.error["code"] == many.error["code"] == "permission_denied"
            assert many.error["details"]["index"] == 1
            assert who in one.error["message"]
    found = await ask("boss", "GET", "/queues/q/stats", None)
    assert found.body["stats"]["depth"] == 6
    found = await ask("boss", "GET", "/queues/free/stats", None)
    assert found.body["stats"]["depth"] == 2, "a refused batch leaves nothing elsewhere"
    # The policy may name them too, and a queue that names its own overrides it.
    assert (await ask("boss", "PUT", POLICY, {"producers": ["cron"]})).status == 200
    assert (await ask("shop", "POST", "/jobs", {**job, "queue": "free"})).status == 403
    assert (await ask("shop", "POST", "/jobs", job)).status == 201


@pytest.mark.parametrize(
    ("pattern", "job_type", "fits"),
    [
        ("payment.*", "payment.charge", True),
        ("payment.*", "payment.card.charge", True),
        ("payment.*", "payment", False),
        ("payment.*", "repayment.charge", False),
        ("payment*", "payment", True),
        ("*.charge", "payment.charge", True),
        ("*.charge", "payment.charged", False),
        ("payment.charge", "payment.charge", True),
        ("payment.charge", "payment.charge2", False),
        ("*", "anything", True),
    ],
)
@in_world()
async def test_002_6_5_wildcards_match_whole_types(
    world: World, pattern: str, job_type: str, fits: bool
) -> None:
    await world.configure("q", allowed_job_types=["no.such", pattern])
    found = await world.enqueue(queue="q", type=job_type)
    assert found.status == (201 if fits else 422)
    if not fits:
        assert found.error["code"] == "JOB_TYPE_NOT_ALLOWED"
    batch = [{"type": t, "args": [], "queue": "q"} for t in ("no.such", job_type)]
    many = await world.call("POST", "/jobs/batch", {"jobs": batch})
    assert many.status == (201 if fits else 422)
    assert (await world.stats("q"))["depth"] == (3 if fits else 0)


@in_world()
async def test_002_6_5_an_empty_list_lets_nothing_in(world: World) -> None:
    await world.configure("q", allowed_job_types=[])
    assert (await world.enqueue(queue="q")).status == 422
    await world.configure("q", allowed_job_types=None, producers=[])
    assert (await world.enqueue(queue="q")).status == 403


@in_world()
async def test_002_10_the_fields_of_events_and_the_labels_of_metrics(world: World) -> None:
    await world.configure("q", max_size=4, overflow_policy="drop_oldest")
    jobs = [await world.push(queue="q") for _ in range(5)]
    (full,) = await world.events("queue.full")
    assert chosen(full, "queue", "depth", "bound") == {"queue": "q", "depth": 4, "bound": 4}
    (overflow,) = await world.events("queue.overflow")
    assert chosen(overflow, "queue", "job_id", "job_type") == {
        "queue": "q",
        "job_id": jobs[0],
        "job_type": "test.echo",
    }
    await world.run("q", count=3)
    found = await world.samples()
    assert found['ojs_queue_overflow_count_total{queue="q",policy="drop_oldest"}'] == 1
    assert found['ojs_queue_utilization{queue="q"}'] == 0.25
    assert found['ojs_queue_depth{queue="q",state="available"}'] == 1
    await world.configure("q", max_size=None)
    found = await world.samples()
    assert not [name for name in found if "queue_max_size" in name or "utilization{queue" in name]
