"""What a client needs of a transport: one request, one answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct


class Answer(Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class Transport(Protocol):
    """Carries requests to one server.

    Any answer is given back, whatever its status. Raises OjsConnectionError or OjsTimeoutError
    where there is none, and `uncertain` says then whether the server may have seen the request.
    """

    async def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float,
    ) -> Answer: ...

    async def close(self) -> None:
        """Let go of what the running loop holds; another request may follow all the same."""
        ...
