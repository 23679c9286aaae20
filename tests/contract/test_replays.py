"""Rules by which dead letters start over: when, how often, and what ends that."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headgate.core.job import Job
from headgate.core.replays import ReplayRule
from headgate.core.retry import Failure, RetryPolicy
from headgate.core.times import DAY_MS, MINUTE_MS
from headgate.engines.contract import Ack, Fail, Fetch, Interest, Page, Query, Replay
from headgate.engines.local.engine import LocalEngine
from tests.contract.home import NOW, Home, draft, fetch, found, push, story, until

DEAD = RetryPolicy(max_attempts=1, on_exhaustion="dead_letter")
KINDS = ("kept", "moved")
"""Discarded in its queue, or moved to a queue for dead letters."""


async def settle(engine: LocalEngine, kind: str) -> None:
    if kind == "moved":
        await engine.configure("q", {"dead_letter_queue": "dlq"}, NOW)


async def bury(engine: LocalEngine, *numbers: int, at: int = NOW, **members: Any) -> None:
    """Make dead letters of new jobs of `q`."""
    await push(engine, [draft(n, at, retry=DEAD, max_attempts=1, **members) for n in numbers], at)
    await fail(engine, *numbers, at=at)


async def fail(engine: LocalEngine, *numbers: int, at: int) -> None:
    taken = await fetch(engine, len(numbers), at)
    assert sorted(taken) == sorted(f"j{n}" for n in numbers)
    await engine.fail([Fail(job_id, Failure("E", "m", "Broken")) for job_id in taken], at)
    await engine.settled()


async def is_dead(engine: LocalEngine, number: int, at: int) -> bool:
    return (await found(engine, number, at)).dead


def meta(job: Job) -> dict[str, Any]:
    return {
        name: value
        for name, value in json.loads(b"{" + job.fixed + b"}")["meta"].items()
        if name.startswith("ojs.")
    }


async def events(engine: LocalEngine, at: int) -> list[dict[str, Any]]:
    page = await engine.events(0, 1_000, Interest(kinds=("dead_letter.replayed",)), at)
    return [dict(event.data or {}) for event in page.events]


@pytest.mark.parametrize("kind", KINDS)
@story
async def test_a_dead_letter_starts_over_after_the_delay_and_says_so(home: Home, kind: str) -> None:
    async with home.engine() as engine:
        await settle(engine, kind)
        assert (await engine.set_replay_rule(ReplayRule("r", delay_ms=MINUTE_MS), "t", NOW)).created
        await bury(engine, 1, fixed=b'"args":[7],"meta":{"mine":1}')
        due = NOW + MINUTE_MS
        await engine.tick(due - 1)
        assert await is_dead(engine, 1, due - 1)
        assert engine.next_due() <= due
        await engine.tick(due)
        job = await found(engine, 1, due)
        assert (job.state, job.queue, job.attempt, job.dead) == ("available", "q", 0, False)
        assert (job.enqueued_at, job.rare().re_enqueued_at) == (due, due)
        assert job.fixed.startswith(b'"args":[7],"meta":{"mine":1,')
        assert meta(job) == {
            "ojs.replay_count": 1,
            "ojs.last_replayed_at": "2026-02-02T02:41:00.000Z",
            "ojs.replay_rule": "r",
        }
        await engine.settled()
        assert await events(engine, due) == [{"job_id": "j1", "rule": "r", "replay_count": 1}]
        assert await fetch(engine, 1, due) == ["j1"]
        engine.check()


@pytest.mark.parametrize("kind", KINDS)
@story
async def test_a_rule_leaves_a_job_alone_after_so_many_replays(home: Home, kind: str) -> None:
    async with home.engine() as engine:
        await settle(engine, kind)
        await engine.set_replay_rule(ReplayRule("r", delay_ms=1_000, max_replays=2), "t", NOW)
        await bury(engine, 1)
        for n in (1, 2):
            at = NOW + n * 1_000
            await engine.tick(at)
            assert meta(await found(engine, 1, at))["ojs.replay_count"] == n
            await fail(engine, 1, at=at)
        later = NOW + DAY_MS
        await engine.tick(later)
        assert await is_dead(engine, 1, later)
        # A person may still, and that is not counted.
        await engine.retry("j1", Replay(), later)
        assert meta(await found(engine, 1, later))["ojs.replay_count"] == 2
        # With one more replay allowed, it goes on from there.
        await fail(engine, 1, at=later)
        await engine.set_replay_rule(ReplayRule("r", max_replays=3), "t2", later)
        assert meta(await found(engine, 1, later))["ojs.replay_count"] == 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", ["disabled", "deleted", "other queue"])
@story
async def test_a_rule_that_is_taken_back_stops_what_it_would_have_done(
    home: Home, kind: str, end: str
) -> None:
    async with home.engine() as engine:
        await settle(engine, kind)
        rule = ReplayRule("r", delay_ms=1_000)
        await engine.set_replay_rule(rule, "t", NOW)
        await bury(engine, 1)
        if end == "deleted":
            assert await engine.drop_replay_rule("r", NOW)
            assert not await engine.drop_replay_rule("r", NOW)
        elif end == "disabled":
            await engine.set_replay_rule(ReplayRule("r", delay_ms=1_000, enabled=False), "u", NOW)
        else:
            await engine.set_replay_rule(ReplayRule("r", delay_ms=1_000, queue="p"), "u", NOW)
        later = NOW + DAY_MS
        await engine.tick(later)
        assert await is_dead(engine, 1, later)
        assert await events(engine, later) == []
        # It was never lost: the rule is for what lies there already, too.
        again = await engine.set_replay_rule(rule, "v", later)
        assert (again.created, again.task.done) == (end == "deleted", 1)
        assert not await is_dead(engine, 1, later)


@story
async def test_only_what_the_filter_says_starts_over(home: Home) -> None:
    async with home.engine() as engine:
        await bury(engine, 1, 2, type="mail.send")
        await bury(engine, 3, type="other")
        wanted = ReplayRule("r", queue="q", type="mail.*", error_type="Broken")
        found_ = await engine.set_replay_rule(wanted, "t", NOW)
        assert (found_.task.matched, found_.task.done, found_.task.finished) == (2, 2, True)
        assert [await is_dead(engine, n, NOW) for n in (1, 2, 3)] == [False, False, True]


@story
async def test_a_dead_letter_that_a_worker_has_waits_until_it_gives_it_back(home: Home) -> None:
    async with home.engine() as engine:
        await settle(engine, "moved")
        await engine.set_replay_rule(ReplayRule("r", delay_ms=1_000), "t", NOW)
        await bury(engine, 1, 2)
        taken = await engine.fetch(Fetch(["dlq"], 2, "w"), NOW)
        assert [job.id for job in taken] == ["j1", "j2"]
        at = NOW + 2_000
        await engine.tick(at)
        assert (await found(engine, 1, at)).state == "active"
        await engine.fail([Fail("j1", Failure("E", "later", requeue=True), "w")], at)
        await engine.ack([Ack("j2", "w")], at)
        await engine.tick(at)
        given_back, done = await found(engine, 1, at), await found(engine, 2, at)
        assert (given_back.state, given_back.queue) == ("available", "q")
        assert (done.state, len(await events(engine, at))) == ("completed", 1)


@story
async def test_what_was_cancelled_deleted_or_retried_by_hand_does_not_start_over(
    home: Home,
) -> None:
    async with home.engine() as engine:
        await settle(engine, "moved")
        await engine.set_replay_rule(ReplayRule("r", delay_ms=1_000), "t", NOW)
        await bury(engine, 1, 2, 3)
        await engine.cancel("j1", "ada", "", NOW)
        await engine.cancel("j2", "ada", "", NOW)
        await engine.delete("j2", NOW)
        # A new job with the id of one that is gone is another one.
        await bury(engine, 2, at=NOW + 500)
        await engine.retry("j3", Replay(), NOW + 500)
        later = NOW + 1_000
        await engine.tick(later)
        assert (await found(engine, 1, later)).state == "cancelled"
        assert await is_dead(engine, 2, later)
        assert meta(await found(engine, 3, later)) == {}
        await engine.tick(later + 500)
        assert not await is_dead(engine, 2, later + 500)


@pytest.mark.parametrize("kind", KINDS)
@story
async def test_rules_and_what_they_will_do_survive_a_restart(durable: Home, kind: str) -> None:
    async with durable.engine() as engine:
        await settle(engine, kind)
        await engine.set_replay_rule(ReplayRule("r", delay_ms=MINUTE_MS), "t", NOW)
        await engine.set_replay_rule(ReplayRule("s", queue="p", enabled=False), "u", NOW)
        await bury(engine, 1)
        # What was folded is in no memory any more.
        await engine.find_all(Query(), Page(), NOW)
    async with durable.engine(NOW + 1_000) as engine:
        rules = await engine.replay_rules(NOW + 1_000)
        assert [(rule.name, rule.delay_ms, rule.queue, rule.enabled) for rule in rules] == [
            ("r", MINUTE_MS, None, True),
            ("s", 0, "p", False),
        ]
        assert await is_dead(engine, 1, NOW + 1_000)
        assert engine.next_due() <= NOW + MINUTE_MS
    async with durable.engine(NOW + DAY_MS) as engine:
        await engine.tick(NOW + DAY_MS)
        job = await found(engine, 1, NOW + DAY_MS)
        assert (job.state, job.queue, job.rare().replays) == ("available", "q", 1)
        assert job.enqueued_at == NOW + MINUTE_MS, "as if it had been there in time"
        engine.check()
    async with durable.engine(NOW + 2 * DAY_MS) as engine:
        assert (await found(engine, 1, NOW + 2 * DAY_MS)).rare().replays == 1


@story
async def test_a_rule_for_very_many_is_a_task_that_goes_on_after_a_restart(durable: Home) -> None:
    many = 2_500
    async with durable.engine() as engine:
        await settle(engine, "moved")
        for start in range(0, many, 500):
            await bury(engine, *range(start, start + 500))
        task = (await engine.set_replay_rule(ReplayRule("r"), "t", NOW)).task
        assert (task.matched, task.finished) == (many, False)
    async with durable.engine(NOW + 1) as engine:

        async def over() -> bool:
            await engine.tick(NOW + 1)
            (known,) = await engine.tasks(NOW + 1)
            return known.finished and (await engine.dead_letter_stats(NOW + 1)).total == 0

        await until(over)
        queue = await engine.queue("q", NOW + 1)
        assert queue is not None
        assert queue.counts["available"] == many
        jobs = (await engine.find_all(Query(), Page(limit=5), NOW + 1)).jobs
        assert {meta(job)["ojs.replay_count"] for job in jobs} == {1}, "none of them twice"
        engine.check()
