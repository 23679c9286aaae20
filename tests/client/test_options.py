"""What programs write, and what servers read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from headgate import Rate, RateLimit, RetryPolicy, Unique, ValidationError
from headgate.client.amounts import at_ms, ms_of, rate_of
from headgate.client.keys import render
from headgate.client.options import check, envelope, merged
from headgate.client.queues import wire
from headgate.core.limits import uses_from
from headgate.core.retry import policy_from as retry_from
from headgate.core.unique import policy_from as unique_from
from headgate.wire.envelope import read_envelope

NOW_MS = 1_800_000_000_000


def body(options: dict[str, Any], args: list[Any] | None = None) -> dict[str, Any]:
    check(options)
    return envelope("a.b", args or [], {}, options, NOW_MS)


@pytest.mark.parametrize(
    ("value", "ms"),
    [(1, 1000), (0.25, 250), ("90s", 90_000), ("1.5m", 90_000), ("2h", 7_200_000), ("1d", 86_400_000),
     ("250ms", 250), ("PT5M", 300_000), (timedelta(seconds=3), 3_000), (0, 0)],
)  # fmt: skip
def test_durations(value: Any, ms: int) -> None:
    assert ms_of(value, "x") == ms


@pytest.mark.parametrize(
    "value", [-1, "5 parsecs", "", None, True, float("inf"), timedelta(-1), []]
)
def test_what_is_no_duration(value: Any) -> None:
    with pytest.raises(ValidationError, match="x must be"):
        ms_of(value, "x")


@pytest.mark.parametrize(
    "value",
    [datetime(2027, 1, 15, 8, tzinfo=UTC), "2027-01-15T08:00:00Z",
     datetime(2027, 1, 15, 10, tzinfo=timezone(timedelta(hours=2)))],
)  # fmt: skip
def test_instants(value: Any) -> None:
    assert at_ms(value, "x") == NOW_MS


@pytest.mark.parametrize("value", [datetime(2027, 1, 15), "2027-01-15T08:00:00", "soon", 5])  # noqa: DTZ001
def test_what_is_no_instant(value: Any) -> None:
    with pytest.raises(ValidationError, match="with a zone"):
        at_ms(value, "x")


@pytest.mark.parametrize(
    ("text", "rate"),
    [("100/m", (100, 60_000)), ("5/30s", (5, 30_000)), ("1/PT10S", (1, 10_000)), (" 7 / day ", (7, 86_400_000))],
)  # fmt: skip
def test_rates(text: str, rate: tuple[int, int]) -> None:
    assert rate_of(text, "rate") == rate


@pytest.mark.parametrize("text", ["100", "0/m", "x/m", "5/fortnight", "-1/s", "5/0s"])
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(ValidationError, match="rate must be like"):
        rate_of(text, "rate")


def test_options_as_a_server_reads_them() -> None:
    found = body(
        {
            "queue": "q", "priority": 5, "delay": "1m", "expires": "1h", "timeout": 2.5,
            "total_timeout": 60, "visibility_timeout": "45s", "heartbeat_timeout": 9,
            "grace_period": 3, "result_ttl": "1h", "tags": ("a",), "meta": {"k": 1},
            "tenant": "acme", "version": 2, "schema": "urn:x",
        }
    )  # fmt: skip
    assert found == {
        "type": "a.b", "args": [], "queue": "q", "priority": 5,
        "scheduled_at": "2027-01-15T08:01:00.000Z", "expires_at": "2027-01-15T09:00:00.000Z",
        "timeout_ms": 2500, "total_timeout": 60, "visibility_timeout": 45, "heartbeat_timeout": 9,
        "grace_period": 3, "result_ttl": 3600, "tags": ["a"],
        "meta": {"k": 1, "tenant_id": "acme"}, "version": 2, "schema": "urn:x",
    }  # fmt: skip


def test_everything_that_can_be_said_is_taken_by_the_server() -> None:
    found = body(
        {
            "at": "2030-01-01T00:00:00Z", "pending": True, "timeout": 30,
            "retry": RetryPolicy(max_attempts=5, initial_interval="2s", max_interval="1m", backoff="linear",
                                 coefficient=1.5, jitter=False, non_retryable=["E.*"], dead_letter=True),
            "unique": Unique(key="u:{0}", queue=True, meta_keys=["k"], period="1h", states=["active"],
                             on_conflict="ignore"),
            "rate_limit": [
                RateLimit("one:{0}", concurrency=2, rate="100/m", throttle=Rate(5, per="1s")),
                RateLimit("two", on_limit="drop", scope="tenant", concurrency=0),
            ],
            "meta": {"k": 1},
        },
        ["x"],
    )  # fmt: skip
    uses = uses_from(found.pop("rate_limit"), "default")
    read_envelope(msgspec.json.encode(found), NOW_MS)
    assert [use.key for use in uses] == ["one:x", "two"]
    assert retry_from(found["retry"]).on_exhaustion == "dead_letter"
    assert retry_from(found["retry"]).initial_ms == 2_000
    assert unique_from(found["unique"]).dimensions == ("type", "queue", "meta")
    assert len(found["unique_key"]) == 64


@pytest.mark.parametrize(
    "options",
    [{"colour": "green"}, {"delay": 1, "at": "2030-01-01T00:00:00Z"}, {"timeout": "x"}, {"tags": "a"},
     {"retry": True}, {"rate_limit": "reports"}, {"rate_limit": [RateLimit("a")] * 5},
     {"rate_limit": RateLimit("a", rate="fast")}, {"expires": "never"}],
)  # fmt: skip
def test_what_no_job_can_have_is_refused_where_it_is_declared(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        check(options)


def test_options_are_laid_over_each_other() -> None:
    assert merged({"delay": 1, "meta": {"a": 1}, "queue": "q"}, {"at": "x", "meta": {"b": 2}}) == {
        "at": "x", "meta": {"a": 1, "b": 2}, "queue": "q",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("template", "key"),
    [("plain", "plain"), ("t:{customer}", "t:acme"), ("{order.region}-{order.lines[0]}", "eu-7"),
     ("n:{0}", "n:acme"), ("{order[region]}", "eu"), ("b:{flag}", "b:true"), ("{{x", None)],
)  # fmt: skip
def test_keys_are_templates_over_the_arguments(template: str, key: str | None) -> None:
    order = {"region": "eu", "lines": [7]}
    args = ["acme", order, True]
    named = {"customer": "acme", "order": order, "flag": True}
    if key is None:
        with pytest.raises(ValidationError):
            render(template, args, named)
    else:
        assert render(template, args, named) == key


@pytest.mark.parametrize(
    "template", ["{nobody}", "{order.x}", "{}", "{order}", "{0!r}", "{0:>5}", "{", "_x", ""]
)
def test_templates_that_give_no_key(template: str) -> None:
    with pytest.raises(ValidationError):
        render(template, ["a"], {"order": {"a": 1}})


def test_different_values_keep_different_keys() -> None:
    values = ["a@b.c", "a b.c", "a_b.c", "x" * 500, "x" * 501, "", "ä", "ö"]
    keys = {render("t:{0}", [value], {}) for value in values}
    assert len(keys) == len(values)
    assert all(len(key) <= 256 for key in keys)


def test_queue_settings_as_a_server_reads_them() -> None:
    assert wire(
        {"max_depth": 10, "overflow": "block", "rate": "5/s", "throttle": None, "concurrency": 3,
         "visibility_timeout": "2m", "dead_letter_ttl": "7d", "retention": {"completed": "1d"},
         "default_retry": RetryPolicy(max_attempts=2), "max_size": None, "producers": ["a"]}
    ) == {
        "backpressure": {"max_depth": 10, "strategy": "block"},
        "rate_limit": {"rate": {"limit": 5, "period": "PT1S"}, "throttle": None},
        "concurrency": 3, "visibility_timeout": 120, "dead_letter_ttl": "P7D",
        "retention": {"completed": "P1D"}, "default_retry": {"max_attempts": 2}, "max_size": None,
        "producers": ["a"],
    }  # fmt: skip
