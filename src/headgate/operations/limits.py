"""LIMITS: look at keys, override them for a time, lift what was put upon them, cancel their jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from headgate.core import limits
from headgate.core.errors import InvalidRequest, NotFound
from headgate.core.limits import check_key, full_key, override_from, queue_limits_from
from headgate.core.queues import check_name
from headgate.core.states import AVAILABLE, PENDING, RETRYABLE, SCHEDULED, STATES, TERMINAL
from headgate.core.tenants import DEFAULT_TENANT, check_tenant
from headgate.engines.contract import Engine, KeyJobs, KeyView, Query, QueueView, Task
from headgate.operations import bulk, queues

WAITING: Final = (AVAILABLE, SCHEDULED, RETRYABLE, PENDING)
"""Whose jobs a command by key is for when it names no state."""


def name_of(key: str, tenant: str | None) -> str:
    """The name under which the key is kept; a tenant's own where a tenant is named."""
    check_key(key)
    if tenant is None:
        return key
    if tenant != DEFAULT_TENANT:
        check_tenant(tenant)
    return full_key(key, "tenant", tenant)


async def look_up(engine: Engine, name: str, now_ms: int) -> KeyView:
    found = await engine.key(name, now_ms)
    if found is None:
        raise unknown(name)
    return found


async def override(
    engine: Engine, name: str, given: Mapping[str, Any], by: str, now_ms: int
) -> KeyView:
    """Put other limits upon a key for a time, known or not."""
    await engine.override(name, override_from(given, now_ms), by, now_ms)
    return await look_up(engine, name, now_ms)


async def lift(engine: Engine, name: str, by: str, now_ms: int) -> None:
    """Take back override and hold; what the key's jobs say of it holds again."""
    if not await engine.lift(name, by, now_ms):
        raise unknown(name)


async def jobs(engine: Engine, name: str, limit: int, offset: int, now_ms: int) -> KeyJobs:
    found = await engine.key_jobs(name, limit, offset, now_ms)
    if found is None:
        raise unknown(name)
    return found


async def cancel(
    engine: Engine,
    name: str,
    states: Sequence[str] | None,
    tenant: str,
    new_id: Callable[[int], str],
    now_ms: int,
) -> Task:
    """Cancel the jobs of a key, or those that this tenant has of it; those that run only where their state is named."""
    for state in states or ():
        if state not in STATES or state in TERMINAL:
            live = [each for each in STATES if each not in TERMINAL]
            raise InvalidRequest(field="states", expected="out of " + ", ".join(live))
    if states is not None and not states:
        raise InvalidRequest(field="states", expected="at least one state")
    await look_up(engine, name, now_ms)
    states = tuple(states) if states else WAITING
    query = Query(key=name, states=states, tenant=tenant or None)
    return await bulk.start(engine, "cancel", query, new_id, now_ms)


async def limit_queue(
    engine: Engine, queue: str, given: Mapping[str, Any], now_ms: int
) -> QueueView:
    """Change the limits of a queue as a whole, which creates it: given replaces, null clears."""
    check_name(queue, field="name")
    queue_limits_from(given, path="body")
    if not given:
        raise InvalidRequest(field="body", expected="at least one of " + ", ".join(limits.LIMITS))
    await engine.configure(queue, {"rate_limit": given}, now_ms)
    return await queues.look_up(engine, queue, now_ms)


def unknown(name: str) -> NotFound:
    return NotFound(f"nothing is known of the key {name}", details={"key": name})
