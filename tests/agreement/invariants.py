"""What must be true of an engine's own answers in every state, whatever the model says.

A record of all starts is kept here, so that limits are checked against what really started and not against what the engine says that it counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headgate.core.gates import GateState
from headgate.core.job import Job
from headgate.core.limits import queue_key
from headgate.core.windows import Rate
from headgate.engines import contract
from headgate.engines.contract import Event, KeyView, QueueView


@dataclass
class Regime:
    """The starts of a key since its limits were last seen to change."""

    rate: Rate | None = None
    throttle: Rate | None = None
    rate_starts: list[int] = field(default_factory=list)
    throttle_starts: list[int] = field(default_factory=list)

    def see(self, state: GateState) -> None:
        limits = state.limits
        if limits.rate != self.rate:
            self.rate, self.rate_starts = limits.rate, []
        if limits.throttle != self.throttle:
            self.throttle, self.throttle_starts = limits.throttle, []

    def start(self, key: str, at_us: int) -> None:
        if self.rate is not None:
            self.rate_starts.append(at_us)
            recent = [at for at in self.rate_starts if at > at_us - self.rate.period_us]
            assert len(recent) <= self.rate.limit, f"{key}: {recent} within {self.rate}"
        if self.throttle is not None:
            # The interval is period / limit; everything is compared ten limits times.
            each = self.throttle.period_us
            for n, before in enumerate(reversed(self.throttle_starts), 1):
                span = 10 * self.throttle.limit * (at_us - before)
                assert span >= (10 * n - 1) * each, (
                    f"{key}: {n + 1} starts from {before} to {at_us}"
                )
            self.throttle_starts.append(at_us)


class Watcher:
    def __init__(self) -> None:
        self.regimes: dict[str, Regime] = {}
        self.told: dict[tuple[str, str], bool] = {}
        self.last_event = 0

    def restart(self) -> None:
        """Events are forgotten, but not what they told."""
        self.last_event = 0

    def started(
        self, jobs: Iterable[Job], at_us: int, keys: Mapping[str, KeyView], running: list[Job]
    ) -> None:
        """These jobs were just given out; limits cannot have changed meanwhile."""
        for job in jobs:
            for name in [*(key for key, _ in job.keys), queue_key(job.queue)]:
                if name in self.regimes:
                    self.regimes[name].start(name, at_us)
                if name in keys:
                    most = keys[name].state.limits.concurrency
                    holders = sum(any(key == name for key, _ in each.keys) for each in running)
                    assert most is None or holders <= most, f"{name}: {holders} run"

    def look(
        self, keys: list[KeyView], queues: list[QueueView], jobs: list[Job], events: list[Event]
    ) -> None:
        self._look_at_limits(keys, queues)
        self._look_at_holders(keys, queues, jobs)
        self._look_at_told(keys, jobs, events)

    def _look_at_limits(self, keys: list[KeyView], queues: list[QueueView]) -> None:
        states = {key.key: key.state for key in keys}
        states |= {queue_key(q.name): q.limits for q in queues if q.limits is not None}
        for name in [name for name in self.regimes if name not in states]:
            del self.regimes[name]
        for name, state in states.items():
            self.regimes.setdefault(name, Regime()).see(state)

    @staticmethod
    def _look_at_holders(keys: list[KeyView], queues: list[QueueView], jobs: list[Job]) -> None:
        running = [job for job in jobs if job.state == "active"]
        for key in keys:
            holders = sum(any(name == key.key for name, _ in job.keys) for job in running)
            assert key.state.active == holders, f"{key.key}: {holders} run, not {key.state.active}"
        for queue in queues:
            holders = sum(job.queue == queue.name for job in running)
            assert queue.limits is None or queue.limits.active == holders, queue.name

    def _look_at_told(self, keys: list[KeyView], jobs: list[Job], events: list[Event]) -> None:
        """Wherever jobs wait for a closed key, that is what was told last; of very many queues it is told of some."""
        for event in events:
            if event.kind in ("rate_limit.exceeded", "rate_limit.released"):
                assert event.data is not None
                place = (event.data["key"], event.queue)
                self.told[place] = event.kind == "rate_limit.exceeded"
                if event.kind == "rate_limit.released":
                    named = next(job for job in jobs if job.id == event.data["job_id"])
                    assert any(name == place[0] for name, _ in named.keys), f"{event} names another"
        waiting = {
            (name, job.queue) for job in jobs if job.state == "available" for name, _ in job.keys
        }
        for key in keys:
            free = key.state.available != 0 and not key.state.hold_until_us
            if key.waiting and not free:
                places = [place for place in waiting if place[0] == key.key]
                told = sum(self.told.get(place, False) for place in places)
                few = min(contract.TOLD_QUEUES, len(places))
                assert told >= few, f"nobody was told that jobs wait: {places}"

    @staticmethod
    def pushed(queues: Iterable[QueueView]) -> None:
        """Jobs were just taken into these queues."""
        for queue in queues:
            bounds, depth = queue.resolved.bounds, queue.counts
            waiting = sum(
                depth.get(s, 0) for s in ("available", "scheduled", "retryable", "pending")
            )
            found = [
                (bounds.max_depth, waiting),
                (bounds.max_size, waiting + depth.get("active", 0)),
                (bounds.max_size_bytes, queue.bytes),
            ]
            assert all(not bound or size <= bound for bound, size in found), (
                f"{queue.name}: {found}"
            )
