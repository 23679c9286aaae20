from __future__ import annotations

import pytest

from headgate.core.errors import InvalidRequest
from headgate.core.states import STATES
from headgate.engines.contract import Query
from headgate.operations.filters import JobFilter, query_of

AT = "2026-02-02T02:40:00Z"
AT_MS = 1_770_000_000_000


def test_nothing_given_matches_everything() -> None:
    assert query_of(JobFilter()) == Query()


def test_the_states_of_the_command_give_way_to_the_ones_named() -> None:
    assert query_of(JobFilter(), states=("active",)).states == ("active",)
    assert query_of(JobFilter(state="pending"), states=("active",)).states == ("pending",)
    assert query_of(JobFilter(state=list(STATES)), states=("active",)).states == STATES


def test_after_is_later_and_before_is_earlier() -> None:
    query = query_of(
        JobFilter(created_after=AT, created_before=AT, enqueued_after=AT, enqueued_before=AT)
    )
    assert (query.created_from, query.created_until) == (AT_MS + 1, AT_MS)
    assert (query.enqueued_from, query.enqueued_until) == (AT_MS + 1, AT_MS)


def test_every_other_member_is_taken_over() -> None:
    given = JobFilter(type="a.*", queue="q", priority=3, error_type="E", meta={"k": [1]})
    assert query_of(given, dead=True) == Query(
        queue="q", type="a.*", priority=3, error_type="E", meta={"k": [1]}, dead=True
    )


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (JobFilter(state=""), "state"),
        (JobFilter(state=[]), "state"),
        (JobFilter(state=["active", "gone"]), "state"),
        (JobFilter(meta={}), "meta"),
        (JobFilter(created_after="x"), "created_after"),
        (JobFilter(created_before="2026-02-02T02:40:00"), "created_before"),
        (JobFilter(enqueued_after=""), "enqueued_after"),
        (JobFilter(enqueued_before="P1D"), "enqueued_before"),
    ],
)
def test_members_that_are_refused(given: JobFilter, field: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        query_of(given)
    assert raised.value.details["field"] == f"filter.{field}"
