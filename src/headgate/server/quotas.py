"""What a tenant whose enqueues are limited is told with each answer to one: how many it has left."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headgate.core.times import SECOND_MS
from headgate.engines.contract import Quota
from headgate.server.context import Context

SENDS: Final = {
    "X-RateLimit-Limit": "How many enqueues the tenant has in each period, where that is limited.",
    "X-RateLimit-Remaining": "How many of them are left now.",
    "X-RateLimit-Reset": "When all of them will be there again if no more come, in Unix seconds.",
}
"""For the document."""


def told(context: Context, tenants: Iterable[str]) -> list[tuple[str, str]]:
    """Headers about the tenant that has least left; none where none of them is limited."""
    now_ms = context.now_ms()
    found = [context.engine.quota(tenant, now_ms) for tenant in set(tenants) if tenant]
    known: list[Quota] = [quota for quota in found if quota is not None]
    if not known:
        return []
    least = min(known, key=lambda quota: (quota.remaining, -quota.resets_at))
    values = (least.limit, least.remaining, -(-least.resets_at // SECOND_MS))
    return [(name, str(value)) for name, value in zip(SENDS, values, strict=True)]


def headers(context: Context, tenants: Iterable[str]) -> list[tuple[bytes, bytes]]:
    """The same in the form of an answer."""
    return [(name.lower().encode(), value.encode()) for name, value in told(context, tenants)]
