from __future__ import annotations

from typing import Any

import pytest

from headgate.core import errors
from headgate.core.errors import CATALOGUE, InvalidRequest, OjsError, QueueFull

NEEDED: dict[str, dict[str, Any]] = {
    "MethodNotAllowed": {"allow": ("GET", "PUT")},
    "Duplicate": {"existing_job_id": "j1"},
    "BatchTooLarge": {"max_batch_size": 1000},
    "QueueFull": {"queue": "q", "depth": 5, "bound": 5, "strategy": "reject"},
    "TenantLimitExceeded": {
        "tenant_id": "t",
        "limit": "max_scheduled",
        "current": 2,
        "maximum": 2,
    },
}


def classes() -> list[type[OjsError]]:
    found: list[type[OjsError]] = [OjsError, *OjsError.__subclasses__()]
    assert len(found) > 25
    return found


def build(cls: type[OjsError], message: str = "") -> OjsError:
    return cls(message, **NEEDED.get(cls.__name__, {}))


@pytest.mark.parametrize("cls", classes())
def test_every_class_has_a_complete_body(cls: type[OjsError]) -> None:
    error = build(cls)
    body = error.body("req_1")["error"]
    entry = CATALOGUE[error.code]
    assert body["code"] == entry.code
    assert body["retryable"] is entry.retryable
    assert body["type"] == entry.type == entry.type.lower()
    assert body["request_id"] == "req_1"
    assert body["message"] == str(error) != ""
    assert body["hint"] != ""
    assert body["docs_url"] == f"docs/errors.md#{entry.code.lower()}"
    assert error.status == entry.status >= 400
    assert error.catalogue == entry.id


@pytest.mark.parametrize("cls", classes())
def test_a_given_message_is_kept(cls: type[OjsError]) -> None:
    assert build(cls, "no such luck").message == "no such luck"


def test_every_response_code_has_a_class() -> None:
    raised = {cls.code for cls in classes()}
    assert raised == {entry.code for entry in CATALOGUE.values() if entry.status}


def test_codes_are_listed_once_and_described() -> None:
    assert len(CATALOGUE) == len(errors._ENTRIES)
    for entry in CATALOGUE.values():
        assert entry.id.startswith("OJS-")
        assert entry.meaning.endswith(".")
        assert entry.hint.endswith(".")


@pytest.mark.parametrize(
    ("name", "code", "status", "retryable"),
    [
        ("InvalidRequest", "invalid_request", 400, False),
        ("PolicyInvalid", "validation_error", 422, False),
        ("Conflict", "conflict", 409, False),
        ("Duplicate", "duplicate", 409, False),
        ("TooLarge", "envelope_too_large", 413, False),
        ("QueueDraining", "queue_paused", 422, True),
        ("QueueFull", "QUEUE_FULL", 429, True),
        ("ResultPruned", "RESULT_PRUNED", 410, False),
        ("BackendUnavailable", "backend_unavailable", 503, True),
        ("BackendTimeout", "backend_timeout", 504, True),
        ("HeadersTooLarge", "HEADERS_TOO_LARGE", 431, False),
    ],
)
def test_codes_on_the_wire(name: str, code: str, status: int, retryable: bool) -> None:
    error = build(getattr(errors, name))
    assert (error.code, error.status, error.retryable) == (code, status, retryable)


@pytest.mark.parametrize("cls", classes())
def test_refusals_for_a_time_say_how_long(cls: type[OjsError]) -> None:
    error = build(cls)
    assert ("Retry-After" in error.headers) is (error.status in {429, 503})


def test_a_wrong_field_is_named_with_what_was_expected() -> None:
    error = InvalidRequest(field="priority", expected="an integer from -100 to 100")
    assert error.message == "priority must be an integer from -100 to 100"
    assert error.body("r")["error"]["details"] == {
        "field": "priority",
        "expected": "an integer from -100 to 100",
    }


def test_a_message_without_field_or_expectation_gets_both() -> None:
    error = InvalidRequest("got 7.5", field="count", expected="an integer")
    assert error.message == "count: got 7.5 (expected an integer)"
    assert InvalidRequest("count is odd", field="count").message == "count is odd"
    assert InvalidRequest(field="count").message == "count is not valid"


def test_queue_full_carries_its_numbers_inside_the_error_and_in_headers() -> None:
    error = QueueFull(queue="q", depth=7, bound=5, strategy="block", retry_after_s=0)
    body = error.body("r")["error"]
    assert {k: body[k] for k in ("queue", "depth", "bound", "strategy", "measure")} == {
        "queue": "q",
        "depth": 7,
        "bound": 5,
        "strategy": "block",
        "measure": "jobs",
    }
    assert error.headers == {
        "Retry-After": "1",
        "X-OJS-Queue-Depth": "7",
        "X-OJS-Queue-Bound": "5",
    }


def test_extra_members_cannot_displace_standard_ones() -> None:
    error = OjsError("m", extra={"code": "x", "more": 1})
    body = error.body("r")["error"]
    assert (body["code"], body["more"]) == ("backend_error", 1)


def test_one_instance_does_not_change_the_next() -> None:
    first = InvalidRequest("a", hint="look here", catalogue="OJS-1002", details={"n": 1})
    second = InvalidRequest("b")
    assert (first.hint, first.catalogue, first.details) == ("look here", "OJS-1002", {"n": 1})
    assert second.hint == CATALOGUE["invalid_request"].hint
    assert (second.catalogue, second.details) == ("OJS-1000", {})


def test_credentials_are_asked_for() -> None:
    assert build(errors.Unauthenticated).headers == {"WWW-Authenticate": "Bearer"}
    assert build(errors.MethodNotAllowed).headers == {"Allow": "GET, PUT"}
    assert build(errors.BatchTooLarge).headers == {"X-OJS-Max-Batch-Size": "1000"}
