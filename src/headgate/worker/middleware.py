"""Ready-made middleware for workers: a log record, a count and a time for every run."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from headgate import clock
from headgate.client.context import Context
from headgate.worker.run import Middleware
from headgate.worker.signals import Interrupted, Signal

_log = logging.getLogger("headgate.worker")
Report = Callable[[Context, BaseException], None]


def logging_runs(
    log: logging.Logger = _log, elapsed_s: Callable[[], float] = clock.elapsed_s
) -> Middleware:
    """One record when a job ends; errors with their traceback, never arguments or results."""

    async def around(context: Context, following: Callable[[], Awaitable[Any]]) -> Any:
        about = {
            "ojs.job_id": context.id,
            "ojs.job_type": context.type,
            "ojs.job_queue": context.queue,
            "ojs.job_attempt": context.attempt,
        }
        begun_s = elapsed_s()
        try:
            found = await following()
        except BaseException as error:
            told = log.exception if _is_failure(error) else log.info
            told(
                "job %s (%s) %s after %.3f s",
                context.id,
                context.type,
                outcome_of(context, error),
                elapsed_s() - begun_s,
                extra=about,
            )
            raise
        log.info(
            "job %s (%s) completed after %.3f s",
            context.id,
            context.type,
            elapsed_s() - begun_s,
            extra=about,
        )
        return found

    return around


class RunMetrics:
    """Counts of how runs ended, and how long they took; add the object itself as middleware."""

    def __init__(self, elapsed_s: Callable[[], float] = clock.elapsed_s) -> None:
        self._elapsed_s = elapsed_s
        self.counts: Counter[tuple[str, str, str]] = Counter()
        """(queue, type, completed | failed | interrupted | ratelimited | snooze | retry | discard) -> how many."""
        self.seconds: dict[tuple[str, str], float] = {}
        """(queue, type) -> time that all of them took together."""
        self.running = 0

    async def __call__(self, context: Context, following: Callable[[], Awaitable[Any]]) -> Any:
        begun_s = self._elapsed_s()
        self.running += 1
        what = "completed"
        try:
            return await following()
        except BaseException as error:
            what = outcome_of(context, error)
            raise
        finally:
            self.running -= 1
            key = (context.queue, context.type)
            self.counts[*key, what] += 1
            self.seconds[key] = self.seconds.get(key, 0.0) + self._elapsed_s() - begun_s


def reporting_errors(report: Report) -> Middleware:
    """Hand every failure to a service that collects them; decisions and interruptions are none."""

    async def around(context: Context, following: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await following()
        except BaseException as error:
            if _is_failure(error):
                report(context, error)
            raise

    return around


def outcome_of(context: Context, error: BaseException) -> str:
    """What a run that raised is called."""
    if isinstance(error, Signal):
        return type(error).__name__.lower()
    if context.cancelled or isinstance(error, asyncio.CancelledError | Interrupted):
        return "interrupted"
    return "failed"


def _is_failure(error: BaseException) -> bool:
    return not isinstance(error, Signal | asyncio.CancelledError | Interrupted)
