"""However a history is cut into slices, and whatever a slice leaves out, the tables come to the same."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headgate.core.job import Job
from headgate.core.states import ACTIVE, AVAILABLE, COMPLETED, DISCARDED, TERMINAL
from headgate.engines.local.rows import Record, changed, stored
from headgate.engines.local.store import CHUNKS, Folded, connect, prepare, write_fold

_STATES = (AVAILABLE, ACTIVE, COMPLETED, DISCARDED)
_steps = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from((*_STATES, "gone", "whole", "thing"))),
    max_size=60,
)


def history(steps: Sequence[tuple[int, str]]) -> list[Record]:
    """Records as the engine writes them; jobs that are gone come back under the same id."""
    live: dict[int, Job] = {}
    records: list[Record] = []
    for seq, (number, what) in enumerate(steps, 1):
        job = live.get(number)
        if what == "thing":
            records.append(("", "kind", f"k{number}", None if seq % 3 == 0 else b"%d" % seq))
        elif job is None:
            job = live[number] = Job(
                f"j{number}", "t", "ab"[number % 2], 0, b"%d" % seq, 5, seq=seq,
                keys=(("k", "wait"),) if number == 1 else (),
            )  # fmt: skip
            records.append(stored(job, ""))
        elif what == "gone":
            del live[number]
            records.append((job.id, job.state, job.queue))
        else:
            was = job.state
            state = was if what == "whole" else what
            finished_at = seq if state in TERMINAL else 0
            job = live[number] = replace(job, state=state, finished_at=finished_at, claim=seq)
            records.append((stored if what == "whole" else changed)(job, was))
    return records


def tables(slices: Sequence[Sequence[Record]]) -> list[list[Any]]:
    connection = connect(":memory:")
    prepare(connection, ":memory:")
    for records in slices:
        with connection:
            write_fold(connection, Folded(records))
    found = [
        connection.execute(question).fetchall()
        for question in (
            "SELECT * FROM jobs ORDER BY rowid",
            "SELECT * FROM uses",
            "SELECT * FROM things",
            "SELECT * FROM counts WHERE jobs <> 0",
        )
    ]
    connection.close()
    return found


@given(_steps, st.sets(st.integers(0, 60)))
def test_slices_do_not_show(steps: list[tuple[int, str]], cuts: set[int]) -> None:
    records = history(steps)
    places = sorted({0, len(records), *(cut for cut in cuts if cut < len(records))})
    one_by_one = tables([[record] for record in records])
    assert tables([records[start:end] for start, end in pairwise(places)]) == one_by_one
    assert tables([records]) == one_by_one


@given(_steps)
def test_counts_are_those_of_the_rows(steps: list[tuple[int, str]]) -> None:
    records = history(steps)
    connection = connect(":memory:")
    prepare(connection, ":memory:")
    with connection:
        write_fold(connection, Folded(records))
    counted = connection.execute(
        "SELECT queue, state, count(*) FROM jobs WHERE finished_at > 0 GROUP BY queue, state"
    ).fetchall()
    kept = connection.execute("SELECT queue, state, jobs FROM counts WHERE jobs <> 0").fetchall()
    connection.close()
    assert sorted(kept) == sorted(counted)


def test_any_number_of_jobs_fits_into_the_statements() -> None:
    for count in (1, 7, 8, 9, *(size + by for size in CHUNKS[:2] for by in (-1, 0, 1)), 500):
        records = [stored(Job(f"j{n}", "t", "q", 0, b"", 5, seq=n), "") for n in range(count)]
        rows, *_ = tables([records])
        assert [row[0] for row in rows] == [f"j{n}" for n in range(count)]
