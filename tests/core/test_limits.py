from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from headgate.core.errors import InvalidRequest
from headgate.core.gates import Gate, Limits, LimitsChange, Override, Rate
from headgate.core.limits import (
    Use,
    change_from,
    change_json,
    check_key,
    full_key,
    limits_json,
    override_from,
    override_json,
    queue_key,
    queue_limits_from,
    rate_json,
    state_json,
    tenant_key,
    uses_from,
)

NOW = 1_760_000_000_000
MINUTE = Rate(100, 60_000_000)
SECOND = Rate(10, 1_000_000)


def test_a_whole_policy() -> None:
    given_policy = {
        "key": "stripe-api",
        "concurrency": 5,
        "rate": {"limit": 100, "period": "PT1M"},
        "throttle": {"limit": 10, "period": "PT1S"},
        "on_limit": "reschedule",
        "scope": "tenant",
        "note": "kept by the protocol, nothing to us",
    }
    change = LimitsChange(5, MINUTE, SECOND)
    assert uses_from(given_policy, "q") == (Use("stripe-api", "tenant", "reschedule", change),)


def test_what_is_absent_is_left_and_what_is_null_is_cleared() -> None:
    assert uses_from({"key": "k"}, "q") == (Use("k"),)
    (use,) = uses_from({"key": "k", "rate": None, "on_limit": None, "scope": None}, "q")
    assert use == Use("k", "global", "wait", LimitsChange(UNSET, None, UNSET))
    assert uses_from(None, "q") == ()


def test_up_to_four_policies() -> None:
    keys = ["a", "b", "c", "d"]
    assert [use.key for use in uses_from([{"key": key} for key in keys], "q")] == keys
    both = [{"key": "a"}, {"key": "a", "scope": "tenant"}]
    assert [use.scope for use in uses_from(both, "q")] == ["global", "tenant"]


