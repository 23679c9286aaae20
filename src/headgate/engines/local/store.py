"""The file: opening it, what is in it, and folding the journal into its tables.

Everything here runs on one thread at a time; `journal.py` decides which.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, cast

import apsw
import msgspec

from headgate.core.states import TERMINAL
from headgate.core.times import instant_text
from headgate.engines.local.rows import (
    CHANGED,
    CHANGING,
    COLUMNS,
    FIXED,
    GONE,
    KEYS,
    LASTING,
    STORED,
    Record,
    keys_of,
    kin_of,
    present,
)

APPLICATION = 0x48474154
"""Marks a file as Headgate's."""
VERSION = 3
"""Of the schema. A change to it adds a script to MIGRATIONS and raises this."""
MIGRATIONS: dict[int, str] = {
    1: """
        ALTER TABLE jobs ADD COLUMN pool TEXT NOT NULL DEFAULT '';
        ALTER TABLE jobs ADD COLUMN keys BLOB;
        CREATE TABLE uses (
            key  TEXT NOT NULL,
            id   TEXT NOT NULL,
            PRIMARY KEY (key, id)
        ) WITHOUT ROWID;
        CREATE INDEX jobs_of_tenant ON jobs (tenant) WHERE tenant <> '';
    """,
    2: """
        CREATE TABLE kin (
            relation  TEXT NOT NULL,
            other     TEXT NOT NULL,
            id        TEXT NOT NULL,
            PRIMARY KEY (relation, other, id)
        ) WITHOUT ROWID;
        CREATE INDEX kin_of ON kin (id);
        INSERT INTO kin
        SELECT relation, json_extract(whole, '$.' || relation || '_id'), id
        FROM (SELECT id, '{' || CAST(fixed AS TEXT) || '}' AS whole FROM jobs
              WHERE instr(fixed, CAST('_id"' AS BLOB)) > 0),
             (SELECT 'parent' AS relation UNION ALL SELECT 'root' UNION ALL SELECT 'workflow')
        WHERE json_type(whole, '$.' || relation || '_id') = 'text'
        AND length(json_extract(whole, '$.' || relation || '_id')) <= 255;
    """,
}
"""From the version named to the next one. What is left in a journal is in the form of its own version."""

BUSY_MS = 10_000
"""How long to wait for a file that another program has locked."""

CHUNKS = (240, 32, 8, 1)
"""Rows per statement: one statement gives the interpreter away once, however many rows it has.

The longest is just short enough for apsw to keep it prepared (16 KiB of text).
"""

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(list[tuple[Any, ...]]).decode


class StoreUnusable(Exception):
    """The store cannot be opened; the message is one line for the person who started the server."""


def connect(path: str, *, durability: str = "full", readonly: bool = False) -> apsw.Connection:
    """A connection to the file; reading ones see what is committed."""
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    if readonly:
        flags = apsw.SQLITE_OPEN_READONLY
    connection = apsw.Connection(path, flags)
    connection.set_busy_timeout(BUSY_MS)
    if not readonly:
        connection.execute("PRAGMA page_size = 8192")
        if path != ":memory:":
            mode = connection.execute("PRAGMA journal_mode = WAL").get
            if mode != "wal":
                raise StoreUnusable(f"{path}: this file system cannot keep a write-ahead log")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute(f"PRAGMA synchronous = {'FULL' if durability == 'full' else 'NORMAL'}")
    connection.execute("PRAGMA cache_size = -65536")
    return connection


def prepare(connection: apsw.Connection, path: str) -> None:
    """Bring the file to this version's schema; refuse what is not ours or newer than we are."""
    version = int(connection.execute("PRAGMA user_version").get)
    mark = int(connection.execute("PRAGMA application_id").get)
    if version == 0 and mark == 0:
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
        if tables:
            raise StoreUnusable(f"{path}: a SQLite database, but not one of Headgate's")
        script = resources.files("headgate.engines.local").joinpath("schema.sql").read_text()
        with connection:
            connection.execute(script)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        return
    if mark != APPLICATION:
        raise StoreUnusable(f"{path}: a SQLite database, but not one of Headgate's")
    if version > VERSION:
        raise StoreUnusable(
            f"{path}: written by a newer Headgate (schema {version}, this one knows {VERSION}); "
            "start that version or restore an older file"
        )
    for step in range(version, VERSION):
        with connection:
            connection.execute(MIGRATIONS[step])
            connection.execute(f"PRAGMA user_version = {step + 1}")


