"""QUEUES: create, configure, pause, resume, drain, look at, delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

from headgate.core.errors import Conflict, InvalidRequest, NotFound
from headgate.core.queues import (
    DEFAULT_POLICY,
    DEFAULT_QUEUE,
    DRAINING,
    EMPTY,
    Resolved,
    check_name,
    merge,
    resolve,
)
from headgate.core.states import AVAILABLE
from headgate.engines.contract import Engine, Left, NotEmpty, Page, Query, QueueView, Task

STRATEGIES = ("reject", "discard", "move")
MOST_PRIORITIES = 201


async def look_up(engine: Engine, name: str, now_ms: int) -> QueueView:
    found = await engine.queue(name, now_ms)
    if found is None:
        raise NotFound(f"there is no queue {name}", details={"queue": name})
    return found


async def create(
    engine: Engine,
    name: str,
    changes: Mapping[str, Any],
    now_ms: int,
    *,
    strict: bool = False,
) -> QueueView:
    """A queue that exists already is left as it is and refused.

    When `strict`, other queues that it names have to exist.
    """
    check_name(name, field="name")
    await _check_dead_letter_queue(engine, name, changes, now_ms, strict=strict)
    if not await engine.create_queue(name, changes, now_ms):
        raise Conflict(f"the queue {name} exists already", details={"queue": name})
    return await look_up(engine, name, now_ms)


async def configure(
    engine: Engine,
    name: str,
    changes: Mapping[str, Any],
    now_ms: int,
    *,
    strict: bool = False,
) -> Resolved:
    """Merge into the configuration of a queue or of the default policy, and give what holds now.

    When `strict`, other queues that it names have to exist.
    """
    if name != DEFAULT_POLICY:
        check_name(name, field="name")
    await _check_dead_letter_queue(engine, name, changes, now_ms, strict=strict)
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


async def drain(engine: Engine, name: str, by: str, now_ms: int) -> QueueView | None:
    """Take no new jobs and be deleted when the last one has ended; None when that was at once."""
    if name == DEFAULT_QUEUE:
        raise _always_there(name)
    if not await engine.drain(name, by, now_ms):
        raise NotFound(f"there is no queue {name}", details={"queue": name})
    return await engine.queue(name, now_ms)


async def delete(
    engine: Engine, name: str, strategy: str | None, target: str | None, task_id: str, now_ms: int
) -> tuple[Left, Task | None]:
    """Delete a queue, and say what becomes of its jobs; the task is there where they are many.

    The strategy decides about jobs that wait: refuse because of them, discard them, or move them to the target.
    """
    if strategy not in STRATEGIES:
        raise InvalidRequest(field="strategy", expected="one of " + ", ".join(STRATEGIES))
    if strategy != "move" and target:
        raise InvalidRequest(field="target_queue", expected="absent unless the strategy is move")
    if name == DEFAULT_QUEUE:
        raise _always_there(name)
    if strategy == "move":
        await _check_target(engine, name, target, now_ms)
    found = await engine.remove_queue(name, strategy, target or "", task_id, now_ms)
    match found:
        case None:
            raise NotFound(f"there is no queue {name}", details={"queue": name})
        case NotEmpty(unfinished):
            raise Conflict(
                f"the queue {name} has {unfinished} unfinished jobs",
                details={"queue": name, "unfinished_jobs": unfinished},
            )
        case Left():
            tasks = await engine.tasks(now_ms)
            mine = [task for task in tasks if task.id == task_id and not task.finished]
            return found, mine[0] if mine else None
        case _:
            assert_never(found)


async def _check_target(engine: Engine, name: str, target: str | None, now_ms: int) -> None:
    """Jobs may move to a queue that is there to stay."""
    if not target:
        raise InvalidRequest(field="target_queue", expected="the name of the queue to move to")
    check_name(target, field="target_queue")
    if target == name:
        raise InvalidRequest(field="target_queue", expected="another queue")
    await look_up(engine, name, now_ms)
    view = await engine.queue(target, now_ms)
    if view is None:
        raise InvalidRequest(
            f"there is no queue {target}", field="target_queue", expected="a queue that exists"
        )
    if view.state == DRAINING:
        raise InvalidRequest(
            f"the queue {target} is draining",
            field="target_queue",
            expected="a queue that takes jobs",
        )


async def _check_dead_letter_queue(
    engine: Engine, name: str, changes: Mapping[str, Any], now_ms: int, *, strict: bool
) -> None:
    """Where queues are not created by themselves, a dead letter could not get there."""
    if not strict or changes.get("dead_letter_queue") is None:
        return
    merge(EMPTY, changes, queue=name)
    target = changes["dead_letter_queue"]
    if await engine.queue(target, now_ms) is None:
        raise InvalidRequest(
            f"there is no queue {target}",
            field="config.dead_letter_queue",
            expected="a queue that exists",
        )


def _always_there(name: str) -> Conflict:
    return Conflict(f"the queue {name} always exists", details={"queue": name})


async def by_priority(
    engine: Engine, name: str, now_ms: int, tenant: str | None = None
) -> dict[int, int]:
    """How many jobs, or how many of this tenant, are available at each priority, the highest first.

    One look per priority in use: the first job behind those counted so far has the next one.
    """
    await look_up(engine, name, now_ms)
    counts: dict[int, int] = {}
    query = Query(queue=name, states=(AVAILABLE,), tenant=tenant)
    offset = 0
    for _ in range(MOST_PRIORITIES):
        page = Page(limit=1, offset=offset, sort="priority", newest_first=True)
        next_one = await engine.find_all(query, page, now_ms)
        if not next_one.jobs:
            break
        priority = next_one.jobs[0].priority
        same = Query(queue=name, states=(AVAILABLE,), priority=priority, tenant=tenant)
        counts[priority] = (await engine.find_all(same, Page(limit=1), now_ms)).total
        offset += counts[priority]
    return counts
