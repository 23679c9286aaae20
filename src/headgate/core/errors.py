"""One error tree for everything that can refuse a request.

`CATALOGUE` is the only place where a wire code meets its status, its retryability and its
OJS number; the classes below take theirs from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """One code: where it can appear, what it means and what to do about it.

    `status` 0 marks a code that only ever stands in a job's own error, never in a response.
    `type` is the lowercase category.
    """

    code: str
    status: int
    retryable: bool
    id: str
    type: str
    meaning: str
    hint: str


_SHAPE = "Correct the named field and send the request again."
_SMALLER = "Send less in one request, or keep the data elsewhere and pass a reference to it."
_LATER = "Wait for the time in Retry-After, then send the request again."
_OURS = "The server could not finish; the request may be sent again."
_FIX_JOB = "Read the job's error; the handler or its input needs a change."
_RUN_AGAIN = "The job is tried again while its retry policy has attempts left."

_ENTRIES = (
    Entry("invalid_request", 400, False, "OJS-1000", "validation",
          "A field of the request is missing or has a value that is not allowed.", _SHAPE),
    Entry("invalid_payload", 400, False, "OJS-1000", "validation",
          "The body or the job envelope in it cannot be read as what it should be.", _SHAPE),
    Entry("validation_error", 422, False, "OJS-1006", "validation_error",
          "A retry or unique policy contradicts its rules.", _SHAPE),
    Entry("schema_validation", 422, False, "OJS-1008", "validation",
          "The arguments do not match the schema that the job names.",
          "Compare the arguments with the registered schema."),
    Entry("invalid_cron", 400, False, "OJS-1007", "validation",
          "The cron expression or its time zone cannot be understood.", _SHAPE),
    Entry("invalid_workflow", 400, False, "OJS-4004", "workflow",
          "The workflow definition cannot be run as written.", _SHAPE),
    Entry("not_found", 404, False, "OJS-3000", "not_found",
          "Nothing with that id or name exists here.",
          "Check the id; finished jobs disappear when their retention ends."),
    Entry("method_not_allowed", 405, False, "OJS-1000", "validation",
          "The path exists, but not for this HTTP method.",
          "Use one of the methods in the Allow header."),
    Entry("request_timeout", 408, True, "OJS-1012", "timeout",
          "The request, or what it waited for, took longer than allowed.",
          "Send the request again, or wait longer."),
    Entry("conflict", 409, False, "OJS-1005", "conflict",
          "The present state does not allow the operation.",
          "Read the current state before trying again."),
    Entry("duplicate", 409, False, "OJS-3001", "conflict",
          "A job with the same id or unique key exists already.",
          "Use the existing job, or choose another conflict setting."),
    Entry("RESULT_PRUNED", 410, False, "OJS-3000", "not_found",
          "The job had a result, and its retention has ended.",
          "Ask earlier, or raise result_ttl."),
    Entry("envelope_too_large", 413, False, "OJS-1009", "limit",
          "The job, or a part of it, is larger than this server accepts.", _SMALLER),
    Entry("RESULT_TOO_LARGE", 413, False, "OJS-1009", "limit",
          "The result is larger than this server stores; the job is still active.", _SMALLER),
    Entry("BATCH_SIZE_EXCEEDED", 413, False, "OJS-1009", "limit",
          "The request holds more items than one batch may.",
          "Split the batch by the size in X-OJS-Max-Batch-Size."),
    Entry("unsupported_compression", 415, False, "OJS-1017", "validation",
          "The body is encoded in a way that this server cannot decode.",
          "Send it plain, or with an encoding that the manifest lists."),
    Entry("checksum_mismatch", 422, False, "OJS-1016", "validation",
          "The data does not have the checksum that came with it.",
          "Compute the checksum again and resend."),
    Entry("unsupported", 422, False, "OJS-7000", "unsupported",
          "The request asks for a version or a feature that this server lacks.",
          "Read the manifest for what is supported."),
    Entry("EXTENSION_NOT_SUPPORTED", 422, False, "OJS-7000", "unsupported",
          "The request requires an extension that this server lacks.",
          "Read the manifest for the supported extensions."),
    Entry("JOB_TYPE_NOT_ALLOWED", 422, False, "OJS-1001", "validation",
          "The queue does not take jobs of this type.",
          "Use another queue, or add the type to allowed_job_types."),
    Entry("queue_paused", 422, True, "OJS-3004", "conflict",
          "The queue is draining and takes no new jobs.",
          "Use another queue, or resume this one."),
    Entry("QUEUE_NOT_FOUND", 404, False, "OJS-1002", "not_found",
          "The queue does not exist, and queues are not created on first use here.",
          "Create the queue first."),
    Entry("QUEUE_FULL", 429, True, "OJS-6001", "limit",
          "The queue holds as much as it may.", _LATER),
    Entry("rate_limited", 429, True, "OJS-6000", "limit",
          "Too many requests in too short a time.", _LATER),
    Entry("TENANT_LIMIT_EXCEEDED", 429, True, "OJS-6000", "limit",
          "The tenant has used up one of its limits.", _LATER),
    Entry("HEADERS_TOO_LARGE", 431, False, "OJS-1009", "limit",
          "The request's headers are larger than this server reads.",
          "Send fewer or shorter headers."),
    Entry("unauthenticated", 401, False, "OJS-5000", "auth",
          "The request carries no valid credentials.",
          "Send a valid token in the Authorization header."),
    Entry("permission_denied", 403, False, "OJS-5001", "auth",
          "The credentials are valid but do not allow this.",
          "Ask an administrator for the role that the message names."),
    Entry("backend_error", 500, True, "OJS-2000", "backend",
          "The server failed in a way it did not expect.", _OURS),
    Entry("backend_unavailable", 503, True, "OJS-2001", "backend",
          "The store cannot be reached or refuses writes.", _OURS),
    Entry("backend_timeout", 504, True, "OJS-2002", "backend",
          "The store did not answer in time.", _OURS),
    Entry("handler_error", 0, True, "OJS-3005", "handler",
          "The handler raised an error.", _RUN_AGAIN),
    Entry("timeout", 0, True, "OJS-3006", "timeout",
          "The attempt ran longer than its timeout.", _RUN_AGAIN),
    Entry("handler_panic", 0, True, "OJS-3007", "handler",
          "The handler ended in a way that it could not report itself.", _RUN_AGAIN),
    Entry("non_retryable_error", 0, False, "OJS-3008", "handler",
          "The handler said that trying again is pointless.", _FIX_JOB),
    Entry("cancelled", 0, False, "OJS-3009", "handler",
          "The job was cancelled while it ran.", _FIX_JOB),
)  # fmt: skip

CATALOGUE: dict[str, Entry] = {entry.code: entry for entry in _ENTRIES}


class OjsError(Exception):
    """A refusal that a client can act upon.

    `code` is the wire code and `catalogue` the OJS number ("OJS-1000"). `extra` members stand
    directly inside the wire error, next to `code`; `headers` belong on the response. When
    `field` or `expected` is given, the message names both and `details` carries them.
    """

    code: str = "backend_error"
    catalogue: str = CATALOGUE["backend_error"].id
    status: int = CATALOGUE["backend_error"].status
    retryable: bool = CATALOGUE["backend_error"].retryable
    type: str = CATALOGUE["backend_error"].type
    hint: str = CATALOGUE["backend_error"].hint
    message: str
    details: dict[str, Any]
    extra: dict[str, Any]
    headers: dict[str, str]

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Fill the class's defaults from the catalogue entry of its code."""
        super().__init_subclass__(**kwargs)
        entry = CATALOGUE[cls.code]
        cls.catalogue = entry.id
        cls.status = entry.status
        cls.retryable = entry.retryable
        cls.type = entry.type
        cls.hint = entry.hint

    def __init__(
        self,
        message: str = "",
        *,
        field: str = "",
        expected: str = "",
        details: Mapping[str, Any] | None = None,
        extra: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        hint: str = "",
        catalogue: str = "",
    ) -> None:
        self.details = dict(details or {})
        self.extra = dict(extra or {})
        self.headers = dict(headers or {})
        if field:
            self.details.setdefault("field", field)
        if expected:
            self.details.setdefault("expected", expected)
        if hint:
            self.hint = hint
        if catalogue:
            self.catalogue = catalogue
        self.message = _message(message, field, expected) or CATALOGUE[self.code].meaning
        super().__init__(self.message)

    def body(self, request_id: str) -> dict[str, Any]:
        """Give the wire form; nothing in `extra` can displace a standard member."""
        error: dict[str, Any] = {
            **self.extra,
            "code": self.code,
            "type": self.type,
            "message": self.message,
            "retryable": self.retryable,
            "request_id": request_id,
            "hint": self.hint,
            "docs_url": f"docs/errors.md#{self.code.lower()}",
        }
        if self.details:
            error["details"] = self.details
        return {"error": error}


