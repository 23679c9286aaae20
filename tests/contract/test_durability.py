"""What was answered survives: a close, a crash, a disk that fails for a while."""

from __future__ import annotations

import asyncio
import shutil
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec import Raw

from headgate.core.errors import BackendUnavailable
from headgate.core.job import More
from headgate.core.pools import Pool
from headgate.core.retry import Failure
from headgate.engines.contract import Ack, Fail, Fetch, Interest, Page, Pushed, Query, Report, Task
from tests.contract.home import NOW, Home, draft, drafts, fetch, found, push, story, until

ALL = Interest()


class Gate:
    """Holds the journal's thread at one point until it is told to go on."""

    def __init__(self, point: str) -> None:
        self.point = point
        self.closed = False
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, point: str) -> None:
        if self.closed and point == self.point:
            self.reached.set()
            assert self.go_on.wait(30)


class Disk:
    """Fails at one point as long as it is broken."""

    def __init__(self, point: str) -> None:
        self.point = point
        self.broken = False

    def __call__(self, point: str) -> None:
        if self.broken and point == self.point:
            raise OSError("no space left on device")


@story
async def test_everything_is_there_after_a_restart(durable: Home) -> None:
    later = NOW + 60_000
    async with durable.engine() as engine:
        rare = More(errors=[], give_up_at=NOW + 10**9, stall_ms=10**8, trace_id="t")
        await push(engine, [draft(1, unique="u", priority=5, tenant="acme", more=rare)])
        await push(engine, [draft(2, state="scheduled", due_at=NOW + 90_000)])
        await push(engine, [draft(3, state="pending")])
        await push(engine, drafts(8)[4:])
        assert await fetch(engine, 4) == ["j1", "j4", "j5", "j6"]
        await engine.progress("j1", 0.5, Raw(b'{"at":[1]}'), "half", NOW + 1)
        await engine.save_checkpoint("j1", b'{"page":7}', NOW + 2)
        await engine.ack([Ack("j4", "w", 1, b'{"ok":1.50}')], NOW + 3)
        await engine.fail([Fail("j5", Failure("E", "no", type="Net.down"), "w")], NOW + 4)
        await engine.cancel("j6", "admin", "", NOW + 5)
        await engine.configure("q", {"visibility_timeout": 7}, NOW + 6)
        await engine.configure("_default", {"retention": {"completed": "P9D"}}, NOW + 6)
        await engine.create_queue("empty", {"allowed_job_types": ["a.*"]}, NOW + 6)
        await engine.pause("held", "admin", NOW + 7)
        await engine.beat(Report("w2"), [], 0, NOW + 8)
        await engine.direct("w2", "quiet", NOW + 8)
        await engine.remember("bulk", "key", b"answer", later + 1, NOW + 8)
        before = [await found(engine, number, NOW + 9) for number in range(1, 8)]
        views = {queue.name: queue for queue in await engine.queues(NOW + 9)}
        listed = await engine.events(0, 1_000, ALL, NOW + 9)

    async with durable.engine(NOW + 10) as engine:
        after = [await found(engine, number, NOW + 10) for number in range(1, 8)]
        hidden = {"alarm", "lane", "more"}
        for old, new in zip(before, after, strict=True):
            for name in old.__struct_fields__:
                assert name in hidden or getattr(new, name) == getattr(old, name)
            for name in More.__struct_fields__ if old.more else ():
                assert getattr(new.more, name) == getattr(old.more, name)
        checkpoint = await engine.checkpoint("j1", NOW + 10)
        assert checkpoint is not None
        assert (checkpoint.sequence, checkpoint.saved_at) == (1, NOW + 2)
        assert checkpoint.state == b'{"page":7}'
        for queue in await engine.queues(NOW + 10):
            old_view = views.pop(queue.name)
            assert (queue.state, queue.paused_at) == (old_view.state, old_view.paused_at)
            assert (queue.config, queue.resolved) == (old_view.config, old_view.resolved)
            assert (queue.counts, queue.created_at) == (old_view.counts, old_view.created_at)
        assert not views
        assert engine.settings("never-heard-of").keep_completed_ms == 9 * 86_400_000
        assert await engine.fetch(Fetch(["q"], 1, "w2"), NOW + 10) == []
        assert await fetch(engine, 9, NOW + 10) == ["j7"]
        assert await engine.recall("bulk", "key", later) == b"answer"
        assert await engine.recall("bulk", "key", later + 1) is None
        again = await engine.events(listed.cursor, 1_000, ALL, later)
        assert all(event.number > listed.cursor for event in again.events)
        assert "job.started" in [event.kind for event in again.events]


