"""Whatever is wrong with a scenario is refused with the name of its field."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.simulation.scenario import Wrong, load
from tests.simulation.scenes import PLAIN, given, play

Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s.pop("duration"), "duration is missing"),
        (lambda s: s.update(duration="soon"), "duration must be seconds"),
        (lambda s: s.update(duration=0), "duration must be longer"),
        (lambda s: s.update(duration=True), "duration"),
        (lambda s: s.update(colour=1), "colour is not known here"),
        (lambda s: s.update(folder="x"), "folder is not known here"),
        (lambda s: s.update(step="1ms"), "step must divide"),
        (lambda s: s.update(start="monday"), "start must be"),
        (lambda s: s.update(jobs=[]), "jobs must be at least one"),
        (lambda s: s["jobs"].append(s["jobs"][0]), "jobs[1].type: work is there already"),
        (lambda s: s["jobs"][0].update(size=1), "jobs[0].size is not known here"),
        (lambda s: s["jobs"][0].update(queue=7), "jobs[0].queue: expected `str`, got `int`"),
        (lambda s: s["jobs"][0].update(queue="No"), "jobs[0].queue"),
        (lambda s: s["jobs"][0].update(failures=2), "jobs[0].failures must be from 0 to 1"),
        (lambda s: s["jobs"][0].update(values=0), "jobs[0].values"),
        (lambda s: s["jobs"][0].update(keys=["no key"]), "jobs[0].keys"),
        (lambda s: s["jobs"][0].update(timeout=0), "jobs[0].timeout"),
        (lambda s: s["jobs"][0].update(service="x"), "jobs[0].service must be"),
        (lambda s: s["jobs"][0].update(service={"mean": 1, "p95": 1}), "jobs[0].service.p95"),
        (
            lambda s: s["jobs"][0].update(service={"distribution": "lognormal", "median": 1}),
            "jobs[0].service.p95 is missing",
        ),
        (
            lambda s: s["jobs"][0].update(service={"distribution": "uniform", "min": 2, "max": 1}),
            "jobs[0].service.max",
        ),
        (
            lambda s: s["jobs"][0].update(service={"distribution": "odd"}),
            "jobs[0].service.distribution",
        ),
        (lambda s: s["jobs"][0].update(tenant="a", tenants={"b": 1}), "jobs[0].tenants"),
        (lambda s: s["jobs"][0].update(tenants={"b": 0}), "jobs[0].tenants.b"),
        (lambda s: s["jobs"][0].update(retry={"max_attempts": -1}), "jobs[0].retry.max_attempts"),
        (lambda s: s["jobs"][0].update(on_limit="run"), "jobs[0].on_limit"),
        (
            lambda s: s["jobs"][0].update(arrivals={"rate": "many"}),
            "jobs[0].arrivals[0].rate must be like",
        ),
        (
            lambda s: s["jobs"][0].update(arrivals={"pattern": "bursts", "size": 1}),
            "jobs[0].arrivals[0].every is missing",
        ),
        (
            lambda s: s["jobs"][0].update(arrivals={"rate": "1/s", "size": 1}),
            "jobs[0].arrivals[0].size is not needed",
        ),
        (
            lambda s: s["jobs"][0].update(
                arrivals=[{"rate": "1/s"}, {"rate": "1/s", "from": "2m", "until": "1m"}]
            ),
            "jobs[0].arrivals[1].until must be later",
        ),
        (
            lambda s: s["jobs"][0].update(arrivals={"pattern": "trace", "file": "none.csv"}),
            "jobs[0].arrivals[0].file",
        ),
        (lambda s: s["workers"][0].update(count=0), "workers[0].count"),
        (lambda s: s["workers"][0].update(speed=0), "workers[0].speed is not known here"),
        (
            lambda s: s["workers"].append({"name": "workers-1"}),
            "workers[1].name: workers-1 is there already",
        ),
        (lambda s: s.update(limits={"k": {"rate": "1/s"}}), "limits.k: no jobs have this key"),
        (
            lambda s: (
                s["jobs"][0].update(keys=["k"]),
                s.update(limits={"k": {"rate": "x"}}),
            ),
            "limits.k.rate must be like",
        ),
        (
            lambda s: (
                s["jobs"][0].update(keys=["k"]),
                s.update(limits={"k": {"concurrency": -1}}),
            ),
            "limits.k.concurrency",
        ),
        (lambda s: s.update(queues={"q": {"depth": 1}}), "queues.q.depth"),
        (lambda s: s.update(queues={"q": {"concurrency": "x"}}), "queues.q.concurrency"),
        (lambda s: s.update(pools={"p": {"queues": []}}), "pools.p.queues"),
        (lambda s: s.update(tenants={"t": {"weight": 1}}), "tenants.t.weight"),
    ],
)
def test_refusals_name_the_field(change: Change, said: str) -> None:
    scenario = given()
    change(scenario)
    with pytest.raises(Wrong) as refused:
        play(scenario)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("when\n1\n", "no column `at`"),
        ("at,size\n1,2\n", "'size'"),
        ("at,count\n1,0\n", "line 2: count must be at least 1"),
        ("at,count\n1,1\nlater,1\n", "line 3: at must be seconds"),
        ("at,service\n1,long\n", "line 2: service must be seconds"),
    ],
)
def test_traces_name_the_line(rows: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(rows, encoding="utf-8")
    scenario = given()
    scenario["jobs"][0]["arrivals"] = {"pattern": "trace", "file": "t.csv"}
    with pytest.raises(Wrong, match="file") as refused:
        play(scenario, tmp_path)
    assert said in str(refused.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(Wrong, match="cannot be read"):
        load(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("duration = ", encoding="utf-8")
    with pytest.raises(Wrong, match="is not TOML"):
        load(tmp_path / "bad.toml")
    (tmp_path / "good.toml").write_text(PLAIN, encoding="utf-8")
    assert load(tmp_path / "good.toml").folder == tmp_path
