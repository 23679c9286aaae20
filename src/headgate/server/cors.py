"""What browsers are told that show pages of other origins (CORS).

Only pages of the origins in the settings may read answers.
Credentials that browsers send by themselves, such as cookies, mean nothing here, so they are never allowed; a page sends its token itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MAX_AGE_S: Final = 86_400
"""How long a browser need not ask again."""

EXPOSED: Final = (
    "OJS-Version", "X-Request-Id", "Location", "Retry-After", "Allow", "X-OJS-Batch-Size",
    "X-OJS-Max-Batch-Size", "X-OJS-Queue-Depth", "X-OJS-Queue-Bound", "X-OJS-Queue-Pressure",
    "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset",
)  # fmt: skip
"""Headers of answers that such pages may read."""
ACCEPTED: Final = (
    "Authorization", "Content-Type", "Content-Encoding", "Idempotency-Key", "Last-Event-ID",
    "OJS-Version", "OJS-Requires-Extension", "OJS-Block-Timeout", "X-OJS-Tenant",
    "X-OJS-Tenant-ID", "X-Request-Id",
)  # fmt: skip
"""Headers of requests that they may send."""

Headers = list[tuple[bytes, bytes]]

_VARY: Final = (b"vary", b"Origin")
_EXPOSED: Final = (b"access-control-expose-headers", ", ".join(EXPOSED).encode())


class Cors:
    __slots__ = ("_allowed",)

    def __init__(self, origins: Sequence[str]) -> None:
        self._allowed = {origin.encode() for origin in origins}

    def admits(self, origin: bytes, host: bytes) -> bool:
        """Whether a page of this origin may change anything here though nobody has to show a token.

        Without tokens whoever reaches the server may do everything, and a browser reaches it for any page that somebody looks at.
        """
        return origin in self._allowed or origin.partition(b"://")[2] == host

    def told(self, origin: bytes | None) -> Headers:
        """For the answer to a request from this origin; None comes from no page."""
        if origin is None or origin not in self._allowed:
            return [_VARY]
        return [(b"access-control-allow-origin", origin), _VARY, _EXPOSED]


def preflight(methods: Sequence[str]) -> Headers:
    """For the answer to a browser that asks before it sends the request itself."""
    return [
        (b"access-control-allow-methods", ", ".join(methods).encode()),
        (b"access-control-allow-headers", ", ".join(ACCEPTED).encode()),
        (b"access-control-max-age", b"%d" % MAX_AGE_S),
    ]
