from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.errors import InvalidRequest
from headgate.wire.paging import (
    FARTHEST,
    Numbered,
    Window,
    numbered,
    pagination,
    whole,
    window,
)


def test_defaults() -> None:
    assert window({}) == Window(50, 0)
    assert window({}, most=10) == Window(10, 0)
    assert numbered({}) == Numbered(1, 20)


def test_an_empty_value_counts_as_none() -> None:
    assert window({"limit": "", "cursor": "", "offset": ""}) == Window(50, 0)
    assert numbered({"page": "", "per_page": ""}) == Numbered(1, 20)


@given(total=st.integers(0, 300), limit=st.integers(1, 200))
def test_cursors_walk_through_everything_once(total: int, limit: int) -> None:
    seen: list[int] = []
    query = {"limit": str(limit)}
    while True:
        part = window(query)
        seen += range(total)[part.offset : part.offset + part.limit]
        rest = pagination(part, total)
        assert rest.has_more == (rest.next_cursor is not None) == (len(seen) < total)
        if rest.next_cursor is None:
            break
        query = {"limit": str(limit), "cursor": rest.next_cursor}
    assert seen == list(range(total))


@given(page=st.integers(1, 50), per_page=st.integers(1, 100))
def test_numbered_pages_lie_side_by_side(page: int, per_page: int) -> None:
    found = numbered({"page": str(page), "per_page": str(per_page)})
    following = numbered({"page": str(page + 1), "per_page": str(per_page)})
    assert found.limit == per_page
    assert found.offset + found.limit == following.offset


@given(st.text() | st.integers(0, 2_000).map(str))
def test_a_number_is_read_exactly_or_refused(text: str) -> None:
    plain = text.isascii() and text.isdecimal() and len(text) <= 18
    if not text or (plain and int(text) <= 1_000):
        assert whole({"n": text}, "n", default=7, most=1_000) == (int(text) if text else 7)
        return
    with pytest.raises(InvalidRequest) as raised:
        whole({"n": text}, "n", default=7, most=1_000)
    assert raised.value.details["field"] == "n"


@pytest.mark.parametrize(
    "text", ["-1", "+1", " 1", "1 ", "1.0", "1e3", "٣", "²", "0x1", "9" * 5_000]
)
def test_only_plain_digits_are_numbers(text: str) -> None:
    with pytest.raises(InvalidRequest):
        whole({"n": text}, "n", default=0)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "201"}, "limit"),
        ({"offset": str(FARTHEST + 1)}, "offset"),
        ({"cursor": "o"}, "cursor"),
        ({"cursor": "12"}, "cursor"),
        ({"cursor": "o-1"}, "cursor"),
        ({"cursor": f"o{FARTHEST + 1}"}, "cursor"),
        ({"cursor": "o1", "offset": "1"}, "cursor"),
    ],
)
def test_windows_that_are_refused(query: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        window(query)
    assert raised.value.details["field"] == field
    assert raised.value.details["expected"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"page": "0"}, "page"),
        ({"page": str(FARTHEST + 1)}, "page"),
        ({"per_page": "0"}, "per_page"),
        ({"per_page": "101"}, "per_page"),
    ],
)
def test_numbered_pages_that_are_refused(query: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        numbered(query)
    assert raised.value.details["field"] == field
