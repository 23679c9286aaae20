"""What a client raises when something does not work.

Every error is an `OjsError` and carries the wire code, the number of the catalogue, whether trying again can help, and what it was about.
Both vocabularies of codes are understood, the lower-case one of the HTTP binding and the one in capitals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headgate.core.errors import CATALOGUE


class OjsError(Exception):
    """A refusal, or no answer at all.

    `code` is the wire code, `catalogue` the number of the error catalogue ("OJS-6001").
    `uncertain` says that the server may have done what was asked, although nobody confirmed it.
    """

    code: str = "backend_error"
    catalogue: str = "OJS-2000"
    retryable: bool = False

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        catalogue: str = "",
        status: int = 0,
        retryable: bool | None = None,
        operation: str = "",
        job_id: str = "",
        queue: str = "",
        attempt: int = 0,
        details: Mapping[str, Any] | None = None,
        extra: Mapping[str, Any] | None = None,
        retry_after_s: float | None = None,
        hint: str = "",
        uncertain: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.code
        self.catalogue = catalogue or self.catalogue
        self.status = status
        self.retryable = self.retryable if retryable is None else retryable
        self.operation = operation
        self.job_id = job_id
        self.queue = queue
        self.attempt = attempt
        self.details = dict(details or {})
        self.extra = dict(extra or {})
        """What else stood in the error: depth and bound of a full queue, for example."""
        self.retry_after_s = retry_after_s
        self.hint = hint
        self.uncertain = uncertain


class OjsConnectionError(OjsError, ConnectionError):
    """The server could not be reached, or the connection broke before it had answered."""

    code = "connection_error"
    catalogue = "OJS-1011"
    retryable = True


class OjsTimeoutError(OjsError, TimeoutError):
    """No answer, or no end of a job, in the time that was allowed for it."""

    code = "request_timeout"
    catalogue = "OJS-1012"
    retryable = True


class ValidationError(OjsError, ValueError):
    """The request itself is wrong; `details` names the field."""

    code = "invalid_request"
    catalogue = "OJS-1000"


class SerializationError(ValidationError):
    """A value cannot be JSON, or JSON is not the value that an annotation asks for."""

    code = "serialization_error"
    catalogue = "OJS-1013"


class AuthenticationError(OjsError):
    """No valid credentials, or credentials that do not allow this."""

    code = "unauthenticated"
    catalogue = "OJS-5000"


class NotFoundError(OjsError):
    """There is nothing with that name or id."""

    code = "not_found"
    catalogue = "OJS-3000"


class JobNotFoundError(NotFoundError):
    """There is no such job, or its retention has ended."""


class ConflictError(OjsError):
    """The present state does not allow it."""

    code = "conflict"
    catalogue = "OJS-1005"


class DuplicateJobError(ConflictError):
    """A job with the same id or the same unique key exists; `existing_job_id` names it."""

    code = "duplicate"
    catalogue = "OJS-3001"

    @property
    def existing_job_id(self) -> str:
        return str(self.details.get("existing_job_id", ""))


class QueuePausedError(OjsError):
    """The queue takes no new jobs."""

    code = "queue_paused"
    catalogue = "OJS-3004"
    retryable = True


class ResourceError(OjsError):
    """There is no room now; `retry_after_s` says when it is worth asking again."""

    code = "rate_limited"
    catalogue = "OJS-6000"
    retryable = True


class QueueFullError(ResourceError):
    """The queue holds as much as it may; `depth` and `bound` say how much."""

    code = "QUEUE_FULL"
    catalogue = "OJS-6001"

    @property
    def depth(self) -> int | None:
        return self.extra.get("depth")

    @property
    def bound(self) -> int | None:
        return self.extra.get("bound")

    @property
    def room(self) -> int:
        """How many jobs would have fitted; 0 where nobody knows."""
        if self.bound is None or self.depth is None or self.extra.get("measure") == "bytes":
            return 0
        return max(0, self.bound - self.depth)


class RateLimitedError(ResourceError):
    """Too many requests in too short a time."""


class TenantLimitError(ResourceError):
    """The tenant has used up one of its limits."""

    code = "TENANT_LIMIT_EXCEEDED"


class CircuitOpenError(ResourceError):
    """This queue has refused so often that it is not asked for a while; nothing was sent."""

    code = "circuit_open"


class BufferFullError(ResourceError):
    """The server has no room, and neither has the local buffer."""

    code = "buffer_full"


class BackendError(OjsError):
    """The server failed."""

    retryable = True


class ExecutionError(OjsError):
    """The job did not complete: what its last attempt, or its end, said."""

    code = "handler_error"
    catalogue = "OJS-3005"


_BY_CODE: Final[dict[str, type[OjsError]]] = {
    "not_found": NotFoundError,
    "queue_not_found": NotFoundError,
    "workflow_not_found": NotFoundError,
    "result_pruned": NotFoundError,
    "job_not_found": JobNotFoundError,
    "conflict": ConflictError,
    "invalid_state_transition": ConflictError,
    "already_completed": ConflictError,
    "already_cancelled": ConflictError,
    "duplicate": DuplicateJobError,
    "duplicate_job": DuplicateJobError,
    "queue_paused": QueuePausedError,
    "queue_full": QueueFullError,
    "rate_limited": RateLimitedError,
    "tenant_limit_exceeded": TenantLimitError,
    "unauthenticated": AuthenticationError,
    "token_expired": AuthenticationError,
    "permission_denied": AuthenticationError,
    "request_timeout": OjsTimeoutError,
    "backend_error": BackendError,
    "backend_unavailable": BackendError,
    "backend_timeout": BackendError,
}
"""By the code in lower case, which both vocabularies share where they share a word."""

_BY_NUMBER: Final[dict[str, type[OjsError]]] = {
    "3000": NotFoundError, "3001": DuplicateJobError, "3002": ConflictError, "3003": ConflictError,
    "1005": ConflictError, "3004": QueuePausedError, "6000": RateLimitedError,
    "6001": QueueFullError, "6002": RateLimitedError, "6003": QueueFullError,
    "5000": AuthenticationError, "5001": AuthenticationError, "5002": AuthenticationError,
    "5003": AuthenticationError, "2000": BackendError, "2001": BackendError, "2002": BackendError,
    "2003": BackendError, "2004": BackendError, "1012": OjsTimeoutError,
}  # fmt: skip
_NUMBERS: Final = {entry.code.lower(): entry.id for entry in CATALOGUE.values()}
_STANDARD: Final = frozenset(
    {"code", "type", "message", "retryable", "request_id", "details", "hint", "docs_url"}
)


def from_answer(
    status: int,
    body: object,
    headers: Mapping[str, str],
    *,
    operation: str = "",
    job_id: str = "",
    queue: str = "",
) -> OjsError:
    """The error that an answer of 400 or more means; a body that is not as it should be is no obstacle."""
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        error = {"code": error} if isinstance(error, str) else {}
    code = str(error.get("code") or "")
    number = str(error.get("id") or error.get("catalogue") or _NUMBERS.get(code.lower(), ""))
    kind = _BY_CODE.get(code.lower()) or _BY_NUMBER.get(number.removeprefix("OJS-")) or _of(status)
    if kind is NotFoundError and job_id:
        kind = JobNotFoundError
    retryable = error.get("retryable")
    details = error.get("details")
    return kind(
        str(error.get("message") or f"the server answered {status}"),
        code=code,
        catalogue=number,
        status=status,
        retryable=retryable if isinstance(retryable, bool) else None,
        operation=operation,
        job_id=job_id,
        queue=str(error.get("queue") or queue),
        details=details if isinstance(details, dict) else None,
        extra={name: value for name, value in error.items() if name not in _STANDARD},
        retry_after_s=_seconds(headers.get("retry-after")),
        hint=str(error.get("hint") or ""),
        # A gateway may answer 5xx for a server that did the work.
        uncertain=status >= 500,
    )


def _of(status: int) -> type[OjsError]:
    match status:
        case 401 | 403:
            return AuthenticationError
        case 404 | 410:
            return NotFoundError
        case 408:
            return OjsTimeoutError
        case 409:
            return ConflictError
        case 429:
            return RateLimitedError
        case _:
            return ValidationError if status < 500 else BackendError


def _seconds(text: str | None) -> float | None:
    try:
        seconds = float(text) if text is not None else -1.0
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None
