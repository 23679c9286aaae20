from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.history import (
    MAX_BACKTRACE_CHARS,
    MAX_FRAMES,
    TracedFailure,
    cut,
    entry,
    failure_entry,
)
from headgate.core.retry import Failure

AT = 1_770_892_200_000
AT_TEXT = "2026-02-12T10:30:00.000Z"


def test_an_entry_holds_the_standard_members_and_nothing_unset() -> None:
    assert msgspec.json.decode(entry(2, "timeout", "too long", "timeout", AT)) == {
        "attempt": 2,
        "code": "timeout",
        "message": "too long",
        "type": "timeout",
        "occurred_at": AT_TEXT,
    }


def test_further_members_stand_beside_the_standard_ones_and_displace_none() -> None:
    found = msgspec.json.decode(
        entry(
            1,
            "timeout",
            "m",
            "timeout",
            AT,
            timeout_kind="execution",
            limit_seconds=2,
            elapsed_seconds=2.5,
            occurred_at="never",
            details_url=None,
        )
    )
    assert found["timeout_kind"] == "execution"
    assert (found["limit_seconds"], found["elapsed_seconds"]) == (2, 2.5)
    assert found["occurred_at"] == AT_TEXT
    assert "details_url" not in found


def test_details_may_come_encoded() -> None:
    found = entry(1, "c", "m", "t", AT, msgspec.Raw(b'{"a":1.0}'))
    assert b'"details":{"a":1.0}' in found


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (Failure("handler_error", "m"), "handler_error"),
        (Failure("handler_error", "m", details={"error_class": "Boom"}), "Boom"),
        (Failure("handler_error", "m", type="Net", details={"error_class": "Boom"}), "Net"),
    ],
)
def test_a_failure_is_stored_under_its_type(failure: Failure, expected: str) -> None:
    found = msgspec.json.decode(failure_entry(failure, 1, AT))
    assert found["type"] == expected
    assert found.get("details") == failure.details
    assert "backtrace" not in found


def test_a_traced_failure_keeps_its_frames() -> None:
    failure = TracedFailure("c", "m", backtrace=("a.py:1", "b.py:2"))
    assert msgspec.json.decode(failure_entry(failure, 1, AT))["backtrace"] == ["a.py:1", "b.py:2"]


@given(st.lists(st.integers(0, 4_000).map("x".__mul__), max_size=70))
def test_frames_are_cut_to_both_limits_and_kept_from_the_start(frames: list[str]) -> None:
    kept = cut(frames)
    assert len(kept) <= MAX_FRAMES
    assert sum(map(len, kept)) <= MAX_BACKTRACE_CHARS
    assert all(full.startswith(part) for full, part in zip(frames, kept, strict=False))
    fits = len(frames) <= MAX_FRAMES and sum(map(len, frames)) < MAX_BACKTRACE_CHARS
    assert not fits or kept == frames
