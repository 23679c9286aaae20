"""An engine in memory that keeps nothing for lists decides as any other."""

from __future__ import annotations

import time
from pathlib import Path

from headgate.engines.contract import Ack
from headgate.engines.local.engine import LocalEngine
from tests.contract.home import NOW, drafts, fetch, found, push, story


@story
async def test_jobs_live_as_ever_and_nothing_piles_up() -> None:
    engine = await LocalEngine.open(":memory:", now_ms=NOW, elapsed_s=time.monotonic, lists=False)
    try:
        await push(engine, drafts(100))
        assert engine.available == 100
        taken = await fetch(engine, 60)
        assert taken == [f"j{n}" for n in range(60)]
        assert engine.available == 40
        await engine.ack([Ack(job_id) for job_id in taken], NOW + 1)
        assert (await found(engine, 0)).state == "completed"
        view = await engine.queue("q", NOW + 1)
        assert view is not None
        assert (view.counts["completed"], view.counts["available"]) == (60, 40)
        for job_id in taken:
            await engine.delete(job_id, NOW + 1)
        assert await engine.find("j0", NOW + 1) is None
        assert len(engine._tables.jobs) == 40
        assert engine._journal._open.records == []
    finally:
        await engine.close()


def test_a_file_is_always_written(tmp_path: Path) -> None:
    @story
    async def both() -> None:
        path = str(tmp_path / "jobs.db")
        for live in (0, 3):
            engine = await LocalEngine.open(path, now_ms=NOW, elapsed_s=time.monotonic, lists=False)
            try:
                assert engine.recovered.live == live
                if not live:
                    await push(engine, drafts(3))
            finally:
                await engine.close()

    both()
