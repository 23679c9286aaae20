"""One job from its fetch to its outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from msgspec import json

from headgate.client.chain import Chain
from headgate.client.context import AsyncJobContext, Context, JobContext, enter
from headgate.client.core import Core
from headgate.client.declared import Declared
from headgate.worker.child import Work
from headgate.worker.outcome import (
    Nack,
    Nothing,
    Outcome,
    died,
    done,
    failed,
    signalled,
    stopped,
    timeout_s,
)
from headgate.worker.processes import Died, Processes
from headgate.worker.signals import Interrupted, Signal
from headgate.worker.threads import Thread, Threads

Middleware: TypeAlias = Callable[[Context, Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""Called around every run; it gives the result on. An error may be looked at, not swallowed."""

LAST_WORDS_S = 5.0
"""How long a handler that was interrupted may take to end."""
_log = logging.getLogger("headgate.worker")


class Remote(Exception):
    """A handler failed in another process; the outcome says how."""

    def __init__(self, outcome: Nack) -> None:
        super().__init__(outcome.error["message"])
        self.outcome = outcome


class Runs:
    """Where jobs run, and what surrounds every run."""

    def __init__(
        self,
        core: Core,
        middleware: Chain[Middleware],
        processes: Processes,
        worker_id: str,
        most_deferrals: int,
    ) -> None:
        self.core = core
        self.middleware = middleware
        self.threads = Threads()
        self.processes = processes
        self.worker_id = worker_id
        self.most_deferrals = most_deferrals

    def context(self, declared: Declared, job: Mapping[str, Any]) -> Context:
        kind = AsyncJobContext if declared.is_async else JobContext
        return kind(self.core, job, self.worker_id)

    def end(self) -> None:
        self.threads.end()
        self.processes.end()


class Run:
    """One job that runs, and the way to stop it. `ended` is called once, with the outcome."""

    def __init__(
        self,
        runs: Runs,
        declared: Declared,
        job: Mapping[str, Any],
        deferrals: int,
        ended: Callable[[Run, Outcome], None],
    ) -> None:
        self.job = job
        self.context: Context = runs.context(declared, job)
        self._runs = runs
        self._declared = declared
        self._deferrals = deferrals
        self._ended: Callable[[Run, Outcome], None] | None = ended
        self._thread: Thread | None = None
        self._loop = asyncio.get_running_loop()
        self._timers: list[asyncio.TimerHandle] = []
        limit_s = timeout_s(job)
        if limit_s:
            self._timers.append(self._loop.call_later(limit_s, self.interrupt, "timeout"))
        self._task = self._loop.create_task(self._run())
        self._task.add_done_callback(self._never_begun)

    def interrupt(self, why: str) -> None:
        """Make the handler end: cancelled, timeout, lost or shutdown. One that does not end is given up."""
        if self._ended is None or self.context.cancelled:
            return
        self.context.interrupt(why)
        self._timers.append(self._loop.call_later(LAST_WORDS_S, self._give_up))
        if self._thread is not None:
            self._thread.interrupt()
        else:
            self._task.cancel()

    async def _run(self) -> None:
        job = self.job
        outcome: Outcome
        try:
            outcome = done(job, self.context.outcome(await self._through()))
        except Signal as decision:
            outcome = signalled(
                job,
                decision,
                self._runs.core.clock.now_ms(),
                self._deferrals,
                self._runs.most_deferrals,
            )
        except (asyncio.CancelledError, Interrupted) as error:
            why = self.context.cancelled_because
            outcome = stopped(job, why) if why else failed(job, error)
        except Remote as remote:
            outcome = remote.outcome
        except Died as error:
            outcome = died(job, str(error))
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is its failure
            outcome = failed(job, error)
        except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
            outcome = failed(job, RuntimeError(f"the handler raised {error!r}"))
        if self.context.cancelled_because in {"cancelled", "lost"}:
            outcome = Nothing(job["id"])
        self._finish(outcome)

    def _never_begun(self, task: asyncio.Task[None]) -> None:
        """A task that is cancelled before its first step does not get to say so itself."""
        if self._ended is not None:
            self._finish(stopped(self.job, self.context.cancelled_because))

    def _give_up(self) -> None:
        if self._ended is None:
            return
        why = self.context.cancelled_because
        _log.error(
            "job %s does not end after its interruption (%s) and is given up", self.context.id, why
        )
        self._finish(stopped(self.job, why))

    def _finish(self, outcome: Outcome) -> None:
        ended, self._ended = self._ended, None
        for timer in self._timers:
            timer.cancel()
        if ended is not None:
            ended(self, outcome)

    # from the outside to the handler

    async def _through(self) -> Any:
        chain = self._runs.middleware
        if not chain:
            return await self._handle()
        raised: list[BaseException] = []
        calls = 0

        async def innermost() -> Any:
            nonlocal calls
            calls += 1
            if calls > 1:
                raise RuntimeError("a middleware called the next one twice")
            try:
                return await self._handle()
            except BaseException as error:
                raised.append(error)
                raise

        step: Callable[[], Awaitable[Any]] = innermost
        for middleware in reversed(tuple(chain)):
            step = partial(middleware, self.context, step)
        found = await step()
        if raised:
            # A job that failed must not look as if it had not.
            raise raised[0]
        return found

    async def _handle(self) -> Any:
        declared = self._declared
        if declared.run_in == "process":
            return await self._in_process()
        args, kwargs = declared.signature.unpack(self.job["args"])
        if declared.signature.context is not None:
            args.insert(0, self.context)
        if declared.run_in == "loop":
            enter(self.context)
            return await declared.function(*args, **kwargs)
        return await self._in_thread(partial(declared.function, *args, **kwargs))

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        def entered() -> Any:
            enter(self.context)
            return call()

        if self.context.cancelled:
            raise Interrupted
        self._thread = thread = self._runs.threads.take()
        try:
            return await thread.run(entered)
        finally:
            self._thread = None
            self._runs.threads.give(thread)

    async def _in_process(self) -> Any:
        function = self._declared.function
        ended = await self._runs.processes.run(
            Work(
                function.__module__,
                function.__qualname__,
                dict(self.job),
                self._runs.worker_id,
                self._deferrals,
                self._runs.most_deferrals,
            )
        )
        if ended.nack is not None:
            raise Remote(ended.nack)
        assert ended.ack is not None
        return None if ended.ack.result is None else json.decode(ended.ack.result)
