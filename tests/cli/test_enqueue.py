from __future__ import annotations

import json

import pytest

from tests.cli.asked import Asked
from tests.cli.served import headgate

ID = "01900000-0000-7000-8000-0000000000{:02x}"


def test_a_job_is_enqueued_with_its_arguments(cli: Asked) -> None:
    said = cli.run("enqueue", "mail.send", "alice", "3", '{"a": [1]}', "true", "3x", "--id", ID.format(1))  # fmt: skip
    assert said == f"job {ID.format(1)} is enqueued and available in the queue default\n"
    _, body = cli.server.ask("GET", f"/ojs/v1/jobs/{ID.format(1)}")
    assert (body["job"]["type"], body["job"]["args"]) == (
        "mail.send",
        ["alice", 3, {"a": [1]}, True, "3x"],
    )
    assert cli.json("enqueue", "mail.send", "--args", '["1", null]')["args"] == ["1", None]
    assert cli.json("enqueue", "mail.send")["args"] == []


def test_all_that_can_be_said_of_a_job_arrives(cli: Asked) -> None:
    job = cli.json(
        "enqueue", "a.b", "--queue", "much", "--priority", "-5", "--delay", "5m", "--expires", "1h",
        "--retry", "7", "--timeout", "90s", "--result-ttl", "60s", "--key", "k", "--concurrency", "2",
        "--rate", "5/s", "--throttle", "1/10s", "--on-limit", "reschedule", "--tag", "x", "--tag", "y",
        "--meta", "n=1", "--meta", "t=text", "--tenant", "acme",
    )  # fmt: skip
    assert (job["queue"], job["priority"], job["state"]) == ("much", -5, "scheduled")
    assert (job["max_attempts"], job["timeout"]) == (7, 90)
    assert job["scheduled_at"] < job["expires_at"]
    assert (job["tags"], job["meta"]) == (["x", "y"], {"n": 1, "t": "text", "tenant_id": "acme"})
    assert job["rate_limit"] == {
        "key": "k",
        "concurrency": 2,
        "rate": {"limit": 5, "period": "PT1S"},
        "throttle": {"limit": 1, "period": "PT10S"},
        "on_limit": "reschedule",
    }
    assert cli.json("enqueue", "a.b", "--pending")["state"] == "pending"
    at = cli.json("enqueue", "a.b", "--at", "2099-01-01T00:00:00Z")
    assert at["scheduled_at"].startswith("2099-01-01T00:00:00")


def test_the_same_id_or_a_unique_job_is_not_enqueued_twice(cli: Asked) -> None:
    for _ in range(2):
        cli.run("enqueue", "a.b", "--queue", "ids", "--id", ID.format(2))
    assert len(cli.json("job", "list", "--queue", "ids")) == 1
    cli.refused("enqueue", "other.type", "--queue", "ids", "--id", ID.format(2), code=1)
    cli.run("enqueue", "u.u", "--queue", "uniq", "--unique")
    assert cli.refused("enqueue", "u.u", "--queue", "uniq", "--unique", code=1)


def test_a_full_queue_is_told_and_can_be_waited_for(cli: Asked) -> None:
    cli.run("queue", "set", "narrow", "--max-depth", "1", "--overflow", "block")
    cli.run("enqueue", "a.b", "--queue", "narrow")
    line = cli.refused("enqueue", "a.b", "--queue", "narrow", code=6)
    assert line.startswith("queue narrow is full: 1 of 1 (jobs) (try again later, or")
    waiting = cli.refused("enqueue", "a.b", "--queue", "narrow", "--block", "0.2", code=6)
    assert waiting.startswith("queue narrow is full")