class Lock:
    """Holds the file for one process, by a lock that dies with it.

    It also remembers up to when answers were given, and forgets that with a clean end.
    A write-ahead log that was cut off, damaged or taken away after a crash looks to SQLite like one that ended there; to us it does not.
    """

    def __init__(self, path: str, durability: str) -> None:
        self._path = path
        self._fd = -1
        self._boot = "" if durability == "full" else _boot()
        """Named where only the operating system's memory is sure to have what was answered."""
        self._mark = ""

    @property
    def promised_ms(self) -> int:
        """What was answered up to then has to be in the file; 0 where nothing is known."""
        at_ms, _, boot = self._mark.partition(" ")
        return int(at_ms) if at_ms.isdecimal() and boot in {"", _boot()} else 0

    def take(self) -> None:
        try:
            fd = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            parent = Path(self._path).parent
            raise StoreUnusable(f"{self._path}: the directory {parent} does not exist") from None
        except OSError as error:
            raise StoreUnusable(f"{self._path}: {error.strerror or error}") from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner, _ = _read_lock(fd)
            os.close(fd)
            raise StoreUnusable(
                f"{self._path}: in use by another Headgate server (process {owner}); "
                "one file belongs to one server"
            ) from None
        self._fd = fd
        try:
            _, self._mark = _read_lock(fd)
            self._write()
        except OSError as error:
            self.release()
            raise StoreUnusable(f"{self._path}: {error.strerror or error}") from None

    def promise(self, at_ms: int) -> None:
        """What was decided up to then is durable."""
        self._mark = f"{at_ms} {self._boot}".rstrip()
        with contextlib.suppress(OSError):  # the promise before it holds, too
            self._write()

    def forget(self) -> None:
        """Nothing has to be in the file."""
        self._mark = ""
        with contextlib.suppress(OSError):
            self._write()

    def release(self, *, clean: bool = False) -> None:
        if self._fd < 0:
            return
        if clean and not Path(f"{self._path}-wal").exists():
            self.forget()
        os.close(self._fd)
        self._fd = -1

    def _write(self) -> None:
        text = f"{os.getpid()}\n{self._mark}\n".encode()
        os.pwrite(self._fd, text, 0)
        os.ftruncate(self._fd, len(text))


def _read_lock(fd: int) -> tuple[str, str]:
    """The process that holds or held it, and its mark."""
    lines = [*os.pread(fd, 200, 0).decode("ascii", "replace").splitlines(), "", ""]
    return lines[0] or "unknown", lines[1]


