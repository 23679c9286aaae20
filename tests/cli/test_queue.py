from __future__ import annotations

import pytest

from tests.cli.asked import Asked
from tests.cli.served import Serve


def test_queues_are_listed_with_their_load(cli: Asked) -> None:
    cli.server.enqueue(queue="a.busy")
    cli.server.enqueue(queue="a.busy", scheduled_at="2099-01-01T00:00:00Z")
    cli.run("queue", "set", "a.busy", "--max-depth", "4")
    head, *rows = cli.table("queue", "list")
    assert [cell.strip() for cell in head[:6]] == [
        "QUEUE", "STATE", "READY", "RUNNING", "LATER", "FULL",
    ]  # fmt: skip
    (row,) = [[cell.strip() for cell in row] for row in rows if row[0] == "a.busy"]
    assert row[:8] == ["a.busy", "active", "1", "0", "1", "50 %", "0", "0"]
    assert row[8].endswith(" s")
    (found,) = [queue for queue in cli.json("queue", "list") if queue["name"] == "a.busy"]
    assert (found["counts"]["available"], found["pressure"]) == (1, 0.5)


def test_a_queue_is_shown_with_what_holds_for_it(cli: Asked) -> None:
    cli.server.enqueue(queue="shown")
    cli.run("queue", "set", "shown", "--max-size", "8", "--overflow", "block", "--rate", "100/m")
    lines = dict(line.split("  ", 1) for line in cli.run("queue", "show", "shown").splitlines())
    told = {name: value.strip() for name, value in lines.items()}
    assert told["queue"] == "shown (active)"
    assert told["jobs"] == "1 available"
    assert told["full"] == "1 of 8 jobs, running ones included (12 %)"
    assert told["overflow_policy"] == "block"
    assert told["rate_limit.rate"] == "100 per 1 min"
    found = cli.json("queue", "show", "shown")
    assert found["stats"]["available"] == 1
    assert found["config"]["max_size"] == 8


def test_settings_are_given_and_taken_away_one_by_one(cli: Asked) -> None:
    cli.run(
        "queue", "set", "tuned", "--max-depth", "10,000", "--warning-threshold", "0.5",
        "--concurrency", "5", "--throttle", "1/10s", "--visibility-timeout", "90s",
        "--default-timeout", "1.5", "--dead-letter-queue", "tuned.dead", "--dead-letter-ttl", "7d",
        "--dead-letter-max-size", "100", "--allowed-job-types", "a.*, b", "--producers", "web",
        "--max-size-bytes", "1000000", "--set", 'default_retry={"max_attempts": 7}',
    )  # fmt: skip
    config = cli.json("queue", "show", "tuned")["config"]
    assert config["backpressure"]["max_depth"] == 10_000
    assert config["backpressure"]["warning_threshold"] == 0.5
    assert (config["concurrency"], config["visibility_timeout"], config["default_timeout"]) == (
        5,
        90,
        2,
    )
    assert config["rate_limit"] == {"throttle": {"limit": 1, "period": "PT10S"}}
    assert (config["dead_letter_queue"], config["dead_letter_ttl"]) == ("tuned.dead", "P7D")
    assert (config["dead_letter_max_size"], config["max_size_bytes"]) == (100, 1_000_000)
    assert (config["allowed_job_types"], config["producers"]) == (["a.*", "b"], ["web"])
    assert config["default_retry"]["max_attempts"] == 7
    shown = cli.run("queue", "set", "tuned", "--max-depth", "none", "--throttle", "none")
    assert "max_depth" not in shown
    assert "visibility_timeout" not in shown, "it was not changed"
    config = cli.json("queue", "show", "tuned")["config"]
    assert "max_depth" not in config["backpressure"]
    assert "rate_limit" not in config
    assert config["concurrency"] == 5


