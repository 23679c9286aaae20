"""Ready-made middleware for producers: a log record, a count and a time for every enqueue."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from headgate import clock
from headgate.client.draft import Draft, Enqueued, EnqueueMiddleware, EnqueueNext
from headgate.client.errors import OjsError

_log = logging.getLogger("headgate.client")


def logging_enqueues(log: logging.Logger = _log) -> EnqueueMiddleware:
    """One record per enqueue; never arguments."""

    async def around(draft: Draft, following: EnqueueNext) -> Enqueued | None:
        about = {"ojs.job_id": draft.id, "ojs.job_type": draft.type, "ojs.job_queue": draft.queue}
        try:
            done = await following(draft)
        except OjsError as error:
            log.warning("job %s (%s) not enqueued: %s", draft.id, draft.type, error, extra=about)
            raise
        if done is None:
            log.info("job %s (%s) dropped", draft.id, draft.type, extra=about)
        else:
            how = "buffered" if done.buffered else "enqueued"
            log.info("job %s (%s) %s", draft.id, draft.type, how, extra=about)
        return done

    return around


class EnqueueMetrics:
    """Counts of what became of enqueues, and how long they took; add the object itself as middleware."""

    def __init__(self, elapsed_s: Callable[[], float] = clock.elapsed_s) -> None:
        self._elapsed_s = elapsed_s
        self.counts: Counter[tuple[str, str, str]] = Counter()
        """(queue, type, enqueued | buffered | deduplicated | dropped | refused) -> how many."""
        self.seconds: dict[tuple[str, str], float] = {}
        """(queue, type) -> time that all of them took together."""

    async def __call__(self, draft: Draft, following: EnqueueNext) -> Enqueued | None:
        begun_s = self._elapsed_s()
        what = "refused"
        try:
            done = await following(draft)
            if done is None:
                what = "dropped"
            elif done.deduplicated:
                what = "deduplicated"
            else:
                what = "buffered" if done.buffered else "enqueued"
            return done
        finally:
            key = (draft.queue, draft.type)
            self.counts[*key, what] += 1
            self.seconds[key] = self.seconds.get(key, 0.0) + self._elapsed_s() - begun_s
