"""What every part of the model stands on: its state, and questions about it that are scans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headgate.core import queues as rules
from headgate.core.bounds import Depth
from headgate.core.gates import Gate
from headgate.core.queues import Resolved
from tests.model.records import WAITING, Entry, Event, Place, PoolState, Queue, State


class Ground:
    def __init__(self) -> None:
        self.state = State()
        # What follows is not in the state, because a refused batch need not take it back.
        self.pools: dict[str, PoolState] = {}
        self.places: list[Place] = []
        """Producers who wait, in the order of their arrival."""
        self.entering: set[str] = set()
        """Keys that jobs name which are about to enter: nothing is forgotten of them."""

    # jobs

    def find(self, job_id: str) -> Entry | None:
        return next((job for job in self.state.jobs if job.id == job_id), None)

    def live(self) -> list[Entry]:
        return [job for job in self.state.jobs if job.live]

    def available(self, queue: str) -> list[Entry]:
        return [j for j in self.state.jobs if j.queue == queue and j.state == "available"]

    def active(self) -> list[Entry]:
        """In the order of their start, as far as that is known for sure."""
        held = [job for job in self.state.jobs if job.state == "active"]
        return sorted(held, key=lambda job: (job.started_at, job.seq))

    def held_by(self, worker: str) -> list[Entry]:
        return [j for j in self.state.jobs if j.state == "active" and j.worker == worker]

    def line(self, queue: str) -> list[Entry]:
        """The available jobs of a queue by priority and age."""
        return sorted(self.available(queue), key=lambda job: (-job.priority, job.seq))

    def counts(self, queue: str) -> dict[str, int]:
        states = [job.state for job in self.state.jobs if job.queue == queue]
        return {state: states.count(state) for state in states}

    def depth(self, queue: str) -> Depth:
        live = [job for job in self.live() if job.queue == queue]
        return Depth(
            waiting=sum(job.state in WAITING for job in live),
            active=sum(job.state == "active" for job in live),
            bytes=sum(job.size for job in live),
        )

    # queues

    def settings(self, queue: str) -> Resolved:
        known = self.state.queues.get(queue)
        config = known.config if known is not None else rules.EMPTY
        return rules.resolve(self.state.policy, config, queue)

    def open_queue(self, name: str, now: int) -> Queue:
        if name not in self.state.queues:
            self.state.queues[name] = Queue(now)
        return self.state.queues[name]

    # gates

    def gates_of(self, job: Entry) -> Iterator[Gate]:
        """All that have to be open for the job to start."""
        for key, _ in job.keys:
            yield self.state.gates[key]
        queue = self.state.queues[job.queue]
        if queue.gate is not None:
            yield queue.gate
        tenant = self.state.tenants.get(job.tenant)
        if tenant is not None and tenant.gate is not None:
            yield tenant.gate

    def all_gates(self) -> Iterator[Gate]:
        yield from self.state.gates.values()
        for queue in self.state.queues.values():
            if queue.gate is not None:
                yield queue.gate
        for tenant in self.state.tenants.values():
            if tenant.gate is not None:
                yield tenant.gate

    def is_open(self, gate: Gate) -> bool:
        return gate.closed(self.state.now_us) is None

    def startable(self, job: Entry) -> bool:
        return job.state == "available" and all(self.is_open(gate) for gate in self.gates_of(job))

    def closed_keys(self, job: Entry, on_limit: str) -> list[str]:
        """Those of its closed keys at which this happens to it; a dead letter waits at all of them."""
        if job.origin:
            return []
        gates = self.state.gates
        return [key for key, does in job.keys if does == on_limit and not self.is_open(gates[key])]

    def actionable(self, job: Entry) -> bool:
        return job.state == "available" and bool(
            self.closed_keys(job, "drop") or self.closed_keys(job, "reschedule")
        )

    # telling

    def tell(self, kind: str, at: int, about: Entry | str, *data: Any) -> None:
        if isinstance(about, Entry):
            self.state.events.append(Event(kind, at, about.id, about.state, data))
        else:
            self.state.events.append(Event(kind, at, about, "", data))
