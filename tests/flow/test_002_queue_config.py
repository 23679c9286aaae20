"""Queue configuration (seed 002), sentence by sentence: principles, life cycle, fields (4 to 6)."""

from __future__ import annotations

import pytest

from tests.flow.world import MINUTE, SECOND, World, chosen, in_world

DAY = 24 * 60 * MINUTE


@in_world()
async def test_002_4_4_a_new_configuration_does_not_touch_jobs_that_are_there(
    world: World,
) -> None:
    await world.configure("q", default_timeout=100, default_retry={"max_attempts": 2})
    old = await world.push(queue="q", type="any.type")
    await world.configure(
        "q",
        default_timeout=5,
        default_retry={"max_attempts": 9},
        allowed_job_types=["new.*"],
        max_size=1,
        max_size_bytes=10,
        overflow_policy="drop_oldest",
    )
    shown = await world.job(old)
    assert chosen(shown, "state", "timeout", "max_attempts") == {
        "state": "available",
        "timeout": 100,
        "max_attempts": 2,
    }
    assert await world.take("q") == [old]
    await world.configure("q", max_size=None, max_size_bytes=None)
    new = await world.push(queue="q", type="new.type")
    assert chosen(await world.job(new), "timeout", "max_attempts") == {
        "timeout": 5,
        "max_attempts": 9,
    }


@in_world()
async def test_002_5_1_a_paused_queue_takes_jobs_and_its_active_ones_go_on(world: World) -> None:
    active = await world.push(queue="q")
    await world.take("q")
    await world.finish("/admin/queues/q/pause")
    assert (await world.enqueue(queue="q")).status == 201
    retry = await world.call("POST", "/workers/fetch", {"queues": ["q"]})
    assert retry.body == {"jobs": [], "reasons": {"q": "paused"}}
    await world.ack(active)
    assert await world.states(active) == ["completed"]


@in_world()
async def test_002_5_1_a_paused_queue_counts_no_waiting_against_limits_and_expiries_go_on(
    world: World,
) -> None:
    job = await world.push(queue="q", expires_at="+PT1M")
    await world.finish("/queues/q/pause")
    await world.later(MINUTE)
    assert await world.states(job) == ["discarded"]


@in_world()
async def test_002_5_1_draining_may_be_called_off(world: World) -> None:
    job = await world.push(queue="q")
    await world.finish("/queues/q/drain")
    await world.finish("/queues/q/resume")
    assert (await world.enqueue(queue="q")).status == 201
    assert (await world.run("q"))[0] == job
    assert (await world.get("/queues/q"))["state"] == "active"


@in_world()
async def test_002_5_1_the_queue_default_is_always_there(world: World) -> None:
    before = await world.everything()
    for method, path, body in (
        ("DELETE", "/queues/default", {"strategy": "discard"}),
        ("POST", "/queues/default/drain", None),
    ):
        assert (await world.call(method, path, body)).status == 409
    assert await world.everything() == before


@in_world()
async def test_002_5_3_active_jobs_end_first_and_those_that_come_back_follow(
    world: World,
) -> None:
    retry = {"max_attempts": 5, "initial_interval": "PT1S"}
    done, failed, given_back, lost = [await world.push(queue="q", retry=retry) for _ in range(4)]
    waiting = await world.push(queue="q")
    await world.push(queue="target")
    assert len(await world.take("q", count=4)) == 4
    body = {"strategy": "move", "target_queue": "target"}
    deleted = await world.finish("/queues/q", body, method="DELETE")
    assert (deleted["state"], deleted["jobs_affected"]) == ("draining", 1)
    assert (await world.enqueue(queue="q")).status == 422
    await world.ack(done)
    await world.nack(failed)
    await world.nack(given_back, requeue=True)
    assert (await world.get("/queues/q"))["state"] == "draining"
    await world.later(30 * SECOND)
    assert (await world.call("GET", "/queues/q")).status == 404
    places = [(await world.job(job))["queue"] for job in (failed, given_back, lost, waiting)]
    assert places == ["target"] * 4
    assert (await world.job(done))["queue"] == "q"
    assert set(await world.take("target")) >= {failed, given_back, lost, waiting}


@in_world()
async def test_002_5_3_discarding_ends_what_fails_meanwhile(world: World) -> None:
    active = await world.push(queue="q")
    await world.take("q")
    deleted = await world.finish("/queues/q", {"strategy": "discard"}, method="DELETE")
    assert (deleted["state"], deleted["jobs_affected"]) == ("draining", 0)
    await world.nack(active, requeue=True)
    shown = await world.job(active)
    assert (shown["state"], shown["error"]["type"]) == ("discarded", "queue_deleted")
    assert (await world.call("GET", "/queues/q")).status == 404


