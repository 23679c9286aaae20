from __future__ import annotations

import json

import pytest

from tests.cli.asked import Asked
from tests.cli.served import headgate

NOBODY = "01900000-0000-7000-8000-000000000000"


def fetch(cli: Asked, queue: str) -> str:
    status, body = cli.server.ask(
        "POST", "/ojs/v1/workers/fetch", {"queues": [queue], "worker_id": "w"}
    )
    assert status == 200
    return str(body["jobs"][0]["id"])


def fail(cli: Asked, job: str, **error: object) -> None:
    said = {"code": "E", "type": "Broken", "message": "it\x1b[31m broke", **error}
    assert cli.server.ask("POST", "/ojs/v1/workers/nack", {"job_id": job, "error": said})[0] == 200


def test_jobs_are_listed_by_what_they_are(cli: Asked) -> None:
    first = cli.server.enqueue(queue="listed", type="x.one", rate_limit={"key": "lk"})["id"]
    second = cli.server.enqueue(queue="listed", type="y.two", priority=3)["id"]
    head, *rows = cli.table("job", "list", "--queue", "listed")
    assert [cell.strip() for cell in head] == [
        "JOB", "TYPE", "QUEUE", "STATE", "PRIORITY", "ATTEMPT", "AGE",
    ]  # fmt: skip
    assert {row[0] for row in rows} == {first, second}
    for options, found in (
        (("--type", "x.*"), [first]),
        (("--key", "lk"), [first]),
        (("--state", "available,active"), [second, first]),
        (("--state", "active"), []),
        (("--error-type", "None"), []),
        (("--tenant", "acme"), []),
    ):
        listed = cli.json("job", "list", "--queue", "listed", *options)
        assert sorted(job["id"] for job in listed) == sorted(found), options
    assert cli.run("job", "list", "--queue", "listed", "--most", "1").endswith("… and 1 more job\n")


def test_a_job_is_shown_with_its_errors(cli: Asked) -> None:
    job = cli.server.enqueue(queue="shown", args=[{"a": "ä"}], meta={"m": 1}, retry={"max_attempts": 2, "initial_interval": "PT1H", "max_interval": "PT1H"})["id"]  # fmt: skip
    assert fetch(cli, "shown") == job
    fail(cli, job)
    told = dict(line.split("  ", 1) for line in cli.run("job", "show", job).splitlines())
    shown = {name: value.strip() for name, value in told.items()}
    assert shown["queue"] == "shown, priority 0"
    assert (shown["state"], shown["attempt"]) == ("retryable", "1 of 2")
    assert (shown["args"], shown["meta"]) == ('[{"a": "ä"}]', '{"m": 1}')
    assert "(in " in shown["next_attempt"]
    (error,) = [value for name, value in shown.items() if name.startswith("error")]
    assert error.startswith("Broken: it�[31m broke"), "a terminal obeys no stranger"
    assert cli.json("job", "show", job)["state"] == "retryable"


def test_one_job_is_cancelled_once(cli: Asked) -> None:
    job = cli.server.enqueue(queue="one")["id"]
    assert cli.run("job", "cancel", job) == f"job {job} is cancelled\n"
    line = cli.refused("job", "cancel", job, code=1)
    assert line == "cannot cancel the job: it is cancelled"


def test_one_job_is_started_over(cli: Asked) -> None:
    job = cli.server.enqueue(queue="over", retry={"max_attempts": 1})["id"]
    fail(cli, fetch(cli, "over"))
    assert cli.run("job", "retry", job) == f"job {job} is available in the queue over\n"
    assert fetch(cli, "over") == job


def test_several_jobs_are_cancelled_and_those_left_alone_are_named(cli: Asked) -> None:
    jobs = [cli.server.enqueue(queue="several")["id"] for _ in range(3)]
    cli.run("job", "cancel", jobs[0])
    found = headgate("job", "cancel", *jobs, NOBODY, HEADGATE_URL=cli.url)
    assert found.stdout.splitlines() == [
        "2 jobs cancelled",
        f"{jobs[0]} was left alone: it is cancelled",
        f"{NOBODY} was left alone: there is no such job",
    ]
    assert found.stderr == "headgate: 2 jobs could not be cancelled\n"
    assert found.returncode == 1


def test_all_jobs_that_match_are_cancelled(cli: Asked) -> None:
    for kind in ("m.a", "m.b", "n.a"):
        cli.server.enqueue(queue="matching", type=kind)
    assert "--yes agrees" in cli.refused("job", "cancel", "--queue", "matching", code=2)
    cancelled = cli.run("job", "cancel", "--queue", "matching", "--type", "m.*", "--yes")
    assert cancelled == "2 jobs cancelled\n"
    left = cli.json("job", "list", "--queue", "matching", "--state", "available")
    assert [job["type"] for job in left] == ["n.a"]


def test_cancelling_many_jobs_is_waited_for_unless_told_not_to(cli: Asked) -> None:
    jobs = [{"type": "a.b", "args": [], "queue": "herd"}] * 800
    for _ in range(3):
        cli.server.ask("POST", "/ojs/v1/jobs/batch", {"jobs": jobs})
    assert cli.run("job", "cancel", "--queue", "herd", "--yes") == "2,400 jobs cancelled\n"
    for _ in range(3):
        cli.server.ask("POST", "/ojs/v1/jobs/batch", {"jobs": jobs})
    found = json.loads(cli.run("job", "cancel", "--queue", "herd", "--yes", "--no-wait", "--json"))
    assert found["total_matched"] == 2_400
    assert found["task"]["matched"] == 2_400


@pytest.mark.parametrize("command", ["cancel", "retry"])
def test_which_jobs_are_meant_must_be_said_in_one_way(cli: Asked, command: str) -> None:
    assert cli.refused("job", command, code=2).startswith("name the jobs that are meant")
    both = cli.refused("job", command, NOBODY, "--queue", "a", code=2)
    assert both == "name jobs by their ids or by options, not both"
    wrong = cli.refused("job", command, "--state", "happy", "--yes", code=2)
    assert wrong.startswith("filter.state must be out of")


@pytest.mark.parametrize("command", [("job", "show"), ("job", "explain"), ("explain",)])
def test_a_job_that_is_not_there_is_told(cli: Asked, command: tuple[str, ...]) -> None:
    assert cli.refused(*command, NOBODY, code=3).startswith(f"there is no job {NOBODY} (")
