from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from headgate.cli.main import main
from tests.simulation.scenes import PLAIN


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    file = tmp_path / "scenario.toml"
    file.write_text(PLAIN, encoding="utf-8")
    return file


def test_a_table_for_people(scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(scenario)]) == 0
    said = capsys.readouterr()
    head, total, queue, *_ = said.out.splitlines()
    assert head.split()[:3] == ["enqueued", "rejected", "started"]
    assert total.split()[:4] == ["total", "6,000", "0", "6,000"]
    assert queue.startswith("queue q ")
    assert "10 m played in" in said.out
    assert said.err == ""


def test_json_and_other_seeds(scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(scenario), "--json", "--seed", "5", "--duration", "1m"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["seed"], found["duration_s"], found["total"]["enqueued"]) == (5, 60, 600)


def test_series(scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = scenario.parent
    for name in ("s.csv", "s.json"):
        assert main(["simulate", str(scenario), "--series", str(folder / name)]) == 0
    capsys.readouterr()
    with (folder / "s.csv").open(newline="") as source:
        rows = list(csv.DictReader(source))
    found = json.loads((folder / "s.json").read_text())
    assert len(rows) == len(found) == 2 * 60
    assert sum(int(row["enqueued"]) for row in rows if row["scope"] == "queue") == 6_000
    assert [row["at_s"] for row in rows] == [str(row["at_s"]) for row in found]


@pytest.mark.parametrize(
    ("options", "said", "code"),
    [
        (["--series", "s.txt"], "--series: must end in .csv or .json", 2),
        (["--series", "/nowhere/at/all/s.csv"], "cannot be written", 1),
        (["--duration", "soon"], "duration must be seconds", 2),
        (["--duration", "0s"], "duration must be longer than nothing", 2),
    ],
)
def test_refusals_are_one_line(
    options: list[str], said: str, code: int, scenario: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", str(scenario), *options]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("headgate: ")
    assert said in line


def test_wrong_scenarios_name_file_and_field(
    scenario: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario.write_text(PLAIN.replace("500ms", "fast"), encoding="utf-8")
    assert main(["simulate", str(scenario)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "scenario.toml: jobs[0].service must be seconds" in line
    assert main(["simulate", str(scenario.parent / "none.toml")]) == 2
    assert "cannot be read" in capsys.readouterr().err
