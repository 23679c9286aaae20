"""From drafts to accepted jobs: middleware, breaker, retries, buffer.

Every draft carries its id before it is sent, so sending it again after a lost answer cannot make a second job: the server says that the id exists, and that is the answer that was lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from msgspec import json

from headgate import ids
from headgate.client.chain import Chain
from headgate.client.core import Core, worth_repeating
from headgate.client.draft import Draft, Enqueued, EnqueueMiddleware, EnqueueNext
from headgate.client.errors import (
    BufferFullError,
    CircuitOpenError,
    DuplicateJobError,
    OjsError,
    QueueFullError,
    ResourceError,
)
from headgate.client.pressure.breaker import Breaker
from headgate.client.pressure.buffer import Buffer, Kept
from headgate.client.pressure.drain import Drain

CHUNK_JOBS: Final = 500
CHUNK_BYTES: Final = 4 << 20
_encode: Final = json.Encoder().encode


class Enqueue:
    """Enqueues drafts, one or many."""

    def __init__(
        self,
        core: Core,
        breaker: Breaker | None,
        buffer: Buffer | None,
        middleware: Chain[EnqueueMiddleware],
        block_s: float,
    ) -> None:
        self.core = core
        self.breaker = breaker
        self.middleware = middleware
        self.block_s = block_s
        self.drain = None if buffer is None else Drain(buffer, self._sent_at_once, core)

    async def one(self, draft: Draft) -> Enqueued | None:
        """The accepted job; None when middleware dropped it."""
        send = self._single
        if self.middleware:
            return await self._around(draft, send)
        return await send(draft)

    async def many(self, drafts: Iterable[Draft]) -> list[Enqueued | None]:
        """Every job or its dropping, in order; split into requests that the server takes.

        Each request is all or nothing. When one is refused, the error's `extra["accepted"]` says how many jobs before it were taken.
        """
        done: list[Enqueued | None] = []
        for chunk in chunks(drafts):
            try:
                done += await self._chunk(chunk)
            except OjsError as error:
                taken = sum(one is not None for one in done)
                error.extra["accepted"] = taken + error.extra.get("accepted", 0)
                raise
        return done

    async def _chunk(self, chunk: Sequence[Draft]) -> Sequence[Enqueued | None]:
        if not self.middleware:
            return await self._batch(chunk)
        meeting = _Meeting(len(chunk), self._batch)

        async def through(index: int, draft: Draft) -> Enqueued | None:
            try:
                return await self._around(draft, partial(meeting.arrive, index))
            finally:
                meeting.leave(index)

        return await meeting.result([through(n, draft) for n, draft in enumerate(chunk)])

    def _around(self, draft: Draft, send: EnqueueNext) -> Awaitable[Enqueued | None]:
        wrapped = send
        for middleware in reversed(tuple(self.middleware)):
            wrapped = partial(_call, middleware, wrapped)
        return wrapped(draft)

    async def _single(self, draft: Draft) -> Enqueued:
        (done,) = await self._send([draft], batch=False)
        return done

    async def _batch(self, drafts: Sequence[Draft]) -> Sequence[Enqueued]:
        if not drafts:
            return []
        return await self._send(drafts, batch=True)

    async def _send(self, drafts: Sequence[Draft], *, batch: bool) -> list[Enqueued]:
        """Send until accepted, refused for good, buffered, or tried often enough."""
        if self.drain is not None:
            # What an earlier process left in the buffer does not wait for the next refusal.
            self.drain.start_once()
        for draft in drafts:
            draft.body["id"] = draft.id
        path, data = _request(drafts, batch=batch)
        queues = {draft.queue for draft in drafts}
        waits = self.core.waits
        uncertain = False
        refusals = failures = 0
        waited_s = 0.0
        while True:
            try:
                return await self._sent(path, data, drafts, queues, uncertain=uncertain)
            except OjsError as error:
                error.queue = error.queue or drafts[0].queue
                if not batch:
                    error.job_id = drafts[0].id
                uncertain = uncertain or error.uncertain
                smaller = _smaller(error, len(drafts))
                if smaller:
                    return await self._in_parts(drafts, smaller)
                refused = isinstance(error, ResourceError)
                if not refused and not worth_repeating(error):
                    raise
                if self.drain is not None:
                    return await self._keep(drafts, error)
                refusals += refused
                failures += not refused
                if isinstance(error, CircuitOpenError) or refusals + failures >= waits.tries:
                    raise
                if refused:
                    waited_s = waits.refused(waited_s, error.retry_after_s)
                    await self.core.clock.sleep(waited_s)
                else:
                    await self.core.clock.sleep(waits.failed(failures, ids.uniform()))

    async def _in_parts(self, drafts: Sequence[Draft], size: int) -> list[Enqueued]:
        done: list[Enqueued] = []
        for begin in range(0, len(drafts), size):
            try:
                done += await self._send(drafts[begin : begin + size], batch=True)
            except OjsError as error:
                error.extra["accepted"] = len(done) + error.extra.get("accepted", 0)
                raise
        return done

    async def _sent(
        self,
        path: str,
        data: bytes,
        drafts: Sequence[Draft],
        queues: set[str],
        *,
        uncertain: bool,
    ) -> list[Enqueued]:
        """One try, guarded by the breaker. Raises OjsError."""
        breaker = self.breaker
        if breaker is not None:
            wait_s = breaker.ask(queues, self.core.clock.elapsed_s())
            if wait_s:
                names = ", ".join(sorted(queues))
                raise CircuitOpenError(
                    f"{names} refused too often and is left alone for {wait_s:.1f} s",
                    retry_after_s=wait_s,
                )
        headers = {"ojs-block-timeout": f"{self.block_s:g}"} if self.block_s else None
        try:
            answer, body = await self.core.once(
                "enqueue",
                "POST",
                path,
                data,
                headers=headers,
                timeout_s=self.core.timeout_s + self.block_s,
            )
        except OjsError as error:
            if breaker is not None:
                if isinstance(error, ResourceError):
                    guilty = queues & {error.queue} or queues
                    breaker.refused(guilty, self.core.clock.elapsed_s())
                    breaker.unknown(queues - guilty)
                elif error.status:
                    breaker.accepted(queues)
                else:
                    breaker.unknown(queues)
            if uncertain and _is_ours(error, drafts):
                return [Enqueued({**draft.body, "state": "available"}) for draft in drafts]
            raise
        if breaker is not None:
            breaker.accepted(queues)
        pressure = _fraction(answer.headers.get("x-ojs-queue-pressure"))
        if isinstance(body.get("jobs"), list):
            return [Enqueued(record, pressure=pressure) for record in body["jobs"]]
        return [Enqueued(body["job"], body.get("deduplicated") is True, pressure=pressure)]

    async def _keep(self, drafts: Sequence[Draft], error: OjsError) -> list[Enqueued]:
        assert self.drain is not None
        kept = [Kept(draft.id, draft.queue, _encode(draft.body)) for draft in drafts]
        if not await self.drain.keep(kept):
            raise BufferFullError(
                f"{error.message}; the local buffer is full too",
                queue=error.queue,
                job_id=error.job_id,
                operation="enqueue",
                retry_after_s=error.retry_after_s,
            ) from error
        return [Enqueued({**draft.body, "state": "buffered"}, buffered=True) for draft in drafts]

    async def _sent_at_once(self, bodies: Sequence[bytes], queue: str) -> None:
        """One try for kept jobs of one queue. Raises OjsError."""
        if len(bodies) == 1:
            path, data = "/jobs", bodies[0]
        else:
            path, data = "/jobs/batch", b'{"jobs":[%b]}' % b",".join(bodies)
        await self._sent(path, data, (), {queue}, uncertain=False)


async def _call(
    middleware: EnqueueMiddleware, following: EnqueueNext, draft: Draft
) -> Enqueued | None:
    return await middleware(draft, following)


def _request(drafts: Sequence[Draft], *, batch: bool) -> tuple[str, bytes]:
    if batch:
        return "/jobs/batch", _encode({"jobs": [draft.body for draft in drafts]})
    return "/jobs", _encode(drafts[0].body)


def _smaller(error: OjsError, jobs: int) -> int:
    """The size of smaller requests that the server may take where it never takes this one; 0 when that is not the reason."""
    if jobs < 2:
        return 0
    if error.status == 413:
        return jobs // 2
    if isinstance(error, QueueFullError) and error.extra.get("measure") != "bytes":
        bound = error.bound
        if bound is not None and 0 < bound < jobs:
            return bound
    return 0


def _is_ours(error: OjsError, drafts: Sequence[Draft]) -> bool:
    """Whether the server refuses because an earlier try, whose answer was lost, did succeed."""
    return isinstance(error, DuplicateJobError) and any(
        draft.id == error.existing_job_id for draft in drafts
    )


def _fraction(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def chunks(drafts: Iterable[Draft]) -> Iterable[list[Draft]]:
    """Requests small enough for any server."""
    chunk: list[Draft] = []
    size = 0
    for draft in drafts:
        bytes_ = len(_encode(draft.body))
        if chunk and (len(chunk) >= CHUNK_JOBS or size + bytes_ > CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(draft)
        size += bytes_
    if chunk:
        yield chunk


class _Meeting:
    """Where the drafts of one batch wait for each other between their middleware and the request."""

    def __init__(self, expected: int, send: Any) -> None:
        self._missing = set(range(expected))
        self._send = send
        self._arrived: dict[int, tuple[Draft, asyncio.Future[Enqueued]]] = {}
        self._full = asyncio.Event()

    async def arrive(self, index: int, draft: Draft) -> Enqueued:
        future: asyncio.Future[Enqueued] = asyncio.get_running_loop().create_future()
        self._arrived[index] = (draft, future)
        self.leave(index)
        return await future

    def leave(self, index: int) -> None:
        """This draft is not waited for any more."""
        self._missing.discard(index)
        if not self._missing:
            self._full.set()

    async def result(
        self, chains: Sequence[Awaitable[Enqueued | None]]
    ) -> Sequence[Enqueued | None]:
        tasks = [asyncio.ensure_future(chain) for chain in chains]
        try:
            await self._full.wait()
            for task in tasks:
                if task.done() and not task.cancelled() and task.exception() is not None:
                    await task
            arrived = [self._arrived[index] for index in sorted(self._arrived)]
            try:
                done = await self._send([draft for draft, _ in arrived])
            except BaseException as error:
                for _, future in arrived:
                    future.set_exception(error)
                await asyncio.gather(*tasks, return_exceptions=True)
                raise
            for (_, future), one in zip(arrived, done, strict=True):
                future.set_result(one)
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
