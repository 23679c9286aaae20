"""What can be set, and what holds when nothing is."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Durability = Literal["full", "normal"]
LogFormat = Literal["json", "text"]
Role = Literal["producer", "worker", "operator", "admin"]


class Token(Struct, frozen=True):
    """Who may come in: the token itself is known only to its holder."""

    name: str
    roles: tuple[Role, ...]
    sha256: str


class Limits(Struct, frozen=True):
    """What one request or connection may ask for."""

    envelope_bytes: int = 10 << 20
    """One job, decompressed."""
    body_bytes: int = 32 << 20
    """One request, decompressed."""
    meta_bytes: int = 64 << 10
    result_bytes: int = 1 << 20
    checkpoint_bytes: int = 1 << 20
    progress_bytes: int = 64 << 10
    batch_items: int = 1_000
    fetch_jobs: int = 1_000
    fetch_queues: int = 1_000
    nesting: int = 32
    keys: int = 10_000
    header_bytes: int = 32 << 10
    header_timeout_s: float = 30.0
    body_timeout_s: float = 60.0
    idle_timeout_s: float = 120.0
    wait_ms: int = 30_000
    """The longest that a fetch or a result may be waited for."""
    connections: int = 10_000
    in_flight: int = 5_000
    """Requests being answered at one time."""
    streams: int = 1_000
    """Event streams at one time."""
    outgoing_bytes: int = 1 << 20
    """Of one connection: answers written but not yet taken by the client."""


class Settings(Struct, frozen=True):
    host: str = "127.0.0.1"
    port: int = 8080
    store: str = "sqlite:///headgate.db"
    durability: Durability = "full"
    log_format: LogFormat = "json"
    log_level: str = "info"
    access_log: bool = False
    test_hooks: bool = False
    insecure: bool = False
    """Allow an address that others can reach without any token."""
    strict_queues: bool = False
    """Refuse jobs for queues that nobody created."""
    heartbeat_timeout_s: int = 30
    """A worker that is silent for so long is dead."""
    shutdown_s: float = 30.0
    """How long SIGTERM lets requests finish."""
    events_kept: int = 100_000
    tokens: tuple[Token, ...] = ()
    limits: Limits = Limits()