@pytest.mark.parametrize(
    ("shape", "use"),
    [
        (
            {"max_per_second": 2},
            Use("queue:mail", change=LimitsChange(throttle=Rate(2, 1_000_000))),
        ),
        (
            {"key": "k", "max_per_second": 2},
            Use("k", change=LimitsChange(throttle=Rate(2, 1_000_000))),
        ),
        (
            {"key": "k", "rate": 1, "period": "second"},
            Use("k", change=LimitsChange(rate=Rate(1, 1_000_000))),
        ),
        (
            {"key": "k", "rate": 9, "period": "PT5M"},
            Use("k", change=LimitsChange(rate=Rate(9, 300_000_000))),
        ),
    ],
)
def test_older_shapes(shape: dict[str, Any], use: Use) -> None:
    assert uses_from(shape, "mail") == (use,)


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        ("stripe", "rate_limit"),
        (5, "rate_limit"),
        ([], "rate_limit"),
        ([{"key": "k"}] * 5, "rate_limit"),
        ([{"key": "a"}, 7], "rate_limit[1]"),
        ([{"key": "a"}, {"key": "b"}, {"key": "a"}], "rate_limit[2].key"),
        ([{"key": "a"}, {"key": ""}], "rate_limit[1].key"),
        ({}, "rate_limit.key"),
        ({"key": None}, "rate_limit.key"),
        ({"key": "-a"}, "rate_limit.key"),
        ({"key": "a b"}, "rate_limit.key"),
        ({"key": "a/b"}, "rate_limit.key"),
        ({"key": "@a"}, "rate_limit.key"),
        ({"key": "a\n"}, "rate_limit.key"),
        ({"key": "a" * 257}, "rate_limit.key"),
        ({"key": "k", "concurrency": -1}, "rate_limit.concurrency"),
        ({"key": "k", "concurrency": 1.0}, "rate_limit.concurrency"),
        ({"key": "k", "concurrency": True}, "rate_limit.concurrency"),
        ({"key": "k", "concurrency": 2**53}, "rate_limit.concurrency"),
        ({"key": "k", "rate": []}, "rate_limit.rate"),
        ({"key": "k", "rate": True}, "rate_limit.rate"),
        ({"key": "k", "rate": {}}, "rate_limit.rate.limit"),
        ({"key": "k", "rate": {"limit": 0, "period": "PT1S"}}, "rate_limit.rate.limit"),
        ({"key": "k", "rate": {"limit": 1}}, "rate_limit.rate.period"),
        ({"key": "k", "rate": {"limit": 1, "period": "PT0S"}}, "rate_limit.rate.period"),
        ({"key": "k", "rate": {"limit": 1, "period": "PT0.0001S"}}, "rate_limit.rate.period"),
        ({"key": "k", "rate": {"limit": 1, "period": "P11Y"}}, "rate_limit.rate.period"),
        ({"key": "k", "rate": {"limit": 1, "period": "1 minute"}}, "rate_limit.rate.period"),
        ({"key": "k", "rate": {"limit": 1, "period": 60}}, "rate_limit.rate.period"),
        ({"key": "k", "throttle": {"limit": "1", "period": "PT1S"}}, "rate_limit.throttle.limit"),
        ({"key": "k", "on_limit": "retry"}, "rate_limit.on_limit"),
        ({"key": "k", "on_limit": ["wait"]}, "rate_limit.on_limit"),
        ({"key": "k", "scope": "queue"}, "rate_limit.scope"),
        ({"max_per_second": 0}, "rate_limit.max_per_second"),
        ({"max_per_second": "5"}, "rate_limit.max_per_second"),
        ({"key": "k", "rate": 0, "period": "second"}, "rate_limit.rate"),
        ({"key": "k", "rate": 1, "period": "fortnight"}, "rate_limit.period"),
        ({"key": "k", "rate": 1}, "rate_limit.period"),
    ],
)
def test_refusals_name_the_member(policy: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        uses_from(policy, "q")
    assert caught.value.details["field"] == field
    assert field in caught.value.message
    assert caught.value.details["expected"]


def test_no_client_reaches_the_keys_of_others() -> None:
    assert full_key("k", "global", "acme") == "k"
    inside = [full_key("k", "tenant", "acme"), full_key("k", "tenant", ""), queue_key("q")]
    inside.append(tenant_key("acme"))
    assert len(set(inside)) == 4
    for key in inside:
        with pytest.raises(InvalidRequest):
            check_key(key)
    assert full_key("b:c", "tenant", "a") != full_key("c", "tenant", "a:b")


def test_an_override() -> None:
    assert override_from({"concurrency": 0}, NOW) == Override(Limits(0), ("concurrency",))
    body = {"rate": None, "throttle": {"limit": 10, "period": "PT1S"}, "expires_at": "+PT1H"}
    expected = Override(Limits(throttle=SECOND), ("rate", "throttle"), NOW + 3_600_000)
    assert override_from(body, NOW) == expected
    assert override_from(override_json(expected), NOW) == expected


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ([], "body"),
        ({}, "body"),
        ({"expires_at": "+PT1H"}, "body"),
        ({"concurency": 0}, "body.concurency"),
        ({"concurrency": -1}, "body.concurrency"),
        ({"concurrency": 0, "expires_at": "2001-01-01T00:00:00Z"}, "body.expires_at"),
        ({"concurrency": 0, "expires_at": "+PT0S"}, "body.expires_at"),
        ({"concurrency": 0, "expires_at": "tomorrow"}, "body.expires_at"),
        ({"concurrency": 0, "expires_at": 5}, "body.expires_at"),
    ],
)
def test_overrides_refused(body: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        override_from(body, NOW)
    assert caught.value.details["field"] == field


def test_the_shapes_of_a_queue() -> None:
    assert queue_limits_from({"limit": 100, "period": "PT1M"}) == LimitsChange(rate=MINUTE)
    assert queue_limits_from({"limit": 100, "period": "PT1M", "concurrency": 2}) == LimitsChange(
        2, MINUTE
    )
    assert queue_limits_from({"concurrency": None, "rate": {"limit": 100, "period": "PT1M"}}) == (
        LimitsChange(None, MINUTE)
    )


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (7, "rate_limit"),
        ({"limits": 5}, "rate_limit.limits"),
        ({"limit": 5}, "rate_limit.period"),
        ({"period": "PT1S"}, "rate_limit.limit"),
        ({"limit": 5, "period": "PT1S", "rate": None}, "rate_limit.rate"),
        ({"limit": 5, "period": "PT0S"}, "rate_limit.period"),
    ],
)
def test_shapes_of_a_queue_refused(body: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        queue_limits_from(body)
    assert caught.value.details["field"] == field


rates = st.builds(
    Rate, st.integers(1, 2**53 - 1), st.integers(1, 3650 * 86_400_000).map(lambda ms: ms * 1000)
)
changes = st.builds(
    LimitsChange,
    *[st.just(UNSET) | st.none() | member for member in (st.integers(0, 2**53 - 1), rates, rates)],
)


@given(changes)
def test_what_is_written_is_read_back(change: LimitsChange) -> None:
    text = msgspec.json.encode(change_json(change))
    assert change_from(msgspec.json.decode(text), "x") == change
    assert queue_limits_from(msgspec.json.decode(text)) == change


@given(changes)
def test_limits_are_written_without_those_that_are_not(change: LimitsChange) -> None:
    gate = Gate("k")
    gate.register(change)
    limits = gate.limits
    written = limits_json(limits)
    assert None not in written.values()
    gate.impose(override_from(written, NOW) if written else None)
    assert gate.effective(NOW * 1000) == limits


def test_the_state_of_a_key() -> None:
    gate = Gate("k", Limits(5, MINUTE, SECOND))
    gate.start("a", 1, NOW * 1000 + 1)
    assert state_json("k", gate.state(NOW * 1000 + 1), 12) == {
        "key": "k",
        "concurrency": {"limit": 5, "active": 1, "available": 4},
        "rate": {
            "limit": 100,
            "period": "PT1M",
            "current_count": 1,
            "window_resets_at": "2025-10-09T08:54:20.001Z",
        },
        "throttle": {
            "limit": 10,
            "period": "PT1S",
            "next_allowed_at": "2025-10-09T08:53:20.101Z",
        },
        "waiting_count": 12,
    }


def test_the_state_of_a_key_that_is_held_and_overridden() -> None:
    gate = Gate("k")
    gate.hold(NOW * 1000 + 5_000_000, "429", NOW * 1000)
    gate.impose(Override(Limits(0), ("concurrency", "rate"), NOW + 1_000))
    assert state_json("k", gate.state(NOW * 1000), 0) == {
        "key": "k",
        "concurrency": {"limit": 0, "active": 0, "available": 0},
        "waiting_count": 0,
        "hold": {"until": "2025-10-09T08:53:25.000Z", "reason": "429"},
        "override": {
            "concurrency": 0,
            "rate": None,
            "expires_at": "2025-10-09T08:53:21.000Z",
        },
    }
    assert state_json("k", gate.state(NOW * 1000 + 5_000_000), 0) == {
        "key": "k",
        "waiting_count": 0,
    }


def test_a_rate_is_written_as_it_is_read() -> None:
    assert rate_json(MINUTE) == {"limit": 100, "period": "PT1M"}
