"""What the model remembers: jobs, queues, workers, and everything that decides who may start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headgate.core import queues as rules
from headgate.core.gates import Gate
from headgate.core.order import Guarantee, Turn
from headgate.core.pools import Pool
from headgate.core.queues import QueueConfig
from headgate.core.replays import ReplayRule
from headgate.core.retry import RetryPolicy
from headgate.core.tenants import Shares, TenantLimits
from headgate.core.windows import Window
from headgate.engines.contract import Draft, Maintenance

TERMINAL = ("completed", "cancelled", "discarded")
WAITING = ("available", "scheduled", "retryable", "pending")
"""Live, and not with a worker."""


class ErrorEntry(NamedTuple):
    attempt: int
    code: str
    type: str
    at: int


class Past(NamedTuple):
    """A change of state."""

    at: int
    event: str
    was: str
    state: str
    attempt: int = 0
    worker: str = ""
    by: str = ""
    reason: str = ""
    times: int = 1


class Progress(NamedTuple):
    part: float | None = None
    data: bytes | None = None
    message: str | None = None
    at: int = 0


class Saved(NamedTuple):
    """A checkpoint."""

    sequence: int
    at: int
    state: bytes


@dataclass
class Entry:
    """A job, with a field for everything that can be observed or decides something."""

    id: str
    type: str
    queue: str
    priority: int
    created_at: int
    max_attempts: int
    timeout_ms: int
    visibility_ms: int
    expires_at: int
    expires_as: str
    give_up_at: int
    stall_ms: int
    retry: RetryPolicy
    unique: str | None
    tenant: str
    keys: tuple[tuple[str, str], ...]
    """By the names under which they are kept, each with what happens when it is closed."""
    fixed: bytes
    state: str
    due_at: int
    seq: int = 0
    attempt: int = 0
    claim: int = 0
    entered_at: int = 0
    """When it came into its state: nothing can befall it there any earlier."""
    enqueued_at: int = 0
    started_at: int = 0
    heard_at: int = 0
    visible_until: int = 0
    asked_ms: int = 0
    """How long a reservation the fetch asked for; 0 when it asked for none."""
    finished_at: int = 0
    activated_at: int = 0
    re_enqueued_at: int = 0
    retry_delay_ms: int = -1
    deferrals: int = 0
    worker: str = ""
    pool: str = ""
    result: bytes | None = None
    dead: bool = False
    reason: str = ""
    cancelled_while_active: bool = False
    postponed_by: str = ""
    """The key that put it off, while it is scheduled for that."""
    origin: str = ""
    """The queue that a dead letter came from."""
    buried_at: int = 0
    buried_for: str = ""
    buried_attempts: int = 0
    errors: list[ErrorEntry] = field(default_factory=list)
    past: list[Past] = field(default_factory=list)
    """Everything that happened to it, since its history was deleted last."""
    progress: Progress = field(default_factory=Progress)
    checkpoint: Saved | None = None
    replays: int = 0
    """How often a rule let it start over."""

    @property
    def live(self) -> bool:
        return self.state not in TERMINAL

    @property
    def size(self) -> int:
        return len(self.fixed) + len(self.type) + 200

    def has_key(self, key: str) -> bool:
        return any(name == key for name, _ in self.keys)


@dataclass
class Worker:
    beat_at: int
    state: str = "running"
    pool: str = "default"
    concurrency: int = 0

    @property
    def works(self) -> bool:
        return self.state in ("", "running", "active")


@dataclass
class Queue:
    created_at: int
    paused_at: int = 0
    config: QueueConfig = rules.EMPTY
    paused: bool = False
    draining: bool = False
    leaving: tuple[str, str] | None = None
    """What becomes of the jobs of a queue that is being deleted, and where they go."""
    gate: Gate | None = None
    """Of its own limits, while it has any."""
    shares: Shares = field(default_factory=Shares)
    warned: bool = False
    full: bool = False


@dataclass
class Tenant:
    limits: TenantLimits
    known_at: int
    gate: Gate | None = None
    window: Window | None = None
    """Of accepted pushes, while their rate is limited."""


@dataclass
class PoolState:
    """A pool, and whose turn it is there."""

    pool: Pool
    turn: Turn
    guarantee: Guarantee | None = None
    members: set[int] = field(default_factory=set)
    """The queues that have something for it."""


@dataclass(eq=False)
class Place:
    """A producer who waits before full queues."""

    drafts: Sequence[Draft]
    needs: dict[str, tuple[int, int]]
    """The queues before which it stands, and how many jobs and bytes want to enter each."""


class Said(NamedTuple):
    """An outcome: its name, the job that it is about, and the rest of what it says."""

    kind: str
    job_id: str
    rest: tuple[Any, ...] = ()


class Happening(NamedTuple):
    at: int
    seq: int
    turn: int
    """Which of two things comes first that befall one job in the same instant."""
    act: Callable[[int], None]


class Event(NamedTuple):
    kind: str
    at: int
    subject: str
    state: str = ""
    data: tuple[Any, ...] = ()


@dataclass
class State:
    jobs: list[Entry] = field(default_factory=list)
    """In the order of their acceptance."""
    last_seq: int = 0
    now: int = 0
    now_us: int = 0
    queues: dict[str, Queue] = field(default_factory=lambda: {"default": Queue(0)})
    policy: QueueConfig = rules.EMPTY
    maintenance: Maintenance | None = None
    gates: dict[str, Gate] = field(default_factory=dict)
    """Of all known keys, those known longest first."""
    rested_until: int = 0
    """When the last maintenance ended: what a rule had meant to do before is done then."""
    told: set[tuple[str, str]] = field(default_factory=set)
    """Key and queue: somebody was told that jobs wait there."""
    tenants: dict[str, Tenant] = field(default_factory=dict)
    """Those with limits."""
    members: dict[str, str] = field(default_factory=dict)
    """Workers and their pools, as far as a restart remembers them."""
    members_until: int = 0
    """So long those are remembered that were not heard of since a restart; 0 when there was none."""
    workers: dict[str, Worker] = field(default_factory=dict)
    """Only those that registered or beat."""
    directives: dict[str, str] = field(default_factory=dict)
    rules: dict[str, ReplayRule] = field(default_factory=dict)
    """By which dead letters start over."""
    answers: dict[tuple[str, str], tuple[bytes, int]] = field(default_factory=dict)
    """Kept for repeated requests: the answer, and until when."""
    events: list[Event] = field(default_factory=list)