@story
async def test_the_clock_never_goes_back_over_a_restart(durable: Home) -> None:
    async with durable.engine() as engine:
        await push(engine, [draft(1, NOW + 5_000)], NOW + 5_000)
    async with durable.engine(NOW - 60_000) as engine:
        await fetch(engine, now_ms=NOW - 60_000)
        assert (await found(engine, 1, NOW - 60_000)).started_at == NOW + 5_000


@story
async def test_settled_waits_for_the_disk(durable: Home) -> None:
    gate = Gate("before commit")
    async with durable.engine(at_fault_point=gate) as engine:
        await engine.settled()
        follower = engine.subscribe(ALL)
        gate.closed = True
        try:
            await engine.push([draft(1)], NOW)
            # A read, too, shows what is not durable yet.
            seen = await engine.find("j1", NOW)
            settled = asyncio.create_task(engine.settled())
            read = asyncio.create_task(engine.events(0, 10, Interest(job_id="j1"), NOW))
            await asyncio.to_thread(gate.reached.wait, 30)
            assert await follower.next(0.01) == []
            assert not settled.done()
            assert not read.done()
        finally:
            gate.closed = False
            gate.go_on.set()
        await settled
        assert seen is not None
        assert [event.kind for event in (await read).events] == ["job.enqueued"]
        assert [event.subject for event in await follower.next(5)] == ["j1"]
        follower.close()


@story
async def test_one_commit_serves_everybody_who_waits(durable: Home) -> None:
    commits: list[str] = []
    gate = Gate("before commit")

    def at(point: str) -> None:
        if point == "after commit":
            commits.append(point)
        gate(point)

    async with durable.engine(at_fault_point=at) as engine:
        await engine.settled()
        gate.closed = True
        await engine.push([draft(0)], NOW)
        first = asyncio.create_task(engine.settled())
        await asyncio.to_thread(gate.reached.wait, 30)
        commits.clear()

        async def pushed(number: int) -> None:
            await engine.push([draft(number)], NOW)
            await engine.settled()

        rest = [asyncio.create_task(pushed(number)) for number in range(1, 101)]
        await asyncio.sleep(0)
        gate.closed = False
        gate.go_on.set()
        await asyncio.gather(first, *rest)
        assert len(commits) == 2


@story
async def test_a_copy_of_the_files_of_a_settled_engine_holds_all_that_was_answered(
    durable: Home, tmp_path: Path
) -> None:
    copied = Home(str(tmp_path / "copy.db"))
    async with durable.engine() as engine:
        await push(engine, drafts(100))
        assert len(await fetch(engine, 10)) == 10
        await engine.ack([Ack(f"j{number}", "w") for number in range(5)], NOW + 1)
        await engine.settled()
        for suffix in ("", "-wal"):
            shutil.copyfile(durable.file(suffix), copied.file(suffix))
    async with copied.engine(NOW + 2) as engine:
        view = await engine.queue("q", NOW + 2)
        assert view is not None
        assert {k: v for k, v in view.counts.items() if v} == {
            "available": 90,
            "active": 5,
            "completed": 5,
        }
        assert await fetch(engine, 1, NOW + 2) == ["j10"]
        engine.check()


@pytest.mark.parametrize("point", ["before commit", "after commit"])
@story
async def test_a_failed_commit_fails_everybody_who_waits_and_then_it_works_again(
    durable: Home, point: str
) -> None:
    disk = Disk(point)
    async with durable.engine(at_fault_point=disk) as engine:
        await push(engine, [draft(1)])
        cursor = (await engine.events(0, 10, ALL, NOW)).cursor
        disk.broken = True

        async def attempt(number: int) -> None:
            await engine.push([draft(number)], NOW)
            await engine.settled()

        outcomes = await asyncio.gather(
            *(attempt(number) for number in range(2, 6)), return_exceptions=True
        )
        assert all(isinstance(outcome, BackendUnavailable) for outcome in outcomes)
        assert (await engine.health())["status"] == "unhealthy"
        with pytest.raises(BackendUnavailable):
            await engine.push([draft(7)], NOW)
        with pytest.raises(BackendUnavailable):
            await engine.settled()
        disk.broken = False

        async def works() -> bool:
            return bool((await engine.health())["status"] == "ok")

        await until(works)
        await push(engine, [draft(8)], NOW + 1)
        assert await engine.find("j1", NOW + 1) is not None
        # Nobody was told that these were taken; they were written only if the failure came after.
        there = [await engine.find(f"j{n}", NOW + 1) is not None for n in range(2, 6)]
        assert len(set(there)) == 1
        assert there[0] == (point == "after commit")
        page = await engine.events(cursor, 100, Interest(kinds=["job.enqueued"]), NOW + 1)
        assert [event.subject for event in page.events] == ["j8"]
        engine.check()


