"""What a producer asks for: one job, read and checked for shape, not yet decided upon.

`wire` makes it from JSON, `operations/push.py` turns it into a job.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct


class Envelope(Struct, gc=False, eq=False):
    """Numbers are milliseconds; 0 and "" mean not given unless a field says otherwise."""

    type: str
    fixed: bytes
    """The members to be kept as they came: JSON without the outer braces, never empty.

    Everything but what the record itself holds: `specversion`, `args`, `meta`, `retry`, `unique`, `tags`, unknown members and so on, one after the other, separated by commas.
    """
    args: Raw
    id: str = ""
    queue: str = "default"
    priority: int = 0
    meta: Raw | None = None
    scheduled_at: int = 0
    expires_at: int = 0
    timeout_ms: int = 0
    visibility_ms: int = 0
    total_timeout_ms: int = 0
    enqueue_ttl_ms: int = 0
    heartbeat_timeout_ms: int = 0
    result_ttl_ms: int = -1
    """0 keeps no result, -1 keeps it as long as the job."""
    pending: bool = False
    retry: dict[str, Any] | None = None
    unique: dict[str, Any] | None = None
    unique_key: str = ""
    """A fingerprint that the producer computed itself."""
    tenant: str = ""