def _boot() -> str:
    """Names the run of the operating system, where it has a name."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


@contextlib.contextmanager
def explained(path: str) -> Iterator[None]:
    """What the file turns out to be becomes one line that names it."""
    try:
        yield
    except apsw.NotADBError:
        raise StoreUnusable(f"{path}: not a SQLite database, or damaged at its start") from None
    except (apsw.CorruptError, msgspec.DecodeError):
        raise StoreUnusable(
            f"{path}: the database is damaged; restore a copy, or save what is readable with sqlite3's .recover"
        ) from None
    except apsw.BusyError:
        raise StoreUnusable(f"{path}: locked by another program") from None
    except apsw.Error as error:
        raise StoreUnusable(f"{path}: {error}") from None


def open_store(path: str, durability: str, promised_ms: int = 0) -> apsw.Connection:
    """Connect, check and prepare; every failure is one line that names the file.

    A file that does not know what was answered up to `promised_ms` is refused and left as it is.
    """
    if path != ":memory:":
        parent = Path(path).parent
        if not parent.is_dir():
            raise StoreUnusable(f"{path}: the directory {parent} does not exist")
        if Path(path).exists():
            if not Path(path).is_file():
                raise StoreUnusable(f"{path}: not a file")
            if not os.access(path, os.W_OK):
                raise StoreUnusable(f"{path}: not writable by this user")
            if not os.access(path, os.R_OK):
                raise StoreUnusable(f"{path}: not readable by this user")
    with explained(path):
        if promised_ms and not (Path(path).exists() and Path(path).stat().st_size):
            raise _fallen_short(path, 0, promised_ms)
        connection = connect(path, durability=durability)
        if promised_ms and (known_ms := _known_ms(connection)) < promised_ms:
            # What is left of the log is for whoever looks into it.
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.close()
            raise _fallen_short(path, known_ms, promised_ms)
        prepare(connection, path)
    return connection


def _known_ms(connection: apsw.Connection) -> int:
    """The last instant that the file knows."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    if not {"journal", "things"} <= tables:
        return 0
    folded = connection.execute("SELECT value FROM things WHERE kind = 'clock' AND key = 'now'").get
    newest = connection.execute("SELECT max(at_ms) FROM journal").get
    return max(int(folded or 0), int(newest or 0))


def _fallen_short(path: str, known_ms: int, promised_ms: int) -> StoreUnusable:
    known = f"after {instant_text(known_ms)}" if known_ms else "at all"
    return StoreUnusable(
        f"{path}: it knows nothing {known}, but answers were given until {instant_text(promised_ms)}: "
        f"the write-ahead log {path}-wal is missing or damaged; bring it back, "
        f"or delete {path}.lock to start without what was in it"
    )


# Folding


class Folded:
    """What a run of records comes to: the last word on every job and thing they name."""

    __slots__ = ("counts", "gone", "jobs", "things")

    def __init__(self, records: Sequence[Record]) -> None:
        self.counts: dict[tuple[str, str], int] = {}
        """(queue, state) -> by how much the number of finished jobs changes."""
        self.gone: list[str] = []
        """Deleted first: what was stored under the same id afterwards is another job."""
        self.things: list[Record] = []
        self.jobs: list[tuple[Record, Record | None]] = []
        """Each job's last record, and the one that holds what never changes."""
        # Most jobs have several records here; only the first and the last one decide.
        last: dict[str, Record] = {}
        whole: dict[str, Record] = {}
        for record in records:
            id_ = record[0]
            if not id_:
                self.things.append(record)
                continue
            before = last.get(id_)
            if before is None:
                if record[1] in TERMINAL:
                    self._count(record[2], record[1], -1)
            elif len(before) == GONE:
                # Another job: rows are in the order in which jobs were stored.
                del last[id_]
            last[id_] = record
            size = len(record)
            if size == STORED:
                whole[id_] = record
            elif size == GONE:
                self.gone.append(id_)
        for id_, record in last.items():
            if len(record) != GONE:
                if record[3] in TERMINAL:
                    self._count(record[2], record[3], 1)
                self.jobs.append((record, whole.get(id_)))

    def _count(self, queue: str, state: str, by: int) -> None:
        self.counts[queue, state] = self.counts.get((queue, state), 0) + by


_INSERT = f"INSERT INTO jobs ({', '.join(COLUMNS)}) VALUES "
_ROW = f"({','.join('?' * len(COLUMNS))})"
_UPSERT = (
    " ON CONFLICT (id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in CHANGING)
    + ", "
    + ", ".join(f"{name} = coalesce(excluded.{name}, {name})" for name in LASTING)
)
_NOTHING = (None,) * len(LASTING)
_STATEMENTS: dict[int, str] = {}


def _upsert(count: int) -> str:
    statement = _STATEMENTS.get(count)
    if statement is None:
        statement = _STATEMENTS[count] = _INSERT + ",".join([_ROW] * count) + _UPSERT
    return statement


