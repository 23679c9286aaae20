from __future__ import annotations

import pytest

from headgate.cli.progress import bar
from tests.cli.asked import Asked
from tests.cli.terminal import terminal


def herd(cli: Asked, queue: str) -> None:
    jobs = [{"type": "a.b", "args": [], "queue": queue}] * 800
    for _ in range(3):
        cli.server.ask("POST", "/ojs/v1/jobs/batch", {"jobs": jobs})


def test_on_a_terminal_a_bar_stands_where_the_outcome_will_be(cli: Asked) -> None:
    herd(cli, "herd")
    command = ("job", "cancel", "--queue", "herd", "--yes", "--url", cli.url)
    with terminal(*command, where=cli.where) as screen:
        lines = screen.shows("2,400 jobs cancelled")
        assert screen.end() == 0
        assert "\rcancel [" in screen.said
        assert "% of 2,400" in screen.said
        assert [line for line in lines if line] == ["2,400 jobs cancelled"]


def test_enqueuing_many_jobs_shows_how_far_it_is(cli: Asked) -> None:
    (cli.where / "jobs.jsonl").write_text('{"type": "a.b", "queue": "filed"}\n' * 1_200)
    with terminal("enqueue", "--from", "jobs.jsonl", "--url", cli.url, where=cli.where) as screen:
        screen.shows("1,200 jobs enqueued")
        assert screen.end() == 0
        assert " 42 % of 1,200" in screen.said


@pytest.mark.parametrize(("said", "code"), [("y\n", 0), ("yes\n", 0), ("n\n", 1), ("\n", 1), ("\x04", 1)])  # fmt: skip
def test_on_a_terminal_it_is_asked_back(cli: Asked, said: str, code: int) -> None:
    queue = f"asked-{said.encode().hex()}"
    job = cli.server.enqueue(queue=queue)["id"]
    with terminal("job", "cancel", "--queue", queue, "--url", cli.url, where=cli.where) as screen:
        screen.shows(f"Cancel 1 job with the queue {queue}? [y/N]")
        screen.press(said)
        assert screen.end() == code
    _, body = cli.server.ask("GET", f"/ojs/v1/jobs/{job}")
    assert body["job"]["state"] == ("available" if code else "cancelled")


def test_a_bar_fills_from_left_to_right() -> None:
    assert bar("x", 0, 10) == f"x [{'.' * 30}]   0 % of 10"
    assert bar("x", 5, 10) == f"x [{'#' * 15}{'.' * 15}]  50 % of 10"
    assert bar("x", 11, 10) == f"x [{'#' * 30}] 100 % of 10"
    assert bar("x", 0, 0) == f"x [{'#' * 30}] 100 % of 0"
