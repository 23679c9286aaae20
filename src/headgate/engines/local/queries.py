"""Questions about many jobs, answered from the file.

They run where they delay nobody, after all that has happened so far was folded into the tables; so an answer shows one moment, and nothing that a crash could undo.
"""

from __future__ import annotations

from typing import Any

import apsw
import msgspec

from headgate.core.job import Job
from headgate.core.tenants import DEFAULT_TENANT
from headgate.engines.contract import DeadLetterStats, Page, Query, Slice
from headgate.engines.local.rows import COLUMNS, job_of

_COLUMNS = ", ".join(COLUMNS)
_SORTS = {
    "created_at": "created_at",
    "enqueued_at": "enqueued_at",
    "started_at": "started_at",
    "finished_at": "finished_at",
    "priority": "priority",
}
_ORIGIN = "coalesce(json_extract(CAST(more AS TEXT), '$.origin'), '')"
_ERROR_TYPE = "json_extract(CAST(more AS TEXT), '$.errors[#-1].type')"


class _Fixed(msgspec.Struct):
    meta: dict[str, Any] = {}


_fixed_decoder = msgspec.json.Decoder(_Fixed)
_wanted_decoder = msgspec.msgpack.Decoder(dict[str, Any])


def _has_meta(*values: Any) -> bool:
    fixed, wanted = values
    meta = _fixed_decoder.decode(b"{" + fixed + b"}").meta
    members = _wanted_decoder.decode(wanted).items()
    return all(name in meta and meta[name] == value for name, value in members)


def prepare(connection: apsw.Connection) -> None:
    """Give a connection what these questions need."""
    connection.create_scalar_function("has_meta", _has_meta, 2, deterministic=True)


_CONDITIONS = {
    "priority": "priority = ?",
    "created_from": "created_at >= ?",
    "created_until": "created_at < ?",
    "enqueued_from": "enqueued_at > 0 AND enqueued_at >= ?",
    "enqueued_until": "enqueued_at > 0 AND enqueued_at < ?",
    "worker": "worker = ?",
    "error_type": f"{_ERROR_TYPE} = ?",
}


def where(query: Query) -> tuple[str, list[Any]]:
    """The condition that the query stands for, and its values."""
    parts: list[str] = []
    values: list[Any] = []
    if query.queue is not None:
        # A dead letter is looked for where it came from as well.
        parts.append(f"(queue = ? OR {_ORIGIN} = ?)" if query.dead else "queue = ?")
        values += [query.queue] * (2 if query.dead else 1)
    for name, condition in _CONDITIONS.items():
        value = getattr(query, name)
        if value is not None:
            parts.append(condition)
            values.append(value)
    if query.states:
        parts.append(f"state IN ({', '.join('?' * len(query.states))})")
        values += query.states
    if query.type is not None:
        if query.type.endswith("*"):
            parts.append("substr(type, 1, ?) = ?")
            values += (len(query.type) - 1, query.type[:-1])
        else:
            parts.append("type = ?")
            values.append(query.type)
    if query.key is not None:
        parts.append("id IN (SELECT id FROM uses WHERE key = ?)")
        values.append(query.key)
    for relation in ("parent", "root", "workflow"):
        other = getattr(query, relation)
        if other is not None:
            parts.append("id IN (SELECT id FROM kin WHERE relation = ? AND other = ?)")
            values += (relation, other)
    if query.tenant is not None:
        parts.append("tenant = ?")
        values.append("" if query.tenant == DEFAULT_TENANT else query.tenant)
    if query.ids is not None:
        parts.append("id IN (SELECT value FROM json_each(?))")
        values.append(msgspec.json.encode(query.ids).decode())
    if query.dead:
        parts.append("dead = 1")
    if query.meta is not None:
        parts.append("has_meta(fixed, ?)")
        values.append(msgspec.msgpack.encode(query.meta))
    return " AND ".join(parts) or "1", values


def listed(connection: apsw.Connection, query: Query, page: Page) -> Slice:
    """One page of the jobs that match, and how many there are."""
    condition, values = where(query)
    total = connection.execute(f"SELECT count(*) FROM jobs WHERE {condition}", values).get
    direction = "DESC" if page.newest_first else "ASC"
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM jobs WHERE {condition} "
        f"ORDER BY {_SORTS[page.sort]} {direction}, seq {direction} LIMIT ? OFFSET ?",
        (*values, page.limit, page.offset),
    )
    return Slice([job_of(row) for row in rows], int(total))


def count(connection: apsw.Connection, query: Query) -> tuple[int, int]:
    """How many jobs match, and the number of the last row there is."""
    condition, values = where(query)
    total = connection.execute(f"SELECT count(*) FROM jobs WHERE {condition}", values).get
    last = connection.execute("SELECT max(rowid) FROM jobs").get
    return int(total), int(last or 0)


def counted(connection: apsw.Connection, query: Query) -> dict[tuple[str, str], int]:
    """(queue, state) -> how many jobs match."""
    condition, values = where(query)
    rows = connection.execute(
        f"SELECT queue, state, count(*) FROM jobs WHERE {condition} GROUP BY queue, state", values
    )
    return {(str(queue), str(state)): int(jobs) for queue, state, jobs in rows}


def ahead_of(connection: apsw.Connection, job: Job, most: int) -> int:
    """How many available jobs of its queue come before it by priority and sequence, counted up to `most`."""
    found = connection.execute(
        "SELECT count(*) FROM (SELECT 1 FROM jobs WHERE finished_at = 0 AND queue = ? "
        "AND state = 'available' AND (priority > ? OR (priority = ? AND seq < ?)) LIMIT ?)",
        (job.queue, job.priority, job.priority, job.seq, most),
    ).get
    return int(found)