def write_fold(connection: apsw.Connection, folded: Folded) -> None:
    """Bring the tables to what the records say; the caller holds the transaction."""
    if folded.gone:
        _forget_uses(connection, folded.gone)
        connection.executemany("DELETE FROM kin WHERE id = ?", [(id_,) for id_ in folded.gone])
        connection.executemany("DELETE FROM jobs WHERE id = ?", [(id_,) for id_ in folded.gone])
    jobs = folded.jobs
    start = 0
    while start < len(jobs):
        left = len(jobs) - start
        count = next(size for size in CHUNKS if size <= left)
        values: list[Any] = []
        for record, whole in jobs[start : start + count]:
            values.append(record[0])
            values += record[2:CHANGED]
            values += _NOTHING if whole is None else whole[CHANGED:]
        connection.execute(_upsert(count), values)
        start += count
    uses = [
        (name, whole[0])
        for _, whole in jobs
        if whole is not None and whole[KEYS]
        for name in keys_of(whole[KEYS])
    ]
    if uses:
        connection.executemany("INSERT OR IGNORE INTO uses VALUES (?, ?)", uses)
    kin = [
        (relation, other, whole[0])
        for _, whole in jobs
        if whole is not None
        for relation, other in kin_of(whole[FIXED])
    ]
    if kin:
        connection.executemany("INSERT OR IGNORE INTO kin VALUES (?, ?, ?)", kin)
    for _, kind, key, value in folded.things:
        if value is None:
            connection.execute("DELETE FROM things WHERE kind = ? AND key = ?", (kind, key))
        else:
            connection.execute("INSERT OR REPLACE INTO things VALUES (?, ?, ?)", (kind, key, value))
    for (queue, state), change in folded.counts.items():
        if change:
            connection.execute(
                "INSERT INTO counts VALUES (?, ?, ?) "
                "ON CONFLICT DO UPDATE SET jobs = jobs + excluded.jobs",
                (queue, state, change),
            )


def _forget_uses(connection: apsw.Connection, ids: Sequence[str]) -> None:
    rows = connection.execute(
        "SELECT id, keys FROM jobs "
        "WHERE id IN (SELECT value FROM json_each(?)) AND length(keys) > 0",
        (msgspec.json.encode(ids).decode(),),
    )
    uses = [(name, id_) for id_, packed in rows for name in keys_of(cast("bytes", packed))]
    if uses:
        connection.executemany("DELETE FROM uses WHERE key = ? AND id = ?", uses)


def pack(records: Sequence[Record]) -> bytes:
    return _pack(records)


def append(connection: apsw.Connection, number: int, at_ms: int, body: bytes) -> None:
    """One commit: a single statement, so that the interpreter is given away once."""
    connection.execute("INSERT INTO journal VALUES (?, ?, ?)", (number, at_ms, body))


def fold_left_over(connection: apsw.Connection) -> tuple[int, int]:
    """Fold what the last process had not: (records, last instant that the file knows)."""
    count = 0
    latest = 0
    while True:
        rows = connection.execute(
            "SELECT n, at_ms, body FROM journal ORDER BY n LIMIT 200"
        ).fetchall()
        if not rows:
            break
        records = [present(record) for row in rows for record in _unpack(cast("bytes", row[2]))]
        count += len(records)
        latest = max(latest, *(cast("int", row[1]) for row in rows))
        with connection:
            write_fold(connection, Folded(records))
            write_time(connection, latest)
            connection.execute("DELETE FROM journal WHERE n <= ?", (rows[-1][0],))
    return count, max(latest, _known_ms(connection))


def wipe(path: str) -> None:
    """Forget everything that the file holds."""
    connection = connect(path)
    try:
        with connection:
            for table in ("journal", "jobs", "uses", "kin", "counts", "things"):
                connection.execute(f"DELETE FROM {table}")
    finally:
        connection.close()


def write_time(connection: apsw.Connection, at_ms: int) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO things VALUES ('clock', 'now', ?)", (str(at_ms).encode(),)
    )
