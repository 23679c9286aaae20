"""What RQ's limiter guarantees (seed 004), without its three known limitations."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from tests.flow.world import MINUTE, SECOND, World, in_world


@in_world()
async def test_004_three_jobs_that_share_a_limit_of_two_event_by_event(world: World) -> None:
    limit = {"key": "reports", "concurrency": 2}
    worker = {"queues": ["default"]}

    a = await world.push(type="report.generate", rate_limit=limit)
    assert await world.key_jobs("reports") == ([a], [])
    b = await world.push(type="report.generate", rate_limit=limit)
    assert await world.key_jobs("reports") == ([a, b], [])
    c = await world.push(type="report.generate", rate_limit=limit)
    assert await world.key_jobs("reports") == ([a, b], [c])

    # That two of them run by now changes nothing in what the key allows.
    assert await world.take() == [a, b]
    assert await world.states(a, b, c) == ["active", "active", "available"]
    assert await world.key_jobs("reports") == ([a, b], [c])
    assert (await world.call("POST", "/workers/fetch", worker)).body["jobs"] == []
    assert [e["type"] for e in await world.events("rate_limit.*")] == ["rate_limit.exceeded"]

    await world.ack(a)
    assert await world.key_jobs("reports") == ([b, c], [])
    (_, released) = await world.events("rate_limit.*")
    assert (released["type"], released["job_id"]) == ("rate_limit.released", c)

    await world.ack(b)
    assert await world.key_jobs("reports") == ([c], [])
    assert await world.run() == [c]
    assert (await world.call("GET", "/rate-limits/reports/jobs")).status == 404


@in_world()
async def test_004_waiting_jobs_are_first_in_first_out_and_nothing_jumps_ahead(
    world: World,
) -> None:
    jobs = [await world.limited(concurrency=1) for _ in range(4)]
    order = await world.take()
    for _ in range(4):
        # A newcomer at the very moment of the release does not pass those who wait.
        jobs.append(await world.limited())
        await world.ack(order[-1])
        order += await world.take()
    assert order == jobs[:5]


@in_world()
async def test_004_promotion_is_in_order_across_plain_scheduled_and_retried_jobs(
    world: World,
) -> None:
    retry = {"initial_interval": "PT2S", "jitter": False}
    limit = {"key": "k", "concurrency": 1}
    retried = await world.push(rate_limit=limit, retry=retry)
    assert await world.take() == [retried]
    scheduled = await world.push(rate_limit=limit, scheduled_at="+PT1S")
    plain = await world.push(rate_limit=limit)
    pending = await world.push(rate_limit=limit, pending=True)
    holder = await world.limited("k", "elsewhere")
    await world.nack(retried)
    assert await world.take("elsewhere") == [holder]
    await world.later(SECOND)
    last_of_all = await world.push(rate_limit=limit)
    await world.later(SECOND)
    await world.finish(f"/jobs/{pending}/activate")
    # All of them wait for the same key now; a schedule that came due is placed by its enqueue, a retry goes last.
    waiting = (await world.key_jobs())[1]
    assert set(waiting) == {plain, scheduled, last_of_all, retried, pending}
    ran = []
    await world.ack(holder)
    for _ in range(5):
        ran += await world.run()
    assert ran == waiting
    assert ran.index(plain) < ran.index(last_of_all) < ran.index(retried)
    assert ran.index(scheduled) < ran.index(last_of_all)


@in_world()
async def test_004_every_way_in_passes_the_same_admission(world: World) -> None:
    """No scheduled, retried, replayed or requeued job takes a slot that it was not given."""
    retry = {"max_attempts": 2, "initial_interval": "PT1S", "jitter": False}
    limit = {"key": "k", "concurrency": 1}
    jobs = [await world.push(rate_limit=limit, retry=retry) for _ in range(6)]
    jobs += [await world.push(rate_limit=limit, scheduled_at="+PT3S") for _ in range(3)]
    outcomes = itertools.cycle(["ack", "fail", "requeue", "fail"])
    ended: set[str] = set()
    for _ in range(60):
        held = await world.take(count=10)
        assert len(held) <= 1
        for job in held:
            match next(outcomes):
                case "ack":
                    await world.ack(job)
                case "fail":
                    await world.nack(job)
                case _:
                    await world.nack(job, requeue=True)
        await world.later(SECOND)
    for job in jobs:
        if (await world.job(job))["state"] == "discarded":
            assert (await world.finish(f"/admin/jobs/{job}/retry"))["job"]["state"] == "available"
            ended.add(job)
    assert ended
    while held := await world.take(count=10):
        assert len(held) == 1
        await world.ack(*held)
    assert set(await world.states(*jobs)) == {"completed"}


@in_world()
async def test_004_the_check_and_the_promotion_cannot_interleave(world: World) -> None:
    for _ in range(30):
        await world.limited(concurrency=3)
    held = await world.take()
    while held:
        # All holders answer and many workers fetch in the same instant.
        acks = [world.ask("POST", "/workers/ack", {"job_id": job}) for job in held]
        fetches = [
            world.ask("POST", "/workers/fetch", {"queues": ["default"], "worker_id": f"w{n}"})
            for n in range(6)
        ]
        replies = await asyncio.gather(*(client.reply() for client in acks + fetches))
        held = [job["id"] for reply in replies[len(acks) :] for job in reply.body["jobs"]]
        assert len(held) <= 3
        if held:
            assert (await world.key())["concurrency"]["active"] == len(held)


@pytest.mark.parametrize("how", ["silent worker", "silent reservation", "deregistered"])
@in_world()
async def test_004_the_slots_of_a_killed_worker_come_back_by_themselves(
    world: World, how: str
) -> None:
    jobs = [await world.limited(concurrency=2) for _ in range(4)]
    if how != "silent reservation":
        await world.finish("/workers/register", {"worker_id": "dead", "queues": ["default"]})
    assert await world.take(worker_id="dead") == jobs[:2]
    waiting = world.ask(
        "POST", "/workers/fetch",
        {"queues": ["default"], "worker_id": "alive", "wait_ms": 30_000, "count": 9},
    )  # fmt: skip
    for _ in range(20):
        await asyncio.sleep(0)
    assert waiting.sent == []
    if how == "deregistered":
        await world.finish("/workers/deregister", {"worker_id": "dead"})
    else:
        await world.later(30 * SECOND)
    # Nobody sweeps; its jobs have their old places, and the limit holds.
    assert [job["id"] for job in (await waiting.reply()).body["jobs"]] == jobs[:2]
    assert await world.key_jobs() == (jobs[:2], jobs[2:])
    assert (await world.key())["concurrency"] == {"limit": 2, "active": 2, "available": 0}


@in_world()
async def test_004_no_capacity_lies_idle_while_jobs_wait(world: World) -> None:
    jobs = [await world.limited(f"k{n % 3}", f"q{n % 4}", concurrency=2) for n in range(48)]
    done: set[str] = set()
    queues = [f"q{n}" for n in range(4)]
    while len(done) < len(jobs):
        held = await world.take(*queues)
        for n in range(3):
            allowed, limited = await world.key_jobs(f"k{n}") if held else ([], [])
            assert len(allowed) == 2 or not limited
        await world.ack(*held)
        done |= set(held)
        assert held
    assert len(done) == 48


# The three limitations


@pytest.mark.parametrize(("first", "second"), [(1, 3), (3, 1), (2, 5), (5, 2), (4, 4)])
@in_world()
async def test_004_limitation_1_two_jobs_with_different_limits_for_one_key_never_over_admit(
    world: World, first: int, second: int
) -> None:
    """The latest registration governs all of them, when slots are taken and when they are given back."""
    jobs = [await world.limited(concurrency=(first, second)[n % 2]) for n in range(20)]
    in_force = second
    done: list[str] = []
    while len(done) < len(jobs):
        held = await world.take()
        assert len(held) == min(in_force, len(jobs) - len(done))
        assert (await world.key())["concurrency"]["limit"] == in_force
        await world.ack(*held)
        done += held
    assert done == jobs


@in_world()
async def test_004_limitation_1_a_lower_limit_lets_the_running_ones_finish_and_then_holds(
    world: World,
) -> None:
    for _ in range(4):
        await world.limited(concurrency=4)
    held = await world.take()
    newest = await world.limited(concurrency=1)
    shown = (await world.key())["concurrency"]
    assert shown == {"limit": 1, "active": 4, "available": 0}
    for job in held[:3]:
        await world.ack(job)
        assert await world.take() == []
    await world.ack(held[3])
    assert await world.take() == [newest]


@in_world()
async def test_004_limitation_2_who_is_to_come_first_does_so_through_the_limiter_too(
    world: World,
) -> None:
    """A job that is given back has its old place, and an urgent one that is retried is urgent still."""
    retry = {"initial_interval": "PT1S", "jitter": False}
    urgent = await world.push(priority=10, rate_limit={"key": "k", "concurrency": 1}, retry=retry)
    plain = [await world.limited() for _ in range(3)]
    assert await world.take() == [urgent]
    await world.nack(urgent)
    assert await world.take() == plain[:1]
    await world.later(SECOND)
    await world.nack(plain[0], requeue=True)
    assert await world.run() == [urgent]
    assert [job for _ in plain for job in await world.run()] == plain


@in_world()
async def test_004_limitation_3_an_answer_never_shows_a_state_that_is_over(world: World) -> None:
    first = await world.limited(concurrency=1)
    await world.take()
    answers = [(await world.enqueue(rate_limit={"key": "k"})).body["job"] for _ in range(3)]
    for shown in answers:
        # Blocked is where a job stands, not what it is: there is no state that a release could outdate.
        assert shown["state"] == "available"
        assert await world.job(shown["id"]) == shown
    await world.ack(first)
    assert [(await world.job(shown["id"]))["state"] for shown in answers] == ["available"] * 3


@in_world()
async def test_004_a_key_that_is_not_used_any_more_leaves_nothing_behind(world: World) -> None:
    for n in range(50):
        await world.limited(f"k{n}", concurrency=1)
    await world.run()
    await world.later(MINUTE)
    assert (await world.get("/rate-limits"))["items"] == []
