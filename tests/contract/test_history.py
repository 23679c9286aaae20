"""What happened to a job is told whole, wherever the job is kept, for as long as it is kept."""

from __future__ import annotations

import sqlite3

import pytest

from headgate.core import trail
from headgate.core.retry import Failure, RetryPolicy
from headgate.core.times import DAY_MS
from headgate.engines.contract import Ack, Done, Fail, Missing, Page, Query, Replay, WrongState
from headgate.engines.local.engine import LocalEngine
from headgate.engines.local.store import MIGRATIONS, VERSION
from tests.contract.home import NOW, Home, draft, fetch, found, push, story, until

RETRY = RetryPolicy(max_attempts=2, initial_ms=1_000, jitter=False)


async def told(engine: LocalEngine, now: int) -> list[tuple[int, str, str, str]]:
    job = await found(engine, 1, now)
    return [(c.at - NOW, c.event, c.state, c.by or c.worker) for c in trail.history(job)]


STORY = [
    (0, "push", "scheduled", ""),
    (500, "due", "available", ""),
    (500, "fetch", "active", "w"),
    (600, "fail", "retryable", "w"),
    (1_600, "due", "available", ""),
    (1_700, "fetch", "active", "w"),
    (1_700, "fail", "discarded", "w"),
    (2_000, "retry", "available", "ada"),
    (2_100, "fetch", "active", "w2"),
]


async def live(engine: LocalEngine) -> int:
    """A job goes through much, and runs; until when."""
    wanted = draft(1, retry=RETRY, max_attempts=2, state="scheduled", due_at=NOW + 500)
    await push(engine, [wanted])
    await engine.tick(NOW + 500)
    for fetched, failed in ((500, 600), (1_700, 1_700)):
        assert await fetch(engine, 1, NOW + fetched) == ["j1"]
        await engine.fail([Fail("j1", Failure("E", "m"), "w")], NOW + failed)
    await engine.retry("j1", Replay(by="ada"), NOW + 2_000)
    assert await fetch(engine, 1, NOW + 2_100, "w2") == ["j1"]
    await engine.settled()
    return NOW + 2_100


@story
async def test_the_history_of_a_job_that_runs(home: Home) -> None:
    async with home.engine() as engine:
        now = await live(engine)
        assert await told(engine, now) == STORY
        await engine.ack([Ack("j1", "w2")], now + 50)
        assert await told(engine, now + 50) == [*STORY, (2_150, "ack", "completed", "w2")]


@pytest.mark.parametrize("ended", [False, True])
@story
async def test_a_restart_forgets_none_of_it(durable: Home, ended: bool) -> None:
    async with durable.engine() as engine:
        now = await live(engine)
        if ended:
            await engine.ack([Ack("j1", "w2")], now + 50)
    async with durable.engine(now + 100) as engine:
        end = [(2_150, "ack", "completed", "w2")] if ended else []
        assert await told(engine, now + 100) == [*STORY, *end]


@story
async def test_only_the_history_of_what_has_ended_can_be_deleted(home: Home) -> None:
    async with home.engine() as engine:
        now = await live(engine)
        assert isinstance(await engine.forget_history("j1", now), WrongState)
        assert isinstance(await engine.forget_history("j9", now), Missing)
        assert await told(engine, now) == STORY
        await engine.fail([Fail("j1", Failure("F", "m", retryable=False), "w2")], now)
        await engine.find_all(Query(), Page(), now)

        async def folded() -> bool:
            return engine._in_memory or "j1" not in engine._tables.jobs

        await until(folded)
        before = await found(engine, 1, now)
        assert len(before.rare().errors) == 3
        newest = bytes(before.rare().errors[-1])
        assert isinstance(await engine.forget_history("j1", now + 10), Done)
        assert await told(engine, now + 10) == []
        after = await found(engine, 1, now + 10)
        assert [bytes(entry) for entry in after.rare().errors] == [newest]
        assert (after.state, after.finished_at, after.started_at) == (
            before.state, before.finished_at, before.started_at,
        )  # fmt: skip
        # It begins anew with the job.
        await engine.retry("j1", Replay(by="ada"), now + 20)
        assert await fetch(engine, 1, now + 30) == ["j1"]
        assert await told(engine, now + 30) == [
            (2_120, "retry", "available", "ada"),
            (2_130, "fetch", "active", "w"),
        ]
        engine.check()


