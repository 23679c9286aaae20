from __future__ import annotations

import hashlib
import json
import unicodedata
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headgate.core.errors import PolicyInvalid
from headgate.core.states import STATES, TERMINAL
from headgate.core.unique import LIVE, UniquePolicy, fingerprint, policy_from

texts = st.text(max_size=6)
scalars = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def of(given: Any, **job: Any) -> str:
    """The fingerprint of a job under the policy that these members make."""
    job = {"type": "email.send", "queue": "mail", "args": [], "meta": {}, **job}
    return fingerprint(policy_from(given), job["type"], job["queue"], job["args"], job["meta"])


def refused(given: Any, **job: Any) -> PolicyInvalid:
    with pytest.raises(PolicyInvalid) as caught:
        of(given, **job)
    assert caught.value.status == 422
    return caught.value


def test_nothing_given_means_type_as_long_as_the_job_lives() -> None:
    assert policy_from({}) == UniquePolicy(("type",), (), (), None, LIVE, "reject")
    assert not policy_from({}).looks_at_finished
    assert set(STATES) - TERMINAL == LIVE


def test_null_counts_as_absent() -> None:
    names = ("key", "keys", "args_keys", "meta_keys", "period", "states", "on_conflict")
    assert policy_from(dict.fromkeys(names)) == policy_from({})


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ({}, '{"type":"email.send"}'),
        ({"keys": []}, '{"type":"email.send"}'),
        ({"keys": ["queue"]}, '{"queue":"mail","type":"email.send"}'),
        ({"keys": ["args"]}, '{"args":[{"b":2,"to":"x"},7],"type":"email.send"}'),
        ({"args_keys": ["to"]}, '{"args":{"to":"x"},"type":"email.send"}'),
        ({"keys": ["args"], "args_keys": ["to", "b"]}, '{"args":{"b":2,"to":"x"},"type":"email.send"}'),
        ({"meta_keys": ["tenant_id"]}, '{"meta":{"tenant_id":"t"},"type":"email.send"}'),
        ({"key": ["to"]}, '{"args":{"to":"x"},"type":"email.send"}'),
        ({"key": []}, '{"args":[{"b":2,"to":"x"},7],"type":"email.send"}'),
        (
            {"keys": ["meta", "args", "queue", "type"], "args_keys": ["b"], "meta_keys": ["n"]},
            '{"args":{"b":2},"meta":{"n":1},"queue":"mail","type":"email.send"}',
        ),
    ],
)  # fmt: skip
def test_the_chosen_dimensions_in_canonical_form(given: dict[str, Any], canonical: str) -> None:
    job = {"args": [{"to": "x", "b": 2}, 7], "meta": {"n": 1, "tenant_id": "t", "other": 0}}
    assert of(given, **job) == sha(canonical)


@pytest.mark.parametrize(
    ("value", "canonical"),
    [
        (333333333.33333329, "333333333.3333333"),
        (1e30, "1e+30"),
        (4.50, "4.5"),
        (2e-3, "0.002"),
        (1e-27, "1e-27"),
        (1e21, "1e+21"),
        (1e20, "100000000000000000000"),
        (-0.0, "0"),
        (0, "0"),
        (1.0, "1"),
        (2**53 - 1, "9007199254740991"),
        (5e-324, "5e-324"),
        ("\u20ac$\u000f\nA'\u0042\u0022\u005c\\\"/", '"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"'),
        ("\u2028<&>\x7f", '"\u2028<&>\x7f"'),
        ([], "[]"),
        ({}, "{}"),
        (None, "null"),
        (True, "true"),
        (
            {"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\U0001f600": 5, "\x80": 6, "\xf6": 7},
            # Sorted by UTF-16 code units, so the emoji stands before U+FB33, whose own form NFC is U+05D3 U+05BC.
            '{"\\r":2,"1":4,"\x80":6,"\xf6":7,"\u05d3\u05bc":3,"\u20ac":1,"\U0001f600":5}',
        ),
        ({"\ufb00": 1, "\U0001f600": 2}, '{"\U0001f600":2,"\ufb00":1}'),
        ({"b": {"z": 1, "a": [{"y": 1, "x": 2}]}, "a": 0}, '{"a":0,"b":{"a":[{"x":2,"y":1}],"z":1}}'),
    ],
)  # fmt: skip
def test_canonical_json(value: Any, canonical: str) -> None:
    assert of({"keys": ["args"]}, args=[value]) == sha(
        f'{{"args":[{canonical}],"type":"email.send"}}'
    )


