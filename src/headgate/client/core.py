"""Requests with their retries: the part of the client that everything else uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from msgspec import DecodeError, json

from headgate import ids
from headgate.client.clock import Clock
from headgate.client.errors import BackendError, OjsError, from_answer
from headgate.client.pressure.waits import Waits
from headgate.client.transport.contract import Answer, Transport

BASE: Final = "/ojs/v1"
_encode: Final = json.Encoder().encode
_decode: Final = json.Decoder().decode


class Core:
    """Sends requests and reads answers.

    Failures of network and server are tried again; what the server refuses is raised at once.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        clock: Clock,
        waits: Waits,
        timeout_s: float,
        tenant: str | None = None,
    ) -> None:
        self.transport = transport
        self.clock = clock
        self.waits = waits
        self.timeout_s = timeout_s
        self.headers: dict[str, str] = {"x-ojs-tenant": tenant} if tenant else {}

    async def call(
        self,
        operation: str,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, Any] | None = None,
        job_id: str = "",
        queue: str = "",
        timeout_s: float | None = None,
        tries: int | None = None,
    ) -> Any:
        """The decoded body of a good answer."""
        data = None if body is None else _encode(body)
        if query:
            given = {name: value for name, value in query.items() if value is not None}
            path = f"{path}?{urlencode(given)}" if given else path
        failures = 0
        while True:
            try:
                _, found = await self.once(
                    operation, method, path, data, job_id=job_id, queue=queue, timeout_s=timeout_s
                )
                return found
            except OjsError as error:
                failures += 1
                if not worth_repeating(error) or failures >= (tries or self.waits.tries):
                    raise
                await self.clock.sleep(self.waits.failed(failures, ids.uniform()))

    async def once(
        self,
        operation: str,
        method: str,
        path: str,
        data: bytes | None,
        *,
        headers: Mapping[str, str] | None = None,
        job_id: str = "",
        queue: str = "",
        timeout_s: float | None = None,
    ) -> tuple[Answer, Any]:
        """One request and its good answer, decoded; raises what the answer means otherwise."""
        given = {**self.headers, **headers} if headers else self.headers
        try:
            answer = await self.transport.send(
                method,
                BASE + path,
                data,
                headers=given,
                timeout_s=self.timeout_s if timeout_s is None else timeout_s,
            )
        except OjsError as error:
            error.operation = operation
            error.job_id = job_id
            error.queue = queue
            raise
        try:
            body = _decode(answer.body) if answer.body else None
        except DecodeError:
            body = None
            if answer.status < 400:
                raise BackendError(
                    "the server's answer is not JSON", operation=operation, uncertain=True
                ) from None
        if answer.status >= 400:
            raise from_answer(
                answer.status,
                body,
                answer.headers,
                operation=operation,
                job_id=job_id,
                queue=queue,
            )
        return answer, body


async def manifest(core: Core) -> dict[str, Any]:
    """What the server says of itself. Raises OjsError."""
    try:
        answer = await core.transport.send("GET", "/ojs/manifest", timeout_s=core.timeout_s)
    except OjsError as error:
        error.operation = "manifest"
        raise
    if answer.status >= 400:
        raise from_answer(answer.status, None, answer.headers, operation="manifest")
    try:
        found = _decode(answer.body)
    except DecodeError:
        found = None
    return found if isinstance(found, dict) else {}


def worth_repeating(error: OjsError) -> bool:
    """Whether nobody answered, or a server or gateway failed."""
    return not error.status or error.status in {500, 502, 503, 504}


def at(*names: str) -> str:
    """A path of names, each made safe."""
    return "".join(f"/{quote(name, safe='')}" for name in names)
