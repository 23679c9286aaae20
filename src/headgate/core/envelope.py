"""What a producer asks for: one job, read and checked for shape, not yet decided upon.

`wire` makes it from JSON, `operations/push.py` turns it into a job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from headgate.core.limits import Use

SCHEDULED_FIRST: Final = b'"scheduled_at":'
"""How `fixed` begins when its producer scheduled the job, and never otherwise."""


class Envelope(Struct, gc=False, eq=False):
    """Numbers are milliseconds; 0 and "" mean not given unless a field says otherwise."""

    type: str
    fixed: bytes
    """The members that are kept as they came: JSON without the outer braces, never empty.

    In this order: `scheduled_at` if it was given, `args`, `meta` (`{}` if it was not given), then all others: `expires_at`, `retry`, `unique`, `tags`, `rate_limit`, timeouts, lineage, members that nobody knows.
    What was given in `options` stands beside the rest, under the one name that the protocol prefers.
    Left out are `specversion`, which is a constant, and whatever the record itself says: id, type, queue, priority, timeout, and everything that only a server may state.
    A null where a value is optional is left out as well.
    """
    args: bytes
    id: str = ""
    queue: str = "default"
    priority: int = 0
    meta: bytes = b"{}"
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
    retry: bytes | None = None
    """A JSON object, not yet looked into."""
    unique: bytes | None = None
    """A JSON object, not yet looked into."""
    unique_key: str = ""
    """A fingerprint that the producer computed itself."""
    tenant: str = ""
    """What `meta` says; "" where it names none."""
    uses: Sequence[Use] = ()
    """The keys of `rate_limit`."""


def unscheduled(fixed: bytes) -> bytes:
    """The members without the `scheduled_at` that its producer gave."""
    if not fixed.startswith(SCHEDULED_FIRST):
        return fixed
    # The literal is an instant in quotes, so the next quote and comma end it.
    return fixed[fixed.index(b'",') + 2 :]
