"""Disks that are full, read-only, damaged or somebody else's."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.faults.client import Reply, call, enqueue
from tests.faults.server import FAULTY, Refused, Server, until

BALLAST = "ballast"


class Disk(Protocol):
    path: Path
    """Where the store is."""

    def fill(self, server: Server) -> None: ...
    def free(self, server: Server) -> None: ...


class SmallDisk:
    """A file system of its own that something else fills."""

    def __init__(self, place: Path) -> None:
        self.path = place / "jobs.db"
        self._ballast = place / BALLAST

    def fill(self, server: Server) -> None:
        with contextlib.suppress(OSError), self._ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    def free(self, server: Server) -> None:
        self._ballast.unlink()


class SmallFiles:
    """Files of the server's process may not grow any further."""

    def __init__(self, place: Path) -> None:
        self.path = place / "jobs.db"

    def fill(self, server: Server) -> None:
        log = self.path.with_name("jobs.db-wal")
        self._limit(server, log.stat().st_size)

    def free(self, server: Server) -> None:
        self._limit(server, resource.RLIM_INFINITY)

    def _limit(self, server: Server, size: int) -> None:
        hard = resource.RLIM_INFINITY
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (size, hard))


@pytest.fixture(params=["file system", "file size"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    if request.param == "file size":
        yield SmallFiles(tmp_path)
        return
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(tmp_path)]
    mounted = subprocess.run(mount, check=False, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(tmp_path)
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that anybody may enter."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o777)
    yield place
    shutil.rmtree(place)


# Full


def test_a_full_disk_refuses_writes_and_recovers(disk: Disk) -> None:
    with Server(disk.path) as server:
        answered: dict[str, Any] = {}
        refused: list[str] = []

        def push(number: int) -> Reply:
            job_id = f"01900000-0000-7000-8000-{number:012}"
            body = {"id": job_id, "type": "disk.full", "args": ["x" * 500, number]}
            reply = call(server.address, "POST", "/ojs/v1/jobs", body)
            if reply.status == 201:
                answered[job_id] = body["args"]
            else:
                assert reply.status == 503, reply
                refused.append(job_id)
            return reply

        for number in range(50):
            assert push(number).status == 201
        disk.fill(server)
        numbers = iter(range(50, 1_000_000))
        until(lambda: push(next(numbers)).status == 503, 20, "a full disk is noticed")
        for _ in range(20):
            reply = push(next(numbers))
            assert reply.code == "backend_unavailable"
            assert reply.json["error"]["retryable"] is True
            assert int(reply.headers["retry-after"]) >= 1
        assert call(server.address, "GET", "/ready").status == 503
        assert call(server.address, "GET", "/health").status == 503
        assert server.running

        disk.free(server)
        until(lambda: push(next(numbers)).status == 201, 20, "the server recovers")
        _has_exactly(server, answered, refused)
        assert call(server.address, "GET", "/ready").status == 200
        assert server.stop() == 0, server.errors
        assert "Traceback" not in server.errors
        server.start()
        _has_exactly(server, answered, refused)


def _has_exactly(server: Server, answered: dict[str, Any], refused: list[str]) -> None:
    for job_id, args in answered.items():
        reply = call(server.address, "GET", f"/ojs/v1/jobs/{job_id}")
        assert reply.status == 200, reply
        assert reply.json["job"]["args"] == args
    for job_id in refused:
        assert call(server.address, "GET", f"/ojs/v1/jobs/{job_id}").status == 404


# Read-only


def test_a_read_only_file_is_refused(open_place: Path) -> None:
    path = _store_with_jobs(open_place)
    path.chmod(0o444)
    path.with_name("jobs.db.lock").chmod(0o666)
    _is_refused(path, "not writable", "--as-nobody")


def test_a_file_that_may_only_be_written_is_refused(open_place: Path) -> None:
    path = _store_with_jobs(open_place)
    path.chmod(0o222)
    path.with_name("jobs.db.lock").chmod(0o666)
    _is_refused(path, "not readable", "--as-nobody")


def test_a_read_only_directory_is_refused(open_place: Path) -> None:
    open_place.chmod(0o555)
    _is_refused(open_place / "jobs.db", "ermission", "--as-nobody")


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    _is_refused(tmp_path / "none" / "jobs.db", "does not exist")


# Damaged, or not ours


def test_garbage_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    path.write_bytes(b"garbage " * 10_000)
    _is_refused(path, "not a SQLite database")
    assert path.read_bytes() == b"garbage " * 10_000


def test_the_file_of_another_application_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE theirs (id)")
        database.commit()
    before = path.read_bytes()
    _is_refused(path, "not one of Headgate's")
    assert path.read_bytes()[100:] == before[100:]


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = _store_with_jobs(tmp_path)
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 99")
    _is_refused(path, "newer")


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.99])
def test_a_truncated_file_is_refused_or_complete(keep: float, tmp_path: Path) -> None:
    path = _store_with_jobs(tmp_path)
    os.truncate(path, int(path.stat().st_size * keep))
    _is_refused_or_complete(path)


