"""Which part of a list is asked for, and what its answer says about the rest.

Core lists take `limit` with `cursor` or `offset`; administrative lists take `page` and `per_page`.
A value that is not allowed is refused, never bent into one that is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from headgate.core.errors import InvalidRequest

LIMIT: Final = 50
MOST: Final = 200
PER_PAGE: Final = 20
MOST_PER_PAGE: Final = 100

FARTHEST: Final = 10**12
"""No list is longer, and a larger number may not fit into a store's own."""

PARTS: Final = {
    "limit": f"How many, up to {MOST}; {LIMIT} by default.",
    "cursor": "`next_cursor` of the answer before.",
    "offset": "How many to leave out, instead of a cursor.",
}
"""What a core list takes in its query string, for the document."""

_MOST_DIGITS: Final = 18
_CURSOR: Final = "o"


class Window(Struct, frozen=True):
    limit: int
    offset: int


class Pagination(Struct):
    """The rest of a core list; `next_cursor` is there whenever there is more."""

    total: int
    limit: int
    offset: int
    has_more: bool
    next_cursor: str | None = None


class NumberedPagination(Struct):
    """The rest of an administrative list."""

    total: int
    page: int
    per_page: int


class Numbered(Struct, frozen=True):
    """One page of an administrative list."""

    page: int
    per_page: int

    @property
    def limit(self) -> int:
        return self.per_page

    @property
    def offset(self) -> int:
        return (self.page - 1) * self.per_page

    def pagination(self, total: int) -> NumberedPagination:
        return NumberedPagination(total, self.page, self.per_page)


def window(query: Mapping[str, str], *, most: int = MOST) -> Window:
    """Read `limit`, `cursor` and `offset`."""
    limit = whole(query, "limit", default=min(LIMIT, most), least=1, most=most)
    cursor = query.get("cursor")
    if not cursor:
        return Window(limit, whole(query, "offset", default=0, most=FARTHEST))
    if "offset" in query:
        raise InvalidRequest(field="cursor", expected="given without an offset, or not at all")
    digits = cursor[len(_CURSOR) :]
    if not cursor.startswith(_CURSOR) or not _is_whole(digits) or int(digits) > FARTHEST:
        raise InvalidRequest(field="cursor", expected="the next_cursor of an earlier answer")
    return Window(limit, int(digits))


def pagination(part: Window, total: int) -> Pagination:
    end = part.offset + part.limit
    more = end < total
    return Pagination(
        total, part.limit, part.offset, more, next_cursor=f"{_CURSOR}{end}" if more else None
    )


def numbered(query: Mapping[str, str]) -> Numbered:
    """Read `page` and `per_page`."""
    return Numbered(
        whole(query, "page", default=1, least=1, most=FARTHEST),
        whole(query, "per_page", default=PER_PAGE, least=1, most=MOST_PER_PAGE),
    )


def whole(
    query: Mapping[str, str], name: str, *, default: int, least: int = 0, most: int | None = None
) -> int:
    """Read a whole number out of the query string."""
    text = query.get(name)
    if not text:
        return default
    expected = f"a whole number from {least}" + (f" to {most}" if most is not None else "")
    value = int(text) if _is_whole(text) else -1
    if value < least or (most is not None and value > most):
        raise InvalidRequest(field=name, expected=expected)
    return value


def _is_whole(text: str) -> bool:
    return len(text) <= _MOST_DIGITS and text.isascii() and text.isdecimal()
