"""Which job a fetch takes: pools, turns, tenants, and what happens to jobs that will not wait for a key."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial

from headgate.core.limits import queue_key, tenant_key
from headgate.core.order import RoundRobin, Strict, Turn, Weighted, turn_of
from headgate.core.pools import Pool
from headgate.core.tenants import DEFAULT_TENANT, Fairness
from headgate.engines.contract import Fetch
from tests.model.admission import Admission
from tests.model.records import Entry, PoolState, Progress

DUE = ("scheduled", "retryable")
ACTIONS = 64
"""So many jobs are dropped or put off by one fetch; then it passes them over."""
TURNS = 1_000
"""Of so many bare fetches the turn is remembered."""

Turns = OrderedDict[tuple[str, tuple[str, ...], tuple[int, ...]], tuple[Turn, set[int]]]


class Dispatch(Admission):
    def __init__(self) -> None:
        super().__init__()
        self.turns: Turns = OrderedDict()
        """Of bare fetches, the one used latest last."""

    def fetch(self, fetch: Fetch, now: int) -> list[Entry]:
        now = self.catch_up(now, fetch.micros)
        taken: list[Entry] = []
        actions = 0
        while len(taken) < fetch.count and not self.refusal(fetch):
            chosen = self._choose(fetch, acting=actions < ACTIONS)
            if chosen is None:
                break
            job, served = chosen
            if self.actionable(job):
                actions += 1
                self._act(job, now)
            else:
                self._start(job, fetch, now)
                served()
                taken.append(job)
            self.settle()
        return taken

    # who asks

    def at_work(self, worker: str) -> bool:
        """Whether it may be given jobs; one that nobody knows may."""
        known = self.state.workers.get(worker)
        return worker not in self.state.directives and (known is None or known.works)

    def pool_name(self, fetch: Fetch) -> str:
        known = self.state.workers.get(fetch.worker)
        remembered = self.state.members.get(fetch.worker, "default")
        return fetch.pool or (known.pool if known else remembered)

    def refusal(self, fetch: Fetch) -> str:
        """Why this one gets nothing, whatever there is; "" when it may get something."""
        if self.state.maintenance:
            return "maintenance"
        if not self.at_work(fetch.worker):
            return "worker_resting"
        name = self.pool_name(fetch)
        pool = self.pools.get(name)
        if self._is_full(name):
            return "pool_full"
        strategy = pool.pool.strategy if pool is not None else fetch.strategy
        worker = self.state.workers.get(fetch.worker)
        if strategy == "least-loaded" and worker is not None and worker.concurrency:
            held = len(self.held_by(fetch.worker))
            return "worker_full" if held >= worker.concurrency else ""
        return ""

    def queues_of(self, fetch: Fetch) -> Sequence[str]:
        pool = self.pools.get(self.pool_name(fetch))
        return pool.pool.queues if pool is not None else list(dict.fromkeys(fetch.queues))

    def fetchable(self, fetch: Fetch) -> list[str]:
        """The queues in which this fetch would find something to take or to act upon."""
        if self.refusal(fetch):
            return []
        return [q for q in self.queues_of(fetch) if self._first(q, fetch, acting=True)]

    def next_opening(self, fetch: Fetch) -> int:
        """The first instant (in ms) at which a schedule, or only the end of a window, a hold or an interval brings something; 0 when none is known.

        It is told to those who find nothing, and only gates of jobs and queues that they may be served from count.
        """
        if self.refusal(fetch) or self.fetchable(fetch):
            return 0
        now_us, name = self.state.now_us, self.pool_name(fetch)
        found = []
        for queue in self.queues_of(fetch):
            if self.left_out(queue, name):
                continue
            waiting = (j for j in self.live() if j.queue == queue and j.state in DUE)
            found += [j.due_at * 1000 for j in waiting if fetch.tenant in ("", j.tenant)]
            for job in self.available(queue):
                closed = [gate.closed(now_us) for gate in self.gates_of(job)]
                ends = [c.opens_at_us for c in closed if c is not None]
                if fetch.tenant in ("", job.tenant) and None not in ends:
                    found.append(max(end for end in ends if end is not None))
        return -(-min(found) // 1000) if found else 0

    def barriers(self, job_id: str) -> set[tuple[str, str, str]] | None:
        """Kind, scope and name of all that keeps the job from running now, but for who would run it."""
        job = self.find(job_id)
        if job is None:
            return None
        at_rest = {("maintenance", "server", "")} if self.state.maintenance else set()
        if job.state == "pending":
            return {("pending", "job", job.id)}
        if job.state in ("scheduled", "retryable"):
            kind = "retry" if job.state == "retryable" else job.state
            overdue = at_rest and job.due_at <= self.state.now
            return at_rest if overdue else {(kind, "job", job.id), *at_rest}
        if job.state != "available":
            return set()
        names = {
            queue_key(job.queue): ("queue", job.queue),
            tenant_key(job.tenant): ("tenant", job.tenant),
        }
        found: set[tuple[str, str, str]] = {
            (closed.kind, *names.get(gate.key, ("key", gate.key)))
            for gate in self.gates_of(job)
            for closed in gate.closings(self.state.now_us)
        } | at_rest
        if self.state.queues[job.queue].paused:
            found.add(("paused", "queue", job.queue))
        serving = [name for name, pool in self.pools.items() if job.queue in pool.pool.queues]
        if serving and all(self._is_full(name) for name in serving):
            found |= {("pool", "pool", name) for name in serving}
        return found

    def place(self, job_id: str) -> int:
        """How many available jobs of its queue come before it by priority and age."""
        job = self.find(job_id)
        if job is None or job.state != "available":
            return -1
        return self.line(job.queue).index(job)

    def _is_full(self, name: str) -> bool:
        pool = self.pools.get(name)
        if pool is None or pool.pool.concurrency is None:
            return False
        return sum(job.pool == name for job in self.active()) >= pool.pool.concurrency

    # which one

    def _choose(self, fetch: Fetch, *, acting: bool) -> tuple[Entry, Callable[[], None]] | None:
        """The next job, and what is to be called when it is dispatched."""
        queues = self.queues_of(fetch)
        choose, served = self._turn_for(fetch, queues)
        skipped = 0
        while (i := choose(skipped)) is not None:
            job = self._first(queues[i], fetch, acting=acting)
            if job is not None:
                return job, partial(served, i)
            skipped |= 1 << i
        return None

    def _turn_for(
        self, fetch: Fetch, queues: Sequence[str]
    ) -> tuple[Callable[[int], int | None], Callable[[int], None]]:
        now = self.state.now
        pool = self.pools.get(self.pool_name(fetch))
        if pool is not None and pool.guarantee is not None:
            guarantee = pool.guarantee
            return lambda skip: guarantee.choose(now, skip), lambda i: guarantee.served(i, now)
        if pool is not None:
            return pool.turn.choose, pool.turn.served
        turn, members = self._bare_turn(fetch, queues)
        for i, queue in enumerate(queues):
            if self.has_something(queue, self.pool_name(fetch)):
                turn.add(1 << i)
                members.add(i)
            elif i in members:
                turn.drop(1 << i)
                members.discard(i)
        return turn.choose, turn.served

    def _bare_turn(self, fetch: Fetch, queues: Sequence[str]) -> tuple[Turn, set[int]]:
        match fetch.strategy:
            case "round-robin" | "weighted" | "least-loaded" as strategy:
                pass
            case _:
                return Strict(), set()
        key = (fetch.strategy, tuple(queues), tuple(fetch.weights))
        if key not in self.turns:

            def backlog(i: int) -> int:
                return len(self.available(queues[i]))

            self.turns[key] = turn_of(strategy, len(queues), fetch.weights, backlog), set()
            if len(self.turns) > TURNS:
                self.turns.popitem(last=False)
        self.turns.move_to_end(key)
        return self.turns[key]

    def _first(self, queue: str, fetch: Fetch, *, acting: bool) -> Entry | None:
        """The first job of the queue that this fetch could take, or that would be acted upon."""
        if self.left_out(queue, self.pool_name(fetch)):
            return None
        fitting = [
            job
            for job in self.available(queue)
            if fetch.tenant in ("", job.tenant)
            and (self.startable(job) or (acting and self.actionable(job)))
        ]
        fair = self.fairness(queue, fetch).enabled
        shares = self.state.queues[queue].shares

        def place(job: Entry) -> tuple[int, tuple[int, int], int]:
            turn = shares.place(job.priority, job.tenant or DEFAULT_TENANT) if fair else (0, 0)
            return -job.priority, turn, job.seq

        return min(fitting, key=place, default=None)

    def fairness(self, queue: str, fetch: Fetch) -> Fairness:
        pool = self.pools.get(self.pool_name(fetch))
        if pool is not None and pool.pool.fairness is not None:
            return pool.pool.fairness
        return self.settings(queue).fairness

    # what becomes of it

    def _start(self, job: Entry, fetch: Fetch, now: int) -> None:
        job.attempt += 1
        job.claim += 1
        job.started_at = now
        job.heard_at = 0
        job.progress = Progress()
        job.worker = fetch.worker
        job.pool = self.pool_name(fetch)
        job.asked_ms = fetch.visibility_ms
        job.visible_until = now + self.lease_ms(job)
        self.change(job, "active", now, "fetch")
        for gate in self.gates_of(job):
            gate.start(job.id, job.claim, self.state.now_us)
        self.tell("job.started", now, job)
        fairness = self.fairness(job.queue, fetch)
        if fairness.enabled:
            tenant = job.tenant or DEFAULT_TENANT
            shares = self.state.queues[job.queue].shares
            weight = self._weight(fairness, job.tenant, tenant)
            shares.served(job.priority, tenant, weight, in_turn=not fetch.tenant)

    def _weight(self, fairness: Fairness, known_as: str, tenant: str) -> int:
        if tenant in fairness.weights:
            return fairness.weights[tenant]
        limited = self.state.tenants.get(known_as)
        return fairness.default_weight if limited is None else limited.limits.fairness_weight

    def lease_ms(self, job: Entry) -> int:
        return job.asked_ms or job.visibility_ms or self.settings(job.queue).visibility_ms

    def _act(self, job: Entry, now: int) -> None:
        """It meets a key closed and will not wait there."""
        drops = self.closed_keys(job, "drop")
        if drops:
            self.tell("rate_limit.dropped", now, job.id, drops[0])
            self.throw_out(job, "rate_limited", now)
            return
        openings = {}
        for key in self.closed_keys(job, "reschedule"):
            ahead = sum(j.state == "scheduled" and j.postponed_by == key for j in self.live())
            predicted = self.state.gates[key].predict(ahead, self.state.now_us)
            openings[key] = max(now + 1, -(-predicted // 1000))
        key = max(openings, key=lambda key: openings[key])
        self.change(job, "scheduled", now, "reschedule", reason=key)
        job.due_at = openings[key]
        job.postponed_by = key
        self.tell("job.scheduled", now, job)

    # pools

    def set_pool(self, pool: Pool, now: int) -> bool:
        self.catch_up(now)
        known = self.pools.get(pool.name)
        fresh = self.new_pool(pool)
        if known is not None:
            old = known.pool
            if (old.queues, old.strategy, old.weights) == (
                pool.queues,
                pool.strategy,
                pool.weights,
            ):
                fresh.turn = known.turn
                fresh.members = known.members
                fresh.guarantee = known.guarantee
        if fresh.guarantee is None or known is None or known.pool.starvation != pool.starvation:
            self.guard(fresh)
        self.pools[pool.name] = fresh
        self.settle()
        return known is None

    def drop_pool(self, name: str, now: int) -> bool:
        self.catch_up(now)
        dropped = self.pools.pop(name, None)
        self.settle()
        return dropped is not None

    def restore_turn(self, pool: PoolState) -> None:
        """After a restart it is the same queue's turn, and waiting times begin anew."""
        match pool.turn:
            case RoundRobin():
                pool.turn = RoundRobin.unpack(len(pool.pool.queues), pool.turn.pack())
            case Weighted():
                pool.turn = Weighted.unpack(pool.pool.weights, pool.turn.pack())
            case _:
                pool.turn = self.new_pool(pool.pool).turn
        pool.members = set()
        self.guard(pool)