def ids_after(
    connection: apsw.Connection, query: Query, after: int, last: int, limit: int
) -> list[tuple[int, str]]:
    """Rows in (after, last] that match, in the order of their numbers, which never change."""
    condition, values = where(query)
    rows = connection.execute(
        f"SELECT rowid, id FROM jobs WHERE rowid > ? AND rowid <= ? AND {condition} "
        "ORDER BY rowid LIMIT ?",
        (after, last, *values, limit),
    )
    return [(int(row), str(job_id)) for row, job_id in rows]


def dead_letters(connection: apsw.Connection, tenant: str | None) -> DeadLetterStats:
    condition, values = where(Query(dead=True, tenant=tenant))
    by_queue = connection.execute(
        f"SELECT CASE {_ORIGIN} WHEN '' THEN queue ELSE {_ORIGIN} END AS origin, count(*) "
        f"FROM jobs WHERE {condition} GROUP BY origin ORDER BY origin",
        values,
    )
    by_type = connection.execute(
        f"SELECT coalesce({_ERROR_TYPE}, 'unknown') AS kind, count(*) FROM jobs WHERE {condition} "
        "GROUP BY kind ORDER BY kind",
        values,
    )
    queues = {str(name): int(jobs) for name, jobs in by_queue}
    types = {str(name): int(jobs) for name, jobs in by_type}
    ends = connection.execute(
        f"SELECT min(at), max(at) FROM (SELECT CASE finished_at WHEN 0 THEN {_BURIED_AT} "
        f"ELSE finished_at END AS at FROM jobs WHERE {condition})",
        values,
    ).fetchone()
    oldest, newest = ends if ends is not None else (None, None)
    return DeadLetterStats(sum(queues.values()), queues, types, oldest or 0, newest or 0)


def outlived(
    connection: apsw.Connection, limits: list[tuple[str, str, int]], limit: int
) -> list[str]:
    """Finished jobs, dead letters excepted, that ended at or before the instant given for their queue and state."""
    found: list[str] = []
    for queue, state, until in limits:
        rows = connection.execute(
            "SELECT id FROM jobs WHERE queue = ? AND state = ? AND finished_at > 0 "
            "AND finished_at <= ? AND dead = 0 ORDER BY finished_at LIMIT ?",
            (queue, state, until, limit - len(found)),
        )
        found += [str(job_id) for (job_id,) in rows]
        if len(found) >= limit:
            break
    return found


def outlived_dead(connection: apsw.Connection, until: int, most: int, limit: int) -> list[str]:
    """Dead letters that ended at or before `until`, and those beyond the newest `most`."""
    rows = connection.execute(
        "SELECT id FROM jobs WHERE dead = 1 AND finished_at > 0 AND (finished_at <= ? "
        "OR rowid IN (SELECT rowid FROM jobs WHERE dead = 1 AND finished_at > 0 "
        "ORDER BY finished_at DESC LIMIT -1 OFFSET ?)) ORDER BY finished_at LIMIT ?",
        (until, most, limit),
    )
    return [str(job_id) for (job_id,) in rows]


_BURIED_AT = "json_extract(CAST(more AS TEXT), '$.buried_at')"
_LETTERS = f"dead = 1 AND finished_at = 0 AND {_ORIGIN} <> ''"
"""Dead letters that stand in a queue of their own."""


def origins(connection: apsw.Connection) -> dict[str, int]:
    """The queues from which dead letters in queues of their own came, and when the first of each was buried."""
    rows = connection.execute(
        f"SELECT {_ORIGIN} AS origin, min({_BURIED_AT}) FROM jobs WHERE {_LETTERS} GROUP BY origin"
    )
    return {str(origin): int(at) for origin, at in rows}


def outlived_letters(
    connection: apsw.Connection, origin: str, until: int, most: int, limit: int
) -> list[str]:
    """Those from this queue that were buried at or before `until`, and those beyond the newest `most` (0: no bound); none that runs."""
    rows = connection.execute(
        f"SELECT id FROM (SELECT id, state, {_BURIED_AT} AS at, "
        f"row_number() OVER (ORDER BY {_BURIED_AT} DESC, seq DESC) AS place "
        f"FROM jobs WHERE {_LETTERS} AND {_ORIGIN} = ?) "
        "WHERE state <> 'active' AND (at <= ? OR (? > 0 AND place > ?)) ORDER BY at LIMIT ?",
        (origin, until, most, most, limit),
    )
    return [str(job_id) for (job_id,) in rows]


def first_end(connection: apsw.Connection, queue: str, state: str) -> int:
    """When the job ended that has been kept longest, dead letters excepted; 0 when none is kept."""
    found = connection.execute(
        "SELECT min(finished_at) FROM jobs "
        "WHERE queue = ? AND state = ? AND finished_at > 0 AND dead = 0",
        (queue, state),
    ).get
    return int(found or 0)


def first_dead_end(connection: apsw.Connection) -> int:
    """The same of dead letters that have ended."""
    found = connection.execute(
        "SELECT min(finished_at) FROM jobs WHERE dead = 1 AND finished_at > 0"
    ).get
    return int(found or 0)


def ended_dead(connection: apsw.Connection) -> list[Job]:
    """Every dead letter that has ended, the oldest first."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM jobs WHERE dead = 1 AND finished_at > 0 ORDER BY finished_at"
    )
    return [job_of(row) for row in rows]


def live_jobs(connection: apsw.Connection) -> list[Job]:
    """Every job that has not ended, in the order of the lines."""
    rows = connection.execute(f"SELECT {_COLUMNS} FROM jobs WHERE finished_at = 0 ORDER BY seq")
    return [job_of(row) for row in rows]
