"""QUEUES: create, configure, pause, resume, look at, delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.core.errors import Conflict, InvalidRequest, NotFound
from headgate.core.queues import DEFAULT_POLICY, DEFAULT_QUEUE, EMPTY, Resolved, check_name, resolve
from headgate.core.states import AVAILABLE
from headgate.engines.contract import Engine, NotEmpty, Page, Query, QueueView

STRATEGIES = ("reject", "discard", "move")
MOST_PRIORITIES = 201


async def look_up(engine: Engine, name: str, now_ms: int) -> QueueView:
    found = await engine.queue(name, now_ms)
    if found is None:
        raise NotFound(f"there is no queue {name}", details={"queue": name})
    return found


async def create(engine: Engine, name: str, changes: Mapping[str, Any], now_ms: int) -> QueueView:
    """A queue that exists already is left as it is and refused."""
    check_name(name, field="name")
    if not await engine.create_queue(name, changes, now_ms):
        raise Conflict(f"the queue {name} exists already", details={"queue": name})
    return await look_up(engine, name, now_ms)


async def configure(engine: Engine, name: str, changes: Mapping[str, Any], now_ms: int) -> Resolved:
    """Merge into the configuration of a queue or of the default policy, and give what holds now."""
    if name != DEFAULT_POLICY:
        check_name(name, field="name")
    await engine.configure(name, changes, now_ms)
    return await configuration(engine, name, now_ms)


async def configuration(engine: Engine, name: str, now_ms: int) -> Resolved:
    """What holds for a queue; under the name of the default policy, for all that say nothing."""
    if name == DEFAULT_POLICY:
        return resolve(await engine.default_policy(), EMPTY)
    return (await look_up(engine, name, now_ms)).resolved


async def pause(engine: Engine, name: str, by: str, now_ms: int) -> QueueView:
    check_name(name, field="name")
    await engine.pause(name, by, now_ms)
    return await look_up(engine, name, now_ms)


async def resume(engine: Engine, name: str, by: str, now_ms: int) -> QueueView:
    check_name(name, field="name")
    await engine.resume(name, by, now_ms)
    return await look_up(engine, name, now_ms)


async def delete(
    engine: Engine, name: str, strategy: str | None, target: str | None, now_ms: int
) -> None:
    """Forget a queue without unfinished jobs; any other is refused."""
    if strategy not in STRATEGIES:
        raise InvalidRequest(field="strategy", expected="one of " + ", ".join(STRATEGIES))
    if strategy == "move" and not target:
        raise InvalidRequest(field="target_queue", expected="the name of the queue to move to")
    if name == DEFAULT_QUEUE:
        raise Conflict(f"the queue {name} always exists", details={"queue": name})
    found = await engine.remove_queue(name, strategy, target or "", f"delete-{name}", now_ms)
    if found is None:
        raise NotFound(f"there is no queue {name}", details={"queue": name})
    if isinstance(found, NotEmpty):
        raise Conflict(
            f"the queue {name} has {found.unfinished} unfinished jobs",
            details={"queue": name, "unfinished_jobs": found.unfinished},
        )


async def by_priority(engine: Engine, name: str, now_ms: int) -> dict[int, int]:
    """How many jobs are available at each priority, the highest first.

    One look per priority in use: the first job behind those counted so far has the next one.
    """
    await look_up(engine, name, now_ms)
    counts: dict[int, int] = {}
    query = Query(queue=name, states=(AVAILABLE,))
    offset = 0
    for _ in range(MOST_PRIORITIES):
        page = Page(limit=1, offset=offset, sort="priority", newest_first=True)
        next_one = await engine.find_all(query, page, now_ms)
        if not next_one.jobs:
            break
        priority = next_one.jobs[0].priority
        same = Query(queue=name, states=(AVAILABLE,), priority=priority)
        counts[priority] = (await engine.find_all(same, Page(limit=1), now_ms)).total
        offset += counts[priority]
    return counts
