from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.errors import InvalidRequest
from headgate.core.order import Guarantee, Strict
from headgate.core.pools import Pool, Starvation, pool_from, pool_json, weights_at
from headgate.core.tenants import Fairness


def test_a_bare_pool_has_the_defaults() -> None:
    pool = pool_from({"queues": ["a", "b"]}, "general")
    assert pool == Pool("general", ("a", "b"), (1, 1))
    assert pool_json(pool) == {
        "name": "general",
        "queues": ["a", "b"],
        "strategy": "round-robin",
        "isolated": False,
        "starvation_prevention": {
            "enabled": False,
            "rotation_interval": "PT30S",
            "min_dispatch_ratio": 0.05,
        },
    }


def test_a_whole_pool() -> None:
    body = {
        "name": "general",
        "queues": ["critical", "default", "analytics"],
        "concurrency": 20,
        "strategy": "weighted",
        "weights": {"critical": 5, "default": 2},
        "isolated": True,
        "starvation_prevention": {
            "enabled": True,
            "rotation_interval": "PT1M",
            "min_dispatch_ratio": 0.1,
        },
        "tenant_fairness": {"enabled": True, "weights": {"tenant:a": 2}},
    }
    pool = pool_from(body, "general")
    assert pool == Pool(
        "general",
        ("critical", "default", "analytics"),
        (5, 2, 1),
        "weighted",
        20,
        isolated=True,
        starvation=Starvation(enabled=True, interval_ms=60_000, ratio=0.1),
        fairness=Fairness(True, {"a": 2}),
    )
    assert pool_from({"pool": body}, "general") == pool
    assert pool_from(pool_json(pool), "general") == pool


def test_queues_may_come_with_their_weights() -> None:
    body = {"queues": {"a": {"weight": 3}, "b": {}, "c": None}, "strategy": "weighted"}
    assert pool_from(body, "p").weights == (3, 1, 1)
    assert pool_from(body | {"weights": {"b": 2}}, "p").weights == (3, 2, 1)


def test_null_is_absent() -> None:
    names = ("name", "concurrency", "strategy", "weights", "isolated", "starvation_prevention")
    body = {"queues": ["a"], "tenant_fairness": None, **dict.fromkeys(names)}
    assert pool_from(body, "p") == Pool("p", ("a",), (1,))


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ([], "body"),
        ({}, "body.queues"),
        ({"queues": []}, "body.queues"),
        ({"queues": "a"}, "body.queues"),
        ({"queues": {}}, "body.queues"),
        ({"queues": ["a", "b", "a"]}, "body.queues[2]"),
        ({"queues": ["a", 5]}, "body.queues[1]"),
        ({"queues": ["a", "_default"]}, "body.queues[1]"),
        ({"queues": ["a"] * 1_001}, "body.queues"),
        ({"queues": {"a": {"weight": 0}}}, "body.queues.a.weight"),
        ({"queues": {"a": 5}}, "body.queues.a"),
        ({"queues": ["a"], "name": "q"}, "body.name"),
        ({"queues": ["a"], "colour": 1}, "body.colour"),
        ({"pool": {"queues": ["a"], "concurrency": 0}}, "body.pool.concurrency"),
        ({"queues": ["a"], "strategy": "random"}, "body.strategy"),
        ({"queues": ["a"], "weights": {"b": 1}}, "body.weights.b"),
        ({"queues": ["a"], "weights": {"a": -1}}, "body.weights.a"),
        ({"queues": ["a"], "weights": {"a": 0.5}}, "body.weights.a"),
        ({"queues": ["a"], "isolated": "yes"}, "body.isolated"),
        ({"queues": ["a"], "starvation_prevention": True}, "body.starvation_prevention"),
        (
            {"queues": ["a"], "starvation_prevention": {"rotation_interval": "PT0S"}},
            "body.starvation_prevention.rotation_interval",
        ),
        (
            {"queues": ["a"], "starvation_prevention": {"min_dispatch_ratio": 1.5}},
            "body.starvation_prevention.min_dispatch_ratio",
        ),
        (
            {
                "queues": ["a", "b", "c"],
                "starvation_prevention": {"enabled": True, "min_dispatch_ratio": 0.34},
            },
            "body.starvation_prevention.min_dispatch_ratio",
        ),
        (
            {"queues": ["a"], "tenant_fairness": {"default_weight": 0}},
            "body.tenant_fairness.default_weight",
        ),
    ],
)
def test_pools_refused(body: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        pool_from(body, "p")
    assert caught.value.details["field"] == field
    assert caught.value.details["expected"]


@pytest.mark.parametrize("name", ["", "-a", "a b", "a/b", "a" * 129])
def test_names_refused(name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        pool_from({"queues": ["a"]}, name)
    assert caught.value.details["field"] == "name"


@given(st.integers(1, 60), st.floats(0, 1) | st.sampled_from([0.02, 0.05, 0.1, 1 / 3, 1 / 49]))
def test_every_ratio_that_is_taken_can_be_promised(queues: int, ratio: float) -> None:
    body = {
        "queues": [f"q{n}" for n in range(queues)],
        "starvation_prevention": {"enabled": True, "min_dispatch_ratio": ratio},
    }
    try:
        pool = pool_from(body, "p")
    except InvalidRequest:
        with pytest.raises(ValueError, match="cannot each have"):
            Guarantee(Strict(), ratio, 1, queues)
        return
    Guarantee(Strict(), pool.starvation.ratio, pool.starvation.interval_ms, queues)
    assert pool_from(msgspec.json.decode(msgspec.json.encode(pool_json(pool))), "p") == pool


def test_weights_of_a_fetch() -> None:
    assert weights_at({"b": 3}, ["a", "b"], "weights") == (1, 3)
    with pytest.raises(InvalidRequest):
        weights_at({"c": 3}, ["a", "b"], "weights")
