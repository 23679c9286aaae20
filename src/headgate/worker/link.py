"""What a worker and its server tell each other, in one exchange or in the standard requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, Final, Protocol

from msgspec import Raw, Struct, json

from headgate.client.core import Core, manifest
from headgate.client.errors import BackendError, NotFoundError, OjsError, from_answer
from headgate.worker.outcome import Ack, Nack

AT_ONCE: Final = 16
"""How many of the standard requests are on their way at the same time."""
_encode: Final = json.Encoder().encode


class Turn(Struct):
    """What a worker has to say and wants to have."""

    acks: Sequence[Ack] = ()
    nacks: Sequence[Nack] = ()
    extend: Sequence[tuple[str, int]] = ()
    """Jobs that go on, with their claims."""
    beat: bool = False
    """A sign of life is due."""
    fetch: int = 0
    """How many jobs are wanted at most."""
    wait_ms: int = 0
    state: str = "running"


class Traded(Struct):
    """What came of it. Lists go with those of the turn, item by item; None means well."""

    acks: list[OjsError | None]
    nacks: list[OjsError | None]
    lost: list[str] = []
    """Jobs that were to be extended and are not this worker's any more."""
    cancelled: list[str] = []
    state: str = ""
    """What the server wants the worker to be; empty when it did not say."""
    jobs: list[dict[str, Any]] = []
    delayed: list[bool | None] = []
    """For each nack with a delay, whether the server kept to it, where that can be told."""


class Identity(Struct, frozen=True):
    """Who a worker is."""

    worker_id: str
    queues: Sequence[str]
    concurrency: int
    hostname: str
    pid: int
    labels: Sequence[str] | dict[str, str]
    version: str
    pool: str | None
    started_at: str

    def body(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "worker_id": self.worker_id,
            "queues": list(self.queues),
            "concurrency": self.concurrency,
            "hostname": self.hostname,
            "pid": self.pid,
            "labels": self.labels,
            "version": self.version,
            "started_at": self.started_at,
        }
        if self.pool is not None:
            found["pool"] = self.pool
        return found


class Link(Protocol):
    async def trade(self, turn: Turn) -> Traded:
        """Raises OjsError when nothing of the turn is sure."""
        ...


class ExchangeLink:
    """Everything in one request."""

    def __init__(self, core: Core, identity: Identity) -> None:
        self._core = core
        self._identity = identity

    async def trade(self, turn: Turn) -> Traded:
        body: dict[str, Any] = {
            "worker_id": self._identity.worker_id,
            "acks": [_ack(one) for one in turn.acks],
            "nacks": [_nack(one) for one in turn.nacks],
            "extend": [_extend(*one) for one in turn.extend],
            "state": turn.state,
        }
        if turn.fetch:
            body["fetch"] = _fetch(self._identity, turn)
        _, found = await self._core.once(
            "exchange",
            "POST",
            "/workers/exchange",
            _encode(body),
            timeout_s=self._core.timeout_s + turn.wait_ms / 1000,
        )
        try:
            return self._traded(turn, found)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise BackendError(
                "the server's answer is not that of an exchange",
                operation="exchange",
                uncertain=True,
            ) from None

    def _traded(self, turn: Turn, found: dict[str, Any]) -> Traded:
        cancelled = list(found.get("cancelled_jobs", ()))
        if (len(found["acks"]), len(found["nacks"])) != (len(turn.acks), len(turn.nacks)):
            raise ValueError
        return Traded(
            acks=[_refusal(one) for one in found["acks"]],
            nacks=[_refusal(one) for one in found["nacks"]],
            lost=[
                one["job_id"]
                for one in found["extend"]
                if "error" in one and one["job_id"] not in cancelled
            ],
            cancelled=cancelled,
            state=found.get("state", ""),
            jobs=found.get("jobs", []),
            delayed=[
                _delayed(nack, one) for nack, one in zip(turn.nacks, found["nacks"], strict=True)
            ],
        )