def _message(message: str, field: str, expected: str) -> str:
    if not message:
        if field and expected:
            return f"{field} must be {expected}"
        return f"{field} is not valid" if field else ""
    if field and field not in message:
        message = f"{field}: {message}"
    if expected and expected not in message:
        message = f"{message} (expected {expected})"
    return message


class InvalidRequest(OjsError):
    """A field of the request is missing or wrong."""

    code = "invalid_request"


class InvalidPayload(OjsError):
    """The body, or the envelope in it, is not what it should be."""

    code = "invalid_payload"


class PolicyInvalid(OjsError):
    """A retry or unique policy contradicts its rules."""

    code = "validation_error"


class SchemaInvalid(OjsError):
    """The arguments do not match their schema."""

    code = "schema_validation"


class InvalidCron(OjsError):
    """The cron expression or its zone cannot be understood."""

    code = "invalid_cron"


class InvalidWorkflow(OjsError):
    """The workflow definition cannot be run as written."""

    code = "invalid_workflow"


class NotFound(OjsError):
    """Nothing with that id or name exists."""

    code = "not_found"


class MethodNotAllowed(OjsError):
    """The path exists, but not for this method; `allow` lists those that do."""

    code = "method_not_allowed"

    def __init__(self, message: str = "", *, allow: tuple[str, ...] = ()) -> None:
        super().__init__(message, headers={"Allow": ", ".join(allow)})


