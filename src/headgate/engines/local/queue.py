"""One queue: its settings, its line of available jobs, how many jobs it has and what happened lately."""

from __future__ import annotations

from typing import Any

import msgspec

from headgate.core import queues as rules
from headgate.core.job import Job
from headgate.core.queues import EMPTY, SYSTEM, QueueConfig, Resolved
from headgate.core.states import STATES, TERMINAL
from headgate.engines.contract import QueueView
from headgate.engines.local.lanes import Group, Lane
from headgate.engines.local.rates import Recent

LIVE = tuple(state for state in STATES if state not in TERMINAL)


class Stored(msgspec.Struct, omit_defaults=True):
    """What is kept of a queue besides its jobs."""

    created_at: int
    updated_at: int
    state: str = rules.ACTIVE
    paused_at: int = 0
    config: dict[str, Any] = {}


class Queue:
    __slots__ = (
        "config",
        "counts",
        "created_at",
        "exists",
        "group",
        "lane",
        "name",
        "paused",
        "paused_at",
        "recent",
        "resolved",
        "updated_at",
        "waiting",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.exists = False
        """A deleted queue is remembered while finished jobs of it are kept."""
        self.paused = False
        self.paused_at = 0
        self.created_at = 0
        self.updated_at = 0
        self.config: QueueConfig = EMPTY
        self.resolved: Resolved = SYSTEM
        self.counts: dict[str, int] = dict.fromkeys(STATES, 0)
        self.recent = Recent()
        self.waiting: dict[Any, None] = {}
        """Those who wait for work of this queue, in the order in which they came."""
        self.group = Group()
        self.lane: Lane = self.group.lane(())

    def line_of(self, job: Job) -> Lane:
        """The lane in which this job has to stand."""
        return self.lane

    def head(self) -> Job | None:
        """The job that would be fetched first."""
        lane = self.group.best()
        return None if lane is None else lane.head()

    @property
    def live(self) -> int:
        """How many jobs have not ended."""
        counts = self.counts
        return sum(counts[state] for state in LIVE)

    def stored(self) -> bytes:
        return msgspec.msgpack.encode(
            Stored(
                self.created_at,
                self.updated_at,
                rules.PAUSED if self.paused else rules.ACTIVE,
                self.paused_at,
                msgspec.to_builtins(self.config),
            )
        )

    def restore(self, packed: bytes) -> None:
        stored = msgspec.msgpack.decode(packed, type=Stored)
        self.exists = True
        self.created_at = stored.created_at
        self.updated_at = stored.updated_at
        self.paused = stored.state == rules.PAUSED
        self.paused_at = stored.paused_at
        self.config = msgspec.convert(stored.config, QueueConfig)

    def view(self, now_ms: int) -> QueueView:
        head = self.oldest()
        return QueueView(
            self.name,
            rules.PAUSED if self.paused else rules.ACTIVE,
            self.created_at,
            self.updated_at,
            self.config,
            self.resolved,
            dict(self.counts),
            self.recent.rates(now_ms),
            head.enqueued_at if head is not None else 0,
            self.paused_at,
        )

    def oldest(self) -> Job | None:
        """The available job that has waited longest."""
        return self.lane.oldest()