class StandardLink:
    """One request for each answer, one for the heartbeat, one for the fetch: what every OJS server has."""

    def __init__(self, core: Core, identity: Identity, *, waits: bool) -> None:
        self._core = core
        self._identity = identity
        self._waits = waits
        """Whether the server knows `wait_ms`, which is not of the protocol."""

    async def trade(self, turn: Turn) -> Traded:
        """Answers first, then the rest; an answer that nobody confirmed is an error of its own item."""
        traded = Traded([], [])
        if turn.acks or turn.nacks:
            worker = {"worker_id": self._identity.worker_id}
            answers = await _gather(
                [
                    *(self._post("ack", "/workers/ack", worker | _ack(one)) for one in turn.acks),
                    *(
                        self._post("nack", "/workers/nack", worker | _nack(one))
                        for one in turn.nacks
                    ),
                ]
            )
            errors = [one if isinstance(one, OjsError) else None for one in answers]
            traded.acks = errors[: len(turn.acks)]
            traded.nacks = errors[len(turn.acks) :]
            traded.delayed = [
                None if isinstance(answer, OjsError) else _delayed(nack, answer)
                for nack, answer in zip(turn.nacks, answers[len(turn.acks) :], strict=True)
            ]
        try:
            if turn.beat or turn.extend:
                await self._beat(turn, traded)
            if turn.fetch and traded.state in {"", "running"}:
                traded.jobs = await self._fetch(turn)
        except OjsError:
            # What was answered is answered; the rest is asked for again at the next turn.
            if not (turn.acks or turn.nacks):
                raise
        return traded

    async def _beat(self, turn: Turn, traded: Traded) -> None:
        ids = [job_id for job_id, _ in turn.extend]
        body = self._identity.body() | {"active_jobs": ids, "state": turn.state}
        found = await self._post("heartbeat", "/workers/heartbeat", body)
        traded.state = found.get("state", "")
        traded.cancelled = list(found.get("cancelled_jobs", ()))
        extended = found.get("jobs_extended")
        if isinstance(extended, list):
            known = {*extended, *traded.cancelled}
            traded.lost = [job_id for job_id in ids if job_id not in known]

    async def _fetch(self, turn: Turn) -> list[dict[str, Any]]:
        body = {"worker_id": self._identity.worker_id} | _fetch(self._identity, turn)
        if not self._waits:
            del body["wait_ms"]
        _, found = await self._core.once(
            "fetch",
            "POST",
            "/workers/fetch",
            _encode(body),
            timeout_s=self._core.timeout_s + turn.wait_ms / 1000,
        )
        jobs = found.get("jobs")
        if jobs is None:
            jobs = [found["job"]] if found.get("job") else []
        return list(jobs)

    async def _post(self, operation: str, path: str, body: dict[str, Any]) -> Any:
        _, found = await self._core.once(
            operation, "POST", path, _encode(body), job_id=body.get("job_id", "")
        )
        return found or {}


class ChosenLink:
    """Exchanges with servers that can, standard requests with the others; found out with the first turn.

    `exchange` says it beforehand. A server that turns out not to know the exchange is not asked for it again, and a turn that an exchange cannot carry as a whole goes in single requests.
    """

    def __init__(self, core: Core, identity: Identity, exchange: bool | None) -> None:
        self._core = core
        self._exchange = exchange
        self._trade = ExchangeLink(core, identity)
        self._standard = StandardLink(core, identity, waits=False)

    async def trade(self, turn: Turn) -> Traded:
        if self._exchange is None:
            self._exchange = await is_headgate(self._core)
        if not self._exchange:
            return await self._standard.trade(turn)
        try:
            return await self._trade.trade(turn)
        except OjsError as error:
            if is_missing(error):
                self._exchange = False
            elif not (turn.acks or turn.nacks) or error.status not in {400, 413, 422}:
                raise
            return await self._standard.trade(turn)


async def is_headgate(core: Core) -> bool:
    """Whether the server has what is not of the protocol. Raises OjsError when nobody answers."""
    try:
        found = await manifest(core)
    except NotFoundError:
        return False
    named = found.get("implementation")
    return isinstance(named, dict) and str(named.get("name")).lower() == "headgate"


def is_missing(error: OjsError) -> bool:
    """Whether the server does not know the request at all."""
    return isinstance(error, NotFoundError) or error.status in {405, 501}


async def _gather(calls: Iterable[Awaitable[Any]]) -> list[Any]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(call: Awaitable[Any]) -> Any:
        async with gate:
            try:
                return await call
            except OjsError as error:
                return error

    return await asyncio.gather(*(one(call) for call in calls))


def _ack(one: Ack) -> dict[str, Any]:
    body: dict[str, Any] = {"job_id": one.job_id}
    if one.claim:
        body["claim"] = one.claim
    if one.result is not None:
        body["result"] = Raw(one.result)
    return body


def _nack(one: Nack) -> dict[str, Any]:
    body: dict[str, Any] = {"job_id": one.job_id, "error": one.error}
    if one.claim:
        body["claim"] = one.claim
    if one.requeue:
        body["requeue"] = True
    if one.after_ms is not None:
        body["retry_after_ms"] = one.after_ms
    return body


def _extend(job_id: str, claim: int) -> Any:
    return {"job_id": job_id, "claim": claim} if claim else job_id


def _fetch(identity: Identity, turn: Turn) -> dict[str, Any]:
    body: dict[str, Any] = {
        "queues": list(identity.queues),
        "count": turn.fetch,
        "wait_ms": turn.wait_ms,
    }
    if identity.pool is not None:
        body["pool"] = identity.pool
    return body


def _refusal(item: dict[str, Any]) -> OjsError | None:
    if "error" not in item:
        return None
    code = str(item["error"].get("code", ""))
    status = {"not_found": 404, "conflict": 409, "RESULT_TOO_LARGE": 413}.get(code, 0)
    return from_answer(status or 400, item, {}, job_id=str(item.get("job_id", "")))


def _delayed(nack: Nack, answer: dict[str, Any]) -> bool | None:
    if nack.after_ms is None or not nack.requeue or "state" not in answer:
        return None
    return bool(answer["state"] != "available")
