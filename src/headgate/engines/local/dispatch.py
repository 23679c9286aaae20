"""FETCH: which jobs a worker gets.

The pool's settings take the place of what the fetch says; then a queue by its turn, the best job of that queue, and a slot in every gate on its way, all in one step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from headgate.core.job import Job
from headgate.core.order import each_of
from headgate.core.pools import Pool
from headgate.core.states import AVAILABLE
from headgate.core.tenants import DEFAULT_TENANT, Fairness
from headgate.engines.contract import Fetch, Why
from headgate.engines.local.groups import actionable
from headgate.engines.local.keys import Key
from headgate.engines.local.lanes import Lane
from headgate.engines.local.life import Life
from headgate.engines.local.pools import Pools
from headgate.engines.local.queue import FAIR, PLAIN, Queue
from headgate.engines.local.tenantry import Tenantry
from headgate.engines.local.timers import NEVER
from headgate.engines.local.waiting import Waiting
from headgate.engines.local.workers import Workers

MOST_ACTIONS: Final = 64
"""How many jobs one fetch may drop or put off on its way."""
SHARE: Final = "share"
_MAY_COME: Final = frozenset({"blocked", "empty"})
"""Where a job that becomes available may be fetched."""

_encode = msgspec.msgpack.Encoder().encode


class Dispatch:
    __slots__ = ("_life", "_pools", "_settle", "_tables", "_tenantry", "_workers")

    def __init__(
        self,
        life: Life,
        workers: Workers,
        pools: Pools,
        tenantry: Tenantry,
        settle: Callable[[], None],
    ) -> None:
        self._life = life
        self._tables = life.tables
        self._workers = workers
        self._pools = pools
        self._tenantry = tenantry
        self._settle = settle
        """Lets everybody who follows a queue know what changed."""

    def pool_of(self, fetch: Fetch) -> str:
        if fetch.pool:
            return fetch.pool
        return self._workers.pool_of(fetch.worker)

    @property
    def rests(self) -> bool:
        """Whether nobody gets anything at present."""
        return self._tables.maintenance is not None

    def fetch(self, fetch: Fetch, now: int) -> list[Job]:
        if self._tables.maintenance is not None or not self._workers.at_work(fetch.worker):
            return []
        name = self.pool_of(fetch)
        call = _Call(fetch, name, self._pools.known.get(name), now)
        if call.pool is None and not fetch.strategy:
            self._in_order(call)
        else:
            self._by_turns(call)
            if call.pool is not None:
                self._pools.watch(call.pool, self._workers.all_busy, now)
        return call.taken

    def _in_order(self, call: _Call) -> None:
        self._once_through(call)
        while call.left and call.closed:
            # A start has closed a key, and in an earlier queue there may be jobs that do not wait for it.
            call.closed = False
            self._once_through(call)

    def _once_through(self, call: _Call) -> None:
        fetch = call.fetch
        queues, allows = self._tables.queues, self._pools.allows
        for name in fetch.queues:
            queue = queues.get(name)
            if queue is None:
                continue
            if queue.is_plain:
                if allows(queue, call.name) and not fetch.tenant:
                    self._from_plain(queue, call)
                if not call.left:
                    return
                continue
            while call.left and allows(queue, call.name):
                lane = self._first(queue, call)
                if lane is None:
                    break
                self._meet(queue, lane, call)
                if self._tables.keys.swung:
                    # What one start closes is told before the next one changes it.
                    self._settle()
            if not call.left:
                return

    def _from_plain(self, queue: Queue, call: _Call) -> None:
        """The same where nothing can stop a job: most queues are like this."""
        take, start, now = queue.plain.take, self._life.start, call.now
        fetch, name = call.fetch, call.name
        while call.left:
            job = take()
            if job is None:
                return
            if job.expires_at and job.expires_at <= now:
                # Its alarm has not been heard yet among many.
                self._life.expire(job, now)
                continue
            start(job, (), fetch.worker, name, fetch.visibility_ms, now)
            call.taken.append(job)
            call.left -= 1

    def _by_turns(self, call: _Call) -> None:
        fetch, pool, now = call.fetch, call.pool, call.now
        pools = self._pools
        skip = 0
        self._settle()
        while call.left and pools.has_room(pool) and not self._is_full(fetch, pool):
            turns = pools.rotas[call.name] if pool else pools.kept(fetch, call.name, now)
            i = turns.choose(now, skip)
            if i is None:
                pools.found_nothing(call.name)
                return
            queue = turns.queues[i]
            lane = self._first(queue, call)
            if lane is None:
                skip |= 1 << i
                continue
            if self._meet(queue, lane, call):
                pools.served(turns, i, now)
            self._settle()

    def _is_full(self, fetch: Fetch, pool: Pool | None) -> bool:
        """Whether a worker that is served by its load has as much as it can carry."""
        if (fetch.strategy if pool is None else pool.strategy) != "least-loaded":
            return False
        known = self._workers.known.get(fetch.worker)
        if known is None or not known.concurrency:
            return False
        return len(self._tables.held.get(fetch.worker, ())) >= known.concurrency

    def _first(self, queue: Queue, call: _Call) -> Lane | None:
        order = FAIR if queue.fair and call.fairness(queue).enabled else PLAIN
        return queue.first(order, call.fetch.tenant, actors=call.actions < MOST_ACTIONS)

    def _meet(self, queue: Queue, lane: Lane, call: _Call) -> bool:
        """Take the head of the lane, or do with it what its closed key says; true when it was started."""
        now, fetch = call.now, call.fetch
        gates = lane.gates
        if gates and actionable(lane):
            call.actions += 1
            self._act(queue, lane, now)
            return False
        job = queue.take(lane)
        if job.expires_at and job.expires_at <= now:
            # Its alarm has not been heard yet among many.
            self._life.expire(job, now)
            return False
        keys = [key for key, _ in gates]
        if queue.gate is not None:
            keys.append(queue.gate)
        self._life.start(job, keys, fetch.worker, call.name, fetch.visibility_ms, now)
        if queue.fair:
            self._charge(queue, job, call)
        if gates and not call.closed:
            call.closed = any(key.shut is not None for key, _ in gates)
        call.taken.append(job)
        call.left -= 1
        return True

    def _act(self, queue: Queue, lane: Lane, now: int) -> None:
        closed = [(key, what) for key, what in lane.gates if key.shut is not None]
        job = queue.take(lane)
        drops = [key for key, what in closed if what == "drop"]
        if drops:
            self._life.drop(job, drops[0].key, now)
            return
        now_us = self._tables.keys.now_us
        latest, by = 0, ""
        for key, what in closed:
            if what == "reschedule":
                at = max(now + 1, -(-key.predict(key.postponed, now_us) // 1000))
                if at > latest:
                    latest, by = at, key.key
        self._life.postpone(job, by, latest, now)

    def _charge(self, queue: Queue, job: Job, call: _Call) -> None:
        """The job's tenant has had its turn."""
        fairness = call.fairness(queue)
        if not fairness.enabled:
            return
        tenant = job.tenant or DEFAULT_TENANT
        weight = self._tenantry.weight(tenant, fairness)
        standing, gone = queue.shares.served(
            job.priority, tenant, weight, in_turn=not call.fetch.tenant
        )
        place = f"{queue.name}\n{job.priority}\n"
        self._tables.set_thing(SHARE, place + tenant, _encode(standing))
        for who in gone:
            self._tables.set_thing(SHARE, place + who, None)

    # who could

    def could(self, fetch: Fetch, queue: Queue) -> bool:
        """Whether this fetch would find something in this queue now."""
        return self._obstacle(fetch, queue) == ""

    def _obstacle(self, fetch: Fetch, queue: Queue) -> str:
        if self.rests:
            return "maintenance"
        if not self._workers.at_work(fetch.worker):
            return "worker_resting"
        name = self.pool_of(fetch)
        pool = self._pools.known.get(name)
        if not self._pools.has_room(pool):
            return "pool_full"
        if self._is_full(fetch, pool):
            return "worker_full"
        if not queue.exists:
            return "unknown"
        if queue.paused:
            return "paused"
        if self._pools.is_isolated(queue.name, name):
            return "isolated"
        if not queue.open:
            return "limited"
        if queue.first(PLAIN, fetch.tenant) is not None:
            return ""
        counts = queue.counts
        if fetch.tenant:
            tenanted = queue.tenants.get(fetch.tenant)
            counts = {} if tenanted is None else tenanted.counts
        return "blocked" if counts.get(AVAILABLE) else "empty"

    def queues_of(self, fetch: Fetch) -> list[Queue]:
        """The queues that this fetch is served from."""
        pool = self._pools.known.get(self.pool_of(fetch))
        names = dict.fromkeys(fetch.queues if pool is None else pool.queues)
        return [self._tables.queue(name) for name in names]

    def offering(self, waiter: Waiting) -> Iterable[Queue]:
        """Those of its queues that may have something; of a pool with very many, mostly few do."""
        turns = self._pools.rotas.get(waiter.pool)
        if turns is None:
            return waiter.queues
        return [turns.queues[i] for i in each_of(turns.there)]

    def takes_turns(self, pool: str) -> bool:
        """Whether the server knows the queues of this pool."""
        return pool in self._pools.rotas

    def pools_at(self, key: Key) -> list[str]:
        """The pools of which very many queues wait at this gate."""
        return [turns.pool for turns in self._tables.keys.bundles_of(key).by_turns]

    def least_loaded(self, waiter: Waiting, queue: Queue) -> Waiting:
        """Of those who would be served by their load, the one with fewest active jobs; else the one given."""
        if self._strategy_of(waiter.fetch) != "least-loaded":
            return waiter
        held = self._tables.held
        fitting = [
            other
            for other in queue.waiting
            if not other.is_woken
            and self._strategy_of(other.fetch) == "least-loaded"
            and self.could(other.fetch, queue)
        ]
        return min(fitting, key=lambda other: len(held.get(other.fetch.worker, ())))

    def _strategy_of(self, fetch: Fetch) -> str:
        pool = self._pools.known.get(self.pool_of(fetch))
        return fetch.strategy if pool is None else pool.strategy

    def why(self, fetch: Fetch) -> Why:
        reasons: dict[str, str] = {}
        next_us = NEVER
        for queue in self.queues_of(fetch):
            reasons[queue.name] = reason = self._obstacle(fetch, queue)
            if reason == "limited" and queue.gate is not None and queue.gate.shut is not None:
                at = queue.gate.shut.opens_at_us
                next_us = next_us if at is None else min(next_us, at)
            elif reason == "blocked":
                next_us = min(next_us, queue.groups.next_us())
            if reason in _MAY_COME:
                due_at = queue.dues.first(queue.name, self._tables.jobs)
                next_us = min(next_us, due_at * 1000) if due_at else next_us
        found = {name: reason for name, reason in reasons.items() if reason}
        return Why(0 if next_us == NEVER else -(-next_us // 1000), found)


class _Call:
    """One fetch on its way."""

    __slots__ = (
        "actions",
        "closed",
        "fetch",
        "left",
        "name",
        "now",
        "pool",
        "taken",
    )

    def __init__(self, fetch: Fetch, name: str, pool: Pool | None, now: int) -> None:
        self.fetch = fetch
        self.name = name
        self.pool = pool
        self.now = now
        self.left = fetch.count
        self.taken: list[Job] = []
        self.actions = 0
        self.closed = False
        """Whether one of its starts has closed a key."""

    def fairness(self, queue: Queue) -> Fairness:
        """How tenants take turns in this fetch."""
        if self.pool is not None and self.pool.fairness is not None:
            return self.pool.fairness
        return queue.resolved.fairness
