"""A job that has ended stays what it is, wherever it is kept and whatever is asked of it."""

from __future__ import annotations

import pytest

from headgate.core.retry import Failure
from headgate.engines.contract import Ack, Fail, IdTaken, Page, Query
from headgate.engines.local.engine import LocalEngine
from tests.contract.home import NOW, Home, draft, fetch, found, push, story, until


async def _folded(engine: LocalEngine) -> None:
    """When no job is left in memory that the file knows."""
    await engine.find_all(Query(), Page(), NOW)

    async def gone() -> bool:
        return "j1" not in engine._tables.jobs

    if not engine._in_memory:
        await until(gone)


@pytest.mark.parametrize("end", ["ack", "fail", "cancel"])
@story
async def test_a_finished_job_can_be_found_after_every_command(home: Home, end: str) -> None:
    async with home.engine() as engine:
        await push(engine, [draft(1, fixed=b'"args":["first"],"meta":{}')])
        assert await fetch(engine) == ["j1"]
        await engine.save_checkpoint("j1", b"{}", NOW)
        if end == "ack":
            await engine.ack([Ack("j1", "w", 1, b"1")], NOW)
        elif end == "fail":
            await engine.fail([Fail("j1", Failure("E", "no", retryable=False), "w")], NOW)
        else:
            await engine.cancel("j1", "admin", "", NOW)
        await engine.settled()
        before = await found(engine, 1)
        for command in (
            lambda: engine.drop_checkpoint("j1", NOW),
            lambda: engine.drop_checkpoint("j1", NOW),
            lambda: engine.save_checkpoint("j1", b"[]", NOW),
            lambda: engine.cancel("j1", "admin", "", NOW),
            lambda: engine.reprioritize("j1", 5, NOW),
            lambda: engine.activate("j1", NOW),
            lambda: engine.progress("j1", 0.1, None, None, NOW),
            lambda: engine.ack([Ack("j1", "w", 1, None)], NOW),
        ):
            await _folded(engine)
            await command()
            after = await found(engine, 1)
            assert (after.state, after.fixed, after.finished_at) == (
                before.state, before.fixed, before.finished_at,
            )  # fmt: skip
            assert isinstance((await engine.push([draft(1)], NOW))[0], IdTaken)
            engine._tables.check()
        await _folded(engine)
        assert (await found(engine, 1)).state == before.state
