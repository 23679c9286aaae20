"""That everything that can be measured is; how fast it is, no test says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from bench import engine, flow, http, standing
from bench.__main__ import main, together
from bench.jobs import ENVELOPE
from bench.load import Unexpected, latency, load
from bench.machine import this_machine
from bench.processes import Failed, fresh
from bench.report import Row, at_least, at_most, middle, table
from bench.servers import headgate
from bench.sizes import Size

TINY = Size(
    rounds=1,
    jobs=200,
    waiting=2_000,
    flow_s=0.2,
    load_s=0.1,
    warm_s=0.1,
    connections=8,
    wakes=3,
    idle_s=0.1,
)


def named(rows: Sequence[Row]) -> dict[str, Row]:
    found = {row.name: row for row in rows}
    assert len(found) == len(rows), "two rows have one name"
    for row in rows:
        for value in (row.value, *row.more.values()):
            assert math.isfinite(value), row
    return found


@pytest.mark.parametrize("configuration", engine.CONFIGURATIONS)
def test_the_engine(configuration: str, tmp_path: Path) -> None:
    rows = named(engine.measure(configuration, tmp_path, TINY))
    assert {"enqueue", "fetch", "ack", "life"} < set(rows)
    assert all(row.value > 0 for row in rows.values())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("configuration", ["memory", "full"])
def test_many_waiting_jobs(configuration: str, tmp_path: Path) -> None:
    rows = named(standing.measure(configuration, tmp_path, TINY))
    # The envelope alone is larger than 200 bytes, so a job cannot be smaller.
    assert rows["memory per job"].value > 200
    assert ("restart per million jobs" in rows) == (configuration == "full")
    assert list(tmp_path.iterdir()) == []


def test_the_server(tmp_path: Path) -> None:
    rows = named(http.measure("normal", tmp_path, TINY))
    rates = [row for row in rows.values() if row.unit.endswith("/s")]
    assert len(rates) == 6
    assert all(row.value > 0 for row in rates)
    for verb in ("enqueue", "look", "fetch", "nack", "heartbeat", "ack"):
        row = rows[f"{verb}, 8 connections"]
        assert 0 < row.value <= row.more["p95 ms"] <= row.more["p99 ms"] <= row.more["longest ms"]
    assert list(tmp_path.iterdir()) == []


def test_requests_can_be_sent_ahead_of_answers(tmp_path: Path) -> None:
    with headgate("memory", tmp_path) as running:
        found = fresh(load, "enqueue", running.address, running.pid, 2, 8, 0.1, 0.1)
    assert found.verbs["enqueue"].count > 0


def test_a_refusal_ends_the_measurement(tmp_path: Path) -> None:
    # Nothing is there to be fetched, so nothing could be counted.
    with headgate("memory", tmp_path) as running, pytest.raises(Failed, match=Unexpected.__name__):
        fresh(load, "work", running.address, running.pid, 1, 1, 0.1, 0.1)


def test_the_command_prints_a_table_and_writes_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "found.json"
    main(
        ["standing", "--on", "memory", "--quick", "--waiting", "1000",
         "--dir", str(tmp_path), "--json", str(file)]
    )  # fmt: skip
    shown = capsys.readouterr().out
    assert "MANY JOBS WAIT" in shown
    assert "≤ 1,024" in shown
    found = msgspec.json.decode(file.read_bytes())
    assert found["machine"]["sqlite"] == this_machine(tmp_path).sqlite
    assert found["rows"][0]["name"] == "memory per job"


def test_the_envelope_has_the_size_that_the_budgets_name() -> None:
    assert len(ENVELOPE) == 313


def test_the_median_of_the_rounds_counts() -> None:
    rounds = [[Row("a", "b", "full", n, "µs", None, {"more": -n})] for n in (9.0, 1.0, 2.0)]
    assert middle(rounds) == [Row("a", "b", "full", 2.0, "µs", None, {"more": -2.0})]


def test_a_ratio_is_the_value_divided_by_its_budget() -> None:
    rows = [
        Row("a", "slow", "full", 30.0, "µs", at_most(15)),
        Row("a", "fast", "full", 30_000.0, "jobs/s", at_least(60_000)),
    ]
    lines = table(rows).splitlines()
    assert lines[-2].split() == ["slow", "full", "30.0", "µs", "≤", "15.0", "2.00"]
    assert lines[-1].split() == ["fast", "full", "30,000", "jobs/s", "≥", "60,000", "0.50"]


def test_configurations_stand_side_by_side() -> None:
    rows = [Row(a, n, c, 1.0, "s") for c in ("memory", "full") for a, n in ("xp", "yq", "xr")]
    assert [(row.name, row.configuration) for row in together(rows)] == [
        ("p", "memory"),
        ("p", "full"),
        ("r", "memory"),
        ("r", "full"),
        ("q", "memory"),
        ("q", "full"),
    ]


def test_percentiles_are_of_the_sorted_times() -> None:
    from array import array

    found = latency(array("d", [n / 1000 for n in range(101, 0, -1)]))
    assert (found.count, found.longest) == (101, 101.0)
    assert (found.p50, found.p95, found.p99) == pytest.approx((51.0, 96.0, 100.0))


def test_flow_control(tmp_path: Path) -> None:
    rows = named(flow.measure("memory", tmp_path, TINY))
    assert "fetch of a free job, nothing blocked" in rows
    assert all(row.more["of nothing blocked"] > 0 for row in rows.values() if row.unit == "µs")
    assert "longest pause in a move of 2,000" in rows
    assert "CPU of 40 parked enqueues" in rows
    assert list(tmp_path.iterdir()) == []
