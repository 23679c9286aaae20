"""The inside of a process that runs handlers for a worker."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import signal
import sys
import threading
from collections.abc import Coroutine, Mapping
from functools import lru_cache
from multiprocessing.connection import Connection
from typing import Any

from msgspec import Struct, msgpack

from headgate.client.clock import SystemClock
from headgate.client.context import AsyncJobContext, JobContext, enter
from headgate.client.core import Core
from headgate.client.errors import SerializationError, ValidationError
from headgate.client.pressure.waits import Waits
from headgate.client.settings import read, tls_context
from headgate.client.signature import Signature
from headgate.client.transport.contract import Answer, Transport
from headgate.client.transport.http import HttpTransport
from headgate.worker.outcome import Ack, Nack, Outcome, done, failed, signalled
from headgate.worker.signals import Signal


class Home(Struct, frozen=True):
    """Where a child finds the server, for the reports of its handlers."""

    url: str
    token: str | None = None
    paths: tuple[str, ...] = ()
    """What the worker's own imports found their modules by."""


class Work(Struct):
    """One job and where its handler is."""

    module: str
    name: str
    job: dict[str, Any]
    worker_id: str
    deferrals: int = 0
    most_deferrals: int = 0


class Ended(Struct):
    """How it went: one of the two."""

    ack: Ack | None = None
    nack: Nack | None = None


def main(pipe: Connection, watched: Connection, home: Home) -> None:
    """Run jobs until the worker is gone."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # The worker decides when its children go; the terminal tells all of them at once.
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_watch, args=(watched,), daemon=True).start()
    for path in home.paths:
        if path not in sys.path:
            sys.path.append(path)
    while True:
        try:
            work = msgpack.decode(pipe.recv_bytes(), type=Work)
        except (EOFError, OSError):
            return
        outcome = run(work, home)
        ended = Ended(ack=outcome) if isinstance(outcome, Ack) else Ended(nack=outcome)
        pipe.send_bytes(msgpack.encode(ended))


def run(work: Work, home: Home) -> Ack | Nack:
    """Run one job to its end."""
    job = work.job
    try:
        function = find(work.module, work.name)
        signature = Signature(function, (JobContext, AsyncJobContext))
        args, kwargs = signature.unpack(job["args"])
    except (ImportError, AttributeError, TypeError, SerializationError) as error:
        return failed(job, error)
    kind = AsyncJobContext if inspect.iscoroutinefunction(function) else JobContext
    core = _core(home)
    context = kind(core, job, work.worker_id)
    enter(context)
    if signature.context is not None:
        args.insert(0, context)
    outcome: Outcome
    try:
        returned = function(*args, **kwargs)
        if inspect.iscoroutine(returned):
            returned = asyncio.run(_to_its_end(returned, core))
        outcome = done(job, context.outcome(returned))
    except Signal as decision:
        now_ms = SystemClock().now_ms()
        outcome = signalled(job, decision, now_ms, work.deferrals, work.most_deferrals)
    except Exception as error:  # noqa: BLE001 - whatever a handler raises is its failure
        outcome = failed(job, error)
    except SystemExit as error:
        outcome = failed(job, RuntimeError(f"the handler raised {error!r}"))
    assert isinstance(outcome, Ack | Nack)
    return outcome


def find(module: str, name: str) -> Any:
    """The handler by its place; it may stand there as a task."""
    found: Any = sys.modules.get(module) or importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return getattr(found, "function", found)


async def _to_its_end(handler: Coroutine[Any, Any, Any], core: Core) -> Any:
    try:
        return await handler
    finally:
        await core.transport.close()


@lru_cache
def _core(home: Home) -> Core:
    transport: Transport = _Nowhere()
    if home.url:
        transport = HttpTransport(home.url, token=home.token, tls=tls_context(read()))
    return Core(transport, clock=SystemClock(), waits=Waits(), timeout_s=30.0)


class _Nowhere:
    """The worker reaches its server in a way that a process cannot be told of."""

    async def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float,
    ) -> Answer:
        raise ValidationError("a handler in a process can only report to a server with an address")

    async def close(self) -> None:
        """Nothing is open."""


def _watch(watched: Connection) -> None:
    try:
        watched.recv_bytes()
    except (EOFError, OSError):
        pass
    finally:
        os._exit(1)