@in_world()
async def test_002_5_3_moved_jobs_pass_the_targets_gates_and_not_its_bound(world: World) -> None:
    await world.configure("target", max_size=1, concurrency=1)
    jobs = [await world.push(queue="q") for _ in range(3)]
    body = {"strategy": "move", "target_queue": "target"}
    await world.finish("/queues/q", body, method="DELETE")
    assert (await world.stats("target"))["depth"] == 3
    assert await world.take("target") == jobs[:1]
    assert (await world.enqueue(queue="target")).status == 429


@in_world()
async def test_002_5_3_the_limits_of_a_deleted_queue_do_not_come_back_with_its_name(
    world: World,
) -> None:
    await world.configure("q", concurrency=1, max_size=1)
    await world.finish("/queues/q", {"strategy": "reject"}, method="DELETE")
    jobs = [await world.push(queue="q") for _ in range(3)]
    assert await world.take("q") == jobs


@pytest.mark.parametrize("policy", ["reject", "drop_oldest", "block"])
@in_world()
async def test_002_6_1_the_overflow_policy_is_the_strategy(world: World, policy: str) -> None:
    await world.configure("q", max_size=2, overflow_policy=policy)
    assert (await world.get("/queues/q/config"))["backpressure"]["strategy"] == policy
    jobs = [await world.push(queue="q") for _ in range(2)]
    found = await world.enqueue(queue="q")
    if policy == "drop_oldest":
        assert found.status == 201
        assert await world.states(*jobs) == ["discarded", "available"]
        (overflow,) = await world.events("queue.overflow")
        (discarded,) = await world.events("job.discarded")
        assert overflow["job_id"] == discarded["job_id"] == jobs[0]
        assert (await world.job(jobs[0]))["error"]["type"] == "overflow"
    else:
        assert (found.status, found.error["strategy"]) == (429, policy)


@in_world()
async def test_002_6_2_queue_values_are_defaults_that_jobs_override(world: World) -> None:
    await world.configure(
        "q", visibility_timeout=120, default_timeout=60, default_retry={"max_attempts": 7}
    )
    plain = await world.push(queue="q")
    own = await world.push(
        queue="q", timeout=5, retry={"max_attempts": 2}, visibility_timeout="PT10S"
    )
    assert chosen(await world.job(plain), "timeout", "max_attempts") == {
        "timeout": 60,
        "max_attempts": 7,
    }
    assert chosen(await world.job(own), "timeout", "max_attempts") == {
        "timeout": 5,
        "max_attempts": 2,
    }


@in_world()
async def test_002_6_2_the_visibility_timeout_of_the_queue(world: World) -> None:
    await world.configure("q", visibility_timeout=90)
    job = await world.push(queue="q")
    await world.take("q")
    await world.later(90 * SECOND - 1)
    assert await world.states(job) == ["active"]
    await world.later(1)
    assert await world.states(job) == ["available"]


@in_world()
async def test_002_6_2_rate_limit_as_limit_and_period(world: World) -> None:
    shown = await world.configure("q", rate_limit={"limit": 2, "period": "PT1M"})
    assert shown["rate_limit"] == {"rate": {"limit": 2, "period": "PT1M"}}
    jobs = [await world.push(queue="q") for _ in range(3)]
    assert await world.run("q") == jobs[:2]
    await world.later(MINUTE)
    assert await world.run("q") == jobs[2:]


@in_world()
async def test_002_6_3_the_defaults_of_retention(world: World) -> None:
    config = await world.get("/queues/_default/config")
    assert config["retention"] == {"completed": "P7D", "discarded": "P30D", "cancelled": "P7D"}
    await world.configure("q", retention={"completed": "P1D"})
    config = await world.get("/queues/q/config")
    assert config["retention"] == {"completed": "P1D", "discarded": "P30D", "cancelled": "P7D"}


@in_world()
async def test_002_6_3_a_changed_retention_governs_what_has_ended_already(world: World) -> None:
    job = await world.push(queue="q")
    await world.run("q")
    await world.configure("q", retention={"completed": "PT1M"})
    await world.later(2 * MINUTE)
    await world.gone(job)


@in_world()
async def test_002_6_4_an_exhausted_job_leaves_its_queue_for_the_dead_letter_queue(
    world: World,
) -> None:
    await world.configure("q", dead_letter_queue="dlq")
    # Bounds and limits are no obstacle: it must not get lost.
    await world.configure("dlq", max_size=1)
    await world.push(queue="dlq")
    job = await world.push(
        queue="q",
        retry={"max_attempts": 1},
        rate_limit={"key": "k", "concurrency": 1, "on_limit": "drop"},
    )
    await world.take("q")
    answered = await world.nack(job, message="broken")
    assert (answered["state"], answered["dead_letter_queue"]) == ("discarded", "dlq")
    assert [d["job_id"] for d in await world.events("job.dead_lettered")] == [job]
    assert (await world.stats("q"))["depth"] == 0
    assert [j["id"] for j in (await world.get("/dead-letter"))["jobs"]] == [job]
    # A key that is closed does not drop it there.
    await world.put("/rate-limits/k", {"concurrency": 0})
    assert len(await world.take("dlq")) == 1
    assert await world.states(job) == ["available"]


