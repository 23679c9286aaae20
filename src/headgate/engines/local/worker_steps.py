"""Steps with workers: signs of life, what they are told, and their end."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.core.states import (
    CANCELLED,
)
from headgate.engines.contract import (
    Beat,
    Done,
    Extend,
    Report,
    WorkerView,
    WrongState,
)
from headgate.engines.local.job_steps import JobSteps
from headgate.engines.local.workers import Worker


class WorkerSteps(JobSteps):
    """See the contract."""

    async def beat(
        self, report: Report, job_ids: Sequence[str], visibility_ms: int, now_ms: int
    ) -> Beat:
        now = self._begin(now_ms)
        self._workers.beat(report, now)
        extended: list[str] = []
        cancelled: list[str] = []
        for job_id in job_ids:
            outcome = self._extend(report.worker, Extend(job_id), visibility_ms, now)
            match outcome:
                case Done():
                    extended.append(job_id)
                case WrongState(job):
                    more = job.more
                    if job.state == CANCELLED and more is not None and more.cancelled_while_active:
                        cancelled.append(job_id)
                case _:
                    pass
        return Beat(self._workers.directive(report.worker), extended, cancelled)

    async def worker(self, worker: str, now_ms: int) -> WorkerView | None:
        now = self._begin(now_ms)
        known = self._workers.known.get(worker)
        return None if known is None else self._workers.view(known, now)

    async def workers(self, now_ms: int) -> list[WorkerView]:
        now = self._begin(now_ms)
        known: list[Worker] = sorted(self._workers.known.values(), key=lambda each: each.id)
        return [self._workers.view(each, now) for each in known]

    async def direct(self, worker: str, state: str, now_ms: int) -> bool:
        self._begin(now_ms)
        return self._workers.direct(worker, state)

    async def forget_worker(self, worker: str, reason: str, now_ms: int) -> int | None:
        now = self._begin(now_ms)
        return self._workers.forget(worker, reason, now)

    def _rest(self, worker: str) -> None:
        """This worker gets no more jobs: it need not wait either."""
        for waiter in self._waiters.of_worker(worker):
            waiter.end()

    def _place(self, worker: str) -> None:
        """The worker is in another pool or can carry more: it may be served from elsewhere."""
        for waiter in self._waiters.of_worker(worker):
            self._waiters.place(waiter)
        self._waiters.tell_freed((), (worker,))
