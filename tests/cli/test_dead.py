from __future__ import annotations

import pytest

from tests.cli.asked import Asked

NOBODY = "01900000-0000-7000-8000-000000000000"


def dead(cli: Asked, queue: str, kind: str = "a.b") -> str:
    """A job that became a dead letter."""
    retry = {"max_attempts": 1, "on_exhaustion": "dead_letter"}
    job = cli.server.enqueue(queue=queue, type=kind, retry=retry)["id"]
    cli.server.ask("POST", "/ojs/v1/workers/fetch", {"queues": [queue]})
    error = {"code": "E", "type": "Broken", "message": "no " + "x" * 100}
    cli.server.ask("POST", "/ojs/v1/workers/nack", {"job_id": job, "error": error})
    return str(job)


def ids(cli: Asked, *options: str) -> list[str]:
    return sorted(job["id"] for job in cli.json("dead", "list", *options))


def test_dead_letters_are_listed_with_what_ended_them(cli: Asked) -> None:
    first, second = dead(cli, "l.one"), dead(cli, "l.two", "x.y")
    head, *rows = cli.table("dead", "list")
    assert [cell.strip() for cell in head] == [
        "JOB", "TYPE", "QUEUE", "ATTEMPTS", "AGE", "ERROR",
    ]  # fmt: skip
    (row,) = [[cell.strip() for cell in row] for row in rows if row[0] == first]
    assert row[1:4] == ["a.b", "l.one", "1"]
    assert row[5].startswith("Broken: no xxx")
    assert row[5].endswith("…")
    assert ids(cli, "--queue", "l.two") == [second]
    assert ids(cli, "--type", "x.*") == [second]
    assert cli.run("dead", "list", "--most", "1").endswith("… and 1 more dead letter\n")


def test_dead_letters_are_tried_again_one_by_one_or_all_that_match(cli: Asked) -> None:
    first, second, third = (dead(cli, "again") for _ in range(3))
    assert cli.run("dead", "retry", first) == "1 job retried\n"
    assert ids(cli, "--queue", "again") == sorted([second, third])
    assert "--yes agrees" in cli.refused("dead", "retry", "--queue", "again", code=2)
    assert cli.run("dead", "retry", "--queue", "again", "--yes") == "2 jobs retried\n"
    assert ids(cli, "--queue", "again") == []


def test_dead_letters_are_forgotten(cli: Asked) -> None:
    first, second, third = (dead(cli, "gone") for _ in range(3))
    assert cli.run("dead", "purge", first, second) == "2 jobs deleted\n"
    assert ids(cli, "--queue", "gone") == [third]
    assert "--yes agrees" in cli.refused("dead", "purge", "--all", code=2)
    assert cli.json("dead", "purge", "--all", "--yes")["deleted"] >= 1
    assert ids(cli) == []


@pytest.mark.parametrize("command", ["retry", "purge"])
def test_which_are_meant_must_be_said_in_one_way(cli: Asked, command: str) -> None:
    assert cli.refused("dead", command, code=2).startswith("name the jobs that are meant")
    cli.refused("dead", command, NOBODY, "--all", code=2)
    cli.refused("dead", command, NOBODY, code=3)
