"""Scenarios whose figures can be worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headgate.simulation.report import summary, table
from tests.simulation.scenes import PLAIN, given, play


def figures(scenario: dict[str, Any] | str, folder: Path = Path()) -> dict[str, Any]:
    return summary(play(scenario, folder))


def test_enough_workers() -> None:
    found = figures(PLAIN)
    total = found["total"]
    assert (total["enqueued"], total["started"]) == (6_000, 6_000)
    # The last five of each half second are still running.
    assert (total["completed"], total["active"]) == (5_995, 5)
    assert (total["wait_p50_ms"], total["wait_p99_ms"], total["wait_max_ms"]) == (0, 0, 0)
    assert found["queues"]["q"]["waiting"] == 0


def test_too_few_workers() -> None:
    scenario = given()
    scenario["workers"][0]["concurrency"] = 2
    found = figures(scenario)
    queue = found["queues"]["q"]
    # 4 a second start, 10 a second come.
    assert queue["started"] == pytest.approx(4 * 600, abs=4)
    assert queue["waiting"] == 6_000 - queue["started"]
    assert queue["oldest_waiting_ms"] == pytest.approx(600_000 * 0.6, abs=1_000)
    assert queue["wait_max_ms"] == pytest.approx(600_000 * 0.6, abs=1_000)
    assert queue["wait_p50_ms"] == pytest.approx(600_000 * 0.3, abs=1_000)
    assert "jobs still wait at the end, the oldest for 6 m" in table(play(scenario))


@pytest.mark.parametrize("limit", [{"rate": "120/m"}, {"throttle": "2/s"}])
def test_rates_and_their_use(limit: dict[str, Any]) -> None:
    scenario = given()
    scenario["jobs"][0]["keys"] = ["api"]
    scenario["limits"] = {"api": limit}
    key = figures(scenario)["keys"]["api"]
    assert key["started"] == pytest.approx(1_200, rel=0.03)
    assert key["utilisation"] == pytest.approx(1, abs=0.03)


def test_slots_and_their_use() -> None:
    scenario = given()
    scenario["jobs"][0]["keys"] = ["api"]
    scenario["jobs"][0]["arrivals"]["rate"] = "3/s"
    scenario["limits"] = {"api": {"concurrency": 2}}
    key = figures(scenario)["keys"]["api"]
    assert key["started"] == 1_800
    assert key["utilisation"] == pytest.approx(0.75, abs=0.01)


def test_a_key_for_every_value() -> None:
    scenario = given()
    scenario["jobs"][0].update(keys=["c:{value}"], values=3)
    scenario["limits"] = {"c:{value}": {"rate": "1/s"}}
    keys = figures(scenario)["keys"]
    assert sorted(keys) == ["c:0", "c:1", "c:2"]
    assert all(key["started"] == 600 for key in keys.values())


def test_full_queues_refuse() -> None:
    scenario = given()
    scenario["workers"][0]["concurrency"] = 1
    scenario["queues"] = {"q": {"backpressure": {"max_depth": 100, "strategy": "reject"}}}
    found = figures(scenario)
    total = found["total"]
    assert total["waiting"] == 100
    assert total["enqueued"] + total["rejected"] == 6_000
    assert found["reasons"] == {"queue full (jobs)": total["rejected"]}


def test_what_is_dropped_or_expires() -> None:
    scenario = given()
    scenario["jobs"][0].update(keys=["api"], on_limit="drop")
    scenario["limits"] = {"api": {"rate": "60/m"}}
    found = figures(scenario)
    assert found["total"]["started"] == 600
    assert found["total"]["discarded"] == 5_400
    assert found["keys"]["api"]["discarded"] == 5_400
    assert found["reasons"] == {"rate_limited": 5_400}
    scenario["jobs"][0].update(on_limit="wait", expires="1s")
    assert set(figures(scenario)["reasons"]) == {"expired"}


def test_failures_retries_and_timeouts() -> None:
    scenario = given()
    scenario["jobs"][0].update(
        failures=0.5, retry={"max_attempts": 2, "initial_interval": "PT1S", "jitter": False}
    )
    total = figures(scenario)["total"]
    assert total["failed"] == pytest.approx(0.75 * 6_000, rel=0.05)
    assert total["discarded"] == pytest.approx(0.25 * 6_000, rel=0.1)
    scenario["jobs"][0].update(failures=0.0, timeout="200ms")
    late = figures(scenario)["total"]
    assert (late["completed"], late["failed"]) == (0, late["started"] - late["active"])


def test_bursts_and_their_times() -> None:
    scenario = given()
    scenario["jobs"][0]["arrivals"] = {
        "pattern": "bursts", "size": 2_500, "every": "4m", "from": "1m", "until": "9m",
    }  # fmt: skip
    scenario["jobs"][0]["service"] = "100ms"
    found = play(scenario)
    assert found.figures.total.started == 5_000
    assert max(found.figures.total.waits) == 24_900
    rows = [row for row in found.figures.series if row["scope"] == "total"]
    assert [row["at_s"] for row in rows if row["enqueued"]] == [70.0, 310.0]


def test_traces(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "at,count,tenant,value,service\n2m,2,acme,7,\n0,1,,,1m\n1h,1,,,\n", encoding="utf-8"
    )
    scenario = given()
    scenario["jobs"][0].update(keys=["c:{value}"], arrivals={"pattern": "trace", "file": "t.csv"})
    scenario["workers"][0]["concurrency"] = 1
    found = play(scenario, tmp_path)
    assert list(found.figures.total.waits) == [0, 0, 500]
    assert found.figures.total.busy_us == 61_000_000
    assert set(found.figures.tallies) >= {("tenant", "acme"), ("key", "c:7"), ("key", "c:0")}


@pytest.mark.parametrize(
    ("service", "mean"),
    [
        ("0.2", 0.2),
        ({"distribution": "constant", "mean": 0.3}, 0.3),
        ({"distribution": "uniform", "min": 0, "max": 0.4}, 0.2),
        ({"distribution": "exponential", "mean": 0.3}, 0.3),
        # The mean of this one is exp(mu + sigma² / 2).
        ({"distribution": "lognormal", "median": 0.2, "p95": 0.5}, 0.2336),
    ],
)
def test_lengths(service: Any, mean: float) -> None:
    scenario = given()
    scenario["jobs"][0]["service"] = 0.2 if service == "0.2" else service
    total = play(scenario).figures.total
    assert total.busy_us / total.started / 1_000_000 == pytest.approx(mean, rel=0.05)


def test_arrivals_by_chance() -> None:
    scenario = given()
    scenario["jobs"][0]["arrivals"] = {"rate": "10/s"}
    counts = [row["enqueued"] for row in play(scenario).figures.series if row["scope"] == "total"]
    mean = sum(counts) / len(counts)
    spread = sum((one - mean) ** 2 for one in counts) / len(counts)
    assert mean == pytest.approx(100, rel=0.05)
    # As many as come on average: that is what distinguishes them from regular ones.
    assert 0.5 < spread / mean < 2


def test_shares_while_all_wait() -> None:
    scenario = given()
    scenario["jobs"] = [
        {"type": name, "queue": name, "service": 1, "arrivals": {"rate": "20/s"}}
        for name in ("a", "b")
    ]
    scenario["pools"] = {
        "p": {"queues": ["a", "b"], "strategy": "weighted", "weights": {"a": 4, "b": 1}}
    }
    scenario["workers"] = [{"concurrency": 10, "pool": "p"}]
    shares = {one["name"]: one for one in figures(scenario)["shares"]}
    assert shares["a"]["promised"] == 0.8
    assert shares["a"]["contested"] == pytest.approx(0.8, abs=0.02)


def test_the_same_seed_gives_the_same_figures() -> None:
    scenario = given()
    scenario["jobs"][0].update(
        arrivals={"rate": "10/s"}, service={"distribution": "exponential", "mean": 1}, failures=0.1
    )

    def story(seed: int) -> Any:
        return play({**scenario, "seed": seed}).figures.series

    assert story(3) == story(3)
    assert story(3) != story(4)


def test_kinds_of_jobs_have_their_own_dice() -> None:
    scenario = given()
    scenario["jobs"][0]["arrivals"] = {"rate": "10/s"}
    alone = figures(scenario)["queues"]["q"]["enqueued"]
    other = {"type": "o", "queue": "o", "arrivals": {"rate": "1/s"}}
    scenario["jobs"].append(other)
    assert figures(scenario)["queues"]["q"]["enqueued"] == alone
