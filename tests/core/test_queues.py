from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core import retry
from headgate.core.bounds import Bounds
from headgate.core.errors import InvalidRequest, OjsError, PolicyInvalid
from headgate.core.gates import Limits, Rate
from headgate.core.queues import (
    EMPTY,
    FIELDS,
    SYSTEM,
    QueueConfig,
    Resolved,
    check_name,
    merge,
    resolve,
    resolved_json,
)
from headgate.core.tenants import Fairness
from headgate.core.times import DAY_MS, LONGEST_MS, duration_ms

RETENTION = ("completed", "discarded", "cancelled")
RETRY: dict[str, st.SearchStrategy[Any]] = {
    "max_attempts": st.integers(0, 9),
    "initial_interval": st.sampled_from(["PT1S", "PT2S"]),
    "max_interval": st.sampled_from(["PT5S", "PT1H"]),
    "jitter": st.booleans(),
}


def some(members: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with any of the members, each with a value or null."""
    nullable = {name: st.none() | member for name, member in members.items()}
    return st.fixed_dictionaries({}, optional=nullable)


durations = st.sampled_from(["PT1S", "PT90S", "P7D", "P1Y"])
changes = some(
    {
        "visibility_timeout": st.integers(1, 100),
        "default_timeout": st.integers(1, 100),
        "default_retry": some(RETRY),
        "retention": some(dict.fromkeys(RETENTION, durations)),
        "allowed_job_types": st.lists(st.sampled_from(["*", "a.*", "b"]), max_size=3),
    }
)


def merged(*layers: dict[str, Any]) -> QueueConfig:
    config = EMPTY
    for layer in layers:
        config = merge(config, layer)
    return config


def test_the_system_says_something_about_everything() -> None:
    assert resolve(EMPTY, EMPTY) == SYSTEM
    assert resolved_json(SYSTEM) == {
        "visibility_timeout": 30,
        "default_timeout": 1800,
        "default_retry": retry.policy_json(retry.DEFAULT),
        "retention": {"completed": "P7D", "discarded": "P30D", "cancelled": "P7D"},
        "allowed_job_types": ["*"],
        "overflow_policy": "reject",
        "backpressure": {"strategy": "reject", "warning_threshold": 0.8},
        "dead_letter_ttl": "P30D",
        "producers": ["*"],
        "tenant_fairness": {"enabled": False, "strategy": "fair-share", "default_weight": 1},
    }
    assert set(resolved_json(SYSTEM)) <= set(FIELDS)


def test_the_queue_wins_over_the_policy_and_the_policy_over_the_system() -> None:
    policy = merged({"visibility_timeout": 5, "default_timeout": 6})
    own = merged({"visibility_timeout": 7})
    assert resolve(policy, own).visibility_ms == 7_000
    assert resolve(policy, own).timeout_ms == 6_000
    assert resolve(policy, own).keep_completed_ms == 7 * DAY_MS


def test_a_changed_policy_shows_where_it_is_not_overridden() -> None:
    own = merged({"retention": {"completed": "PT1H"}, "default_retry": {"max_attempts": 9}})
    before = resolve(EMPTY, own)
    policy = merged(
        {
            "retention": {"completed": "PT5S", "discarded": "PT6S"},
            "default_retry": {"max_attempts": 2, "jitter": False},
        }
    )
    after = resolve(policy, own)
    assert (before.keep_completed_ms, before.keep_discarded_ms) == (3_600_000, 30 * DAY_MS)
    assert (after.keep_completed_ms, after.keep_discarded_ms) == (3_600_000, 6_000)
    assert (before.retry.max_attempts, before.retry.jitter) == (9, True)
    assert (after.retry.max_attempts, after.retry.jitter) == (9, False)


def test_given_replaces_null_clears_and_absent_leaves() -> None:
    config = merged({"visibility_timeout": 5, "default_timeout": 6, "allowed_job_types": ["a"]})
    config = merge(config, {"visibility_timeout": 7, "allowed_job_types": None})
    assert config == QueueConfig(visibility_timeout=7, default_timeout=6)


def test_objects_are_merged_member_by_member() -> None:
    config = merged(
        {"retention": {"completed": "PT1S", "discarded": "PT2S"}},
        {"retention": {"completed": None, "cancelled": "PT3S"}},
        {"default_retry": {"max_attempts": 1, "jitter": False}},
        {"default_retry": {"max_attempts": None, "initial_interval": "PT9S"}},
    )
    assert msgspec.to_builtins(config) == {
        "retention": {"discarded": "PT2S", "cancelled": "PT3S"},
        "default_retry": {"jitter": False, "initial_interval": "PT9S"},
    }


def test_an_object_whose_last_member_is_cleared_says_nothing() -> None:
    given = {"retention": {"completed": "PT1S"}, "default_retry": {"jitter": False}}
    cleared = {"retention": {"completed": None}, "default_retry": {"jitter": None}}
    assert merged(given, cleared) == EMPTY
    assert merged(cleared) == EMPTY
    assert merged(given, {"retention": None, "default_retry": None}) == EMPTY


def test_merging_leaves_the_old_configuration_as_it_was() -> None:
    old = merged({"default_retry": {"max_attempts": 1}, "retention": {"completed": "PT1S"}})
    was = msgspec.json.encode(old)
    merge(old, {"default_retry": {"max_attempts": 2}, "retention": {"completed": "PT2S"}})
    assert msgspec.json.encode(old) == was


def test_two_intervals_that_contradict_each_other_only_when_merged_are_refused() -> None:
    old = merged({"default_retry": {"max_interval": "PT5S"}})
    with pytest.raises(PolicyInvalid) as caught:
        merge(old, {"default_retry": {"initial_interval": "PT10S"}})
    assert caught.value.details["field"] == "config.default_retry.max_interval"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ([], "config"),
        (None, "config"),
        ({"surprise": 1}, "config.surprise"),
        ({"max_sise": None}, "config.max_sise"),
        ({"visibility_timeout": 0}, "config.visibility_timeout"),
        ({"visibility_timeout": -1}, "config.visibility_timeout"),
        ({"visibility_timeout": 1.0}, "config.visibility_timeout"),
        ({"visibility_timeout": True}, "config.visibility_timeout"),
        ({"visibility_timeout": "PT30S"}, "config.visibility_timeout"),
        ({"visibility_timeout": LONGEST_MS // 1000 + 1}, "config.visibility_timeout"),
        ({"default_timeout": 0}, "config.default_timeout"),
        ({"default_timeout": [1]}, "config.default_timeout"),
        ({"default_retry": []}, "config.default_retry"),
        ({"default_retry": {"max_attempts": -1}}, "config.default_retry.max_attempts"),
        ({"default_retry": {"jitter": "no"}}, "config.default_retry.jitter"),
        ({"retention": "P7D"}, "config.retention"),
        ({"retention": {"failed": "P7D"}}, "config.retention.failed"),
        ({"retention": {"failed": None}}, "config.retention.failed"),
        ({"retention": {"completed": "7 days"}}, "config.retention.completed"),
        ({"retention": {"completed": 7}}, "config.retention.completed"),
        ({"retention": {"completed": ""}}, "config.retention.completed"),
        ({"allowed_job_types": "*"}, "config.allowed_job_types"),
        ({"allowed_job_types": [1]}, "config.allowed_job_types"),
        ({"allowed_job_types": [""]}, "config.allowed_job_types"),
        ({"allowed_job_types": {"a": 1}}, "config.allowed_job_types"),
        ({"max_size": -1}, "config.max_size"),
        ({"max_size": 1.5}, "config.max_size"),
        ({"max_size_bytes": "1"}, "config.max_size_bytes"),
        ({"overflow_policy": "drop_newest"}, "config.overflow_policy"),
        ({"backpressure": 5}, "config.backpressure"),
        ({"backpressure": {"depth": 5}}, "config.backpressure.depth"),
        ({"backpressure": {"max_depth": -1}}, "config.backpressure.max_depth"),
        ({"backpressure": {"max_size_bytes": True}}, "config.backpressure.max_size_bytes"),
        ({"backpressure": {"strategy": "drop"}}, "config.backpressure.strategy"),
        ({"backpressure": {"warning_threshold": 1.1}}, "config.backpressure.warning_threshold"),
        ({"backpressure": {"warning_threshold": "high"}}, "config.backpressure.warning_threshold"),
        (
            {"overflow_policy": "block", "backpressure": {"strategy": "reject"}},
            "config.backpressure.strategy",
        ),
        ({"concurrency": -1}, "config.concurrency"),
        ({"rate_limit": 5}, "config.rate_limit"),
        ({"rate_limit": {"limit": 5, "period": "PT0S"}}, "config.rate_limit.period"),
        ({"rate_limit": {"rate": {"limit": 0, "period": "PT1S"}}}, "config.rate_limit.rate.limit"),
        ({"rate_limit": {"burst": 5}}, "config.rate_limit.burst"),
        ({"dead_letter_queue": ""}, "config.dead_letter_queue"),
        ({"dead_letter_queue": "_default"}, "config.dead_letter_queue"),
        ({"dead_letter_max_size": 0}, "config.dead_letter_max_size"),
        ({"dead_letter_ttl": "PT0S"}, "config.dead_letter_ttl"),
        ({"dead_letter_ttl": "a month"}, "config.dead_letter_ttl"),
        ({"producers": "me"}, "config.producers"),
        ({"tenant_fairness": True}, "config.tenant_fairness"),
        ({"tenant_fairness": {"enabled": "yes"}}, "config.tenant_fairness.enabled"),
        ({"tenant_fairness": {"strategy": "lottery"}}, "config.tenant_fairness.strategy"),
        ({"tenant_fairness": {"weights": {"a": -1}}}, "config.tenant_fairness.weights.a"),
    ],
)
def test_refusals_name_the_member(given: Any, field: str) -> None:
    with pytest.raises(OjsError) as caught:
        merge(EMPTY, given)
    assert caught.value.details["field"] == field
    assert field in caught.value.message
    assert caught.value.details["expected"]
    assert caught.value.status == (422 if "default_retry" in field else 400)
    with pytest.raises(OjsError, match="body"):
        merge(EMPTY, given, path="body")


def test_a_configuration_survives_being_stored() -> None:
    config = merged({"retention": {"completed": "PT1S"}, "allowed_job_types": ["a.*"]})
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(config), type=QueueConfig) == config


@given(st.lists(changes, max_size=3), st.lists(changes, max_size=3))
def test_the_layers_are_what_a_slow_twin_makes_of_them(
    policy: list[dict[str, Any]], own: list[dict[str, Any]]
) -> None:
    found = resolve(merged(*policy), merged(*own))
    assert resolved_json(found) == resolved_json(SYSTEM) | slow(flat(policy), flat(own))
    assert found == read(resolved_json(found))


def flat(layers: list[dict[str, Any]]) -> dict[str, Any]:
    """Every change in turn, as paths to values: `default_retry/jitter`; null takes the path away."""
    known: dict[str, Any] = {}
    for name, value in [item for layer in layers for item in layer.items()]:
        inner = value if isinstance(value, dict) else {"": value}
        if value is None:
            known = {path: kept for path, kept in known.items() if path.split("/")[0] != name}
        for member, said in inner.items():
            known.pop(f"{name}/{member}", None)
            if said is not None:
                known[f"{name}/{member}"] = said
    return known


def slow(policy: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    both = policy | own

    def seconds(name: str, default: int) -> int:
        return int(both.get(f"{name}/", default))

    keep = {"completed": "P7D", "discarded": "P30D", "cancelled": "P7D"}
    written = {"PT1S": "PT1S", "PT90S": "PT1M30S", "P7D": "P7D", "P1Y": "P365D"}
    tried = retry.policy_json(retry.DEFAULT)
    tried |= {
        name: both[f"default_retry/{name}"] for name in RETRY if f"default_retry/{name}" in both
    }
    return {
        "visibility_timeout": seconds("visibility_timeout", 30),
        "default_timeout": seconds("default_timeout", 1800),
        "default_retry": tried,
        "retention": {
            name: written[both[f"retention/{name}"]] if f"retention/{name}" in both else default
            for name, default in keep.items()
        },
        "allowed_job_types": both.get("allowed_job_types/", ["*"]),
    }  # fmt: skip


def read(wire: dict[str, Any]) -> Resolved:
    """The wire form in the units of the rules."""
    return Resolved(
        visibility_ms=wire["visibility_timeout"] * 1000,
        timeout_ms=wire["default_timeout"] * 1000,
        retry=retry.policy_from(wire["default_retry"]),
        keep_completed_ms=duration_ms(wire["retention"]["completed"]),
        keep_discarded_ms=duration_ms(wire["retention"]["discarded"]),
        keep_cancelled_ms=duration_ms(wire["retention"]["cancelled"]),
        allowed_job_types=tuple(wire["allowed_job_types"]),
    )


sizes = st.integers(0, 100)
rate = st.fixed_dictionaries({"limit": st.integers(1, 9), "period": durations})
strategies = st.sampled_from(["reject", "block", "drop_oldest"])
all_changes = some(
    {
        "default_retry": some({**RETRY, "on_exhaustion": st.sampled_from(["discard", "dead_letter"])}),
        "max_size": sizes,
        "max_size_bytes": sizes,
        "overflow_policy": strategies,
        "concurrency": sizes,
        "rate_limit": some({"concurrency": sizes, "rate": rate, "throttle": rate}) | rate,
        "dead_letter_queue": st.sampled_from(["dlq", "other"]),
        "dead_letter_max_size": st.integers(1, 9),
        "dead_letter_ttl": durations,
        "producers": st.lists(st.sampled_from(["*", "a.*", "b"]), max_size=3),
        "tenant_fairness": some(
            {
                "enabled": st.booleans(),
                "weights": st.dictionaries(st.sampled_from(["a", "tenant:b"]), st.integers(1, 9)),
                "default_weight": st.integers(1, 9),
            }
        ),
    }
) | some(
    {
        "backpressure": some(
            {
                "max_depth": sizes,
                "max_size_bytes": sizes,
                "strategy": strategies,
                "warning_threshold": st.floats(0, 1),
            }
        ),
    }
)  # fmt: skip


@given(st.lists(all_changes, max_size=4), st.lists(all_changes, max_size=4))
def test_what_is_shown_can_be_given_back(
    policy: list[dict[str, Any]], own: list[dict[str, Any]]
) -> None:
    found = resolve(merged(*policy), merged(*own))
    shown = msgspec.json.decode(msgspec.json.encode(resolved_json(found)))
    assert None not in shown.values()
    again = resolve(EMPTY, merge(EMPTY, shown))
    assert again == found
    assert resolved_json(again) == shown


@given(st.lists(all_changes, max_size=4))
def test_every_configuration_survives_being_stored(layers: list[dict[str, Any]]) -> None:
    config = merged(*layers)
    plain = msgspec.msgpack.decode(msgspec.msgpack.encode(msgspec.to_builtins(config)))
    assert msgspec.convert(plain, QueueConfig) == config
    cleared = merge(config, dict.fromkeys(FIELDS))
    assert cleared == EMPTY


def test_a_whole_configuration() -> None:
    config = merged(
        {
            "max_size": 100_000,
            "max_size_bytes": 10**9,
            "overflow_policy": "block",
            "backpressure": {"max_depth": 50_000, "warning_threshold": 0.5},
            "concurrency": 20,
            "rate_limit": {"limit": 1_000, "period": "PT1H"},
            "dead_letter_queue": "payments-dlq",
            "dead_letter_max_size": 7,
            "dead_letter_ttl": "P1D",
            "producers": ["billing-*"],
            "tenant_fairness": {"enabled": True, "weights": {"tenant:a": 5}},
        }
    )
    found = resolve(EMPTY, config)
    assert found.bounds == Bounds(50_000, 100_000, 10**9, "block", 0.5)
    assert found.limits == Limits(20, Rate(1_000, 3_600_000_000))
    assert found.dead_letter_queue == "payments-dlq"
    assert (found.dead_letter_max_size, found.dead_letter_ttl_ms) == (7, DAY_MS)
    assert found.takes_from("billing-eu")
    assert not found.takes_from("crm")
    assert found.fairness == Fairness(True, {"a": 5})
    shown = resolved_json(found)
    assert shown["max_size"] == 100_000
    assert shown["concurrency"] == 20
    assert shown["rate_limit"] == {"rate": {"limit": 1_000, "period": "PT1H"}}
    assert shown["backpressure"] == {
        "max_depth": 50_000,
        "max_size_bytes": 10**9,
        "strategy": "block",
        "warning_threshold": 0.5,
    }


def test_of_two_bounds_of_the_same_the_tighter_one_acts() -> None:
    config = merged({"max_size_bytes": 100, "backpressure": {"max_size_bytes": 200}})
    assert resolve(EMPTY, config).bounds.max_size_bytes == 100
    config = merge(config, {"max_size_bytes": 300})
    assert resolve(EMPTY, config).bounds.max_size_bytes == 200
    config = merge(config, {"backpressure": {"max_size_bytes": 0}})
    assert resolve(EMPTY, config).bounds.max_size_bytes == 300
    config = merged({"concurrency": 5, "rate_limit": {"concurrency": 3}})
    assert resolve(EMPTY, config).limits.concurrency == 3
    config = merge(config, {"concurrency": 2})
    assert resolve(EMPTY, config).limits.concurrency == 2


def test_of_two_strategies_the_later_one_holds() -> None:
    config = merged({"overflow_policy": "block"}, {"backpressure": {"strategy": "drop_oldest"}})
    assert resolve(EMPTY, config).bounds.strategy == "drop_oldest"
    config = merge(config, {"overflow_policy": "reject"})
    assert resolve(EMPTY, config).bounds.strategy == "reject"
    config = merge(config, {"backpressure": {"strategy": None}})
    assert config == EMPTY
    both = {"overflow_policy": "block", "backpressure": {"strategy": "block"}}
    assert resolve(EMPTY, merged(both)).bounds.strategy == "block"
    anew = {"overflow_policy": "block", "backpressure": None}
    assert resolve(EMPTY, merged(both, anew)).bounds.strategy == "block"


def test_limits_are_laid_over_member_by_member() -> None:
    policy = merged({"rate_limit": {"limit": 5, "period": "PT1S"}, "concurrency": 4})
    own = merged({"rate_limit": {"throttle": {"limit": 1, "period": "PT1S"}}})
    assert resolve(policy, own).limits == Limits(4, Rate(5, 1_000_000), Rate(1, 1_000_000))
    own = merge(own, {"rate_limit": {"throttle": None, "rate": {"limit": 2, "period": "PT1S"}}})
    assert resolve(policy, own).limits == Limits(4, Rate(2, 1_000_000))


def test_a_dead_letter_queue_makes_exhausted_jobs_dead_letters() -> None:
    own = merged({"dead_letter_queue": "dlq"})
    assert resolve(EMPTY, own).retry.on_exhaustion == "dead_letter"
    own = merge(own, {"default_retry": {"max_attempts": 7}})
    assert resolve(EMPTY, own).retry.on_exhaustion == "dead_letter"
    own = merge(own, {"default_retry": {"on_exhaustion": "discard"}})
    assert resolve(EMPTY, own).retry.on_exhaustion == "discard"
    assert resolve(merged({"dead_letter_queue": "dlq"}), EMPTY, "dlq").dead_letter_queue == ""
    assert resolve(merged({"dead_letter_queue": "dlq"}), EMPTY, "dlq").retry == retry.DEFAULT


def test_no_queue_is_its_own_dead_letter_queue() -> None:
    with pytest.raises(InvalidRequest) as caught:
        merge(EMPTY, {"dead_letter_queue": "mail"}, queue="mail")
    assert caught.value.details["field"] == "config.dead_letter_queue"
    merge(EMPTY, {"dead_letter_queue": "mail"}, queue="mail-2")


@pytest.mark.parametrize(
    ("patterns", "taken", "refused"),
    [
        (["*"], ["a", "a.b", "z-1"], []),
        (["email.*"], ["email.send", "email.a.b"], ["email", "mail.send", "xemail.send"]),
        (["email.send", "sms"], ["email.send", "sms"], ["email.sends", "sms.send"]),
        (["*.send"], ["email.send", "a.b.send"], ["send", "email.sent"]),
        ([], [], ["a"]),
        (["a?"], ["ab"], ["a", "abc"]),
    ],
)
def test_job_types_are_matched_by_pattern(
    patterns: list[str], taken: list[str], refused: list[str]
) -> None:
    found = resolve(EMPTY, merged({"allowed_job_types": patterns}))
    assert [found.takes(name) for name in taken] == [True] * len(taken)
    assert [found.takes(name) for name in refused] == [False] * len(refused)


@pytest.mark.parametrize("name", ["a", "0", "default", "a-b.c", "9.-", "a" * 128])
def test_names(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "A", "-a", ".a", "_default", "a_b", "a b", "a/b", "a\n", "\xe9", "a" * 129, None, 7, ["a"]],
)  # fmt: skip
def test_names_refused(name: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_name(name, field="target_queue")
    assert caught.value.details["field"] == "target_queue"
    assert "128" in caught.value.message
