"""Rate-limit keys: how far they are used up, who runs, who waits."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from headgate.client.amounts import Duration, Instant, at_ms, ms_of
from headgate.client.core import Core, at
from headgate.client.draft import Enqueued
from headgate.client.errors import ValidationError
from headgate.client.jobs import AsyncJob, Job
from headgate.client.pages import every
from headgate.client.policies import Rate, rate_wire
from headgate.client.sides import AsyncSide, SyncSide, reading, verb
from headgate.core.times import instant_text

J = TypeVar("J")
L = TypeVar("L")
LEAVE: Any = object()
"""A limit that is not touched; None lifts one."""


class _Limit(Generic[J]):
    """One key."""

    def __init__(self, core: Core, key: str) -> None:
        self._core = core
        self.key = key

    def __repr__(self) -> str:
        return f"<limit {self.key}>"

    @verb
    async def inspect(self, /) -> dict[str, Any]:
        """The limits of the key and how far they are used up. Raises NotFoundError."""
        return await self._ask("get_limit", "GET", "")

    @verb
    async def override(
        self,
        /,
        *,
        concurrency: int | None = LEAVE,
        rate: str | Rate | None = LEAVE,
        throttle: str | Rate | None = LEAVE,
        lasting: Duration | None = None,
        until: Instant | None = None,
    ) -> dict[str, Any]:
        """Put other limits upon the key, for a time or until `release`; None lifts a limit meanwhile."""
        body: dict[str, Any] = {}
        if concurrency is not LEAVE:
            body["concurrency"] = concurrency
        for name, value in (("rate", rate), ("throttle", throttle)):
            if value is not LEAVE:
                body[name] = None if value is None else rate_wire(value, name)
        if lasting is not None and until is not None:
            raise ValidationError("override takes either lasting or until")
        if lasting is not None:
            now_ms = self._core.clock.now_ms()
            body["expires_at"] = instant_text(now_ms + ms_of(lasting, "lasting"))
        elif until is not None:
            body["expires_at"] = instant_text(at_ms(until, "until"))
        return await self._ask("override_limit", "PUT", "", body)

    @verb
    async def release(self, /) -> None:
        """Take back an override, and end a hold."""
        await self._ask("release_limit", "DELETE", "")

    @reading
    async def allowed(self) -> list[J]:
        """The jobs of the key that run, and those that it would let start now; oldest first."""
        return await self._jobs("allowed")

    @reading
    async def rate_limited(self) -> list[J]:
        """The jobs that wait for the key; oldest first."""
        return await self._jobs("rate_limited")

    async def _jobs(self, part: str) -> list[J]:
        path = f"{at('rate-limits', self.key)}/jobs"
        records = await every(self._core, "limit_jobs", path, part)
        return [self._handle(Enqueued(record)) for record in records]

    async def _ask(
        self, operation: str, method: str, part: str, body: object = None
    ) -> dict[str, Any]:
        path = at("rate-limits", self.key) + part
        found: dict[str, Any] = await self._core.call(operation, method, path, body)
        return found

    def _handle(self, done: Enqueued) -> J:
        raise NotImplementedError


class Limit(_Limit[Job[Any]], SyncSide):
    """One key, for callers that block."""

    def _handle(self, done: Enqueued) -> Job[Any]:
        return Job(self._core, done)


class AsyncLimit(_Limit[AsyncJob[Any]], AsyncSide):
    """One key, for callers that await."""

    def _handle(self, done: Enqueued) -> AsyncJob[Any]:
        return AsyncJob(self._core, done)


class _Limits(Generic[L]):
    """All keys."""

    def __init__(self, core: Core, one: type[L]) -> None:
        self._core = core
        self._one = one

    def __getitem__(self, key: str) -> L:
        make: Any = self._one
        found: L = make(self._core, key)
        return found

    @verb
    async def all(self, /) -> list[dict[str, Any]]:
        """Every key that the server knows, with its limits and their use."""
        return await every(self._core, "list_limits", "/rate-limits", "items")


class Limits(_Limits[Limit], SyncSide):
    """`hg.limits["reports"]`, for callers that block."""


class AsyncLimits(_Limits[AsyncLimit], AsyncSide):
    """`hg.limits["reports"]`, for callers that await."""
