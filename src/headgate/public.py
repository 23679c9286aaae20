"""What programs import from `headgate`. It stands here because it brings the whole client and worker."""

from __future__ import annotations

from headgate.client.app import AsyncHeadgate, Headgate
from headgate.client.context import AsyncJobContext, JobContext, current
from headgate.client.draft import Draft, Enqueued
from headgate.client.errors import (
    AuthenticationError,
    BackendError,
    BufferFullError,
    CircuitOpenError,
    ConflictError,
    DuplicateJobError,
    ExecutionError,
    JobNotFoundError,
    NotFoundError,
    OjsConnectionError,
    OjsError,
    OjsTimeoutError,
    QueueFullError,
    QueuePausedError,
    RateLimitedError,
    ResourceError,
    SerializationError,
    TenantLimitError,
    ValidationError,
)
from headgate.client.jobs import AsyncJob, Job
from headgate.client.policies import Rate, RateLimit, RetryPolicy, Unique
from headgate.client.pressure.breaker import Breaker
from headgate.client.pressure.buffer import MemoryBuffer
from headgate.client.pressure.disk import DiskBuffer
from headgate.client.pressure.waits import Waits
from headgate.client.tasks import AsyncTask, Call, Task
from headgate.version import VERSION
from headgate.worker.signals import Discard, RateLimited, Retry, Snooze
from headgate.worker.worker import Worker

__all__ = [
    "VERSION",
    "AsyncHeadgate",
    "AsyncJob",
    "AsyncJobContext",
    "AsyncTask",
    "AuthenticationError",
    "BackendError",
    "Breaker",
    "BufferFullError",
    "Call",
    "CircuitOpenError",
    "ConflictError",
    "Discard",
    "DiskBuffer",
    "Draft",
    "DuplicateJobError",
    "Enqueued",
    "ExecutionError",
    "Headgate",
    "Job",
    "JobContext",
    "JobNotFoundError",
    "MemoryBuffer",
    "NotFoundError",
    "OjsConnectionError",
    "OjsError",
    "OjsTimeoutError",
    "QueueFullError",
    "QueuePausedError",
    "Rate",
    "RateLimit",
    "RateLimited",
    "RateLimitedError",
    "ResourceError",
    "Retry",
    "RetryPolicy",
    "SerializationError",
    "Snooze",
    "Task",
    "TenantLimitError",
    "Unique",
    "ValidationError",
    "Waits",
    "Worker",
    "current",
]
