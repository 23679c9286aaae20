"""Who writes a batch: the event loop itself while the disk is quick, else the thread."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from headgate.engines.contract import Page, Query
from headgate.engines.local import journal
from headgate.engines.local.engine import LocalEngine
from tests.contract.home import NOW, draft, drafts, push, story, until


class Disk:
    """Writes down who wrote what; its clock stands still but for what it is told to take."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.takes_s = 0.0
        self.loop = threading.get_ident()
        self.commits: list[str] = []
        self.folds = 0

    def __call__(self, point: str) -> None:
        if point == "before commit":
            here = threading.get_ident() == self.loop
            self.commits.append("loop" if here else "thread")
            self.now_s += self.takes_s
        elif point == "inside fold":
            self.folds += 1

    def elapsed_s(self) -> float:
        return self.now_s


@asynccontextmanager
async def on(disk: Disk, path: Path) -> AsyncIterator[LocalEngine]:
    engine = await LocalEngine.open(
        str(path), now_ms=NOW, elapsed_s=disk.elapsed_s, at_fault_point=disk
    )
    try:
        await engine.settled()
        disk.commits.clear()
        yield engine
    finally:
        await engine.close()


@story
async def test_the_loop_writes_small_batches_and_leaves_large_ones_to_the_thread(
    tmp_path: Path,
) -> None:
    disk = Disk()
    async with on(disk, tmp_path / "a.db") as engine:
        await push(engine, [draft(0)])
        await push(engine, drafts(journal.SMALL_BATCH + 2)[1:])
        await push(engine, [draft(1_000)])
    assert disk.commits == ["loop", "thread", "loop"]


@story
async def test_after_a_slow_commit_the_loop_is_spared_for_a_while(tmp_path: Path) -> None:
    disk = Disk()
    async with on(disk, tmp_path / "a.db") as engine:
        disk.takes_s = 2 * journal.SLOW_S
        for number in range(3):
            await push(engine, [draft(number)])
        assert disk.commits == ["loop", "thread", "thread"]
        disk.now_s += journal.SPARED_S
        disk.takes_s = 0.0
        disk.commits.clear()
        await push(engine, [draft(3)])
        await push(engine, [draft(4)])
        assert disk.commits == ["loop", "loop"]


@story
async def test_the_loop_never_waits_for_a_thread_that_folds(tmp_path: Path) -> None:
    disk = Disk()
    async with on(disk, tmp_path / "a.db") as engine:
        with engine._journal._using:
            await engine.push([draft(0)], NOW)
            # It is handed over, and the thread waits in the place of the loop.
            waiting = engine.settled()
            engine._journal._hand_over()
            assert disk.commits == []
        await waiting
    assert disk.commits == ["thread"]


@story
async def test_what_the_loop_has_written_is_folded_when_it_is_old_enough(tmp_path: Path) -> None:
    disk = Disk()
    async with on(disk, tmp_path / "a.db") as engine:
        await push(engine, [draft(0)])
        disk.now_s += 2 * journal.FOLD_AFTER_S

        async def folded() -> bool:
            return bool(disk.folds)

        await until(folded)
        # And again, when the thread has gone to rest in between.
        disk.folds = 0
        await push(engine, [draft(1)])
        disk.now_s += 2 * journal.FOLD_AFTER_S
        await until(folded)
        assert (await engine.find_all(Query(), Page(), NOW)).total == 2
    assert set(disk.commits) == {"loop"}


@story
async def test_very_much_that_is_unfolded_is_folded_under_way(tmp_path: Path) -> None:
    disk = Disk()
    async with on(disk, tmp_path / "a.db") as engine:
        for start in range(0, 3 * journal.FOLD_RECORDS, 100):
            await push(engine, drafts(start + 100)[start:])
        assert len(engine._journal._unfolded) > 1
        disk.folds = 0
        disk.now_s += 3 * journal.FOLD_AFTER_S
        await push(engine, [draft(10**6)])

        async def folded() -> bool:
            return bool(disk.folds)

        await until(folded)
    assert "thread" in disk.commits
