from __future__ import annotations

from tests.cli.asked import Asked

NOBODY = "01900000-0000-7000-8000-000000000000"


def test_what_happened_to_a_job_is_shown_and_deleted(cli: Asked) -> None:
    job = cli.server.enqueue(queue="told", retry={"max_attempts": 1})["id"]
    cli.server.ask("POST", "/ojs/v1/workers/fetch", {"queues": ["told"], "worker_id": "w7"})
    error = {"code": "E", "type": "Broken", "message": "no\x1b[31m"}
    cli.server.ask("POST", "/ojs/v1/workers/nack", {"job_id": job, "error": error})
    head, *rows = cli.table("job", "history", job)
    assert [cell.strip() for cell in head] == ["AT", "EVENT", "STATE", "ATTEMPT", "BY", "WHY"]
    assert [[cell.strip() for cell in row[1:3]] for row in rows] == [
        ["push", "available"],
        ["fetch", "active"],
        ["fail", "discarded"],
    ]
    last = " ".join(rows[-1])
    assert "w7" in last
    assert "attempts_exhausted; Broken: no" in last
    assert "\x1b" not in last
    assert [each["event"] for each in cli.json("job", "history", job)] == ["push", "fetch", "fail"]
    assert "--yes agrees" in cli.refused("job", "history", job, "--delete", code=2)
    said = cli.run("job", "history", job, "--delete", "--yes")
    assert said == f"the history of {job} is deleted\n"
    assert cli.json("job", "history", job) == []
    assert cli.run("job", "history", job).startswith("what happened before ")


def test_the_history_of_what_has_not_ended_stays(cli: Asked) -> None:
    job = cli.server.enqueue(queue="stays")["id"]
    refused = cli.refused("job", "history", job, "--delete", "--yes", code=1)
    assert refused.startswith("cannot delete the history of the job: it is available")
    for command in ("history", "lineage"):
        assert cli.refused("job", command, NOBODY, code=3).startswith("there is no job")


def test_relatives_are_listed(cli: Asked) -> None:
    root = cli.server.enqueue(queue="kin")["id"]
    child = cli.server.enqueue(queue="kin", parent_id=root, root_id=root)["id"]
    last = cli.server.enqueue(queue="kin", parent_id=child, root_id=root)["id"]
    rows = [[cell.strip() for cell in row[:2]] for row in cli.table("job", "lineage", child)[1:]]
    assert rows == [["ancestor", root], ["child", last]]
    found = cli.json("job", "lineage", root, "--relation", "family")
    assert [each["id"] for each in found["relatives"]] == [child, last]
    orphan = cli.server.enqueue(queue="kin", parent_id=NOBODY)["id"]
    assert "cannot be followed" in cli.run("job", "lineage", orphan)
