"""`Headgate` and `AsyncHeadgate`: declare work, enqueue it, look after it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack

from headgate import ids
from headgate.client.admin import Admin, AsyncAdmin
from headgate.client.chain import Chain
from headgate.client.clock import Clock, SystemClock
from headgate.client.core import Core, at
from headgate.client.declared import Register
from headgate.client.declaring import AsyncTaskDecorator, TaskDecorator
from headgate.client.draft import Draft, Enqueued, EnqueueMiddleware
from headgate.client.enqueue import Enqueue
from headgate.client.errors import OjsTimeoutError, ValidationError
from headgate.client.jobs import AsyncJob, Job
from headgate.client.limits import AsyncLimit, AsyncLimits, Limit, Limits
from headgate.client.options import Options, check, envelope
from headgate.client.parts import Parts
from headgate.client.pools import AsyncPool, AsyncPools, Pool, Pools
from headgate.client.pressure.breaker import Breaker
from headgate.client.pressure.buffer import Buffer
from headgate.client.pressure.waits import Waits
from headgate.client.queues import AsyncQueue, Queue
from headgate.client.settings import read, tls_context
from headgate.client.sides import AsyncSide, SyncSide, verb
from headgate.client.transport.contract import Transport
from headgate.client.transport.http import HttpTransport
from headgate.client.values import builtins

J = TypeVar("J")


class _Client(Generic[J]):
    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        tenant: str | None = None,
        timeout: float = 30.0,
        connect_timeout: float = 5.0,
        retry: Waits | None = None,
        breaker: Breaker | bool = True,
        buffer: Buffer | None = None,
        block: float = 0.0,
        middleware: Iterable[EnqueueMiddleware] = (),
        transport: Transport | None = None,
        clock: Clock | None = None,
        parts: Parts | None = None,
    ) -> None:
        """Where the server is, and what to do when it cannot take a job.

        `retry` says how often and when a refused or failed request is sent again, `breaker` when to stop asking (False: never), `buffer` where to keep jobs meanwhile, and `block` for how many seconds the server may hold an enqueue until there is room.
        """
        if parts is None:
            settings = read()
            if transport is None:
                transport = HttpTransport(
                    url or settings.url,
                    token=token or settings.token,
                    tls=tls_context(settings),
                    connect_s=connect_timeout,
                )
            core = Core(
                transport,
                clock=clock or SystemClock(),
                waits=retry or Waits(),
                timeout_s=timeout,
                tenant=tenant,
            )
            if breaker is True:
                breaker = Breaker()
            enqueue = Enqueue(core, breaker or None, buffer, Chain(middleware), block)
            parts = Parts(core, enqueue, Register(), settings)
        self.parts = parts

    @property
    def middleware(self) -> Chain[EnqueueMiddleware]:
        """What is called around every enqueue."""
        return self.parts.enqueue.middleware

    @property
    def register(self) -> Register:
        """The declared handlers, by job type."""
        return self.parts.register

    @verb
    async def enqueue(self, job_type: str, /, *args: Any, **options: Unpack[Options]) -> J:
        """Enqueue a job by the name of its type, wherever its handler may be."""
        check(options)
        now_ms = self.parts.core.clock.now_ms()
        packed = builtins(list(args), f"an argument of {job_type}")
        body = envelope(job_type, packed, {}, options, now_ms)
        body.setdefault("id", ids.uuid7(now_ms))
        done = await self.parts.enqueue.one(Draft(body))
        if done is None:
            raise ValidationError(f"middleware dropped the job {job_type}", code="dropped")
        return self._handle(done)

    @verb
    async def enqueue_batch(self, jobs: Iterable[dict[str, Any]], /) -> list[J]:
        """Enqueue envelopes as the protocol has them: `{"type": …, "args": […], …}`."""
        now_ms = self.parts.core.clock.now_ms()
        drafts = [Draft({"id": ids.uuid7(now_ms), **job}) for job in jobs]
        done = await self.parts.enqueue.many(drafts)
        return [self._handle(one) for one in done if one is not None]

    @verb
    async def job_by_id(self, job_id: str, /) -> J:
        """A handle of any job. Raises JobNotFoundError."""
        body = await self.parts.core.call("get_job", "GET", at("jobs", job_id), job_id=job_id)
        return self._handle(Enqueued(body["job"]))

    @verb
    async def cancel(self, job_id: str, /) -> J:
        """Cancel any job. Raises ConflictError when it has ended."""
        body = await self.parts.core.call(
            "cancel", "DELETE", at("jobs", job_id), job_id=job_id, tries=1
        )
        return self._handle(Enqueued(body["job"]))

    @verb
    async def explain(self, job: str | Job[Any] | AsyncJob[Any], /) -> dict[str, Any]:
        """Why a job does not run: its place in line, and every gate that is closed for it."""
        job_id = job if isinstance(job, str) else job.id
        found: dict[str, Any] = await self.parts.core.call(
            "explain", "GET", f"{at('jobs', job_id)}/explain", job_id=job_id
        )
        return found

    @verb
    async def results(self, jobs: Sequence[str], /) -> dict[str, Any]:
        """The results of those of the jobs that have completed, by id."""
        body = await self.parts.core.call("results", "POST", "/jobs/results", {"ids": list(jobs)})
        return {
            job_id: one.get("result")
            for job_id, one in body["results"].items()
            if one.get("state") == "completed"
        }

    @verb
    async def flush(self, /, timeout: float | None = None) -> None:
        """Return when the local buffer is empty. Raises OjsTimeoutError after `timeout` seconds."""
        await self._flush(timeout)

    @verb
    async def close(self, /, timeout: float = 5.0) -> None:
        """Empty the local buffer, for so many seconds at most, and close what is open."""
        drain = self.parts.enqueue.drain
        if drain is not None:
            with suppress(OjsTimeoutError):
                await self._flush(timeout)
            await drain.stop()
            drain.buffer.close()
        await self.parts.core.transport.close()

    async def _flush(self, timeout: float | None) -> None:
        drain = self.parts.enqueue.drain
        if drain is None:
            return
        try:
            async with asyncio.timeout(timeout):
                await drain.flush()
        except TimeoutError:
            raise OjsTimeoutError(
                f"{len(drain.buffer)} jobs are still in the local buffer", operation="flush"
            ) from None

    def _handle(self, done: Enqueued) -> J:
        raise NotImplementedError


class Headgate(_Client[Job[Any]], SyncSide):
    """A client for programs that block. Any thread may use it."""

    @property
    def job(self) -> TaskDecorator:
        """Declare a handler: `@hg.job`, or `@hg.job(queue="reports", ...)`."""
        return TaskDecorator(self.parts)

    def queue(self, name: str) -> Queue:
        return Queue(self.parts.core, name)

    @property
    def limits(self) -> Limits:
        """The rate-limit keys: `hg.limits["reports"]`."""
        return Limits(self.parts.core, Limit)

    @property
    def pools(self) -> Pools:
        """The worker pools: `hg.pools["general"]`."""
        return Pools(self.parts.core, Pool)

    @property
    def admin(self) -> Admin:
        """Lists, and what operators do."""
        return Admin(self.parts.core)

    @property
    def aio(self) -> AsyncHeadgate:
        """The same client for callers that await."""
        return AsyncHeadgate(parts=self.parts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _handle(self, done: Enqueued) -> Job[Any]:
        return Job(self.parts.core, done)


class AsyncHeadgate(_Client[AsyncJob[Any]], AsyncSide):
    """A client for programs that await. It may be used on any loop."""

    @property
    def job(self) -> AsyncTaskDecorator:
        """Declare a handler: `@hg.job`, or `@hg.job(queue="reports", ...)`."""
        return AsyncTaskDecorator(self.parts)

    def queue(self, name: str) -> AsyncQueue:
        return AsyncQueue(self.parts.core, name)

    @property
    def limits(self) -> AsyncLimits:
        """The rate-limit keys: `hg.limits["reports"]`."""
        return AsyncLimits(self.parts.core, AsyncLimit)

    @property
    def pools(self) -> AsyncPools:
        """The worker pools: `hg.pools["general"]`."""
        return AsyncPools(self.parts.core, AsyncPool)

    @property
    def admin(self) -> AsyncAdmin:
        """Lists, and what operators do."""
        return AsyncAdmin(self.parts.core)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _handle(self, done: Enqueued) -> AsyncJob[Any]:
        return AsyncJob(self.parts.core, done)
