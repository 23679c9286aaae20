from __future__ import annotations

import re
from typing import Any
from uuid import UUID

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.engines.contract import Event
from headgate.wire.events import event_id, event_json

AT = 1_770_000_000_123
TIME = "2026-02-02T02:40:00.123Z"
UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")

numbers = st.integers(0, 2**64 - 1)
instants = st.integers(0, 2**48 - 1)


def shown(event: Event) -> Any:
    return msgspec.json.decode(event_json(event, "ojs://here"))


def job_event(kind: str, data: dict[str, Any] | None) -> Event:
    return Event(9, kind, AT, "j1", "a.b", "mail", "active", data)


@given(numbers, instants)
@example(1 << 62, 0)
@example(2**64 - 1, 2**48 - 1)
def test_an_id_is_a_uuid_of_version_seven_at_its_time(number: int, at_ms: int) -> None:
    prefix, _, uuid = event_id(number, at_ms).partition("_")
    assert prefix == "evt"
    assert UUID7.fullmatch(uuid)
    bits = UUID(uuid).int
    assert bits >> 80 == at_ms
    assert (bits >> 64 & 0xFFF) << 62 | bits & (1 << 62) - 1 == number


@given(numbers, numbers, instants)
def test_ids_are_as_different_as_numbers_and_in_their_order(a: int, b: int, at_ms: int) -> None:
    first, second = event_id(a, at_ms), event_id(b, at_ms)
    assert (first < second) == (a < b)
    assert (first == second) == (a == b)


def test_the_whole_envelope() -> None:
    assert shown(job_event("job.started", {"worker_id": "w", "attempt": 2, "trace_id": "t"})) == {
        "specversion": "1.0",
        "id": event_id(9, AT),
        "type": "job.started",
        "source": "ojs://here",
        "time": TIME,
        "subject": "j1",
        "data": {
            "job_id": "j1",
            "job_type": "a.b",
            "queue": "mail",
            "state": "active",
            "timestamp": TIME,
            "worker_id": "w",
            "attempt": 2,
            "trace_id": "t",
        },
    }


def test_instants_are_written_as_such_and_durations_are_not() -> None:
    data = shown(
        job_event(
            "job.expired",
            {"created_at": AT, "expired_at": AT, "visible_until": AT, "ttl_ms": 5, "wait_ms": AT},
        )
    )["data"]
    assert (data["created_at"], data["expired_at"], data["visible_until"]) == (TIME,) * 3
    assert (data["ttl_ms"], data["wait_ms"]) == (5, AT)


def test_json_inside_stays_what_it_is() -> None:
    error = msgspec.Raw(b'{"code":"x","occurred_at":"2026-02-02T02:40:00.123Z"}')
    data = shown(job_event("job.failed", {"error": error}))["data"]
    assert data["error"] == {"code": "x", "occurred_at": TIME}


def test_progress_counts_to_a_hundred() -> None:
    data = shown(job_event("job.progress", {"progress": 0.07, "message": "m"}))["data"]
    assert (data["progress_percent"], data["progress_message"]) == (7.0, "m")
    assert not {"progress", "message"} & set(data)
    nothing = shown(job_event("job.progress", {"progress": None, "message": None}))["data"]
    assert not {"progress_percent", "progress_message"} & set(nothing)


def test_events_without_a_job() -> None:
    paused = Event(1, "queue.paused", AT, "mail", "", "mail", "", {"paused_by": "me"})
    assert shown(paused)["data"] == {"queue": "mail", "timestamp": TIME, "paused_by": "me"}
    stopped = Event(2, "worker.stopped", AT, "w1", "", "", "", {"reason": "shutdown"})
    assert shown(stopped)["data"] == {"worker_id": "w1", "timestamp": TIME, "reason": "shutdown"}
    dropped = Event(3, "system.events_dropped", AT, "", "", "", "", None)
    assert shown(dropped)["data"] == {"timestamp": TIME}