class RequestTimeout(OjsError):
    """The request, or what it waited for, took too long."""

    code = "request_timeout"


class Conflict(OjsError):
    """The present state does not allow the operation."""

    code = "conflict"


class Duplicate(OjsError):
    """A job with the same id or unique key exists; the details say which."""

    code = "duplicate"

    def __init__(
        self,
        message: str = "",
        *,
        existing_job_id: str,
        existing_job_state: str = "",
        unique_key: str = "",
    ) -> None:
        details = {
            "existing_job_id": existing_job_id,
            "existing_job_state": existing_job_state,
            "unique_key": unique_key,
        }
        super().__init__(message, details={k: v for k, v in details.items() if v})


class ResultPruned(OjsError):
    """The job had a result whose retention has ended."""

    code = "RESULT_PRUNED"


class TooLarge(OjsError):
    """The job, or a part of it, is larger than accepted."""

    code = "envelope_too_large"


class ResultTooLarge(OjsError):
    """The result is larger than stored."""

    code = "RESULT_TOO_LARGE"


class BatchTooLarge(OjsError):
    """More items than one batch may hold; the header says how many it may."""

    code = "BATCH_SIZE_EXCEEDED"

    def __init__(self, message: str = "", *, max_batch_size: int) -> None:
        super().__init__(
            message or f"a batch may hold at most {max_batch_size} items",
            details={"max_batch_size": max_batch_size},
            headers={"X-OJS-Max-Batch-Size": str(max_batch_size)},
        )


