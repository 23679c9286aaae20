from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.cli.asked import Asked
from tests.cli.served import LATE_S, headgate

APP = """
from headgate import Headgate
hg = Headgate()
other = [hg]
@hg.job(type="work.touch", queue="touched")
def touch(name: str) -> str:
    open(name, "w").close()
    return name
"""


@pytest.fixture(autouse=True)
def app(cli: Asked) -> None:
    (cli.where / "app.py").write_text(APP)
    (cli.where / "none.py").write_text("x = 1\n")
    (cli.where / "empty.py").write_text("from headgate import Headgate\nhg = Headgate()\n")
    (cli.where / "two.py").write_text("from headgate import Headgate\na = Headgate()\nb = Headgate()\n")  # fmt: skip
    (cli.where / "broken.py").write_text("x = 1\nx.y\n")
    (cli.where / "lacking.py").write_text("import no_such_thing\n")


@pytest.mark.parametrize("place", ["app:hg", "app"])
def test_a_worker_runs_the_jobs_of_an_application(cli: Asked, place: str) -> None:
    name = place.replace(":", "-")
    cli.run("enqueue", "work.touch", name, "--queue", "touched")
    done = headgate("worker", place, "--burst", where=cli.where, HEADGATE_URL=cli.url)
    assert done.returncode == 0, done.stderr
    assert (cli.where / name).exists()
    assert "serves touched, 10 at once" in done.stderr


def test_a_worker_is_what_it_was_told_to_be_until_a_signal(cli: Asked) -> None:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("HEADGATE_")}
    worker = subprocess.Popen(
        [sys.executable, "-m", "headgate", "worker", "app:hg", "--queues", "b,a", "--pool", "p1",
         "--concurrency", "3", "--worker-id", "w-1", "--label", "zone=x", "--grace", "1",
         "--url", cli.url, "--log-format", "json", "--no-exchange", "--processes", "1"],
        cwd=cli.where, env=clean, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert worker.stderr is not None
        assert (
            "worker w-1 serves b, a, 3 at once" in json.loads(worker.stderr.readline())["message"]
        )
        _, found = cli.server.ask("GET", "/ojs/v1/admin/workers/w-1")
        assert (found["queues"], found["pool"], found["concurrency"]) == (["b", "a"], "p1", 3)
        assert found["metadata"] == {"zone": "x"}
        worker.send_signal(signal.SIGTERM)
        assert "has ended" in worker.stderr.read()
        assert worker.wait(LATE_S) == 0
    finally:
        if worker.poll() is None:
            worker.kill()
            worker.wait()
        assert worker.stderr is not None
        worker.stderr.close()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("nowhere:hg",), 2, "there is no module nowhere here"),
        (("app:missing",), 2, "app has no missing"),
        (("app:touch",), 2, "app:touch is a Task, not a Headgate"),
        (("none",), 2, "none has 0 Headgate objects (name one: none:hg)"),
        (("two",), 2, "two has 2 Headgate objects"),
        (("empty:hg",), 2, "empty:hg has no handlers (declare them with @hg.job)"),
        (("broken:hg",), 1, "broken cannot be imported: AttributeError: 'int' object has no"),
        (("lacking:hg",), 1, "lacking cannot be imported: ModuleNotFoundError: No module named"),
        (("app:hg", "--concurrency", "0"), 2, "concurrency must be at least 1"),
        (("app:hg", "--label", "x"), 2, "--label: must be NAME=VALUE"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    cli: Asked, arguments: tuple[str, ...], code: int, words: str
) -> None:
    assert cli.refused("worker", *arguments, code=code).startswith(words)


def test_the_place_in_the_application_that_failed_is_named(cli: Asked) -> None:
    assert cli.refused("worker", "broken", code=1).endswith("broken.py:2)")
