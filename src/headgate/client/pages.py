"""Lists that come in pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headgate.client.core import Core

_PER_PAGE: Final = 100


async def every(
    core: Core,
    operation: str,
    path: str,
    part: str,
    query: Mapping[str, Any] | None = None,
    most: int | None = None,
) -> list[dict[str, Any]]:
    """All items of an administrative list, or so many at most, page by page."""
    found: list[dict[str, Any]] = []
    page = 1
    while True:
        asked = {**(query or {}), "page": page, "per_page": _PER_PAGE}
        body = await core.call(operation, "GET", path, query=asked)
        found += body[part]
        total = body.get("pagination", {}).get("total", 0)
        if page * _PER_PAGE >= total or (most is not None and len(found) >= most):
            return found if most is None else found[:most]
        page += 1