@pytest.mark.parametrize("page", [2, 3, 4, 5, 6, 8, -2, -1])
@pytest.mark.parametrize("with_what", [b"\x00", b"\xa5"])
def test_a_damaged_page_is_refused_or_told(page: int, with_what: bytes, tmp_path: Path) -> None:
    path = _store_with_jobs(tmp_path)
    size = 8_192
    pages = path.stat().st_size // size
    assert pages > 10
    with path.open("r+b") as file:
        file.seek((page - 1 if page > 0 else pages + page) * size)
        file.write(with_what * size)
    _is_refused_or_complete(path)


@pytest.mark.parametrize(
    ("where", "harm"),
    [
        *(("jobs.db-wal", harm) for harm in ("gone", "empty", "half", "start", "middle")),
        *(("jobs.db", harm) for harm in ("gone", "empty")),  # the log holds all of its pages
    ],
)
def test_a_log_that_lost_answers_is_refused_and_left_alone(
    harm: str, where: str, tmp_path: Path
) -> None:
    path = tmp_path / "jobs.db"
    log = path.with_name("jobs.db-wal")
    lock = path.with_name("jobs.db.lock")
    with Server(path) as server:
        for number in range(100):
            assert enqueue(server.address, "q", number).status == 201
        reply = enqueue(server.address, "q", "last")
        pid = str(server.pid)
        last = datetime.fromisoformat(reply.json["job"]["created_at"]).timestamp() * 1_000
        until(lambda: _noted_ms(lock) >= round(last), 10, "the last answer is noted")
        server.kill()
    _harm(tmp_path / where, harm)
    left = {file: file.read_bytes() for file in (path, log) if file.exists()}
    for _ in range(2):
        _is_refused(path, "damaged")
        for file, content in left.items():
            assert file.read_bytes() == content
    assert pid not in lock.read_text().split()
    lock.unlink()
    with Server(path) as server:
        assert enqueue(server.address, "q", "anew").status == 201


def _noted_ms(lock: Path) -> int:
    return int((lock.read_text().split()[1:] or ["0"])[0])


