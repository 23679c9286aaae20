"""One run of a handler, here and now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from headgate.client.context import AsyncJobContext, Context, JobContext, enter
from headgate.client.core import Core
from headgate.client.declared import Declared
from headgate.client.sides import background, lent
from headgate.worker.outcome import Ack, Nack, done, failed, signalled
from headgate.worker.signals import Signal
from headgate.worker.threads import Threads

T = TypeVar("T")
_threads: Final = Threads()


async def perform(
    core: Core, declared: Declared, record: Mapping[str, Any], worker_id: str = "test"
) -> Any:
    """What the handler gives. Raises what it raises.

    Coroutines run on this loop. Plain functions run in the thread that waits for all this, if there is one: what belongs to a test's thread, such as an open transaction, is there for its handlers too.
    """
    kind = AsyncJobContext if declared.is_async else JobContext
    context: Context = kind(core, record, worker_id)
    args, kwargs = declared.signature.unpack(record["args"])
    if declared.signature.context is not None:
        args.insert(0, context)
    if declared.is_async:

        async def inside() -> Any:
            enter(context)
            return await declared.function(*args, **kwargs)

        # A task of its own, so that nobody else seems to be inside of the job.
        return context.outcome(await asyncio.create_task(inside()))

    def entered() -> Any:
        enter(context)
        return declared.function(*args, **kwargs)

    return context.outcome(await _outside(entered))


async def _outside(function: Callable[[], T]) -> T:
    """Run a function that may make calls that block."""
    caller = lent.get()
    if caller is not None:
        return await caller.run(function)
    if not background().is_here():
        return function()
    thread = _threads.take()
    try:
        found: T = await thread.run(function)
        return found
    finally:
        _threads.give(thread)


def judged(
    record: Mapping[str, Any], ended: Any, now_ms: int, *, deferrals: int = 0, most: int = 100
) -> Ack | Nack:
    """What a worker would tell the server of this end: a result, or what was raised."""
    if isinstance(ended, Raised):
        error = ended.error
        if isinstance(error, Signal):
            return signalled(record, error, now_ms, deferrals, most)
        return failed(record, error)
    outcome = done(record, ended)
    assert isinstance(outcome, Ack | Nack)
    return outcome


class Raised:
    """A run that ended with an error."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


async def attempted(call: Callable[[], Any], fault: BaseException | None) -> Any:
    """The result of a run, or Raised; what is no failure of a handler, such as an interrupt, is raised on."""
    try:
        if fault is not None:
            raise fault
        return await call()
    except Exception as error:  # noqa: BLE001 - whatever a handler raises is its failure
        return Raised(error)
