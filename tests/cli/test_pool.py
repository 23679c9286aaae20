from __future__ import annotations

import pytest

from headgate.cli import pool
from tests.cli.asked import Asked

POOL = {
    "name": "p", "queues": ["a", "b"], "strategy": "weighted", "weights": {"a": 3, "b": 1},
    "isolated": True, "active_workers": 2, "active_jobs": 3, "concurrency": 50,
}  # fmt: skip


def test_a_pool_is_made_listed_and_deleted(cli: Asked) -> None:
    cli.run(
        "pool", "set", "general", "--queues", "a,b", "--strategy", "weighted", "--weight", "a=3",
        "--concurrency", "50", "--isolated", "--min-share", "0.1", "--rotation", "10s",
    )  # fmt: skip
    (found,) = cli.json("pool", "list")["pools"]
    assert (found["queues"], found["weights"]) == (["a", "b"], {"a": 3, "b": 1})
    assert (found["strategy"], found["concurrency"], found["isolated"]) == ("weighted", 50, True)
    assert found["starvation_prevention"] == {
        "enabled": True,
        "rotation_interval": "PT10S",
        "min_dispatch_ratio": 0.1,
    }
    assert "a - of 75 %, b - of 25 %" in cli.run("pool", "list")
    cli.run("pool", "set", "general", "--queues", "a")
    (found,) = cli.json("pool", "list")["pools"]
    assert (found["strategy"], found["isolated"]) == ("round-robin", False), "replaced, not changed"
    assert cli.run("pool", "delete", "general").startswith("pool general is deleted")
    assert cli.json("pool", "list")["pools"] == []


def test_shares_are_of_the_pools_own_starts() -> None:
    shares = [
        {"name": "a", "dispatch_count_1m": 30},
        {"name": "b", "dispatch_count_1m": 10},
        {"name": "other", "dispatch_count_1m": 60},
    ]
    assert pool.row(POOL, shares) == (
        "p", "weighted isolated", "2", "3/50", "a 75 % of 75 %, b 25 % of 25 %",
    )  # fmt: skip
    strict = POOL | {"strategy": "strict", "isolated": False}
    assert pool.row(strict, shares)[4] == "a 75 %, b 25 %"
    assert pool.row(strict, [])[4] == "a, b"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("delete", "nothing"), 3, "there is no pool nothing (headgate pool list shows"),
        (("set", "p"), 2, "the following arguments are required: --queues"),
        (("set", "p", "--queues", "a", "--weight", "a"), 2, "--weight: must be NAME=VALUE"),
        (("set", "p", "--queues", "a", "--weight", "a=b"), 2, "--weight: must be a whole number"),
        (("set", "p", "--queues", "a", "--strategy", "luck"), 2, "--strategy: invalid choice"),
        (("set", "p", "--queues", "A"), 2, "body.queues[0] must be"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    cli: Asked, arguments: tuple[str, ...], code: int, words: str
) -> None:
    assert cli.refused("pool", *arguments, code=code).startswith(words)
