from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core import retry
from headgate.core.errors import InvalidRequest, OjsError, PolicyInvalid
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
    }
    assert set(resolved_json(SYSTEM)) == set(FIELDS)


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
    assert resolved_json(found) == slow(flat(policy), flat(own))
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
