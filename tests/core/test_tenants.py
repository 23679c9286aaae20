from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.errors import InvalidRequest
from headgate.core.gates import Rate
from headgate.core.tenants import (
    Fairness,
    FairnessConfig,
    Shares,
    Standing,
    TenantLimits,
    check_tenant,
    fairness_json,
    fairness_merge,
    fairness_over,
    tenant_limits_from,
    tenant_limits_json,
)


def next_of(shares: Shares, there: set[str], priority: int = 0) -> str:
    return min(sorted(there), key=lambda who: shares.place(priority, who))


def run(shares: Shares, there: set[str], count: int, weights: dict[str, int] | None = None) -> str:
    """Whom so many dispatches go to, one letter each."""
    found = ""
    for _ in range(count):
        who = next_of(shares, there)
        shares.served(0, who, (weights or {}).get(who, 1))
        found += who
    return found


def test_equal_tenants_alternate() -> None:
    assert run(Shares(), set("abc"), 9) == "abcabcabc"


def test_a_tenant_that_comes_late_gets_no_credit() -> None:
    shares = Shares()
    assert run(shares, {"a"}, 100) == "a" * 100
    assert run(shares, set("ab"), 6) in {"bababa", "ababab"}
    assert run(shares, {"a"}, 100) == "a" * 100
    assert run(shares, set("ab"), 6) in {"bababa", "ababab"}


@pytest.mark.parametrize(
    "weights", [{"a": 3, "b": 2, "c": 1}, {"a": 5, "b": 1}, {"a": 24, "b": 23}]
)
def test_weights_are_kept_in_every_cycle(weights: dict[str, int]) -> None:
    shares = Shares()
    for _ in range(5):
        assert Counter(run(shares, set(weights), sum(weights.values()), weights)) == weights


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 10_000), min_size=2))
def test_shares_are_proportional_to_weights(weights: dict[str, int]) -> None:
    count = 500
    found = Counter(run(Shares(), set(weights), count, weights))
    whole = sum(weights.values())
    for who, weight in weights.items():
        assert abs(found[who] - count * weight / whole) <= len(weights)


# Tenants come and go; some are served out of the order of their letters, none out of turn.
comings = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3)), max_size=80)


@given(comings, st.integers(1, 3))
def test_equal_tenants_differ_by_at_most_one_while_both_are_there(
    steps: list[tuple[str, int]], weight_of_d: int
) -> None:
    shares = Shares()
    there: set[str] = set()
    together: dict[str, str] = {}
    """For each pair, the dispatches to either since both are there."""
    for who, what in steps:
        if what == 0:
            there.discard(who)
        elif what == 1:
            there.add(who)
        pairs = [a + b for a, b in ("ab", "ac", "bc") if {a, b} <= there]
        together = {pair: together.get(pair, "") for pair in pairs}
        if not there:
            continue
        served = next_of(shares, there)
        shares.served(0, served, weight_of_d if served == "d" else 1)
        for pair in together:
            if served in pair:
                together[pair] += served
                # So in no run of dispatches whatever can they differ by more than one.
                assert pair[0] * 2 not in together[pair]
                assert pair[1] * 2 not in together[pair]


@given(comings)
def test_a_place_stays_while_others_are_served(steps: list[tuple[str, int]]) -> None:
    shares = Shares()
    mine = shares.place(0, "me")
    there = {"me", "x"}
    for who, _ in steps:
        there.add(who)
        served = next_of(shares, there)
        if served == "me":
            return
        shares.served(0, served, 1)
        assert shares.place(0, "me") == mine


def test_who_is_served_out_of_turn_pays_and_takes_from_nobody() -> None:
    shares = Shares()
    run(shares, set("abc"), 3)
    for who in "abc":
        shares.place(0, who)
    shares.served(0, "c", 1, in_turn=False)
    assert run(shares, set("abc"), 5) == "abcab"


def test_priorities_do_not_know_each_other() -> None:
    shares = Shares()
    for _ in range(10):
        shares.served(5, "a", 1)
    assert run(shares, set("ab"), 4) == "abab"


def test_tenants_that_are_gone_are_forgotten() -> None:
    shares = Shares()
    for n in range(5_000):
        run(shares, {"always", f"once-{n}"}, 2)
    assert len(shares._levels[0].standings) < 300


def test_tenants_that_come_once_each_are_forgotten_too() -> None:
    shares = Shares()
    kept: set[str] = set()
    for n in range(15_000):
        _, gone = shares.served(0, f"once-{n}", 1)
        kept.add(f"once-{n}")
        kept.difference_update(gone)
    assert kept == set(shares._levels[0].standings)
    assert 10_000 <= len(kept) <= 11_000
    # Those who came last are the ones that are still ahead.
    assert shares.place(0, "once-14999") > shares.place(0, "once-0")