class CompressionUnsupported(OjsError):
    """The body is encoded in a way that cannot be decoded here."""

    code = "unsupported_compression"


class ChecksumMismatch(OjsError):
    """The data does not have the checksum that came with it."""

    code = "checksum_mismatch"


class Unsupported(OjsError):
    """A version or feature that this server lacks."""

    code = "unsupported"


class ExtensionUnsupported(OjsError):
    """A required extension that this server lacks."""

    code = "EXTENSION_NOT_SUPPORTED"


class JobTypeNotAllowed(OjsError):
    """The queue does not take this type."""

    code = "JOB_TYPE_NOT_ALLOWED"


class QueueDraining(OjsError):
    """The queue takes no new jobs until it is resumed."""

    code = "queue_paused"


class QueueNotFound(OjsError):
    """The queue does not exist and is not created on first use."""

    code = "QUEUE_NOT_FOUND"


class QueueFull(OjsError):
    """The queue's bound would be passed; `measure` says which kind of bound.

    `depth` and `bound` are in the unit of `measure`: jobs, active_included or bytes.
    """

    code = "QUEUE_FULL"

    def __init__(
        self,
        message: str = "",
        *,
        queue: str,
        depth: int,
        bound: int,
        strategy: str,
        measure: str = "jobs",
        retry_after_s: int = 1,
    ) -> None:
        super().__init__(
            message or f"queue {queue} is full: {depth} of {bound} ({measure})",
            extra={
                "queue": queue,
                "depth": depth,
                "bound": bound,
                "strategy": strategy,
                "measure": measure,
            },
            headers={
                **_retry_after(retry_after_s),
                "X-OJS-Queue-Depth": str(depth),
                "X-OJS-Queue-Bound": str(bound),
            },
        )


class RateLimited(OjsError):
    """Too many requests in too short a time."""

    code = "rate_limited"

    def __init__(self, message: str = "", *, retry_after_s: int = 1) -> None:
        super().__init__(message, headers=_retry_after(retry_after_s))


class TenantLimitExceeded(OjsError):
    """A tenant has used up the limit that `limit` names."""

    code = "TENANT_LIMIT_EXCEEDED"

    def __init__(
        self,
        message: str = "",
        *,
        tenant_id: str,
        limit: str,
        current: int,
        maximum: int,
        retry_after_s: int = 1,
    ) -> None:
        super().__init__(
            message or f"tenant {tenant_id} is at its {limit}: {current} of {maximum}",
            extra={
                "tenant_id": tenant_id,
                "limit": limit,
                "current": current,
                "maximum": maximum,
            },
            headers=_retry_after(retry_after_s),
        )


class HeadersTooLarge(OjsError):
    """The request's headers are larger than read."""

    code = "HEADERS_TOO_LARGE"


class Unauthenticated(OjsError):
    """No valid credentials came with the request."""

    code = "unauthenticated"

    def __init__(self, message: str = "") -> None:
        super().__init__(message, headers={"WWW-Authenticate": "Bearer"})


class PermissionDenied(OjsError):
    """The credentials are valid but do not allow this."""

    code = "permission_denied"


class BackendError(OjsError):
    """The server failed in a way it did not expect."""

    code = "backend_error"


class BackendUnavailable(OjsError):
    """The store cannot be reached or refuses writes."""

    code = "backend_unavailable"

    def __init__(self, message: str = "", *, retry_after_s: int = 1) -> None:
        super().__init__(message, headers=_retry_after(retry_after_s))


class BackendTimeout(OjsError):
    """The store did not answer in time."""

    code = "backend_timeout"


def _retry_after(seconds: int) -> dict[str, str]:
    return {"Retry-After": str(max(1, seconds))}
