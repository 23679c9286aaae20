"""What can be set, and what holds when nothing is."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

Durability = Literal["full", "normal"]
LogFormat = Literal["json", "text"]
LogLevel = Literal["debug", "info", "warning", "error"]
Role = Literal["producer", "worker", "operator", "admin"]

Port = Annotated[int, Meta(ge=0, le=65_535)]
Name = Annotated[str, Meta(min_length=1)]
MOST = 2**31 - 1
"""More than anybody needs of anything, and as much as the parts underneath can count to."""
Positive = Annotated[int, Meta(ge=1, le=MOST)]
Origin = Annotated[str, Meta(pattern=r"^https?://[^/\s*]+$")]
Reference = Annotated[str, Meta(min_length=1, max_length=2_000, pattern=r"^\S+$")]
Seconds = Annotated[float, Meta(gt=0, le=MOST)]


class Token(Struct, frozen=True, forbid_unknown_fields=True):
    """Who may come in: the token itself is known only to its holder."""

    name: Name
    roles: Annotated[tuple[Role, ...], Meta(min_length=1)]
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """What one request or connection may ask for."""

    envelope_bytes: Positive = 10 << 20
    """One job, decompressed."""
    body_bytes: Positive = 32 << 20
    """One request, decompressed."""
    meta_bytes: Positive = 64 << 10
    """The `meta` of one job."""
    result_bytes: Positive = 1 << 20
    """The result of one job."""
    checkpoint_bytes: Positive = 1 << 20
    """One saved checkpoint."""
    progress_bytes: Positive = 64 << 10
    """The `data` of one report of progress."""
    batch_items: Positive = 1_000
    """Jobs in one request that enqueues, names or looks up many."""
    fetch_jobs: Positive = 1_000
    """Jobs that one fetch may ask for, or one exchange or heartbeat may name."""
    fetch_queues: Positive = 1_000
    """Queues that one fetch may name."""
    nesting: Positive = 32
    """Levels of objects and arrays in one JSON document."""
    keys: Positive = 10_000
    """In one JSON document; a batch may have as many for each of its items."""
    header_bytes: Positive = 32 << 10
    """Request line and headers of one request, and what stands around its body in chunks."""
    header_timeout_s: Seconds = 30.0
    """For the request line and headers to arrive."""
    body_timeout_s: Seconds = 60.0
    """For the body to arrive."""
    idle_timeout_s: Seconds = 120.0
    """How long a connection may stay open between two requests."""
    wait_ms: Annotated[int, Meta(ge=0, le=MOST)] = 30_000
    """The longest that a fetch or a result may be waited for."""
    connections: Positive = 10_000
    """Connections at one time."""
    in_flight: Positive = 5_000
    """Requests being answered at one time."""
    streams: Positive = 1_000
    """Event streams at one time."""
    outgoing_bytes: Positive = 1 << 20
    """Of one connection: answers written but not yet taken by the client."""


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    host: Name = "127.0.0.1"
    """Address to listen at; one that others can reach needs tokens, or `insecure`."""
    port: Port = 8080
    """Port to listen at; 0 lets the system choose one."""
    store: Name = "sqlite:///headgate.db"
    """Where the state is kept: `sqlite:///PATH`, `sqlite:////ABSOLUTE/PATH` or `memory:`."""
    durability: Durability = "full"
    """What an answered request survives: `full` a power cut, `normal` a killed process."""
    log_format: LogFormat = "json"
    """One JSON object a line, or `text` for people."""
    log_level: LogLevel = "info"
    """The least severe records that are written."""
    access_log: bool = False
    """Log every request."""
    test_hooks: bool = False
    """Let clients wipe everything and direct workers; for test suites only."""
    insecure: bool = False
    """Allow an address that others can reach without any token."""
    strict_queues: bool = False
    """Refuse jobs for queues that nobody created."""
    strict_tenants: bool = False
    """Refuse producers and workers that name no tenant."""
    heartbeat_timeout_s: Positive = 30
    """A worker that is silent for so long is dead."""
    shutdown_s: Seconds = 30.0
    """How long SIGTERM lets requests finish."""
    events_kept: Positive = 100_000
    """How many events are kept, in memory, for readers."""
    instance: Annotated[str, Meta(pattern="^[A-Za-z0-9._-]{1,128}$")] = "main"
    """Names this server in the source of its events."""
    cors_origins: tuple[Origin, ...] = ()
    """Origins whose pages may read answers in a browser, such as `https://ops.example.com`."""
    repository: Reference = "urn:ojs:implementation:headgate"
    """Where the source of this installation can be found, for the manifest. Whoever packages or runs it knows; the default is a name and leads nowhere."""
    homepage: Reference = "/openapi.json"
    """A page about this installation, for the manifest; by default the description of its API that it serves itself."""
    tokens: tuple[Token, ...] = ()
    """Who may come in; none means everybody."""
    limits: Limits = Limits()
