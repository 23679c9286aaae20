"""When the scheduled and retryable jobs of one queue are due, the earliest first.

Whoever leaves is not taken out but recognised later, so that nothing has to be looked for; there are never many more entries than jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import Final

from headgate.core.job import Job
from headgate.core.states import RETRYABLE, SCHEDULED

FEW: Final = 1_000
"""So many entries more than jobs are not worth a look."""


class Dues:
    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []

    def add(self, job: Job, jobs: Mapping[str, Job], alive: int) -> None:
        """One more; `alive` is how many jobs of the queue are due some day."""
        heap = self._heap
        if len(heap) > 2 * alive + FEW:
            heap[:] = [each for each in heap if _is_due(*each, job.queue, jobs)]
            heapify(heap)
        heappush(heap, (job.due_at, job.id))

    def first(self, queue: str, jobs: Mapping[str, Job]) -> int:
        """When the next one is due; 0 when none is."""
        heap = self._heap
        while heap:
            if _is_due(*heap[0], queue, jobs):
                return heap[0][0]
            heappop(heap)
        return 0


def _is_due(due_at: int, job_id: str, queue: str, jobs: Mapping[str, Job]) -> bool:
    job = jobs.get(job_id)
    return (
        job is not None
        and job.state in (SCHEDULED, RETRYABLE)
        and job.due_at == due_at
        and job.queue == queue
    )
