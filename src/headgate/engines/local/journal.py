"""Group commit: one thread writes what the event loop decides, one transaction per batch.

While a batch is on its way to the disk the next one fills; everybody who observed a batch waits for it, so one `fsync` is shared by all of them.
The same thread folds old records into the tables, in slices between two commits and completely when nothing else is to do.
A third thread copies the write-ahead log back into the file, where it delays nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import apsw

from headgate.core.errors import BackendUnavailable
from headgate.engines.local import queries
from headgate.engines.local.rows import COLUMNS, Record
from headgate.engines.local.store import (
    Folded,
    append,
    connect,
    pack,
    write_fold,
    write_time,
)

T = TypeVar("T")
log = logging.getLogger("headgate.journal")

FOLD_AFTER_S = 1.0
"""Records younger than this are left alone while there is other work: most jobs end soon, and only their end is folded."""
FOLD_RECORDS = 2_000
"""How many records one slice folds."""
FOLD_BACKLOG = 20_000
"""More unfolded records than this are folded however young they are."""
MOST_UNFOLDED_BYTES = 64 << 20
"""Beyond this, commits wait for folding."""
CHECKPOINT_BYTES = 8 << 20
TELL_AFTER_MS = 1_000
"""How often, under load, it is told what is durable: each time costs a system call on the way of a commit."""

_SELECT = f"SELECT {', '.join(COLUMNS)} FROM jobs WHERE id = ?"


class Batch:
    """What one transaction will hold."""

    __slots__ = ("at_ms", "events", "number", "records", "waiters")

    def __init__(self, number: int) -> None:
        self.number = number
        self.records: list[Record] = []
        self.waiters: list[asyncio.Future[None]] = []
        self.at_ms = 0
        self.events = 0
        """The number of the last event that happened in it."""


class Journal:
    """The event loop's side is `write`, `settled` and `ask`; the rest runs on the thread."""

    def __init__(
        self,
        path: str,
        connection: apsw.Connection,
        *,
        durability: str,
        last_event: Callable[[], int],
        before_commit: Callable[[], None],
        on_committed: Callable[[int], None],
        on_folded: Callable[[int], None],
        on_failure: Callable[[Exception], None],
        elapsed_s: Callable[[], float],
        on_durable: Callable[[int], None] | None = None,
        at_fault_point: Callable[[str], None] | None = None,
    ) -> None:
        self.path = path
        self.in_memory = path == ":memory:"
        self.now_ms = 0
        """The latest instant that a step was given."""
        self.latency_s = 0.0
        """How long the last commit took."""
        self.failed: Exception | None = None
        self._durability = durability
        self._connection = connection
        self._last_event = last_event
        self._before_commit = before_commit
        """May `add` what belongs into the batch that is about to be closed."""
        self._on_committed = on_committed
        self._on_folded = on_folded
        self._on_failure = on_failure
        self._elapsed_s = elapsed_s
        self._on_durable = on_durable
        """Is told, on the thread and now and then, up to which instant all is on disk."""
        self._durable_ms = self._told_ms = 0
        self._at = at_fault_point
        self._loop = asyncio.get_running_loop()
        self._open = Batch(1)
        self._flying: Batch | None = None
        self._called = False
        self._asked: set[asyncio.Future[Any]] = set()
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._unfolded: deque[tuple[int, int, float, list[Record], int]] = deque()
        self._unfolded_records = 0
        self._unfolded_bytes = 0
        self._fold_all = False
        self._wal_bytes = 0
        self._closing = False
        self._reads = None if self.in_memory else connect(path, readonly=True)
        self._reader = None if self.in_memory else ThreadPoolExecutor(1, "headgate-reader")
        self._reader_connection: apsw.Connection | None = None
        if self.in_memory:
            queries.prepare(connection)
        self._checkpointer = (
            None if self.in_memory else ThreadPoolExecutor(1, "headgate-checkpoint")
        )
        self._checkpointing = False
        self._thread = threading.Thread(target=self._run, name="headgate-journal", daemon=True)
        self._thread.start()

    # The event loop's side

    @property
    def number(self) -> int:
        """Of the batch that fills now."""
        return self._open.number

    @property
    def idle(self) -> bool:
        """Whether all that was written is durable; without a file, everything is as durable as it gets."""
        return self.in_memory or (self._flying is None and not self._open.records)

    def write(self, record: Record) -> None:
        """Add to the open batch."""
        self._open.records.append(record)
        if not self._called and self._flying is None:
            self._call()

    def add(self, record: Record) -> None:
        """The same while the batch is being closed."""
        self._open.records.append(record)

    def _call(self) -> None:
        self._called = True
        if self.in_memory:
            # Nobody waits for it.
            self._loop.call_later(0.25, self._hand_over)
        else:
            # At the end of this turn of the loop, so that all its steps share the batch.
            self._loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        self._called = False
        batch = self._open
        if self._flying is not None or not batch.records or self.failed is not None:
            return
        self._before_commit()
        batch.at_ms = self.now_ms
        batch.events = self._last_event()
        self._flying = batch
        self._open = Batch(batch.number + 1)
        self._inbox.put(batch)

    def _committed(self, batch: Batch, took_s: float) -> None:
        self._flying = None
        self.latency_s = took_s
        for waiter in batch.waiters:
            if not waiter.done():
                waiter.set_result(None)
        if not self.in_memory:
            self._hand_over()
        elif self._open.records and not self._called:
            self._call()
        self._on_committed(batch.events)

    async def settled(self) -> None:
        """Return when the newest batch that has records is on disk."""
        if self.failed is not None:
            raise self._unavailable()
        batch = self._open
        if not batch.records:
            if self._flying is None:
                return
            batch = self._flying
        if self.in_memory:
            return
        waiter = self._loop.create_future()
        batch.waiters.append(waiter)
        await waiter

    def _unavailable(self) -> BackendUnavailable:
        return BackendUnavailable(f"the store cannot be written: {self.failed}")

    def row(self, job_id: str) -> Record | None:
        """A folded job by its id, read on the spot; in memory nothing needs it."""
        found = self._read_here(_SELECT, (job_id,))
        return found[0] if found else None

    def rows(self, sql: str, values: tuple[Any, ...]) -> list[Record]:
        """A short indexed read on the spot."""
        return self._read_here(sql, values)

    def _read_here(self, sql: str, values: tuple[Any, ...]) -> list[Record]:
        if self._reads is None:
            return []
        try:
            return self._reads.execute(sql, values).fetchall()
        except apsw.Error as error:
            raise BackendUnavailable(f"the store cannot be read: {error}") from None

    async def ask(self, question: Callable[[apsw.Connection], T]) -> T:
        """Run a query when all that has happened so far is folded; it may take long and delays nobody."""
        if self.failed is not None:
            raise self._unavailable()
        answer: asyncio.Future[T] = self._loop.create_future()
        if self._flying is not None:
            # What is open now is handed over when that has landed.
            waiter = self._loop.create_future()
            self._flying.waiters.append(waiter)
            await waiter
        self._hand_over()
        self._asked.add(answer)
        self._inbox.put((question, answer))
        try:
            return await answer
        finally:
            self._asked.discard(answer)

    async def close(self) -> None:
        """Commit and fold what is left, and let the file go."""
        while self.failed is None and (self._open.records or self._flying is not None):
            waiter = self._loop.create_future()
            (self._flying or self._open).waiters.append(waiter)
            if self._flying is None:
                self._hand_over()
            await waiter
        await self.abandon()
        if not self.in_memory:
            # The last connection to be closed brings the log into the file, if it may write.
            await asyncio.to_thread(self._join_log)

    def _join_log(self) -> None:
        with contextlib.suppress(apsw.Error):
            connect(self.path, durability=self._durability).close()

    async def abandon(self) -> None:
        """Stop the threads and let the file go, with no regard to what is not committed."""
        self._closing = True
        if self.failed is None:
            self.failed = BackendUnavailable("the store is closed")
        self._inbox.put(None)
        await asyncio.to_thread(self._thread.join)
        for pool in (self._reader, self._checkpointer):
            if pool is not None:
                await asyncio.to_thread(pool.shutdown)
        for connection in (self._reads, self._reader_connection):
            if connection is not None:
                connection.close()

    def _fail(self, error: Exception) -> None:
        """Nothing of what is on its way became durable."""
        if self.failed is not None:
            return
        self.failed = error
        waiters = self._open.waiters
        if self._flying is not None:
            waiters = self._flying.waiters + waiters
        for waiter in (*waiters, *self._asked):
            if not waiter.done():
                waiter.set_exception(self._unavailable())
        self._on_failure(error)

    # The thread's side

    def _tell(self, callback: Callable[..., None], *values: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone: nobody is left to be told
            self._loop.call_soon_threadsafe(callback, *values)

    def _run(self) -> None:
        try:
            while True:
                item = self._next()
                if item is None and self._closing:
                    self._fold(everything=True)
                    break
                if isinstance(item, Batch):
                    self._commit(item)
                elif item is not None:
                    self._answer(*item)
                else:
                    self._fold(everything=True)
                    self._tell_durable()
                self._copy_back()
        except Exception as error:  # noqa: BLE001 - reported to everybody who waits
            self._tell(self._fail, error)
        finally:
            with contextlib.suppress(apsw.Error):
                self._connection.close()

    def _next(self) -> Any:
        """The next thing to do; None when it is time to fold."""
        if not self._unfolded or self._closing:
            return self._inbox.get()
        patience = self._unfolded[0][2] + FOLD_AFTER_S - self._elapsed_s()
        if patience <= 0 and self._inbox.empty():
            return None
        try:
            return self._inbox.get(timeout=max(patience, 0.001))
        except queue.Empty:
            return None

    def _commit(self, batch: Batch) -> None:
        connection = self._connection
        size = 0
        begun = self._elapsed_s()
        if not self.in_memory:
            body = pack(batch.records)
            size = len(body)
            if self._at is not None:
                self._at("before commit")
            if self._fold_is_due():
                with connection:
                    append(connection, batch.number, batch.at_ms, body)
                    if self._at is not None:
                        self._at("inside commit")
                    folded = self._fold_slice()
                self._tell(self._on_folded, folded)
            else:
                append(connection, batch.number, batch.at_ms, body)
            if self._at is not None:
                self._at("after commit")
            self._wal_bytes += size
            self._durable_ms = batch.at_ms
            if batch.at_ms >= self._told_ms + TELL_AFTER_MS:
                self._tell_durable()
        self._tell(self._committed, batch, self._elapsed_s() - begun)
        self._unfolded.append((batch.number, batch.at_ms, self._elapsed_s(), batch.records, size))
        self._unfolded_records += len(batch.records)
        self._unfolded_bytes += size
        while self._unfolded_bytes > MOST_UNFOLDED_BYTES or (
            self.in_memory and self._unfolded_records > FOLD_BACKLOG
        ):
            self._fold(everything=False)

    def _tell_durable(self) -> None:
        if self._on_durable is not None and self._durable_ms > self._told_ms:
            self._told_ms = self._durable_ms
            self._on_durable(self._durable_ms)

    def _fold_is_due(self) -> bool:
        if self._unfolded_records > FOLD_BACKLOG:
            return True
        return (
            self._unfolded_records > FOLD_RECORDS
            and self._elapsed_s() - self._unfolded[0][2] > 2 * FOLD_AFTER_S
        )

    def _fold_slice(self) -> int:
        """Fold the oldest records, inside the caller's transaction; the last batch folded."""
        records: list[Record] = []
        last = at_ms = 0
        while self._unfolded and (not records or len(records) < FOLD_RECORDS):
            last, at_ms, _, some, size = self._unfolded.popleft()
            records += some
            self._unfolded_records -= len(some)
            self._unfolded_bytes -= size
        write_fold(self._connection, Folded(records))
        if self._at is not None:
            self._at("inside fold")
        if not self.in_memory:
            write_time(self._connection, at_ms)
            self._connection.execute("DELETE FROM journal WHERE n <= ?", (last,))
        self._wal_bytes += 600 * len(records)
        return last

    def _fold(self, *, everything: bool) -> None:
        while self._unfolded:
            with self._connection:
                last = self._fold_slice()
            self._tell(self._on_folded, last)
            if not everything or (not self._inbox.empty() and not self._fold_all):
                break

    def _answer(
        self, question: Callable[[apsw.Connection], Any], answer: asyncio.Future[Any]
    ) -> None:
        self._fold_all = True
        self._fold(everything=True)
        self._fold_all = False
        if self._reader is None:
            self._reply(question, self._connection, answer)
        else:
            self._reader.submit(self._read, question, answer)

    def _read(
        self, question: Callable[[apsw.Connection], Any], answer: asyncio.Future[Any]
    ) -> None:
        if self._reader_connection is None:
            self._reader_connection = connect(self.path, readonly=True)
            queries.prepare(self._reader_connection)
        self._reply(question, self._reader_connection, answer)

    def _reply(
        self,
        question: Callable[[apsw.Connection], Any],
        connection: apsw.Connection,
        answer: asyncio.Future[Any],
    ) -> None:
        def give(value: Any, error: Exception | None) -> None:
            if answer.done():
                return
            if error is None:
                answer.set_result(value)
            else:
                answer.set_exception(error)

        try:
            value = question(connection)
        except Exception as error:  # noqa: BLE001 - handed to whoever asked
            self._tell(give, None, error)
        else:
            self._tell(give, value, None)

    def _copy_back(self) -> None:
        if self._checkpointer is None or self._checkpointing or self._wal_bytes < CHECKPOINT_BYTES:
            return
        self._wal_bytes = 0
        self._checkpointing = True
        self._checkpointer.submit(self._checkpoint)

    def _checkpoint(self) -> None:
        try:
            connection = connect(self.path, durability=self._durability)
            try:
                log_pages, copied = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                if log_pages > 8_192 and log_pages - copied < 2_048:
                    # Almost done: hold the writer for a moment, so that the log starts again at its beginning.
                    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
            finally:
                connection.close()
        except apsw.Error as error:
            log.warning("checkpoint failed: %s", error)
        finally:
            self._checkpointing = False


class Unwritten(Journal):
    """Keeps nothing: for what is played in memory and looked at in no list."""

    def write(self, record: Record) -> None:
        pass

    def add(self, record: Record) -> None:
        pass
