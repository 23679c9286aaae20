"""What a handler may know of its job and say about it while it runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from contextvars import ContextVar
from functools import cached_property
from typing import Any, Final

from headgate.client.core import Core, at
from headgate.client.sides import AsyncSide, SyncSide, verb
from headgate.client.values import builtins

UNSET: Final[Any] = object()
_log = logging.getLogger("headgate.job")


class Context:
    """The job that runs."""

    def __init__(self, core: Core, job: Mapping[str, Any], worker_id: str = "") -> None:
        self._core = core
        self._told: threading.Event | None = None
        self._why = ""
        self._result: Any = UNSET
        self.job = job
        """The record as it was fetched."""
        self.worker_id = worker_id

    @cached_property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records name the job."""
        about = {
            "ojs.job_id": self.id,
            "ojs.job_type": self.type,
            "ojs.job_attempt": self.attempt,
        }
        return logging.LoggerAdapter(_log, about)

    @property
    def id(self) -> str:
        return str(self.job["id"])

    @property
    def type(self) -> str:
        return str(self.job["type"])

    @property
    def queue(self) -> str:
        return str(self.job.get("queue", "default"))

    @property
    def attempt(self) -> int:
        """1 at the first start."""
        return int(self.job.get("attempt", 1))

    @property
    def max_attempts(self) -> int | None:
        return self.job.get("max_attempts")

    @property
    def deferrals(self) -> int:
        """How often the job was put off without being charged an attempt."""
        return int(self.job.get("deferrals", 0))

    @property
    def meta(self) -> Mapping[str, Any]:
        return self.job.get("meta") or {}

    @property
    def tags(self) -> list[str]:
        return list(self.job.get("tags") or ())

    @property
    def parent_results(self) -> list[Any]:
        """The results of the steps before this one in its workflow."""
        return list(self.job.get("parent_results") or ())

    @property
    def workflow_id(self) -> str | None:
        return self.job.get("workflow_id")

    @property
    def saved(self) -> Any:
        """What an earlier attempt saved with `checkpoint`; None when it saved nothing."""
        return self.job.get("checkpoint")

    @property
    def cancelled(self) -> bool:
        """Whether the job shall stop: it was cancelled, is out of time, was lost to another worker, or the worker ends."""
        return bool(self._why)

    @property
    def cancelled_because(self) -> str:
        """cancelled, timeout, lost or shutdown; empty while the job may go on."""
        return self._why

    def wait_cancelled(self, timeout: float | None = None) -> bool:
        """Block until the job shall stop, or for so many seconds: a sleep that can be interrupted."""
        told = self._told
        if told is None:
            self._told = told = threading.Event()
            # Whoever interrupted before this found nobody to tell.
            if self._why:
                told.set()
        return told.wait(timeout)

    def set_result(self, value: Any) -> None:
        """The job's result; what the handler returns does not count then."""
        self._result = value

    def interrupt(self, why: str) -> None:
        """For the worker: the job shall stop."""
        self._why = self._why or why
        if self._told is not None:
            self._told.set()

    def outcome(self, returned: Any) -> Any:
        """For the worker: the result, given what the handler returned."""
        return returned if self._result is UNSET else self._result

    @verb
    async def progress(
        self, /, progress: float, message: str | None = None, *, data: Any = None
    ) -> None:
        """Tell how far the job has come, from 0 to 1. It is a sign of life too."""
        body: dict[str, Any] = {"progress": progress}
        if message is not None:
            body["message"] = message
        if data is not None:
            body["data"] = builtins(data, "the data of a progress report")
        await self._core.call(
            "progress", "PUT", f"{at('jobs', self.id)}/progress", body, job_id=self.id
        )

    @verb
    async def checkpoint(self, /, state: Any) -> None:
        """Save something that the next attempt finds in `saved`, should this one not come to its end."""
        body = {"state": builtins(state, "a checkpoint")}
        await self._core.call(
            "checkpoint", "PUT", f"{at('jobs', self.id)}/checkpoint", body, job_id=self.id
        )

    @verb
    async def heartbeat(self, /) -> None:
        """Say that the job lives. The worker does so by itself; this is for handlers that want to be sure."""
        body = {"worker_id": self.worker_id, "active_jobs": [self.id]}
        answer = await self._core.call("heartbeat", "POST", "/workers/heartbeat", body)
        if self.id in answer.get("cancelled_jobs", ()):
            self.interrupt("cancelled")


class JobContext(Context, SyncSide):
    """The job that runs, for handlers that are plain functions.

    A handler gets it when its first parameter is annotated with this class.
    """


class AsyncJobContext(Context, AsyncSide):
    """The job that runs, for handlers that are coroutines.

    A handler gets it when its first parameter is annotated with this class.
    """


_current: ContextVar[Context | None] = ContextVar("headgate_job", default=None)


def current() -> Context | None:
    """The job that runs here; None outside of handlers."""
    return _current.get()


def enter(context: Context) -> object:
    """For the worker: `current()` gives this context from now on in this thread or task."""
    return _current.set(context)
