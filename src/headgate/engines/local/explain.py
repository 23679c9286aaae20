"""Why a job stands where it stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Final

from headgate.core.gates import Gate
from headgate.core.job import Job
from headgate.core.limits import queue_key
from headgate.core.states import AVAILABLE, PENDING, RETRYABLE, SCHEDULED
from headgate.engines.contract import Barrier, KeyJobs, KeyView
from headgate.engines.local.keys import Key
from headgate.engines.local.life import Life
from headgate.engines.local.pools import Pools
from headgate.engines.local.workers import Workers

MOST_HOLDERS: Final = 5
MOST_AHEAD: Final = 10_000


class Explainer:
    __slots__ = ("_pools", "_tables", "_workers")

    def __init__(self, life: Life, pools: Pools, workers: Workers) -> None:
        self._tables = life.tables
        self._pools = pools
        self._workers = workers

    # one job

    def barriers(self, job: Job, consumers: int) -> list[Barrier]:
        """All that keeps the job from running now, what is nearest to it first."""
        state = job.state
        if state == PENDING:
            return [Barrier("pending", "job", job.id)]
        if state in (SCHEDULED, RETRYABLE):
            kind = "scheduled" if state == SCHEDULED else "retry"
            by = "" if job.more is None else job.more.postponed_by
            found = self._maintenance()
            if found and job.due_at <= self._tables.now:
                return found
            return [Barrier(kind, "job", job.id, opens_at=job.due_at, reason=by), *found]
        if state != AVAILABLE:
            return []
        found = self._maintenance()
        for key in self._tables.keys.of(job):
            found += self._closings(key, job)
        queue = self._tables.queue(job.queue)
        if queue.paused:
            found.append(Barrier("paused", "queue", queue.name))
        full = self._full_pools(queue.name)
        if full:
            found += full
        if not consumers:
            found.append(Barrier("no_consumers", "queue", queue.name))
        return found

    def _maintenance(self) -> list[Barrier]:
        known = self._tables.maintenance
        if known is None:
            return []
        return [Barrier("maintenance", "server", "", reason=known.reason)]

    def _closings(self, key: Key, job: Job) -> list[Barrier]:
        if key.client:
            scope, name = "key", key.key
        elif key.key == queue_key(job.queue):
            scope, name = "queue", job.queue
        else:
            scope, name = "tenant", job.tenant
        return [
            Barrier(
                closed.kind,
                scope,
                name,
                closed.limit,
                closed.current,
                list(islice(key.holders, MOST_HOLDERS)) if closed.kind == "concurrency" else (),
                0 if closed.opens_at_us is None else -(-closed.opens_at_us // 1000),
                key.hold_reason if closed.kind == "hold" else "",
            )
            for closed in Gate.closings(key, self._tables.keys.now_us)
        ]

    def _full_pools(self, queue: str) -> list[Barrier]:
        """The pools that serve the queue, when none of them has room."""
        serving = [pool for pool in self._pools.known.values() if queue in pool.queues]
        if not serving or any(self._pools.has_room(pool) for pool in serving):
            return []
        active = self._tables.in_pools
        return [
            Barrier("pool", "pool", pool.name, pool.concurrency or 0, active.get(pool.name, 0))
            for pool in serving
        ]

    def consumers(self, queue: str) -> int:
        """Fetches that wait for this queue, and workers that say that they serve it and do not wait."""
        waiters = list(self._tables.queue(queue).waiting)
        waiting = {waiter.fetch.worker for waiter in waiters}
        found = len(waiters)
        for name, worker in self._workers.known.items():
            if name in waiting or not self._workers.at_work(name):
                continue
            pool = self._pools.known.get(worker.pool)
            served: Sequence[str] = worker.queues if pool is None else pool.queues
            if queue in served and not self._pools.is_isolated(queue, worker.pool):
                found += 1
        return found

    # keys

    def key(self, key: Key) -> KeyView:
        now_us = self._tables.keys.now_us
        waiting = max(0, key.waiting - key.permits(now_us))
        return KeyView(key.key, key.state(now_us), waiting)

    def key_jobs(self, key: Key, limit: int, offset: int, tenant: str = "") -> KeyJobs:
        """One page of those that the key allows, followed by those that it does not; of all tenants or of one."""
        jobs = self._tables.jobs
        running = [jobs[job_id] for job_id in key.holders]
        admitted, waiting = min(key.permits(self._tables.keys.now_us), key.waiting), key.waiting
        by_age = key.by_age
        if tenant:
            own = [lane for lane in key.passing if lane.tenant == tenant]
            running = [job for job in running if job.tenant == tenant]
            waiting = sum(lane.size for lane in own)
            if admitted < key.waiting:
                first = islice(key.by_age(), admitted)
                admitted = sum(job.tenant == tenant for job in first)
            else:
                admitted = waiting

            def by_age() -> Iterator[Job]:
                return merge(*(lane.by_age() for lane in own), key=lambda job: job.seq)

        allowed_total = len(running) + admitted
        allowed = running[offset : offset + limit]
        rate_limited: list[Job] = []
        start = max(0, offset - len(running))
        left = limit - len(allowed)
        for place, job in enumerate(islice(by_age(), start, start + left), start):
            (allowed if place < admitted else rate_limited).append(job)
        return KeyJobs(allowed, rate_limited, allowed_total, waiting - admitted)