@given(comings, st.lists(st.sampled_from("abcd"), max_size=30))
def test_remembered_shares_go_on_as_before(steps: list[tuple[str, int]], later: list[str]) -> None:
    shares = Shares()
    remembered: dict[str, Standing] = {}
    there: set[str] = set()
    for who, weight in steps:
        there.add(who)
        if weight:
            served = next_of(shares, there)
            remembered[served], _ = shares.served(0, served, weight)
    twin = Shares()
    for who, standing in remembered.items():
        twin.restore(0, who, standing)
    there = set()
    for who in [*later, *"abcd"]:
        there.add(who)
        served = next_of(shares, there)
        assert next_of(twin, there) == served
        assert shares.served(0, served, 1) == twin.served(0, served, 1)


@pytest.mark.parametrize("name", ["a", "0", "acme-corp", "A.b_c:d", "a" * 256])
def test_tenant_ids(name: str) -> None:
    assert check_tenant(name) == name


@pytest.mark.parametrize("name", ["", "_default", "-a", "a b", "a/b", "a\n", "a" * 257, None, 5])
def test_tenant_ids_refused(name: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_tenant(name, field="meta.tenant_id")
    assert caught.value.details["field"] == "meta.tenant_id"


def test_fairness_is_laid_over_member_by_member() -> None:
    config = fairness_merge(
        FairnessConfig(),
        {
            "enabled": True,
            "strategy": "fair-share",
            "weights": {"tenant:a": 5, "b": 2, "_default": 3},
        },
        "tenant_fairness",
    )
    fairness = fairness_over(Fairness(default_weight=4), config)
    assert fairness == Fairness(True, {"a": 5, "b": 2, "_default": 3}, 4)
    assert [fairness.weight(who) for who in ("a", "b", "_default", "c")] == [5, 2, 3, 4]
    cleared = fairness_merge(config, {"weights": None, "default_weight": 7}, "tenant_fairness")
    assert fairness_over(Fairness(), cleared) == Fairness(True, {}, 7)
    written = fairness_json(fairness)
    assert written["strategy"] == "fair-share"
    assert fairness_over(Fairness(), fairness_merge(FairnessConfig(), written, "x")) == fairness


@pytest.mark.parametrize(
    ("given_value", "field"),
    [
        ([], "f"),
        ({"weight": {}}, "f.weight"),
        ({"enabled": 1}, "f.enabled"),
        ({"strategy": "lottery"}, "f.strategy"),
        ({"default_weight": 0}, "f.default_weight"),
        ({"default_weight": 10_001}, "f.default_weight"),
        ({"weights": []}, "f.weights"),
        ({"weights": {"a": -1}}, "f.weights.a"),
        ({"weights": {"a": 0}}, "f.weights.a"),
        ({"weights": {"a": 1.5}}, "f.weights.a"),
        ({"weights": {"a b": 1}}, "f.weights.a b"),
        ({"weights": {"tenant:a": 1, "a": 2}}, "f.weights.a"),
    ],
)
def test_fairness_refused(given_value: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        fairness_merge(FairnessConfig(), given_value, "f")
    assert caught.value.details["field"] == field


def test_limits_of_a_tenant() -> None:
    body = {
        "max_concurrency": 5,
        "max_enqueue_rate": {"limit": 10, "period": "PT1S"},
        "max_queue_depth": 0,
        "fairness_weight": 3,
        "priority_boost": -10,
    }
    limits = tenant_limits_from(body)
    assert limits == TenantLimits(5, Rate(10, 1_000_000), 0, None, 3, -10)
    assert tenant_limits_json(limits) == body
    assert tenant_limits_from(body | {"max_scheduled": 7}) != limits
    changed = tenant_limits_from({"max_concurrency": None, "fairness_weight": None}, limits)
    assert changed == TenantLimits(None, Rate(10, 1_000_000), 0, None, 1, -10)
    assert tenant_limits_json(TenantLimits()) == {"fairness_weight": 1, "priority_boost": 0}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (None, "limits"),
        ({"max_jobs": 1}, "limits.max_jobs"),
        ({"max_concurrency": -1}, "limits.max_concurrency"),
        ({"max_scheduled": 1.5}, "limits.max_scheduled"),
        ({"max_enqueue_rate": 5}, "limits.max_enqueue_rate"),
        ({"max_enqueue_rate": {"limit": 5, "period": "PT0S"}}, "limits.max_enqueue_rate.period"),
        ({"fairness_weight": 0}, "limits.fairness_weight"),
        ({"priority_boost": 101}, "limits.priority_boost"),
    ],
)
def test_limits_of_a_tenant_refused(body: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        tenant_limits_from(body)
    assert caught.value.details["field"] == field
