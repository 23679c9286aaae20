"""What follows from every single thing that happens, found out by looking at everything anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headgate.core import bounds
from headgate.core.bounds import Load
from headgate.core.gates import Gate, Limits, LimitsChange
from headgate.core.limits import queue_key, tenant_key
from headgate.core.order import Guarantee, turn_of
from headgate.core.pools import Pool
from headgate.core.windows import Window
from headgate.engines import contract
from tests.model.ground import Ground
from tests.model.records import WAITING, Entry, PoolState


class Settling(Ground):
    def settle(self) -> None:
        """After each thing that time brought, and at the end of each step: a step is one thing."""
        self.follow_those_who_left()
        self._tell_of_bounds()
        self._delete_drained()
        self._keep_gates()
        self.forget_keys()
        self.tell_of_keys()
        for pool in self.pools.values():
            self._keep_turns(pool)

    # queues that are deleted

    def follow_those_who_left(self) -> None:
        """What comes back to a queue that is being deleted goes where its other jobs went, and on from there."""
        for name, queue in [*self.state.queues.items()] * 2:
            if queue.leaving:
                for job in self.waiting_in(name):
                    self.send_away(job, *queue.leaving)

    def waiting_in(self, queue: str) -> list[Entry]:
        """In the order of their acceptance."""
        return [j for j in self.state.jobs if j.queue == queue and j.state in WAITING]

    def send_away(self, job: Entry, strategy: str, target: str) -> None:
        raise NotImplementedError

    def _delete_drained(self) -> None:
        for name, queue in list(self.state.queues.items()):
            if queue.draining and not any(job.queue == name for job in self.live()):
                self.delete_queue(name, self.state.now)

    def delete_queue(self, name: str, at: int) -> None:
        """Forget all that was said of it; jobs that have ended are kept."""
        del self.state.queues[name]
        self.tell("queue.deleted", at, name)
        self.open_queue("default", at)

    # gates

    def _keep_gates(self) -> None:
        """Queues and tenants have a gate while they have a limit."""
        for name, queue in self.state.queues.items():
            limits = self.settings(name).limits
            holders = [job for job in self.active() if job.queue == name]
            queue.gate = self._kept(queue.gate, queue_key(name), limits, holders)
        for name, tenant in self.state.tenants.items():
            limits = Limits(concurrency=tenant.limits.max_concurrency)
            holders = [job for job in self.active() if job.tenant == name]
            tenant.gate = self._kept(tenant.gate, tenant_key(name), limits, holders)
            rate = tenant.limits.max_enqueue_rate
            if rate is None:
                tenant.window = None
            elif tenant.window is None:
                tenant.window = Window(rate)
            elif tenant.window.rate != rate:
                tenant.window.change(rate)

    @staticmethod
    def _kept(
        gate: Gate | None, name: str, limits: Limits, holders: Sequence[Entry]
    ) -> Gate | None:
        if limits == Limits():
            return None
        if gate is None:
            gate = Gate(name, limits)
            gate.holders = {job.id: job.claim for job in holders}
        gate.register(LimitsChange(limits.concurrency, limits.rate, limits.throttle))
        return gate

    def forget_keys(self) -> None:
        now_us = self.state.now_us
        for gate in self.state.gates.values():
            over = gate.override
            if over is not None and over.expires_at and over.expires_at * 1000 <= now_us:
                gate.impose(None)
        for key, gate in list(self.state.gates.items()):
            named = key in self.entering or any(job.has_key(key) for job in self.live())
            if not named and gate.idle(now_us):
                del self.state.gates[key]

    # telling

    def tell_of_keys(self) -> None:
        """Somebody is told of a few queues when jobs wait there for a key, and of the same when they may start."""
        told = self.state.told
        for key, gate in self.state.gates.items():
            waiting = sorted(
                {job.queue for job in self.live() if job.state == "available" and job.has_key(key)}
            )
            blocked = not self.is_open(gate)
            for _, queue in sorted(each for each in told if each[0] == key):
                if not blocked or queue not in waiting:
                    told.discard((key, queue))
                    if queue in waiting:
                        self.tell("rate_limit.released", self.state.now, key, queue)
            for queue in waiting if blocked else ():
                few = sum(each == key for each, _ in told) < contract.TOLD_QUEUES
                if few and (key, queue) not in told:
                    told.add((key, queue))
                    self.tell("rate_limit.exceeded", self.state.now, key, queue)
        told &= {(key, job.queue) for job in self.live() for key, _ in job.keys}

    def load(self, queue: str) -> Load | None:
        """Of the tightest bound; None where there is none."""
        return bounds.tightest(bounds.loads(self.settings(queue).bounds, self.depth(queue)))

    def _tell_of_bounds(self) -> None:
        now = self.state.now
        for name, queue in self.state.queues.items():
            limits = self.settings(name).bounds
            loads = bounds.loads(limits, self.depth(name))
            tightest = bounds.tightest(loads)
            warned = bounds.warns(limits, tightest)
            if warned != queue.warned:
                kind = "backpressure.warning" if warned else "backpressure.cleared"
                self.tell(kind, now, name, 0 if tightest is None else tightest.bound)
            queue.warned = warned
            full = any(load.depth >= load.bound for load in loads)
            if full and not queue.full:
                self.tell("queue.full", now, name)
            queue.full = full

    # pools

    def left_out(self, queue: str, pool: str) -> str:
        """Why the queue is not served to this pool at all; "" when it is."""
        known = self.state.queues.get(queue)
        if known is None:
            return "unknown"
        if known.paused:
            return "paused"
        owners = [
            each.pool.name
            for each in self.pools.values()
            if each.pool.isolated and queue in each.pool.queues
        ]
        if owners and pool not in owners:
            return "isolated"
        if known.gate is not None and not self.is_open(known.gate):
            return "limited"
        return ""

    @staticmethod
    def oldest_at(jobs: list[Entry]) -> int:
        """Since when the oldest of these waits; 0 when there is none."""
        oldest = min(jobs, key=lambda job: job.seq, default=None)
        return 0 if oldest is None else oldest.enqueued_at

    def oldest_runnable_at(self, queue: str) -> int:
        """Since when the oldest job waits that only wants a worker."""
        known = self.state.queues[queue]
        if (
            self.state.maintenance
            or known.paused
            or (known.gate is not None and not self.is_open(known.gate))
        ):
            return 0
        return self.oldest_at([job for job in self.available(queue) if self.startable(job)])

    def has_something(self, queue: str, pool: str) -> bool:
        return not (self.state.maintenance or self.left_out(queue, pool)) and any(
            self.startable(job) or self.actionable(job) for job in self.available(queue)
        )

    def new_pool(self, pool: Pool) -> PoolState:
        def backlog(i: int) -> int:
            return len(self.available(pool.queues[i]))

        turn = turn_of(pool.strategy, len(pool.queues), pool.weights, backlog)
        return PoolState(pool, turn)

    def guard(self, pool: PoolState) -> None:
        """The waiting times of its queues begin anew."""
        limit = pool.pool.starvation
        pool.guarantee = None
        if limit.enabled:
            size = len(pool.pool.queues)
            pool.guarantee = Guarantee(pool.turn, limit.ratio, limit.interval_ms, size)
            for i in sorted(pool.members):
                pool.guarantee.add(1 << i, self.state.now)

    def _keep_turns(self, pool: PoolState) -> None:
        """Tell its turn of the queues that have something; again and again, because a backlog may grow."""
        for i, queue in enumerate(pool.pool.queues):
            if self.has_something(queue, pool.pool.name):
                pool.members.add(i)
                if pool.guarantee is not None:
                    pool.guarantee.add(1 << i, self.state.now)
                else:
                    pool.turn.add(1 << i)
            elif i in pool.members:
                pool.members.discard(i)
                if pool.guarantee is not None:
                    pool.guarantee.drop(1 << i)
                else:
                    pool.turn.drop(1 << i)

    # instants at which a gate changes by itself

    def gate_changes(self) -> Iterator[int]:
        """In ms, rounded up; gates where nobody waits are looked at as well, because that changes nothing."""
        now_us = self.state.now_us
        for gate in self.all_gates():
            closed = gate.closed(now_us)
            if closed is not None and closed.opens_at_us is not None:
                yield -(-closed.opens_at_us // 1000)
            if gate.override is not None and gate.override.expires_at * 1000 > now_us:
                yield gate.override.expires_at
