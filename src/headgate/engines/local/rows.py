"""Jobs as rows: the record of a change, and the way back from a row to a job.

A change is a tuple. Its length says what it is:
- 3: `(id, was, queue)`, the job is gone;
- 4: `("", kind, key, value)`, a thing was set, or removed when the value is None;
- CHANGED: `(id, was, *changing)`, the job exists already and changed;
- STORED: `(id, was, *changing, *lasting)`, the whole job.
`was` is the state before ("" for none), from which the counts of finished jobs follow.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headgate.core.job import Job, More
from headgate.core.retry import DEFAULT, RetryPolicy
from headgate.core.states import STATES

CHANGING = (
    "queue", "state", "priority", "seq", "attempt", "claim", "enqueued_at", "due_at",
    "started_at", "visible_until", "finished_at", "dead", "worker", "pool", "result", "more",
)  # fmt: skip
LASTING = (
    "type", "created_at", "max_attempts", "timeout_ms", "visibility_ms", "expires_at",
    "retry", "unique_key", "tenant", "keys", "fixed",
)  # fmt: skip
GONE = 3
THING = 4
CHANGED = 2 + len(CHANGING)
STORED = CHANGED + len(LASTING)
COLUMNS = ("id", *CHANGING, *LASTING)
POOL = 2 + CHANGING.index("pool")
KEYS = CHANGED + LASTING.index("keys")
FIXED = CHANGED + LASTING.index("fixed")
"""The places of these in a record."""

Record = tuple[Any, ...]

_encode = msgspec.msgpack.Encoder().encode
# JSON, because what is raw in it is JSON: MessagePack would take those bytes for its own.
_encode_more = msgspec.json.Encoder().encode
_more_decoder = msgspec.json.Decoder(More)
_keys = msgspec.msgpack.Decoder(tuple[tuple[str, str], ...]).decode
_retry_decoder = msgspec.msgpack.Decoder(RetryPolicy)
_states = {state: state for state in STATES}
_retries: dict[bytes, RetryPolicy] = {}


def changed(job: Job, was: str) -> Record:
    """The record of a change to a job that is stored already."""
    more = job.more
    return (
        job.id, was, job.queue, job.state, job.priority, job.seq, job.attempt, job.claim,
        job.enqueued_at, job.due_at, job.started_at, job.visible_until, job.finished_at,
        job.dead, job.worker, job.pool, job.result, None if more is None else _encode_more(more),
    )  # fmt: skip


def stored(job: Job, was: str) -> Record:
    """The record of a whole job."""
    more = job.more
    retry = job.retry
    return (
        job.id, was, job.queue, job.state, job.priority, job.seq, job.attempt, job.claim,
        job.enqueued_at, job.due_at, job.started_at, job.visible_until, job.finished_at,
        job.dead, job.worker, job.pool, job.result, None if more is None else _encode_more(more),
        job.type, job.created_at, job.max_attempts, job.timeout_ms, job.visibility_ms,
        job.expires_at, b"" if retry is DEFAULT else _encode(retry), job.unique, job.tenant,
        _encode(job.keys) if job.keys else b"", job.fixed,
    )  # fmt: skip


def job_of(row: Record) -> Job:
    """The job that a row of the jobs table (all of COLUMNS) holds."""
    (
        id_, queue, state, priority, seq, attempt, claim, enqueued_at, due_at, started_at,
        visible_until, finished_at, dead, worker, pool, result, more, type_, created_at,
        max_attempts, timeout_ms, visibility_ms, expires_at, retry, unique, tenant, keys, fixed,
    ) = row  # fmt: skip
    return Job(
        id_, _shared(type_), _shared(queue), priority, fixed, created_at, max_attempts, timeout_ms,
        visibility_ms, expires_at, _retry(retry) if retry else DEFAULT, unique,
        _shared(tenant), _keys(keys) if keys else (), _states[state], seq, attempt, claim,
        created_at if enqueued_at == created_at else enqueued_at, due_at, started_at,
        visible_until, finished_at, worker, _shared(pool), result, bool(dead),
        None if more is None else _more_decoder.decode(more),
    )  # fmt: skip


def present(record: Record) -> Record:
    """The record in today's form: a journal may have been left by schema 1, which knew neither pools nor keys."""
    if len(record) not in (CHANGED - 1, STORED - 2):
        return record
    known = (*record[:POOL], "", *record[POOL:])
    return known if len(known) == CHANGED else (*known[:KEYS], b"", *known[KEYS:])


def keys_of(packed: bytes) -> list[str]:
    """The names of the keys that a job passes."""
    return [name for name, _ in _keys(packed)]


class _Kin(msgspec.Struct):
    """Whom a job names; what is no text names nobody."""

    parent_id: Any = None
    root_id: Any = None
    workflow_id: Any = None


_NO_MORE = b'"meta":{}'
"""How the members of a job end that has none but the usual ones, before which no others stand; nearly all do."""
LONGEST_NAME = 255
"""Of whom a job may name to be found by it."""
_kin_decoder = msgspec.json.Decoder(_Kin)


def _may_name(fixed: bytes) -> bool:
    return b'"parent_id"' in fixed or b'"root_id"' in fixed or b'"workflow_id"' in fixed


def kin_of(fixed: bytes) -> list[tuple[str, str]]:
    """Relation and name of the jobs and the workflow that a job says it belongs to; most name none."""
    if fixed.endswith(_NO_MORE) or b'_id"' not in fixed or not _may_name(fixed):
        return []
    found = _kin_decoder.decode(b"{" + fixed + b"}")
    named = (("parent", found.parent_id), ("root", found.root_id), ("workflow", found.workflow_id))
    return [
        (relation, other)
        for relation, other in named
        if isinstance(other, str) and len(other) <= LONGEST_NAME
    ]


_names: dict[str, str] = {}


def _shared(name: str) -> str:
    """One string for equal names: a million jobs have few queues and types."""
    if len(_names) > 10_000:
        _names.clear()
    return _names.setdefault(name, name)


def _retry(packed: bytes) -> RetryPolicy:
    policy = _retries.get(packed)
    if policy is None:
        if len(_retries) > 10_000:
            _retries.clear()
        policy = _retries[packed] = _retry_decoder.decode(packed)
    return policy