def test_the_result_is_waited_for(cli: Asked) -> None:
    line = cli.refused("enqueue", "a.b", "--queue", "slow", "--wait", "0.2", "--id", ID.format(3), code=6)  # fmt: skip
    assert line.endswith(f"(headgate explain {ID.format(3)} says why)")
    (cli.where / "waited.py").write_text(
        "from headgate import Headgate\n"
        "hg = Headgate()\n"
        "@hg.job(type='sum.up', queue='sums')\n"
        "def add(a: int, b: int) -> int:\n"
        "    return a + b\n"
        "@hg.job(type='sum.fail', queue='sums', retry=1)\n"
        "def fail() -> None:\n"
        "    raise ValueError('no sum')\n"
    )
    cli.run("enqueue", "sum.up", "3", "4", "--queue", "sums", "--id", ID.format(6))
    cli.run("enqueue", "sum.fail", "--retry", "1", "--queue", "sums", "--id", ID.format(7))
    done = headgate("worker", "waited:hg", "--burst", where=cli.where, HEADGATE_URL=cli.url)
    assert done.returncode == 0, done.stderr
    # A repeated enqueue finds the job that is there.
    again = ("--queue", "sums", "--wait", "5", "--id", ID.format(6))
    assert cli.run("enqueue", "sum.up", "3", "4", *again) == "7\n"
    assert cli.json("enqueue", "sum.up", "3", "4", *again)["result"] == 7
    failed = ("--queue", "sums", "--wait", "5", "--id", ID.format(7))
    assert cli.refused("enqueue", "sum.fail", *failed, code=1).endswith("was discarded: no sum")


def test_many_jobs_come_from_a_file_or_from_nobody_at_all(cli: Asked) -> None:
    lines = [json.dumps({"type": "f.f", "args": [n], "queue": "filed"}) for n in range(1_200)]
    (cli.where / "jobs.jsonl").write_text("\n".join(lines) + "\n\n")
    assert cli.run("enqueue", "--from", "jobs.jsonl") == "1,200 jobs enqueued\n"
    assert cli.json("queue", "show", "filed")["stats"]["available"] == 1_200
    for bad in ("{", "[]", '{"args": []}', '"x"'):
        (cli.where / "bad.jsonl").write_text(f"{lines[0]}\n{bad}\n")
        line = cli.refused("enqueue", "--from", "bad.jsonl", code=2)
        assert line.startswith("bad.jsonl:2 is not a job")
    cli.refused("enqueue", "--from", "none.jsonl", code=2)
    assert cli.json("queue", "show", "filed")["stats"]["available"] == 1_200


def test_how_many_were_enqueued_before_a_refusal_is_told(cli: Asked) -> None:
    cli.run("queue", "set", "tight", "--max-depth", "700")
    line = json.dumps({"type": "f.f", "queue": "tight"})
    (cli.where / "tight.jsonl").write_text("\n".join([line] * 1_200))
    assert "; 500 jobs before it were enqueued" in cli.refused("enqueue", "--from", "tight.jsonl", code=6)  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name either a TYPE or a file with --from (see headgate enqueue --help)"),
        (("a.b", "--from", "x"), "name either a TYPE or a file"),
        (("a.b", "1", "--args", "[2]"), "give arguments either one by one or with --args"),
        (("a.b", "--args", "{}"), "--args: must be a JSON array"),
        (("NOT",), "type must be 1 to 255 characters"),
        (("a.b", "--rate", "5/s"), "limits belong to a key (name it with --key)"),
        (("a.b", "--key", "k", "--rate", "5"), "rate must be like 100/m"),
        (("a.b", "--key", "{0}"), "the key"),
        (("a.b", "--priority", "high"), "--priority: invalid int value"),
        (("a.b", "--priority", "1000"), "priority must be"),
        (("a.b", "--delay", "soon"), "--delay: must be a time"),
        (("a.b", "--delay", "1s", "--at", "x"), "--at: not allowed with"),
        (("a.b", "--at", "noon"), "at must be a datetime"),
        (("a.b", "--id", "7"), "id must be"),
        (("a.b", "--meta", "x"), "--meta: must be NAME=VALUE"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    cli: Asked, arguments: tuple[str, ...], words: str
) -> None:
    assert cli.refused("enqueue", *arguments, code=2).startswith(words)