@given(st.lists(values, max_size=3))
def test_canonical_json_is_what_a_slow_writer_gives(args: list[Any]) -> None:
    def write(value: Any) -> str:
        if isinstance(value, str):
            return json.dumps(unicodedata.normalize("NFC", value), ensure_ascii=False)
        if isinstance(value, list):
            return "[" + ",".join(write(item) for item in value) + "]"
        if isinstance(value, dict):
            names = {unicodedata.normalize("NFC", name): item for name, item in value.items()}
            ordered = sorted(names, key=lambda name: name.encode("utf-16-be"))
            return "{" + ",".join(f"{write(name)}:{write(names[name])}" for name in ordered) + "}"
        return json.dumps(value)

    assert of({"keys": ["args"]}, args=args) == sha(f'{{"args":{write(args)},"type":"email.send"}}')


@given(values, values)
def test_different_arguments_have_different_fingerprints(one: Any, other: Any) -> None:
    def plain(value: Any) -> str:
        return unicodedata.normalize("NFC", json.dumps(value, sort_keys=True, ensure_ascii=False))

    assume(plain(one) != plain(other))
    policy = {"keys": ["args"]}
    assert of(policy, args=[one]) != of(policy, args=[other])


@given(st.dictionaries(texts, scalars, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_members_counts_for_nothing(members: dict[str, Any], chance: Any) -> None:
    names = list(members)
    chance.shuffle(names)
    shuffled = {name: members[name] for name in names}
    # Names that become equal in form NFC would leave the last one, so which one it is matters.
    assume(len({unicodedata.normalize("NFC", name) for name in names}) == len(names))
    policy = {"keys": ["args"]}
    assert of(policy, args=[members]) == of(policy, args=[shuffled])


def test_strings_and_names_count_in_form_nfc() -> None:
    composed, decomposed = "caf\xe9", "cafe\u0301"
    policy = {"keys": ["args"]}
    assert of(policy, args=[composed]) == of(policy, args=[decomposed])
    assert of(policy, args=[{composed: 1}]) == of(policy, args=[{decomposed: 1}])
    assert of({"meta_keys": ["k"]}, meta={"k": composed}) == of(
        {"meta_keys": ["k"]}, meta={"k": decomposed}
    )
    # Compatibility forms stay apart: a ligature is not its letters.
    assert of(policy, args=["\ufb01"]) != of(policy, args=["fi"])


def test_an_integer_beyond_a_double_counts_as_the_double_it_becomes() -> None:
    policy = {"keys": ["args"]}
    assert of(policy, args=[2**53 + 1]) == of(policy, args=[2**53]) == of(policy, args=[2.0**53])
    assert of(policy, args=[2**53 - 1]) != of(policy, args=[2**53])


def test_what_was_not_chosen_does_not_count() -> None:
    for job in ({"queue": "b"}, {"args": [1]}, {"meta": {"k": 1}}):
        assert of({}, **job) == of({})
    assert of({}, type="other.type") != of({})
    assert of({"args_keys": ["a"]}, args=[{"a": 1, "b": 2}, 3]) == of(
        {"args_keys": ["a"]}, args=[{"a": 1}]
    )


def test_repeating_and_reordering_the_policy_changes_nothing() -> None:
    one = policy_from({"keys": ["queue", "args"], "args_keys": ["b", "a", "b"]})
    assert one == policy_from({"keys": ["args", "type", "queue"], "args_keys": ["a", "b"]})


@pytest.mark.parametrize(
    ("job", "given", "field"),
    [
        ({"args": []}, {"args_keys": ["a"]}, "args_keys"),
        ({"args": ["text"]}, {"args_keys": ["a"]}, "args_keys"),
        ({"args": [["a"]]}, {"args_keys": ["a"]}, "args_keys"),
        ({"args": [{"b": 1}]}, {"args_keys": ["a", "b"]}, "args_keys"),
        ({"args": [{"b": 1}]}, {"key": ["a"]}, "args_keys"),
        ({"meta": {"b": 1}}, {"meta_keys": ["a"]}, "meta_keys"),
    ],
)
def test_a_job_must_have_what_the_policy_names(
    job: dict[str, Any], given: dict[str, Any], field: str
) -> None:
    assert refused(given, **job).details["field"] == f"unique.{field}"


def test_a_null_member_is_there() -> None:
    assert of({"args_keys": ["a"]}, args=[{"a": None}]) == sha(
        '{"args":{"a":null},"type":"email.send"}'
    )


@pytest.mark.parametrize("value", ["\ud800", float("nan"), float("inf"), 10**400, {"\udfff": 1}])
def test_what_has_no_canonical_form_is_refused(value: Any) -> None:
    assert refused({"keys": ["args"]}, args=[value]).details["field"] == "unique"


def test_nesting_without_end_is_refused_and_not_a_crash() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    refused({"keys": ["args"]}, args=deep)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ([], ""),
        (None, ""),
        ("type", ""),
        ({"surprise": 1}, ".surprise"),
        ({"keys": "type"}, ".keys"),
        ({"keys": ["priority"]}, ".keys"),
        ({"keys": ["type", 1]}, ".keys"),
        ({"keys": ["meta"]}, ".meta_keys"),
        ({"keys": ["meta"], "meta_keys": []}, ".meta_keys"),
        ({"args_keys": "a"}, ".args_keys"),
        ({"args_keys": [""]}, ".args_keys"),
        ({"args_keys": [1]}, ".args_keys"),
        ({"meta_keys": {"a": 1}}, ".meta_keys"),
        ({"meta_keys": [None]}, ".meta_keys"),
        ({"key": "to"}, ".key"),
        ({"key": [7]}, ".key"),
        ({"period": 60}, ".period"),
        ({"period": "60s"}, ".period"),
        ({"period": "PT0S"}, ".period"),
        ({"period": "-PT1S"}, ".period"),
        ({"states": "active"}, ".states"),
        ({"states": ["running"]}, ".states"),
        ({"states": [["active"]]}, ".states"),
        ({"on_conflict": "raise"}, ".on_conflict"),
        ({"on_conflict": ["reject"]}, ".on_conflict"),
        ({"on_conflict": True}, ".on_conflict"),
    ],
)
def test_refusals_name_the_member(given: Any, field: str) -> None:
    with pytest.raises(PolicyInvalid) as caught:
        policy_from(given)
    assert caught.value.status == 422
    assert caught.value.details["field"] == f"unique{field}"
    assert f"unique{field}" in caught.value.message
    assert caught.value.details["expected"]
    with pytest.raises(PolicyInvalid) as again:
        policy_from(given, path="jobs[3].unique")
    assert again.value.details["field"] == f"jobs[3].unique{field}"


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"period": "PT1H"}, "period_ms", 3_600_000),
        ({"period": "PT0.5S"}, "period_ms", 500),
        ({"states": ["completed", "active"]}, "states", frozenset({"completed", "active"})),
        ({"states": []}, "states", frozenset()),
        ({"on_conflict": "ignore"}, "on_conflict", "ignore"),
        ({"on_conflict": "use_existing"}, "on_conflict", "ignore"),
        ({"on_conflict": "replace"}, "on_conflict", "replace"),
        ({"on_conflict": "replace_except_schedule"}, "on_conflict", "replace_except_schedule"),
        ({"on_conflict": "reject"}, "on_conflict", "reject"),
    ],
)
def test_members(given: dict[str, Any], field: str, value: object) -> None:
    assert getattr(policy_from(given), field) == value


@given(st.sets(st.sampled_from(STATES)))
def test_whether_finished_jobs_can_stand_in_the_way(states: set[str]) -> None:
    assert policy_from({"states": sorted(states)}).looks_at_finished == bool(states & TERMINAL)
