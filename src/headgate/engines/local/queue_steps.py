"""Steps with queues: settings, pauses, their end, and what happened in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headgate.core import queues as rules
from headgate.core.queues import DEFAULT_POLICY, DEFAULT_QUEUE, QueueConfig, Resolved
from headgate.engines.contract import (
    Left,
    NotEmpty,
    Point,
    Query,
    QueueView,
    Task,
)
from headgate.engines.local.dispatch import SHARE
from headgate.engines.local.ground import Ground
from headgate.engines.local.queue import WAITING, Queue
from headgate.engines.local.retention import PAUSE_MS
from headgate.engines.local.tables import POLICY


class QueueSteps(Ground):
    """See the contract."""

    def settings(self, queue: str) -> Resolved:
        found = self._tables.queues.get(queue)
        return self._tables.resolved_policy if found is None else found.resolved

    async def queues(self, now_ms: int) -> list[QueueView]:
        now = self._begin(now_ms)
        known = sorted(self._tables.existing(), key=lambda queue: queue.name)
        rests = self._tables.maintenance is not None
        return [queue.view(now, rests=rests) for queue in known]

    async def queue(self, name: str, now_ms: int) -> QueueView | None:
        now = self._begin(now_ms)
        queue = self._tables.queues.get(name)
        rests = self._tables.maintenance is not None
        return queue.view(now, rests=rests) if queue is not None and queue.exists else None

    async def create_queue(self, name: str, changes: Mapping[str, Any], now_ms: int) -> bool:
        now = self._begin(now_ms)
        known = self._tables.queues.get(name)
        if known is not None and known.exists:
            return False
        config = rules.merge(rules.EMPTY, changes, queue=name)
        queue = self._tables.open_queue(name)
        queue.config = config
        self._tables.resolve(queue)
        self._tables.save_queue(queue)
        self._retention.look_at(now + PAUSE_MS)
        self._events.add("queue.created", now, name, queue=name)
        return True

    async def default_policy(self) -> QueueConfig:
        return self._tables.policy

    async def configure(self, name: str, changes: Mapping[str, Any], now_ms: int) -> None:
        now = self._begin(now_ms)
        tables = self._tables
        if name == DEFAULT_POLICY:
            tables.policy = rules.merge(tables.policy, changes)
            tables.resolved_policy = rules.resolve(tables.policy, rules.EMPTY)
            for queue in list(tables.queues.values()):
                tables.resolve(queue)
            packed = msgspec.msgpack.encode(tables.policy)
            tables.set_thing(POLICY, DEFAULT_POLICY, packed)
        else:
            known = tables.queues.get(name)
            before = known.config if known is not None else rules.EMPTY
            config = rules.merge(before, changes, queue=name)
            queue = tables.open_queue(name)
            queue.config = config
            queue.updated_at = now
            tables.resolve(queue)
            tables.save_queue(queue)
        self._retention.look_at(now + PAUSE_MS)
        self._events.add("queue.config_updated", now, name, queue=name)

    async def pause(self, name: str, by: str, now_ms: int) -> None:
        now = self._begin(now_ms)
        queue = self._tables.open_queue(name)
        if not queue.paused:
            queue.paused = True
            queue.paused_at = queue.updated_at = now
            self._tables.save_queue(queue)
            self._tables.touch(queue)
        self._events.add("queue.paused", now, name, queue=name, data={"paused_by": by})

    async def resume(self, name: str, by: str, now_ms: int) -> None:
        now = self._begin(now_ms)
        queue = self._tables.open_queue(name)
        if queue.paused or queue.draining:
            queue.paused = queue.draining = False
            queue.paused_at = 0
            queue.leaving = queue.target = ""
            queue.updated_at = now
            self._tables.save_queue(queue)
            self._tables.touch(queue)
            queue.refollow()
        self._events.add("queue.resumed", now, name, queue=name, data={"resumed_by": by})

    async def drain(self, name: str, by: str, now_ms: int) -> bool:
        now = self._begin(now_ms)
        queue = self._tables.queues.get(name)
        if queue is None or not queue.exists:
            return False
        if not queue.draining:
            self._drain(queue, now)
            self._events.add("queue.draining", now, name, queue=name, data={"drained_by": by})
        return True

    def _drain(self, queue: Queue, now: int) -> None:
        queue.draining = queue.followed = True
        queue.updated_at = now
        self._tables.save_queue(queue)
        self._tables.touch(queue)

    async def remove_queue(
        self, name: str, strategy: str, target: str, task: str, now_ms: int
    ) -> Left | NotEmpty | None:
        now = self._begin(now_ms)
        queue = self._tables.queues.get(name)
        if queue is None or not queue.exists:
            return None
        live = queue.live
        if live and strategy == "reject":
            return NotEmpty(live)
        if not live:
            self._delete_queue(queue, now)
            return Left("deleted", 0)
        queue.leaving, queue.target = strategy, target
        self._drain(queue, now)
        waiting = sum(queue.counts[state] for state in WAITING)
        if waiting:
            query = Query(queue=name, states=WAITING)
            await self._tasks.start(Task(task, strategy, query, target))
        self._settle()
        return Left("deleted" if queue.leaving != strategy else "draining", waiting)

    def _delete_queue(self, queue: Queue, now: int) -> None:
        tables, name = self._tables, queue.name
        queue.exists = queue.paused = queue.draining = False
        queue.paused_at = 0
        queue.leaving = queue.target = ""
        queue.config = rules.EMPTY
        for priority, tenant in queue.shares.clear():
            tables.set_thing(SHARE, f"{name}\n{priority}\n{tenant}", None)
        tables.resolve(queue)
        tables.save_queue(queue)
        self._events.add("queue.deleted", now, name, queue=name)
        if name == DEFAULT_QUEUE:
            tables.open_queue(name)

    async def history(
        self, queue: str | None, step_ms: int, since: int, until: int, now_ms: int
    ) -> list[Point]:
        self._begin(now_ms)
        tables = self._tables
        chosen = tables.existing() if queue is None else [tables.queue(queue)]
        points: dict[int, Point] = {}
        for each in chosen:
            for point in each.recent.points(since, until):
                at = point.at_ms - point.at_ms % step_ms
                total = points.setdefault(at, Point(at))
                total.enqueued += point.enqueued
                total.completed += point.completed
                total.failed += point.failed
        return [points[at] for at in sorted(points)]