@story
async def test_a_failed_fold_loses_nothing(durable: Home) -> None:
    disk = Disk("inside fold")
    async with durable.engine(at_fault_point=disk) as engine:
        await push(engine, drafts(50))
        disk.broken = True
        # Retention may have had everything folded by now, or be the first to fail.
        with suppress(BackendUnavailable):
            await push(engine, [draft(50)])
        with pytest.raises(BackendUnavailable):
            await engine.find_all(Query(), Page(), NOW)
        disk.broken = False

        async def works() -> bool:
            return bool((await engine.health())["status"] == "ok")

        await until(works)
        there = (await engine.find_all(Query(), Page(), NOW)).total
        assert there in (50, 51)
        assert len(await fetch(engine, 100)) == there


@story
async def test_a_task_goes_on_after_a_restart_and_repeats_nothing(durable: Home) -> None:
    gate = Gate("before commit")
    count = 2_500
    async with durable.engine(at_fault_point=gate) as engine:
        await push(engine, drafts(count))
        task = await engine.start_task(Task("cancel-all", "cancel", Query(queue="q")), NOW)
        assert (task.matched, task.finished) == (count, False)
    async with durable.engine(NOW + 1) as engine:

        async def finished() -> bool:
            return all(task.finished for task in await engine.tasks(NOW + 1))

        await until(finished)
        (task,) = await engine.tasks(NOW + 1)
        assert (task.id, task.matched, task.done, task.skipped) == ("cancel-all", count, count, 0)
        view = await engine.queue("q", NOW + 1)
        assert view is not None
        assert view.counts["cancelled"] == count
        assert view.counts["available"] == 0


@story
async def test_what_a_memory_engine_takes_needs_no_waiting() -> None:
    async with Home(":memory:").engine() as engine:
        (outcome,) = await engine.push([draft(1)], NOW)
        assert isinstance(outcome, Pushed)
        await engine.settled()
        page = await engine.events(0, 10, ALL, NOW)
        assert [event.kind for event in page.events] == ["job.enqueued"]


@story
async def test_a_worker_stays_in_its_pool_over_a_restart(durable: Home) -> None:
    fetch_as_w = Fetch(["q"], 1, "w")
    silence_ms = 30_000
    async with durable.engine() as engine:
        await engine.set_pool(Pool("alone", ("q",), (1,), isolated=True), NOW)
        await engine.beat(Report("w", pool="alone"), (), 0, NOW)
        await push(engine, drafts(3))
    async with durable.engine(NOW + 1) as engine:
        assert len(await engine.fetch(fetch_as_w, NOW + 1)) == 1
        assert await engine.fetch(Fetch(["q"], 1, "other"), NOW + 1) == []
        await engine.beat(Report("w"), (), 0, NOW + 2)
        assert len(await engine.fetch(fetch_as_w, NOW + 2)) == 1
        # Heard of once it stays there, until it is silent for too long.
        assert len(await engine.fetch(fetch_as_w, NOW + silence_ms + 1)) == 1
        await engine.tick(NOW + silence_ms + 2)
        assert await engine.fetch(fetch_as_w, NOW + silence_ms + 2) == []
        await engine.beat(Report("w", pool="alone"), (), 0, NOW + silence_ms + 3)
    async with durable.engine(NOW + 2 * silence_ms) as engine:
        # Nobody hears of it this time.
        assert len(await engine.fetch(fetch_as_w, NOW + 2 * silence_ms)) == 1
        assert await engine.fetch(fetch_as_w, NOW + 3 * silence_ms) == []
