"""Which files an engine opens, and which it refuses in one clear line."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from pathlib import Path

import pytest

from headgate.engines.local.store import VERSION, Lock, StoreUnusable
from tests.contract.home import NOW, Home, draft, push, story

BOOT = "/proc/sys/kernel/random/boot_id"


async def refusal(home: Home) -> str:
    with pytest.raises(StoreUnusable) as caught:
        async with home.engine():
            pass
    message = str(caught.value)
    assert "\n" not in message
    assert home.path in message
    return message


def sqlite(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    try:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    finally:
        connection.close()


@story
async def test_a_second_opener_is_refused_and_the_first_goes_on(durable: Home) -> None:
    async with durable.engine() as engine:
        assert "in use" in await refusal(durable)
        await push(engine, [draft(1)])
    async with durable.engine() as engine:
        assert await engine.find("j1", NOW) is not None


@story
async def test_another_process_is_refused_too(durable: Home) -> None:
    program = """
import asyncio, sys, time
from headgate.engines.local.engine import LocalEngine
from headgate.engines.local.store import StoreUnusable
try:
    asyncio.run(LocalEngine.open(sys.argv[1], now_ms=1, elapsed_s=time.monotonic))
except StoreUnusable as error:
    print(error)
"""
    async with durable.engine():
        other = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, durable.path, stdout=asyncio.subprocess.PIPE
        )
        said, _ = await other.communicate()
    assert other.returncode == 0
    assert b"in use" in said


@story
async def test_a_newer_schema_is_refused_and_left_alone(durable: Home) -> None:
    async with durable.engine() as engine:
        await push(engine, [draft(1)])
    sqlite(durable.file(), f"PRAGMA user_version = {VERSION + 1}")
    assert "newer" in await refusal(durable)
    sqlite(durable.file(), f"PRAGMA user_version = {VERSION}")
    async with durable.engine() as engine:
        assert await engine.find("j1", NOW) is not None


@story
async def test_somebody_elses_database_is_refused_and_left_alone(durable: Home) -> None:
    sqlite(durable.file(), "CREATE TABLE notes (text TEXT)")
    before = durable.file().read_bytes()
    assert "not one of Headgate's" in await refusal(durable)
    sqlite(durable.file(), "PRAGMA user_version = 1", "PRAGMA application_id = 7")
    assert "not one of Headgate's" in await refusal(durable)
    sqlite(durable.file(), "PRAGMA user_version = 0", "PRAGMA application_id = 0")
    assert len(durable.file().read_bytes()) == len(before)


@story
async def test_what_is_no_database_is_refused_and_left_alone(durable: Home) -> None:
    text = "These are no jobs.\n" * 1_000
    durable.file().write_text(text)
    assert "not a SQLite database" in await refusal(durable)
    assert durable.file().read_text() == text


@story
async def test_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "does not exist" in await refusal(Home(str(tmp_path / "absent" / "jobs.db")))


@story
async def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    assert "not a file" in await refusal(Home(str(tmp_path)))
    os.mkfifo(tmp_path / "pipe")
    assert "not a file" in await refusal(Home(str(tmp_path / "pipe")))


@pytest.mark.parametrize(("durability", "promised"), [("full", 7), ("normal", 0)])
def test_what_a_power_cut_may_undo_is_not_promised_after_one(
    durability: str, promised: int, tmp_path: Path
) -> None:
    path = str(tmp_path / "jobs.db")
    lock = Lock(path, durability)
    lock.take()
    lock.promise(7)
    lock.release()
    again = Lock(path, durability)
    again.take()
    assert again.promised_ms == 7
    again.release()
    mark = tmp_path / "jobs.db.lock"
    mark.write_text(mark.read_text().replace(Path(BOOT).read_text().strip(), "another-run"))
    after = Lock(path, durability)
    after.take()
    assert after.promised_ms == promised
    after.release(clean=True)


@pytest.mark.parametrize("content", ["", "17", "17\n", "17\nx y\n", "17\n-1\n", "\x00\xff" * 99])
def test_a_lock_that_says_nothing_promises_nothing(content: str, tmp_path: Path) -> None:
    (tmp_path / "jobs.db.lock").write_text(content)
    lock = Lock(str(tmp_path / "jobs.db"), "full")
    lock.take()
    assert lock.promised_ms == 0
    lock.release()


@story
async def test_a_reset_takes_back_what_was_promised(durable: Home) -> None:
    async with durable.engine() as engine:
        await push(engine, [draft(1)], NOW + 10_000)
        await engine.reset(NOW)
        assert engine._lock is not None
        assert engine._lock.promised_ms == 0
    async with durable.engine() as engine:
        await push(engine, [draft(1)])


@story
async def test_a_refusal_does_not_keep_the_file(durable: Home) -> None:
    durable.file().write_text("no database" * 1_000)
    await refusal(durable)
    durable.file().unlink()
    async with durable.engine() as engine:
        await push(engine, [draft(1)])


@story
async def test_an_empty_file_becomes_a_store(durable: Home) -> None:
    durable.file().touch()
    async with durable.engine() as engine:
        await push(engine, [draft(1)])