@story
async def test_a_history_goes_with_its_job(home: Home) -> None:
    async with home.engine() as engine:
        now = await live(engine)
        await engine.ack([Ack("j1", "w2")], now)
        later = now + 8 * DAY_MS

        async def gone() -> bool:
            nonlocal later
            if await engine.find("j1", later) is None:
                return True
            if engine.next_due() > later:
                later += 10
            return False

        await until(gone)
        await push(engine, [draft(1, later)], later)
        job = await found(engine, 1, later)
        assert [change.at for change in trail.history(job)] == [later]


def kin(number: int, parent: int, **more: str) -> bytes:
    members = {"parent_id": f"j{parent}", **more}
    return b'"args":[],"meta":{}' + b"".join(
        b',"%b":"%b"' % (name.encode(), value.encode()) for name, value in members.items()
    )


async def children(engine: LocalEngine, **query: str) -> list[str]:
    found_ = await engine.find_all(Query(**query), Page(), NOW)  # type: ignore[arg-type]
    return [job.id for job in found_.jobs]


@story
async def test_relatives_are_found_and_forgotten_with_their_jobs(home: Home) -> None:
    async with home.engine() as engine:
        await push(
            engine,
            [
                draft(1),
                draft(2, fixed=kin(2, 1, root_id="j1", workflow_id="f")),
                draft(3, fixed=kin(3, 2, root_id="j1")),
                draft(4, fixed=b'"args":[{"parent_id":"j1"}],"meta":{"root_id":"j1"}'),
                draft(5, fixed=b'"args":[],"meta":{},"parent_id":["j1"],"root_id":7'),
                draft(6, fixed=kin(6, 1, workflow_id="f" * 300)),
            ],
        )
        assert await children(engine, parent="j1") == ["j2", "j6"]
        assert await children(engine, root="j1") == ["j2", "j3"]
        assert await children(engine, workflow="f") == ["j2"]
        assert await children(engine, workflow="f" * 300) == []
        for number in (2, 6):
            await engine.cancel(f"j{number}", "ada", "", NOW)
            await engine.delete(f"j{number}", NOW)
        assert await children(engine, parent="j1") == []
        await push(engine, [draft(2, fixed=kin(2, 3))])
        assert await children(engine, parent="j1") == []
        assert await children(engine, parent="j3") == ["j2"]


@story
async def test_a_file_of_the_schema_before_learns_who_is_related(durable: Home) -> None:
    async with durable.engine() as engine:
        await push(
            engine,
            [
                draft(1),
                draft(2, fixed=kin(2, 1, workflow_id="f")),
                draft(3, fixed=b'"args":["a_id"],"meta":{"parent_id":"j1"},"root_id":null'),
                draft(4, fixed=kin(4, 1, workflow_id="f" * 300)),
            ],
        )
        related = sorted(await _kin(engine))
    connection = sqlite3.connect(durable.file())
    connection.executescript("DROP TABLE kin; PRAGMA user_version = 2;")
    connection.close()
    assert (VERSION, sorted(MIGRATIONS)) == (3, [1, 2])
    async with durable.engine() as engine:
        assert sorted(await _kin(engine)) == related
        assert related == [("parent", "j1", "j2"), ("parent", "j1", "j4"), ("workflow", "f", "j2")]


async def _kin(engine: LocalEngine) -> list[tuple[object, ...]]:
    return await engine.ask(lambda c: c.execute("SELECT relation, other, id FROM kin").fetchall())


@story
async def test_relatives_are_looked_up_by_an_index(durable: Home) -> None:
    async with durable.engine() as engine:
        await push(engine, [draft(1)])
        sql = (
            "EXPLAIN QUERY PLAN SELECT count(*) FROM jobs "
            "WHERE id IN (SELECT id FROM kin WHERE relation = 'parent' AND other = 'j1') "
            "AND tenant = 't'"
        )
        plan = str(await engine.ask(lambda c: c.execute(sql).fetchall()))
        assert "SCAN jobs" not in plan
        assert "SEARCH kin" in plan
        assert "(id=?)" in plan
