"""A buffer in a SQLite file: what `enqueue` put there is on disk when it returns, and a killed process finds it again."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from headgate.client.errors import ValidationError
from headgate.client.pressure.buffer import Kept, fitting

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS kept (
    place INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, queue TEXT NOT NULL, body BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS kept_by_queue ON kept (queue, place);
CREATE TABLE IF NOT EXISTS rejected (
    place INTEGER PRIMARY KEY, id TEXT NOT NULL, queue TEXT NOT NULL, body BLOB NOT NULL,
    reason TEXT NOT NULL
);
"""


class DiskBuffer:
    """Keeps jobs in a file, with an fsync for each `enqueue` that ends here.

    Several processes may share the file; should two of them send the same job, the server takes it once, because it has its id. The bounds hold for the file.
    """

    durable = True

    def __init__(
        self, path: str | Path, max_jobs: int = 1_000_000, max_bytes: int = 1 << 30
    ) -> None:
        self.path = Path(path)
        self.max_jobs = max_jobs
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        try:
            self._db = sqlite3.connect(
                self.path, isolation_level=None, check_same_thread=False, timeout=30
            )
        except sqlite3.Error as error:
            raise ValidationError(f"{self.path} cannot be used as a buffer: {error}") from None
        try:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.executescript(_SCHEMA)
        except sqlite3.Error as error:
            self._db.close()
            raise ValidationError(f"{self.path} cannot be used as a buffer: {error}") from None

    def put(self, jobs: Sequence[Kept]) -> bool:
        size = sum(len(job.body) for job in jobs)
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                count, kept = self._db.execute(
                    "SELECT count(*), coalesce(sum(length(body)), 0) FROM kept"
                ).fetchone()
                fits = count + len(jobs) <= self.max_jobs and kept + size <= self.max_bytes
                if fits:
                    self._db.executemany(
                        "INSERT INTO kept (id, queue, body) VALUES (?, ?, ?)",
                        [(job.id, job.queue, job.body) for job in jobs],
                    )
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")
            return bool(fits)

    def first(self, most: int, most_bytes: int, skip: Collection[str]) -> list[Kept]:
        marks = ",".join("?" * len(skip))
        with self._lock:
            oldest = self._db.execute(
                f"SELECT queue FROM kept WHERE queue NOT IN ({marks}) ORDER BY place LIMIT 1",  # noqa: S608 - only question marks
                tuple(skip),
            ).fetchone()
            if oldest is None:
                return []
            rows = self._db.execute(
                "SELECT id, queue, body, place FROM kept WHERE queue = ? ORDER BY place LIMIT ?",
                (oldest[0], most),
            ).fetchall()
        return fitting([Kept(*row) for row in rows], most_bytes)

    def remove(self, jobs: Sequence[Kept]) -> None:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("DELETE FROM kept WHERE place = ?", [(job.place,) for job in jobs])
            self._db.execute("COMMIT")

    def reject(self, job: Kept, reason: str) -> None:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute(
                "INSERT OR REPLACE INTO rejected SELECT place, id, queue, body, ? FROM kept"
                " WHERE place = ?",
                (reason, job.place),
            )
            self._db.execute("DELETE FROM kept WHERE place = ?", (job.place,))
            self._db.execute("COMMIT")

    def rejected(self) -> list[tuple[Kept, str]]:
        with self._lock:
            rows = self._db.execute(
                "SELECT id, queue, body, place, reason FROM rejected ORDER BY place"
            ).fetchall()
        return [(Kept(*row[:4]), row[4]) for row in rows]

    def __len__(self) -> int:
        with self._lock:
            return int(self._db.execute("SELECT count(*) FROM kept").fetchone()[0])

    def close(self) -> None:
        with self._lock:
            self._db.close()
