"""The thread of a caller that blocks, put to use while it waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class Lent:
    """Runs what a loop hands over, in the thread that called, until its own result is there."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    async def run(self, function: Callable[[], T]) -> T:
        """The function's result, from the loop; what would end the program is raised over there."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        scope = copy_context()

        def work() -> None:
            try:
                result = scope.run(function)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # noqa: BLE001 - whoever awaits it decides
                loop.call_soon_threadsafe(_settle, answer, None, error)
            else:
                loop.call_soon_threadsafe(_settle, answer, result, None)

        self._work.put(work)
        return await answer

    def serve(self, result: Future[T]) -> T:
        """Run what is handed over until there is a result; raises what that is."""
        result.add_done_callback(lambda _: self._work.put(None))
        while (work := self._work.get()) is not None:
            work()
        return result.result()


def _settle(answer: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(result)
    elif isinstance(error, StopIteration):
        # A future cannot carry it.
        answer.set_exception(RuntimeError(f"the function raised {error!r}"))
    else:
        answer.set_exception(error)
