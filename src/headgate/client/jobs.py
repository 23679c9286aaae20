"""A handle of one job: where it stands, what came of it."""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar, cast

from headgate.client.core import Core, at
from headgate.client.draft import Enqueued
from headgate.client.errors import (
    ExecutionError,
    JobNotFoundError,
    NotFoundError,
    OjsError,
    OjsTimeoutError,
)
from headgate.client.sides import AsyncSide, SyncSide, verb
from headgate.client.values import convert

T = TypeVar("T")
J = TypeVar("J")
TERMINAL: Final = frozenset({"completed", "cancelled", "discarded"})
_ONE_WAIT_S: Final = 20.0
_LOOK_AGAIN_S: Final = 1.0


class _Job(Generic[T, J]):
    """What is known of a job; `refresh` and `wait` look again."""

    def __init__(self, core: Core, done: Enqueued, returns: Any = Any) -> None:
        self._core = core
        self._returns = returns
        self.record = done.record
        """All that the server said of the job when it was last asked."""
        self.deduplicated = done.deduplicated
        """Whether this is a job that was there before, and made a new one unnecessary."""
        self.pressure = done.pressure
        """How full the queue was, 0 to 1, where the server said so."""

    @property
    def id(self) -> str:
        return str(self.record["id"])

    @property
    def type(self) -> str:
        return str(self.record["type"])

    @property
    def queue(self) -> str:
        return str(self.record.get("queue", "default"))

    @property
    def state(self) -> str:
        """A state of the protocol, or `buffered` while the job waits here for a server that can take it."""
        return str(self.record.get("state", "available"))

    @property
    def attempt(self) -> int:
        return int(self.record.get("attempt", 0))

    @property
    def error(self) -> dict[str, Any] | None:
        """What the last failed attempt said."""
        found = self.record.get("error")
        return found if isinstance(found, dict) else None

    @property
    def finished(self) -> bool:
        return self.state in TERMINAL

    @property
    def result(self) -> T:
        """What the handler returned. Raises ExecutionError when the job ended otherwise, OjsError when it has not ended."""
        if self.state == "completed":
            found: T = convert(
                self.record.get("result"), self._returns, f"the result of {self.type}"
            )
            return found
        if not self.finished:
            raise OjsError(
                f"job {self.id} has not ended, it is {self.state}; wait() for it",
                code="conflict",
                job_id=self.id,
                queue=self.queue,
            )
        error = self.error or {}
        reason = str(error.get("message") or error.get("type") or "no error was kept")
        raise ExecutionError(
            f"job {self.id} was {self.state}: {reason}",
            code=str(error.get("code") or self.state),
            job_id=self.id,
            queue=self.queue,
            attempt=self.attempt,
            details=error,
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lstrip('_')} {self.id} {self.type} {self.state}>"

    @verb
    async def refresh(self, /) -> J:
        """Ask the server how the job is."""
        await self._look("get_job")
        return cast("J", self)

    @verb
    async def wait(self, /, timeout: float | None = None) -> J:
        """Return when the job has ended, however it did. Raises OjsTimeoutError after `timeout` seconds."""
        await self._wait(timeout)
        return cast("J", self)

    @verb
    async def cancel(self, /) -> J:
        """Cancel it; a worker that runs it is told. Raises ConflictError when it has ended already."""
        await self._change("cancel", "DELETE", at("jobs", self.id))
        return cast("J", self)

    @verb
    async def retry(self, /) -> J:
        """Start a discarded job over. Raises ConflictError in any other state that does not wait for a retry."""
        await self._change("retry_job", "POST", f"{at('admin', 'jobs', self.id)}/retry", {})
        return cast("J", self)

    @verb
    async def activate(self, /) -> J:
        """Let a pending job run."""
        await self._change("activate", "POST", f"{at('jobs', self.id)}/activate", {})
        return cast("J", self)

    @verb
    async def prioritize(self, /, priority: int) -> J:
        """Give a job that waits another priority."""
        await self._core.call(
            "prioritize", "PATCH", at("jobs", self.id), {"priority": priority}, job_id=self.id
        )
        await self._look("prioritize")
        return cast("J", self)

    @verb
    async def progress(self, /) -> dict[str, Any]:
        """How far it has come: `progress` from 0 to 1, `message`, `data`."""
        return await self._ask("progress", "progress")

    @verb
    async def checkpoint(self, /) -> Any:
        """What the handler saved last; None when it saved nothing."""
        try:
            return (await self._ask("checkpoint", "checkpoint")).get("state")
        except NotFoundError:
            return None

    @verb
    async def explain(self, /) -> dict[str, Any]:
        """Why it does not run: its place in line, and every gate that is closed for it."""
        return await self._ask("explain", "explain")

    async def _ask(self, operation: str, part: str) -> dict[str, Any]:
        found: dict[str, Any] = await self._core.call(
            operation, "GET", f"{at('jobs', self.id)}/{part}", job_id=self.id
        )
        return found

    async def _change(self, operation: str, method: str, path: str, body: object = None) -> None:
        # Sent once: a second try could be refused because the first one was not lost after all.
        found = await self._core.call(
            operation, method, path, body, job_id=self.id, queue=self.queue, tries=1
        )
        record = found.get("job", found) if isinstance(found, dict) else {}
        if "state" in record:
            self.record = {**self.record, **record}
        else:
            await self._look(operation)

    async def _look(self, operation: str) -> None:
        body = await self._core.call(operation, "GET", at("jobs", self.id), job_id=self.id)
        self.record = body["job"]

    async def _wait(self, timeout: float | None) -> None:
        clock = self._core.clock
        until_s = None if timeout is None else clock.elapsed_s() + timeout
        while not self.finished:
            left_s = _ONE_WAIT_S if until_s is None else until_s - clock.elapsed_s()
            if left_s <= 0:
                raise OjsTimeoutError(
                    f"job {self.id} has not ended within {timeout:g} s, it is {self.state}",
                    operation="wait",
                    job_id=self.id,
                    queue=self.queue,
                )
            pause_s = await self._wait_once(min(left_s, _ONE_WAIT_S))
            if pause_s:
                await clock.sleep(min(pause_s, left_s))

    async def _wait_once(self, seconds: float) -> float:
        """Wait at the server where it can; how long to wait here then."""
        pause_s = 0.0
        if self.state != "buffered":
            try:
                await self._core.call(
                    "wait",
                    "GET",
                    f"{at('jobs', self.id)}/result",
                    query={"wait": "true", "timeout": max(1, round(seconds))},
                    job_id=self.id,
                    timeout_s=seconds + self._core.timeout_s,
                )
            except OjsTimeoutError as error:
                if not error.status:
                    raise
            except (NotFoundError, OjsError) as error:
                if error.status not in {400, 404, 405, 409, 410}:
                    raise
                # A server without this request, or a result that was not kept.
                pause_s = _LOOK_AGAIN_S
        else:
            pause_s = _LOOK_AGAIN_S
        try:
            await self._look("wait")
        except JobNotFoundError:
            if self.state != "buffered":
                raise
        return 0.0 if self.finished else pause_s


class Job(_Job[T, "Job[T]"], SyncSide):
    """A handle of one job, for callers that block."""


class AsyncJob(_Job[T, "AsyncJob[T]"], AsyncSide):
    """A handle of one job, for callers that await."""