def _harm(file: Path, harm: str) -> None:
    size = file.stat().st_size
    match harm:
        case "gone":
            file.unlink()
        case "empty":
            os.truncate(file, 0)
        case "half":
            os.truncate(file, size // 2)
        case _:
            with file.open("r+b") as opened:
                opened.seek(0 if harm == "start" else size // 2)
                opened.write(b"\xa5" * 64)


def test_a_log_that_is_whole_is_taken_up_after_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    for _ in range(3):
        with Server(path) as server:
            for number in range(20):
                assert enqueue(server.address, "q", number).status == 201
            wish = {"queues": ["q"], "count": 1_000}
            jobs = call(server.address, "POST", "/ojs/v1/workers/fetch", wish).json["jobs"]
            assert len(jobs) == 20
            server.kill()
    lock = path.with_name("jobs.db.lock")
    assert _noted_ms(lock) > 0
    with Server(path) as server:
        assert server.stop() == 0
    assert _noted_ms(lock) == 0


def test_a_full_disk_at_the_start_is_told(tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)]
    mounted = subprocess.run(mount, check=False, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        with contextlib.suppress(OSError), (tmp_path / BALLAST).open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        path = tmp_path / "jobs.db"
        _is_refused(path, "No space left")
        with (tmp_path / BALLAST).open("r+b") as file:
            file.truncate(file.seek(0, os.SEEK_END) - 8_192)
        _is_refused(path, "disk is full")
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


def _store_with_jobs(place: Path) -> Path:
    """Closed cleanly, with 300 jobs that wait and 300 that have ended."""
    path = place / "jobs.db"
    with Server(path) as server:
        jobs = [{"id": _id(n), "type": "disk.kept", "args": [n, "x" * 100]} for n in range(600)]
        reply = call(server.address, "POST", "/ojs/v1/jobs/batch", {"jobs": jobs})
        assert reply.status == 201, reply
        wish = {"queues": ["default"], "count": 300, "worker_id": "w"}
        records = call(server.address, "POST", "/ojs/v1/workers/fetch", wish).json["jobs"]
        acks = [{"job_id": record["id"]} for record in records]
        done = {"worker_id": "w", "acks": acks}
        reply = call(server.address, "POST", "/ojs/v1/workers/exchange", done)
        assert len(reply.json["acks"]) == 300
        assert server.stop() == 0
    return path


def _id(number: int) -> str:
    return f"01900000-0000-7000-8000-{number:012}"


def _is_refused(path: Path, why: str, *options: str) -> None:
    with pytest.raises(Refused) as refusal, Server(path, *options, entry=FAULTY):
        pass
    message = str(refusal.value)
    assert why in message
    _is_one_line(message, path)


def _is_one_line(message: str, path: Path) -> None:
    assert message.startswith(f"headgate: {path}: ")
    assert message.count("\n") == 1
    assert "Traceback" not in message


def _is_refused_or_complete(path: Path) -> None:
    """A look-up may fail and say so; it never says that a job is not there, or is another one."""
    with contextlib.ExitStack() as stack:
        server = Server(path)
        try:
            stack.enter_context(server)
        except Refused as refusal:
            _is_one_line(str(refusal), path)
            return
        for number in range(600):
            reply = call(server.address, "GET", f"/ojs/v1/jobs/{_id(number)}")
            if reply.status == 503:
                assert reply.code == "backend_unavailable"
                continue
            assert reply.status == 200, reply
            record = reply.json["job"]
            assert record["args"] == [number, "x" * 100]
            assert record["state"] == ("completed" if number < 300 else "available")


# Somebody else's


def test_a_second_server_on_one_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with Server(path) as server:
        _is_refused(path, f"process {server.pid}")
        assert enqueue(server.address, "q").status == 201


def test_a_file_locked_by_another_program_is_refused_and_then_taken(tmp_path: Path) -> None:
    path = _store_with_jobs(tmp_path)
    with _locked(path):
        _is_refused(path, "locked", "--busy-ms", "200")
    with Server(path) as server:
        assert call(server.address, "GET", f"/ojs/v1/jobs/{_id(1)}").status == 200


def test_a_lock_while_running_is_told_and_survived(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with Server(path, "--busy-ms", "200", entry=FAULTY) as server:
        kept = enqueue(server.address, "q", "before").json["job"]["id"]
        with _locked(path):
            reply = enqueue(server.address, "q", "during")
            assert reply.status == 503, reply
            assert reply.code == "backend_unavailable"
            assert call(server.address, "GET", "/ready").status == 503
        until(lambda: enqueue(server.address, "q", "after").status == 201, 10, "it recovers")
        assert call(server.address, "GET", f"/ojs/v1/jobs/{kept}").status == 200
        wish = {"queues": ["q"], "count": 10}
        jobs = call(server.address, "POST", "/ojs/v1/workers/fetch", wish).json["jobs"]
        assert [job["args"] for job in jobs] == [["before"], ["after"]]
        assert server.stop() == 0, server.errors


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("BEGIN EXCLUSIVE")
        yield
        database.execute("ROLLBACK")
