"""Every start of a job, and how many there were of which."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from headgate.testing.enqueued import What, type_of

How: TypeAlias = Literal["running", "completed", "failed", "deferred", "lost"]


class Start(Struct):
    """One start of a job."""

    at_s: float
    """Seconds since the harness began."""
    job_id: str
    type: str
    queue: str
    tenant: str
    keys: tuple[str, ...]
    """Its rate-limit keys."""
    attempt: int
    how: How = "running"


class Starts:
    """Counts starts of a rate-limit key, a handler, a queue, a tenant, or all."""

    starts: list[Start]
    """Every start of a job, in order."""

    def started(
        self,
        key: str | None = None,
        *,
        task: What | None = None,
        queue: str | None = None,
        tenant: str | None = None,
    ) -> int:
        """How many times jobs were started: of a rate-limit key, a handler, a queue, a tenant, or all."""
        return len(self._some(None, key, task, queue, tenant))

    def completed(
        self,
        key: str | None = None,
        *,
        task: What | None = None,
        queue: str | None = None,
        tenant: str | None = None,
    ) -> int:
        """How many jobs have completed."""
        return len(self._some("completed", key, task, queue, tenant))

    def failed(
        self,
        key: str | None = None,
        *,
        task: What | None = None,
        queue: str | None = None,
        tenant: str | None = None,
    ) -> int:
        """How many attempts have failed."""
        return len(self._some("failed", key, task, queue, tenant))

    def running(
        self,
        key: str | None = None,
        *,
        task: What | None = None,
        queue: str | None = None,
        tenant: str | None = None,
    ) -> int:
        """How many jobs run now."""
        return len(self._some("running", key, task, queue, tenant))

    def _some(
        self,
        how: How | None,
        key: str | None,
        task: What | None,
        queue: str | None,
        tenant: str | None,
    ) -> list[Start]:
        job_type = type_of(task)
        return [
            one
            for one in self.starts
            if how in {None, one.how}
            and (key is None or key in one.keys)
            and job_type in {None, one.type}
            and queue in {None, one.queue}
            and tenant in {None, one.tenant}
        ]
