"""Which jobs a list shows or a command is for, as clients say it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from headgate.core.errors import InvalidRequest
from headgate.core.limits import check_key, full_key
from headgate.core.states import STATES
from headgate.core.tenants import DEFAULT_TENANT, check_tenant
from headgate.core.times import instant_ms
from headgate.engines.contract import Query


class JobFilter(Struct, forbid_unknown_fields=True):
    """Every member given must hold.

    An unknown member is refused: ignoring it would make a command do more than was asked for.
    """

    type: str | None = None
    """Exact, or a prefix that ends in `*`."""
    queue: str | None = None
    state: str | list[str] | None = None
    priority: int | None = None
    error_type: str | None = None
    """Of the newest error."""
    meta: dict[str, Any] | None = None
    created_after: str | None = None
    created_before: str | None = None
    enqueued_after: str | None = None
    enqueued_before: str | None = None
    key: str | None = None
    """One of the keys that the job passes."""
    scope: str | None = None
    """Of the key: global, or tenant for one that is the tenant's own."""
    tenant: str | None = None
    """`_default` is everybody who names none."""


NOTHING = JobFilter()


def query_of(
    given: JobFilter, *, states: Sequence[str] = (), dead: bool = False, path: str = "filter."
) -> Query:
    """The query for a filter; `states` holds where the filter names none."""
    named = [given.state] if isinstance(given.state, str) else given.state
    if named is not None and not named:
        raise InvalidRequest(field=f"{path}state", expected="at least one state")
    if given.meta is not None and not given.meta:
        raise InvalidRequest(field=f"{path}meta", expected="at least one member")
    for state in named or ():
        if state not in STATES:
            raise InvalidRequest(field=f"{path}state", expected="out of " + ", ".join(STATES))
    return Query(
        queue=given.queue,
        states=tuple(named) if named else states,
        type=given.type,
        priority=given.priority,
        created_from=_after(given.created_after, f"{path}created_after"),
        created_until=instant(given.created_before, f"{path}created_before"),
        enqueued_from=_after(given.enqueued_after, f"{path}enqueued_after"),
        enqueued_until=instant(given.enqueued_before, f"{path}enqueued_before"),
        error_type=given.error_type,
        meta=given.meta,
        dead=dead,
        key=_key(given, path),
        tenant=_tenant(given.tenant, path),
    )


def _key(given: JobFilter, path: str) -> str | None:
    """The name under which the key is kept."""
    if given.scope not in {None, "global", "tenant"}:
        raise InvalidRequest(field=f"{path}scope", expected="global or tenant")
    if given.key is None:
        return None
    check_key(given.key, field=f"{path}key")
    if given.scope != "tenant":
        return given.key
    if given.tenant is None:
        raise InvalidRequest(field=f"{path}tenant", expected="given with the scope tenant")
    return full_key(given.key, "tenant", given.tenant)


def _tenant(tenant: str | None, path: str) -> str | None:
    if tenant is not None and tenant != DEFAULT_TENANT:
        check_tenant(tenant, field=f"{path}tenant")
    return tenant


def instant(text: str | None, field: str) -> int | None:
    if text is None:
        return None
    try:
        return instant_ms(text)
    except ValueError:
        raise InvalidRequest(
            field=field, expected="an RFC 3339 timestamp with a zone, such as 2026-01-31T09:30:00Z"
        ) from None


def _after(text: str | None, field: str) -> int | None:
    ms = instant(text, field)
    return None if ms is None else ms + 1
