from __future__ import annotations

import pytest

from tests.cli.asked import Asked


def test_a_rule_is_made_listed_and_deleted(cli: Asked) -> None:
    retry = {"max_attempts": 1, "on_exhaustion": "dead_letter"}
    job = cli.server.enqueue(queue="ruled", retry=retry)["id"]
    cli.server.ask("POST", "/ojs/v1/workers/fetch", {"queues": ["ruled"]})
    error = {"code": "E", "type": "Broken", "message": "no"}
    cli.server.ask("POST", "/ojs/v1/workers/nack", {"job_id": job, "error": error})
    said = cli.run(
        "dead", "rules", "set", "r", "--queue", "ruled", "--type", "a.*", "--error-type", "Broken",
        "--after", "1h", "--most", "3", "--disabled",
    )  # fmt: skip
    assert "started over" not in said
    (rule,) = cli.json("dead", "rules", "list")
    assert rule["filter"] == {"queue": "ruled", "type": "a.*", "error_type": "Broken"}
    assert (rule["delay"], rule["max_replays"], rule["enabled"]) == ("PT1H", 3, False)
    head, row = cli.table("dead", "rules", "list")
    assert [cell.strip() for cell in head] == [
        "RULE", "ENABLED", "AFTER", "REPLAYS", "DEAD LETTERS",
    ]  # fmt: skip
    assert [cell.strip() for cell in row] == [
        "r", "no", "1 h", "3", "queue ruled, type a.*, error type Broken",
    ]  # fmt: skip
    said = cli.run("dead", "rules", "set", "r", "--queue", "ruled")
    assert said.endswith("1 dead letter started over at once\n")
    assert "at once" in said.splitlines()[1]
    assert cli.json("job", "show", job)["meta"]["ojs.replay_rule"] == "r"
    assert cli.run("dead", "rules", "delete", "r").startswith("rule r is deleted")
    assert cli.json("dead", "rules", "list") == []


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("delete", "nothing"), 3, "there is no replay rule nothing"),
        (("set", "r", "--most", "0"), 2, "body.max_replays must be"),
        (("set", "r", "--after", "soon"), 2, "--after: must be a time"),
        (("set", "r", "--queue", "A"), 2, "body.filter.queue must be"),
        (("set", "r r"), 2, "name must be"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    cli: Asked, arguments: tuple[str, ...], code: int, words: str
) -> None:
    assert cli.refused("dead", "rules", *arguments, code=code).startswith(words)