def test_the_default_policy_is_a_queue_to_this_command(serve: Serve, cli: Asked) -> None:
    url = ("--url", f"http://127.0.0.1:{serve('--store', 'memory:').port}")
    cli.run("queue", "set", "_default", "--max-depth", "7", *url)
    shown = cli.run("queue", "show", "_default", *url)
    assert ["backpressure.max_depth", "7"] in [line.split() for line in shown.splitlines()]
    assert cli.json("queue", "show", "default", *url)["config"]["backpressure"]["max_depth"] == 7


def test_a_queue_is_paused_and_resumed(cli: Asked) -> None:
    cli.server.enqueue(queue="halted")
    assert cli.run("queue", "pause", "halted").startswith("queue halted is paused")
    assert cli.json("queue", "show", "halted")["status"] == "paused"
    assert cli.json("queue", "resume", "halted")["status"] == "active"
    assert cli.json("queue", "show", "halted")["status"] == "active"


def test_a_queue_is_drained(cli: Asked) -> None:
    cli.server.enqueue(queue="leaving")
    assert "takes no new jobs and is deleted after 1 job" in cli.run("queue", "drain", "leaving")
    assert cli.json("queue", "show", "leaving")["status"] == "draining"
    cli.run("queue", "pause", "empty")
    assert "was empty and is deleted" in cli.run("queue", "drain", "empty")
    cli.refused("queue", "show", "empty", code=3)


def test_a_queue_with_jobs_is_deleted_only_when_it_is_said_what_becomes_of_them(cli: Asked) -> None:
    job = cli.server.enqueue(queue="doomed")
    line = cli.refused("queue", "delete", "doomed", code=1)
    assert line == (
        "the queue doomed has 1 unfinished jobs (--discard or --move-to says what becomes of them)"
    )
    cli.run("queue", "pause", "haven")
    assert (
        cli.run("queue", "delete", "doomed", "--move-to", "haven")
        == "queue doomed is deleted, 1 job moved to haven\n"
    )
    assert cli.server.ask("GET", f"/ojs/v1/jobs/{job['id']}")[1]["job"]["queue"] == "haven"
    assert "--yes agrees" in cli.refused("queue", "delete", "haven", "--discard", code=2)
    assert (
        cli.run("queue", "delete", "haven", "--discard", "--yes")
        == "queue haven is deleted, 1 job discarded\n"
    )


def test_deleting_many_jobs_is_waited_for(cli: Asked) -> None:
    jobs = [{"type": "a.b", "args": [], "queue": "crowd"}] * 600
    for _ in range(2):
        cli.server.ask("POST", "/ojs/v1/jobs/batch", {"jobs": jobs})
    found = cli.json("queue", "delete", "crowd", "--discard", "--yes")
    assert (found["jobs_affected"], found["task"]["finished"]) == (1200, True)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("show", "nothing"), 3, "there is no queue nothing (headgate queue list shows"),
        (("show", "NO/PE"), 3, "there is no queue NO/PE"),
        (("set", "a"), 2, "nothing to change (see headgate queue set --help)"),
        (("set", "a", "--max-depth", "-1"), 2, "--max-depth: must be a whole number from 0 on"),
        (("set", "a", "--rate", "fast"), 2, "--rate: must be like 100/m"),
        (("set", "a", "--visibility-timeout", "soon"), 2, "--visibility-timeout: must be a time"),
        (("set", "a", "--set", "max_depth"), 2, "--set: must be NAME=VALUE"),
        (("set", "a", "--set", "colour=1"), 2, "config.colour is not a setting"),
        (("set", "a", "--producers", "x,,y"), 2, "--producers: must be names with commas"),
        (("set", "_b", "--max-size", "1"), 2, "name must be 1 to 128 characters"),
        (("delete", "default"), 1, "the queue default"),
        (("delete", "a", "--discard", "--move-to", "b"), 2, "--move-to: not allowed with"),
        (("drain", "nothing"), 3, "there is no queue nothing"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_line(
    cli: Asked, arguments: tuple[str, ...], code: int, words: str
) -> None:
    assert cli.refused("queue", *arguments, code=code).startswith(words)
