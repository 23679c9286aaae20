"""Rate limiting (seed 000), sentence by sentence: principles, strategies, the policy (4 to 6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.flow.world import MINUTE, SECOND, World, in_world

ROOT = Path(__file__).parents[2]


@in_world()
async def test_000_4_1_limits_are_enforced_by_the_server_whoever_fetches(world: World) -> None:
    jobs = [await world.limited(concurrency=2) for _ in range(4)]
    taken = [await world.take(worker_id=f"w{n}", count=4) for n in range(3)]
    assert taken == [jobs[:2], [], []]


@in_world()
async def test_000_4_2_all_limits_must_be_satisfied_before_a_job_begins(world: World) -> None:
    await world.put("/admin/queues/q/rate-limit", {"concurrency": 2})
    both = [{"key": "a", "concurrency": 1}, {"key": "b", "rate": {"limit": 1, "period": "PT1M"}}]
    first = await world.push(queue="q", rate_limit=both)
    of_a = await world.limited("a", "q")
    of_b = await world.limited("b", "q")
    free = [await world.push(queue="q") for _ in range(2)]
    # One step took a slot in both keys and in the queue.
    assert await world.take("q") == [first, free[0]]
    await world.ack(first)
    assert await world.take("q") == [of_a]
    await world.ack(free[0])
    assert await world.take("q") == [free[1]]
    await world.ack(of_a, free[1])
    assert await world.take("q") == []
    await world.later(MINUTE)
    assert await world.take("q") == [of_b]


@in_world()
async def test_000_4_3_nothing_is_lost_by_default(world: World) -> None:
    jobs = [await world.limited(concurrency=1) for _ in range(20)]
    done: list[str] = []
    for _ in jobs:
        done += await world.run()
    assert done == jobs
    assert set(await world.states(*jobs)) == {"completed"}


@pytest.mark.parametrize("end", ["ack", "fail", "expiry", "cancel", "worker death", "requeue"])
@in_world()
async def test_000_5_1_the_job_must_be_assigned_when_the_count_decreases(
    world: World, end: str
) -> None:
    retry = {"max_attempts": 1} if end == "fail" else {"max_attempts": 5}
    first = await world.push(rate_limit={"key": "k", "concurrency": 1}, retry=retry)
    second = await world.limited()
    await world.finish("/workers/register", {"worker_id": "w", "queues": ["default"]})
    assert await world.take(worker_id="w") == [first]
    assert await world.take() == []
    assert await world.states(second) == ["available"]
    match end:
        case "ack":
            await world.ack(first)
        case "fail":
            await world.nack(first)
        case "requeue":
            await world.nack(first, requeue=True)
        case "cancel":
            await world.finish(f"/jobs/{first}/cancel")
        case "expiry":
            await world.later(30 * SECOND)
        case _:
            await world.finish("/workers/deregister", {"worker_id": "w"})
    # What comes back to its place is the oldest again, and takes the slot itself.
    expected = second if end in {"ack", "fail", "cancel"} else first
    assert await world.take() == [expected]
    assert (await world.key())["concurrency"]["active"] == 1
    assert await world.take() == []


@in_world()
async def test_000_5_1_a_late_answer_of_a_lost_reservation_frees_nobody_elses_slot(
    world: World,
) -> None:
    await world.limited(concurrency=1)
    await world.limited()
    (held,) = await world.fetch(worker_id="slow")
    await world.later(30 * SECOND)
    (again,) = await world.fetch(worker_id="quick")
    assert again["id"] == held["id"]
    late = {"job_id": held["id"], "claim": held["claim"]}
    assert (await world.call("POST", "/workers/ack", late)).status == 409
    assert (await world.key())["concurrency"]["active"] == 1
    assert await world.take() == []


@pytest.mark.parametrize("answer", ["ack", "nack", "requeue"])
@pytest.mark.parametrize("says_claim", [True, False])
@in_world()
async def test_000_5_1_an_answer_in_the_millisecond_of_the_expiry_is_late_and_frees_nothing_twice(
    world: World, answer: str, says_claim: bool
) -> None:
    first, second = await world.limited(concurrency=1), await world.limited()
    (held,) = await world.fetch(visibility_timeout_ms=5_000)
    # Nothing has let the time pass but the request itself.
    world.now_ms += 5_000
    body: dict[str, Any] = {"job_id": first}
    if says_claim:
        body["claim"] = held["claim"]
    if answer != "ack":
        body |= {"error": {"code": "c", "message": "m"}, "requeue": answer == "requeue"}
    path = "/workers/ack" if answer == "ack" else "/workers/nack"
    assert (await world.call("POST", path, body)).status == 409
    assert await world.states(first, second) == ["available", "available"]
    assert await world.take() == [first]
    assert (await world.key())["concurrency"] == {"limit": 1, "active": 1, "available": 0}
    assert await world.take() == []


@pytest.mark.parametrize("keys", [2, 4])
@in_world()
async def test_000_4_2_keys_in_conflicting_orders_neither_stop_nor_slip_past_each_other(
    world: World, keys: int
) -> None:
    names = "abcd"[:keys]
    jobs = []
    for turn in range(3 * keys):
        order = names[turn % keys :] + names[: turn % keys]
        if turn % 2:
            order = order[::-1]
        policy = [{"key": key, "concurrency": 1} for key in order]
        jobs.append(await world.push(rate_limit=policy))
    done: list[str] = []
    while len(done) < len(jobs):
        (job,) = await world.take()
        for key in names:
            assert await world.key_jobs(key) == ([job], [j for j in jobs if j not in (*done, job)])
        await world.ack(job)
        done.append(job)
    assert done == jobs
    assert (await world.get("/rate-limits"))["items"] == []


@in_world()
async def test_000_5_2_a_job_above_the_rate_stays_available_and_runs_when_the_window_advances(
    world: World,
) -> None:
    rate = {"limit": 2, "period": "PT1M"}
    jobs = [await world.limited(rate=rate) for _ in range(3)]
    assert await world.run(count=1) == jobs[:1]
    await world.later(20 * SECOND)
    assert await world.run() == jobs[1:2]
    assert await world.take() == []
    assert await world.states(jobs[2]) == ["available"]
    await world.later(40 * SECOND - 1)
    assert await world.take() == []
    await world.later(1)
    assert await world.take() == jobs[2:]


def test_000_5_2_the_window_algorithm_is_documented() -> None:
    page = (ROOT / "docs/flow-control.md").read_text(encoding="utf-8")
    assert "sliding window" in page
    assert "[t, t + period)" in page


@in_world()
async def test_000_5_3_a_throttle_of_60_a_minute_is_one_a_second_where_a_rate_allows_all_at_once(
    world: World,
) -> None:
    for _ in range(60):
        await world.limited("r", "rated", rate={"limit": 60, "period": "PT1M"})
        await world.limited("t", "throttled", throttle={"limit": 60, "period": "PT1M"})
    assert len(await world.run("rated")) == 60
    for second in range(3):
        assert len(await world.run("throttled")) == 1, second
        await world.later(899)
        assert await world.run("throttled") == []
        await world.later(101)


@in_world()
async def test_000_6_1_the_policy_may_stand_in_the_options(world: World) -> None:
    policy = {"key": "k", "concurrency": 1}
    jobs = [await world.push(options={"rate_limit": policy}) for _ in range(2)]
    assert await world.take() == jobs[:1]
    assert (await world.job(jobs[1]))["rate_limit"] == policy


@in_world()
async def test_000_6_2_a_concurrency_of_0_lets_nothing_run(world: World) -> None:
    job = await world.limited(concurrency=0)
    assert await world.take() == []
    assert await world.key_jobs() == ([], [job])
    (told,) = await world.events("rate_limit.*")
    assert (told["strategy"], told["limit"], told["current"]) == ("concurrency", 0, 0)
    # The next job says better; what it says governs all.
    other = await world.limited(concurrency=2)
    assert await world.take() == [job, other]


@in_world()
async def test_000_6_2_what_is_left_out_is_no_limit(world: World) -> None:
    jobs = [await world.limited() for _ in range(50)]
    assert await world.take() == jobs
    assert await world.key() == {"key": "k", "waiting_count": 0}


@in_world()
async def test_000_6_2_given_replaces_null_clears_absent_leaves(world: World) -> None:
    rate = {"limit": 9, "period": "PT1M"}
    await world.limited(concurrency=3, rate=rate)
    await world.limited(concurrency=2)
    shown = await world.key()
    assert (shown["concurrency"]["limit"], shown["rate"]["limit"]) == (2, 9)
    await world.limited(concurrency=None)
    shown = await world.key()
    assert "concurrency" not in shown
    assert shown["rate"]["limit"] == 9


@pytest.mark.parametrize("how", ["replace", "drop oldest"])
@pytest.mark.parametrize("size", [1, 3])
@in_world()
async def test_000_6_2_absent_leaves_also_when_the_job_that_said_it_makes_way_in_the_same_step(
    world: World, how: str, size: int
) -> None:
    policy = {"key": "k", "concurrency": 1, "throttle": {"limit": 1, "period": "PT1S"}}
    last: dict[str, Any] = {"type": "a", "args": [], "rate_limit": policy}
    if how == "replace":
        last["unique"] = {"keys": ["type"], "on_conflict": "replace"}
    else:
        await world.configure(
            "default", backpressure={"max_depth": size, "strategy": "drop_oldest"}
        )
    for _ in range(size if how == "drop oldest" else 1):
        await world.push(**last)
    # These say nothing of its limits, and the key always has a job.
    first = {**last, "rate_limit": {"key": "k"}}
    others = [{"type": "b", "args": [], "rate_limit": {"key": "k"}}] * (size - 1)
    if size == 1:
        await world.push(**first)
    else:
        await world.finish("/jobs/batch", {"jobs": [*others, first]})
    shown = await world.key()
    assert shown["concurrency"]["limit"] == 1
    assert shown["throttle"] == {
        "limit": 1,
        "period": "PT1S",
        "next_allowed_at": world.at(0),
    }
    assert len(await world.take()) == 1


@in_world()
async def test_000_6_2_rate_and_throttle_must_both_be_satisfied(world: World) -> None:
    policy: dict[str, Any] = {
        "rate": {"limit": 3, "period": "PT1M"},
        "throttle": {"limit": 1, "period": "PT10S"},
    }
    jobs = [await world.limited(**policy) for _ in range(5)]
    seen = []
    for _ in range(7):
        seen.append(await world.run())
        await world.later(10 * SECOND)
    assert seen == [jobs[:1], jobs[1:2], jobs[2:3], [], [], [], jobs[3:4]]


@in_world()
async def test_000_6_2_on_limit_reschedule_moves_the_job_to_when_it_is_expected_to_run(
    world: World,
) -> None:
    rate = {"limit": 1, "period": "PT1M"}
    jobs = [await world.limited(rate=rate, on_limit="reschedule") for _ in range(3)]
    assert await world.run() == jobs[:1]
    # One permit a minute: each is put off to its own.
    put_off = [await world.job(job) for job in jobs[1:]]
    assert [job["state"] for job in put_off] == ["scheduled", "scheduled"]
    assert [job["scheduled_at"] for job in put_off] == [world.at(MINUTE), world.at(2 * MINUTE)]
    for job in jobs[1:]:
        await world.later(MINUTE)
        assert await world.run() == [job]


@pytest.mark.parametrize("slots", ["free", "taken"])
@pytest.mark.parametrize("closed_by", ["hold", "override", "rate"])
@in_world()
async def test_000_6_2_a_job_is_put_off_once_until_whatever_is_known_to_close_its_key_is_over(
    world: World, slots: str, closed_by: str
) -> None:
    hour = {"limit": 2, "period": "PT1H"}
    policy = {"key": "k", "concurrency": 2, **({"rate": hour} if closed_by == "rate" else {})}
    held = [await world.push(rate_limit=policy, timeout=9_000) for _ in range(2)]
    lease = {"visibility_timeout_ms": 9_000_000}
    assert await world.take(**lease) == held
    if closed_by == "hold":
        third = await world.limited("k", concurrency=3)
        await world.take(**lease)
        await world.nack(third, rate_limit_until="+PT1H", retryable=False)
        await world.limited("k", "elsewhere", concurrency=2)
    if closed_by == "override":
        await world.put("/rate-limits/k", {"concurrency": 0, "expires_at": world.at(60 * MINUTE)})
    if slots == "free":
        await world.ack(*held)
    job = await world.limited(on_limit="reschedule")
    for wait in (0, 60 * MINUTE - 1):
        await world.later(wait)
        assert await world.take() == []
        assert (await world.job(job))["scheduled_at"] == world.at(60 * MINUTE - wait)
    (told,) = [e for e in await world.events("job.scheduled") if e["job_id"] == job]
    assert told["key"] == "k", "it was put off once"
    await world.later(1)
    assert await world.take() == ([job] if slots == "free" else [])
    # From now on nobody knows when it may run: it comes back every second.
    await world.ack(*(held if slots == "taken" else ()))
    await world.later(SECOND)
    assert await world.take() == ([job] if slots == "taken" else [])


@in_world()
async def test_000_6_2_on_limit_drop_discards_the_job_and_no_other(world: World) -> None:
    holder = await world.limited(concurrency=1)
    waits = await world.limited(on_limit="wait")
    dropped = await world.limited(on_limit="drop")
    free = await world.push()
    assert await world.take(count=1) == [holder]
    assert await world.states(dropped) == ["available"], "it acts at a fetch, never before"
    assert await world.take() == [free]
    assert await world.states(waits, dropped) == ["available", "discarded"]
    assert (await world.job(dropped))["error"]["type"] == "rate_limited"
    assert (await world.get("/dead-letter"))["jobs"] == []


@in_world()
async def test_000_6_2_drop_goes_over_reschedule_over_wait(world: World) -> None:
    closed = {"concurrency": 0}
    for key in ("a", "b", "c"):
        await world.put(f"/rate-limits/{key}", closed)

    def policies(*of: str) -> Any:
        keys = zip("abc", of, strict=False)
        return [{"key": key, "on_limit": on_limit} for key, on_limit in keys]

    jobs = [
        await world.push(rate_limit=policies("wait", "reschedule", "drop")),
        await world.push(rate_limit=policies("reschedule", "wait")),
        await world.push(rate_limit=policies("wait", "wait", "wait")),
    ]
    assert await world.take() == []
    assert await world.states(*jobs) == ["discarded", "scheduled", "available"]


@in_world()
async def test_000_6_2_wait_is_the_default(world: World) -> None:
    await world.limited(concurrency=1)
    job = await world.limited()
    await world.take()
    assert await world.take() == []
    assert await world.states(job) == ["available"]
    assert (await world.key_jobs())[1] == [job]