@in_world()
async def test_002_6_4_a_manual_retry_goes_back_where_it_came_from(world: World) -> None:
    await world.configure("q", dead_letter_queue="dlq")
    job = await world.push(queue="q", retry={"max_attempts": 1})
    await world.take("q")
    await world.nack(job)
    await world.finish(f"/dead-letter/{job}/retry")
    shown = await world.job(job)
    assert (shown["queue"], shown["state"], shown["attempt"]) == ("q", "available", 0)
    assert "dead_letter" not in shown
    assert await world.run("q") == [job]


@in_world()
async def test_002_6_4_there_is_no_dead_letter_of_a_dead_letter(world: World) -> None:
    await world.configure("q", dead_letter_queue="dlq")
    await world.configure("dlq", dead_letter_queue="q", default_retry={"max_attempts": 1})
    job = await world.push(queue="q", retry={"max_attempts": 1})
    for queue in ("q", "dlq"):
        assert await world.take(queue) == [job]
        await world.nack(job)
    shown = await world.job(job)
    assert (shown["state"], shown["queue"]) == ("discarded", "dlq")
    assert (await world.get("/dead-letter"))["jobs"] == []


@in_world()
async def test_002_6_4_dead_letters_are_kept_so_long_and_so_many(world: World) -> None:
    await world.configure(
        "q", dead_letter_queue="dlq", dead_letter_ttl="PT1H", dead_letter_max_size=2
    )
    jobs = []
    for _ in range(3):
        jobs.append(await world.push(queue="q", retry={"max_attempts": 1}))
        await world.take("q")
        await world.nack(jobs[-1])
        await world.later(MINUTE)
    await world.gone(jobs[0])  # the oldest
    assert await world.states(*jobs[1:]) == ["available", "available"]
    await world.later(58 * MINUTE)
    await world.gone(jobs[1])
    assert await world.states(jobs[2]) == ["available"]


@in_world()
async def test_002_6_4_the_default_ttl_of_dead_letters_is_30_days(world: World) -> None:
    shown = await world.configure("q", dead_letter_queue="dlq")
    assert shown["dead_letter_ttl"] == "P30D"
    job = await world.push(queue="q", retry={"max_attempts": 1})
    await world.take("q")
    await world.nack(job)
    await world.later(30 * DAY - 1)
    assert await world.states(job) == ["available"]
    await world.later(1)
    await world.gone(job)


@pytest.mark.parametrize("buried", [True, False])
@pytest.mark.parametrize("why", ["attempts_exhausted", "non_retryable", "lost", "by handler"])
@in_world()
async def test_002_6_4_exhaustion_is_told_before_the_dead_letter(
    world: World, buried: bool, why: str
) -> None:
    await world.configure("q", dead_letter_queue="dlq" if buried else None)
    retry = {
        "max_attempts": 9 if why in {"non_retryable", "by handler"} else 1,
        "on_exhaustion": "dead_letter",
    }
    job = await world.push(queue="q", retry=retry, meta={"tenant_id": "acme"})
    await world.take("q")
    if why == "lost":
        await world.later(30 * SECOND)
    else:
        code = "DEAD_LETTER" if why == "by handler" else "handler_error"
        await world.nack(job, retryable=why != "non_retryable", code=code)
    told = await world.events("job.*")
    kinds = ["failed", "retry_exhausted", "discarded", "dead_lettered"]
    assert [event["type"] for event in told[2:]] == [f"job.{kind}" for kind in kinds]
    assert all((each["tenant_id"], each["job_id"]) == ("acme", job) for each in told)
    reason = {"lost": "attempts_exhausted", "by handler": "dead_lettered_by_handler"}.get(why, why)
    exhausted = told[3]
    assert chosen(exhausted, "queue", "attempt", "max_attempts", "reason") == {
        "queue": "q",
        "attempt": 1,
        "max_attempts": retry["max_attempts"],
        "reason": reason,
    }
    assert exhausted["error"] == told[2]["error"]


@in_world()
async def test_002_6_4_a_discard_that_is_no_exhaustion_is_not_told_as_one(world: World) -> None:
    await world.configure("q", dead_letter_queue="dlq")
    job = await world.push(queue="q")
    expired = await world.push(queue="q", expires_at="+PT1S")
    await world.take("q", count=1)
    await world.nack(job, code="DISCARD")
    await world.later(SECOND)
    assert await world.states(job, expired) == ["discarded", "discarded"]
    assert await world.events("job.retry_exhausted", "job.dead_lettered") == []
