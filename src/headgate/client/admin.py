"""Administration: lists of everything, and what operators do with jobs and queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from headgate.client.core import BASE, Core, at, manifest
from headgate.client.draft import Enqueued
from headgate.client.jobs import AsyncJob, Job
from headgate.client.pages import every
from headgate.client.sides import AsyncSide, SyncSide, verb

J = TypeVar("J")


class _Admin(Generic[J]):
    def __init__(self, core: Core) -> None:
        self._core = core

    @verb
    async def list_queues(self, /) -> list[dict[str, Any]]:
        """Every queue with its state and counts."""
        return await every(self._core, "list_queues", "/admin/queues", "items")

    @verb
    async def get_job(self, job_id: str, /) -> J:
        """A handle of any job. Raises JobNotFoundError."""
        body = await self._core.call("get_job", "GET", at("jobs", job_id), job_id=job_id)
        return self._handle(body["job"])

    @verb
    async def list_jobs(
        self,
        /,
        *,
        queue: str | None = None,
        state: str | None = None,
        type: str | None = None,  # noqa: A002 - the wire's own word
        most: int | None = 1_000,
    ) -> list[J]:
        """Jobs that match; `type` may end in `*`."""
        query = {"queue": queue, "state": state, "type": type}
        records = await every(self._core, "list_jobs", "/admin/jobs", "items", query, most)
        return [self._handle(record) for record in records]

    @verb
    async def retry_job(self, job_id: str, /) -> J:
        """Start a discarded job over."""
        path = f"{at('admin', 'jobs', job_id)}/retry"
        await self._core.call("retry_job", "POST", path, {}, job_id=job_id, tries=1)
        return self._handle({"id": job_id, **await self._record(job_id)})

    @verb
    async def discard_job(self, job_id: str, /) -> J:
        """Let a job not run any more: it is cancelled."""
        await self._core.call("discard_job", "DELETE", at("jobs", job_id), job_id=job_id, tries=1)
        return self._handle(await self._record(job_id))

    @verb
    async def pause_queue(self, name: str, /) -> None:
        """Give out no more jobs of a queue."""
        path = f"{at('queues', name)}/pause"
        await self._core.call("pause_queue", "POST", path, {}, queue=name)

    @verb
    async def resume_queue(self, name: str, /) -> None:
        """Give out jobs of a queue again."""
        path = f"{at('queues', name)}/resume"
        await self._core.call("resume_queue", "POST", path, {}, queue=name)

    @verb
    async def list_dead(self, /, *, queue: str | None = None, most: int | None = 1_000) -> list[J]:
        """Dead letters, the newest first."""
        records = await every(
            self._core, "list_dead", "/admin/dead-letter", "items", {"queue": queue}, most
        )
        return [self._handle(record) for record in records]

    @verb
    async def retry_dead(self, job_id: str, /) -> J:
        """Try a dead letter again."""
        path = f"{at('dead-letter', job_id)}/retry"
        body = await self._core.call("retry_dead", "POST", path, {}, job_id=job_id, tries=1)
        return self._handle(body["job"])

    @verb
    async def retry_all_dead(self, filter: Mapping[str, Any], /) -> dict[str, Any]:  # noqa: A002
        """Try all dead letters that match again."""
        body = {"filter": dict(filter), "confirm": True}
        return await self._ask("retry_all_dead", "POST", "/dead-letter/retry", body)

    @verb
    async def purge_dead(self, filter: Mapping[str, Any], /) -> dict[str, Any]:  # noqa: A002
        """Forget all dead letters that match."""
        body = {"filter": dict(filter), "confirm": True}
        return await self._ask("purge_dead", "DELETE", "/dead-letter", body)

    @verb
    async def list_workers(self, /) -> list[dict[str, Any]]:
        """Every worker with its state and jobs."""
        return await every(self._core, "list_workers", "/admin/workers", "items")

    @verb
    async def quiet_worker(self, worker_id: str, /) -> dict[str, Any]:
        """Tell a worker to take no more jobs."""
        return await self._ask(
            "quiet_worker", "POST", f"{at('admin', 'workers', worker_id)}/quiet", {}
        )

    @verb
    async def stats(self, /) -> dict[str, Any]:
        """Jobs, queues, workers and throughput."""
        return await self._ask("stats", "GET", "/admin/stats")

    @verb
    async def health(self, /) -> dict[str, Any]:
        """Whether the server is well."""
        return await self._ask("health", "GET", "/health")

    @verb
    async def manifest(self, /) -> dict[str, Any]:
        """What the server can do."""
        return await manifest(self._core)

    @verb
    async def request(
        self,
        method: str,
        path: str,
        body: object = None,
        /,
        *,
        query: Mapping[str, Any] | None = None,
    ) -> Any:
        """Any request below `/ojs/v1`, for what has no method of its own."""
        path = path.removeprefix(BASE)
        return await self._core.call("request", method, path, body, query=query, tries=1)

    async def _record(self, job_id: str) -> dict[str, Any]:
        body = await self._core.call("get_job", "GET", at("jobs", job_id), job_id=job_id)
        found: dict[str, Any] = body["job"]
        return found

    async def _ask(
        self, operation: str, method: str, path: str, body: object = None
    ) -> dict[str, Any]:
        tries = None if method == "GET" else 1
        found: dict[str, Any] = await self._core.call(operation, method, path, body, tries=tries)
        return found

    def _handle(self, record: dict[str, Any]) -> J:
        raise NotImplementedError


class Admin(_Admin[Job[Any]], SyncSide):
    """`hg.admin`, for callers that block."""

    def _handle(self, record: dict[str, Any]) -> Job[Any]:
        return Job(self._core, Enqueued(record))


class AsyncAdmin(_Admin[AsyncJob[Any]], AsyncSide):
    """`hg.admin`, for callers that await."""

    def _handle(self, record: dict[str, Any]) -> AsyncJob[Any]:
        return AsyncJob(self._core, Enqueued(record))
