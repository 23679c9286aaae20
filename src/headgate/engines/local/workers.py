"""Workers that reported themselves: who is alive, and what each was told to become."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Raw

from headgate.engines.contract import Report, WorkerView
from headgate.engines.local.life import Life
from headgate.engines.local.timers import Alarm

DIRECTIVE = "directive"
MEMBER = "member"
DEFAULT_POOL = "default"
RUNNING = "running"
_AT_WORK = frozenset({"", RUNNING, "active"})


class Worker:
    __slots__ = (
        "alarm",
        "beat_at",
        "concurrency",
        "done",
        "hostname",
        "id",
        "labels",
        "pid",
        "pool",
        "queues",
        "started_at",
        "state",
        "version",
    )

    def __init__(self, worker: str, alarm: Alarm) -> None:
        self.id = worker
        self.alarm = alarm
        self.state = RUNNING
        self.started_at = 0
        self.beat_at = 0
        self.done = 0
        self.hostname = ""
        self.pid = 0
        self.queues: Sequence[str] = ()
        self.concurrency = 0
        self.labels: Raw | None = None
        self.version = ""
        self.pool = DEFAULT_POOL

    def learn(self, report: Report) -> None:
        """Take over what the report says."""
        for name in ("state", "hostname", "pid", "queues", "concurrency", "labels", "version"):
            value = getattr(report, name)
            if value is not None:
                setattr(self, name, value)
        if report.pool is not None:
            self.pool = report.pool
        if report.started_at is not None:
            self.started_at = report.started_at


class Workers:
    """A worker that reported itself and then is silent is dead: its jobs go back."""

    __slots__ = (
        "_events",
        "_life",
        "_on_place",
        "_on_rest",
        "_remembering",
        "_silence_ms",
        "_spare",
        "_tables",
        "directives",
        "known",
        "pools",
    )

    def __init__(
        self,
        life: Life,
        silence_ms: int,
        on_rest: Callable[[str], None],
        on_place: Callable[[str], None],
    ) -> None:
        self._life = life
        self._tables = life.tables
        self._events = life.tables.events
        self._silence_ms = silence_ms
        self._on_rest = on_rest
        """Called with a worker that gets no more jobs."""
        self._on_place = on_place
        """Called with a worker that may be served from elsewhere from now on."""
        self.known: dict[str, Worker] = {}
        self.directives: dict[str, str] = {}
        self.pools: dict[str, str] = {}
        """Worker -> its pool where that is another than `default`; this outlives the process."""
        self._remembering = Alarm(self._forget_pools)
        self._spare: dict[str, Worker] = {}
        """Pool -> one of its workers that could carry more when it was looked at last."""

    def pool_of(self, worker: str) -> str:
        """The pool that it belongs to, also before it is heard of for the first time after a restart."""
        known = self.known.get(worker)
        return self.pools.get(worker, DEFAULT_POOL) if known is None else known.pool

    def remember_pools(self, pools: Mapping[str, str], now: int) -> None:
        """What the last process knew; whoever is not heard of in time is forgotten as if it had just gone."""
        self.pools.update(pools)
        if pools:
            self._tables.timers.arm(self._remembering, now + self._silence_ms)

    def _forget_pools(self, at: int) -> None:
        for name in [name for name in self.pools if name not in self.known]:
            self._set_pool(name, DEFAULT_POOL)
            self._on_place(name)

    def _set_pool(self, name: str, pool: str) -> None:
        if self.pools.get(name, DEFAULT_POOL) == pool:
            return
        if pool == DEFAULT_POOL:
            del self.pools[name]
            self._tables.set_thing(MEMBER, name, None)
        else:
            self.pools[name] = pool
            self._tables.set_thing(MEMBER, name, pool.encode())

    def at_work(self, worker: str) -> bool:
        """Whether it may be given jobs; one that nobody knows may."""
        if not self.known and not self.directives:
            return True
        known = self.known.get(worker)
        return worker not in self.directives and (known is None or known.state in _AT_WORK)

    def all_busy(self, pool: str) -> bool:
        """Whether the pool has workers, and each that takes jobs has as many as it says that it can carry."""
        spare = self._spare.get(pool)
        if spare is not None and self._can_carry_more(spare, pool):
            return False
        mine = False
        for worker in self.known.values():
            if self._can_carry_more(worker, pool):
                self._spare[pool] = worker
                return False
            mine = mine or (worker.pool == pool and bool(worker.concurrency))
        self._spare.pop(pool, None)
        return mine

    def _can_carry_more(self, worker: Worker, pool: str) -> bool:
        if worker.pool != pool or self.known.get(worker.id) is not worker:
            return False
        if not self.at_work(worker.id):
            return False
        held = self._tables.held.get(worker.id, ())
        return not worker.concurrency or len(held) < worker.concurrency

    def beat(self, report: Report, now: int) -> Worker:
        name = report.worker
        worker = self.known.get(name)
        new = worker is None
        if worker is None:
            worker = self.known[name] = Worker(name, Alarm(lambda at: self._listen_for(name, at)))
            worker.started_at = now
            worker.pool = self.pools.get(name, DEFAULT_POOL)
        resting = not self.at_work(name)
        before = worker.state
        place = worker.pool, worker.concurrency
        worker.learn(report)
        self._set_pool(name, worker.pool)
        worker.beat_at = now
        self._tables.timers.arm(worker.alarm, now + self._silence_ms)
        if new:
            data = {"queues": list(worker.queues), "concurrency": worker.concurrency}
            self._tell("worker.started", name, now, data)
        if worker.state != before and worker.state not in _AT_WORK:
            held = self._tables.held.get(name, {})
            self._tell("worker.quiet", name, now, {"active_jobs": len(held)})
        if not resting and not self.at_work(name):
            self._on_rest(name)
        elif new or place != (worker.pool, worker.concurrency):
            self._on_place(name)
        return worker

    def directive(self, worker: str) -> str:
        return self.directives.get(worker, RUNNING)

    def direct(self, name: str, state: str) -> bool:
        if name not in self.known:
            return False
        if state == RUNNING:
            self._undirect(name)
        elif self.directives.get(name) != state:
            self.directives[name] = state
            self._tables.set_thing(DIRECTIVE, name, state.encode())
            self._on_rest(name)
        return True

    def _undirect(self, name: str) -> None:
        if self.directives.pop(name, None) is not None:
            self._tables.set_thing(DIRECTIVE, name, None)

    def forget(self, name: str, reason: str, at: int) -> int | None:
        """The worker is gone; how many jobs went back."""
        worker = self.known.pop(name, None)
        if worker is None:
            return None
        self._tables.timers.disarm(worker.alarm)
        self._undirect(name)
        self._set_pool(name, DEFAULT_POOL)
        held = sorted(self._tables.held.get(name, {}).values(), key=lambda job: job.seq)
        for job in held:
            self._life.lose(job, "worker_death", f"worker {name} is gone", at)
        data: dict[str, Any] = {
            "reason": reason,
            "jobs_completed": worker.done,
            "uptime_ms": at - worker.started_at,
        }
        self._tell("worker.stopped", name, at, data)
        # Nobody knows its pool any more: what it still waits for may come from elsewhere.
        self._on_place(name)
        return len(held)

    def _listen_for(self, name: str, at: int) -> None:
        """Its alarm rang: dead, or heard of since."""
        worker = self.known.get(name)
        if worker is None:
            return
        silent_until = worker.beat_at + self._silence_ms
        if silent_until <= at:
            self.forget(name, "error", at)
        else:
            self._tables.timers.arm(worker.alarm, silent_until)

    def view(self, worker: Worker, now: int) -> WorkerView:
        return WorkerView(
            worker.id,
            worker.state,
            self.directive(worker.id),
            worker.started_at,
            worker.beat_at,
            now - worker.beat_at > self._silence_ms // 2,
            list(self._tables.held.get(worker.id, {})),
            worker.hostname,
            worker.pid,
            worker.queues,
            worker.concurrency,
            worker.labels,
            worker.version,
            worker.pool,
        )

    def _tell(self, kind: str, name: str, at: int, data: dict[str, Any]) -> None:
        self._events.add(kind, at, name, data=data)
