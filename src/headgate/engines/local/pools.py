"""Pools: which queues a fetch is served from, and in which order."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

import msgspec

from headgate.core.order import Strategy
from headgate.core.pools import Pool, pool_from, pool_json
from headgate.core.states import AVAILABLE
from headgate.engines.contract import Fetch
from headgate.engines.local.queue import Queue
from headgate.engines.local.rotas import Rota, rota
from headgate.engines.local.tables import Tables

POOL: Final = "pool"
TURN: Final = "turn"
MOST_KEPT: Final = 1_000
"""Turns that are kept for fetches outside of pools."""


class Pools:
    __slots__ = ("_dirty", "_isolated", "_kept", "_overloaded", "_tables", "known", "rotas")

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.known: dict[str, Pool] = {}
        self.rotas: dict[str, Rota] = {}
        self._isolated: dict[str, set[str]] = {}
        """Queue -> the pools that keep it to themselves."""
        self._kept: OrderedDict[tuple[Any, ...], Rota] = OrderedDict()
        self._dirty: set[str] = set()
        self._overloaded: set[str] = set()

    # whom a queue serves

    def allows(self, queue: Queue, pool: str) -> bool:
        """Whether the queue gives out jobs to this pool at present."""
        if not queue.open or self._tables.maintenance is not None:
            return False
        owners = self._isolated.get(queue.name)
        return owners is None or pool in owners

    def is_isolated(self, queue: str, pool: str) -> bool:
        return queue in self._isolated and pool not in self._isolated[queue]

    def has_room(self, pool: Pool | None) -> bool:
        """Whether the pool may have one more active job."""
        if pool is None or pool.concurrency is None:
            return True
        return self._tables.in_pools.get(pool.name, 0) < pool.concurrency

    def look(self, queue: Queue, at: int) -> None:
        """Something changed in this queue: its pools learn whether it has something to fetch."""
        if queue.rotas:
            has_something = queue.look()
            for turns, i in queue.rotas:
                self._sync(turns, i, queue, at, has_something=has_something)

    def _sync(self, turns: Rota, i: int, queue: Queue, at: int, *, has_something: bool) -> None:
        allowed = self.allows(queue, turns.pool)
        turns.sync(i, at, allowed=allowed, fetchable=allowed and has_something)

    # turns

    def kept(self, fetch: Fetch, pool: str, at: int) -> Rota:
        """The turns of fetches that ask for the same, outside of pools; up to date."""
        name = (fetch.strategy, tuple(fetch.queues), tuple(fetch.weights))
        turns = self._kept.get(name)
        if turns is None:
            queues = [self._tables.queue(queue) for queue in dict.fromkeys(fetch.queues)]
            strategy = cast("Strategy", fetch.strategy)
            weights = fetch.weights or (1,) * len(queues)
            turns = self._kept[name] = rota(pool, queues, strategy, weights)
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(name)
            # Whoever asks shares the turns, but not what other pools keep to themselves.
            turns.pool = pool
        self.refresh(turns, at)
        return turns

    def keeping(self) -> set[Queue]:
        """The queues whose turns are kept."""
        return {queue for turns in self._kept.values() for queue in turns.queues}

    def refresh(self, turns: Rota, at: int) -> None:
        for i, queue in enumerate(turns.queues):
            something = queue.look() if queue.rotas else queue.first() is not None
            self._sync(turns, i, queue, at, has_something=something)

    def served(self, turns: Rota, i: int, at: int) -> None:
        """A job of queue `i` was dispatched."""
        starved_ms = turns.served(i, at)
        if turns.pool not in self.rotas or self.rotas[turns.pool] is not turns:
            return
        self._dirty.add(turns.pool)
        tables = self._tables
        if starved_ms:
            queue = turns.queues[i]
            data = {
                "queue": queue.name,
                "pool": turns.pool,
                "duration_ms": starved_ms,
                "duration": starved_ms / 1000,
                "available_count": queue.counts[AVAILABLE],
            }
            tables.events.add(
                "scheduling.queue_starved", at, queue.name, queue=queue.name, data=data
            )

    def watch(self, pool: Pool, all_busy: Callable[[str], bool], at: int) -> None:
        """Tell when jobs wait and the pool, or each of its workers, has as many as it may."""
        name = pool.name
        turns = self.rotas[name]
        if name in self._overloaded or not turns.there:
            return
        if self.has_room(pool) and not all_busy(name):
            return
        self._overloaded.add(name)
        waiting = sum(queue.counts[AVAILABLE] for queue in turns.queues)
        active = self._tables.in_pools.get(name, 0)
        data = {"pool": name, "active_jobs": active, "waiting_jobs": waiting}
        self._tables.events.add("scheduling.pool_overloaded", at, name, data=data)

    def found_nothing(self, pool: str) -> None:
        """The pool has room and nothing to do: it is overloaded no more."""
        self._overloaded.discard(pool)

    # commands

    def set(self, pool: Pool, at: int) -> bool:
        before = self.known.get(pool.name)
        self.known[pool.name] = pool
        self._tables.set_thing(POOL, pool.name, msgspec.json.encode(pool_json(pool)))
        same = before is not None and (before.queues, before.strategy, before.weights) == (
            pool.queues,
            pool.strategy,
            pool.weights,
        )
        if before is not None and same:
            # Who only says the same again must not take from a queue what it has waited for.
            if before.starvation != pool.starvation:
                self.rotas[pool.name].guarantee(pool.starvation, at)
        else:
            self._forget_turns(pool.name)
            self._begin_turns(pool, None, at)
        self._settle(at)
        if before is not None and not same:
            data = {
                "pool": pool.name,
                "previous_strategy": before.strategy,
                "new_strategy": pool.strategy,
            }
            self._tables.events.add("scheduling.rebalanced", at, pool.name, data=data)
        return before is None

    def drop(self, name: str, at: int) -> bool:
        if self.known.pop(name, None) is None:
            return False
        self._forget_turns(name)
        self._tables.set_thing(POOL, name, None)
        self._settle(at)
        return True

    def _begin_turns(self, pool: Pool, packed: bytes | None, at: int) -> None:
        queues = [self._tables.queue(name) for name in pool.queues]
        turns = rota(pool.name, queues, pool.strategy, pool.weights, packed)
        turns.guarantee(pool.starvation, at)
        self.rotas[pool.name] = turns
        self._tables.keys.forget_bundles()
        for i, queue in enumerate(queues):
            queue.rotas.append((turns, i))
            queue.followed = True

    def _forget_turns(self, name: str) -> None:
        turns = self.rotas.pop(name, None)
        if turns is None:
            return
        self._tables.keys.forget_bundles()
        for queue in turns.queues:
            queue.rotas = [each for each in queue.rotas if each[0] is not turns]
            queue.refollow()
        self._dirty.discard(name)
        self._overloaded.discard(name)
        self._tables.set_thing(TURN, name, None)

    def _settle(self, at: int) -> None:
        """Pools have changed: who keeps which queue, who lets tenants take turns, and who may fetch now."""
        tables = self._tables
        self._isolated.clear()
        tables.fair_pools.clear()
        for pool in self.known.values():
            for name in pool.queues:
                if pool.isolated:
                    self._isolated.setdefault(name, set()).add(pool.name)
                if pool.fairness is not None and pool.fairness.enabled:
                    tables.fair_pools.add(name)
        for queue in tables.queues.values():
            queue.fair = queue.resolved.fairness.enabled or queue.name in tables.fair_pools
            tables.touch(queue)
        for turns in self.rotas.values():
            self.refresh(turns, at)

    # what stays

    def restore(self, packed: Iterable[bytes], turns: dict[str, bytes], at: int) -> None:
        for each in packed:
            given = msgspec.json.decode(each)
            pool = pool_from(given, given["name"])
            self.known[pool.name] = pool
            self._begin_turns(pool, turns.get(pool.name), at)
        self._settle(at)

    def write_changes(self, write: Callable[[tuple[Any, ...]], None]) -> None:
        """Record every turn that moved, once; the batch is about to be closed."""
        for name in self._dirty:
            packed = self.rotas[name].pack()
            if packed is not None:
                write(("", TURN, name, packed))
        self._dirty.clear()
