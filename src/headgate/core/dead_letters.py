"""Dead letters that stand in a queue of their own."""

from __future__ import annotations

from headgate.core.job import Job
from headgate.core.states import AVAILABLE


def moved_to(job: Job, *, requeued: bool) -> str:
    """The dead letter queue that a job went to when it was nacked just now; "" when it did not.

    A failure leaves a job retryable or discarded, so one that is available again was moved; unless it was only given back, which may happen to a dead letter as well.
    """
    if requeued or job.state != AVAILABLE or job.more is None or not job.more.origin:
        return ""
    return job.queue
