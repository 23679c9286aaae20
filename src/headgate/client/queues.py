"""A queue: its settings, its state, its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypedDict, Unpack

from headgate.client.amounts import Duration, ms_of
from headgate.client.core import Core, at
from headgate.client.policies import Rate, RetryPolicy, rate_wire
from headgate.client.sides import AsyncSide, SyncSide, verb
from headgate.core.times import SECOND_MS, duration_text


class QueueSettings(TypedDict, total=False):
    """What `configure` takes; None clears a setting, so that the default policy decides again."""

    max_depth: int | None
    """How many jobs may wait before producers are refused."""
    max_size: int | None
    """The same, counting those that run."""
    max_size_bytes: int | None
    overflow: Literal["reject", "block", "drop_oldest"] | None
    warning_threshold: float | None
    concurrency: int | None
    rate: str | Rate | None
    throttle: str | Rate | None
    visibility_timeout: Duration | None
    default_timeout: Duration | None
    default_retry: RetryPolicy | None
    dead_letter_queue: str | None
    dead_letter_max_size: int | None
    dead_letter_ttl: Duration | None
    retention: Mapping[str, Duration | None] | None
    """For `completed`, `discarded` and `cancelled` jobs."""
    allowed_job_types: Sequence[str] | None
    producers: Sequence[str] | None
    tenant_fairness: Mapping[str, Any] | None


_BOUNDS: Final = {
    "max_depth": "max_depth",
    "max_size_bytes": "max_size_bytes",
    "overflow": "strategy",
    "warning_threshold": "warning_threshold",
}
_LIMITS: Final = ("rate", "throttle")
_SECONDS: Final = ("visibility_timeout", "default_timeout")


def wire(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as a server reads them."""
    body: dict[str, Any] = {}
    for name, value in settings.items():
        if name in _BOUNDS:
            body.setdefault("backpressure", {})[_BOUNDS[name]] = value
        elif name in _LIMITS:
            found = None if value is None else rate_wire(value, name)
            body.setdefault("rate_limit", {})[name] = found
        elif value is None:
            body[name] = None
        elif name in _SECONDS:
            body[name] = -(-ms_of(value, name) // SECOND_MS)
        elif name == "dead_letter_ttl":
            body[name] = duration_text(ms_of(value, name))
        elif name == "retention":
            body[name] = {
                state: None if kept is None else duration_text(ms_of(kept, f"retention.{state}"))
                for state, kept in value.items()
            }
        elif isinstance(value, RetryPolicy):
            body[name] = value.wire()
        else:
            body[name] = value
    return body


class _Queue:
    def __init__(self, core: Core, name: str) -> None:
        self._core = core
        self.name = name

    def __repr__(self) -> str:
        return f"<queue {self.name}>"

    @verb
    async def info(self, /) -> dict[str, Any]:
        """State, settings and counts. Raises NotFoundError."""
        return await self._ask("get_queue", "GET", "")

    @verb
    async def stats(self, /) -> dict[str, Any]:
        """Counts per state, throughput, mean times."""
        found: dict[str, Any] = (await self._ask("queue_stats", "GET", "/stats"))["stats"]
        return found

    @verb
    async def config(self, /) -> dict[str, Any]:
        """What holds for this queue, whoever said it."""
        return await self._ask("queue_config", "GET", "/config")

    @verb
    async def configure(self, /, **settings: Unpack[QueueSettings]) -> dict[str, Any]:
        """Change settings; those not given stay as they are. Gives what holds now. Creates the queue if need be."""
        return await self._ask("configure_queue", "PUT", "/config", wire(settings))

    @verb
    async def pause(self, /) -> None:
        """Give out no more jobs; new ones are still taken."""
        await self._ask("pause_queue", "POST", "/pause", {})

    @verb
    async def resume(self, /) -> None:
        """Give out jobs again, and take new ones if it was draining."""
        await self._ask("resume_queue", "POST", "/resume", {})

    @verb
    async def drain(self, /) -> dict[str, Any]:
        """Take no new jobs, and delete the queue when the last one has ended."""
        return await self._ask("drain_queue", "POST", "/drain", {})

    @verb
    async def delete(
        self, /, strategy: Literal["reject", "discard", "move"] = "reject", to: str | None = None
    ) -> dict[str, Any]:
        """Delete the queue. With `reject` only when nothing is left to do in it; `move` brings its jobs `to` another queue."""
        body = {"strategy": strategy} | ({} if to is None else {"target_queue": to})
        return await self._ask("delete_queue", "DELETE", "", body, tries=1)

    async def _ask(
        self,
        operation: str,
        method: str,
        part: str,
        body: object = None,
        tries: int | None = None,
    ) -> dict[str, Any]:
        found: dict[str, Any] = await self._core.call(
            operation,
            method,
            at("queues", self.name) + part,
            body,
            queue=self.name,
            tries=tries,
        )
        return found


class Queue(_Queue, SyncSide):
    """A queue, for callers that block."""


class AsyncQueue(_Queue, AsyncSide):
    """A queue, for callers that await."""
