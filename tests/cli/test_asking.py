from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest

from headgate.cli.asking import refused
from headgate.cli.table import cut, facts, plain, table
from headgate.cli.words import counted, joined, moment, short_span, span
from headgate.client.errors import from_answer
from tests.cli.asked import Asked
from tests.cli.served import Serve, headgate

TOKENS = """
[[tokens]]
name = "shop"
roles = ["producer"]
sha256 = "{}"
"""


def test_a_server_that_is_not_there_is_told_in_one_line() -> None:
    found = headgate("queue", "list", "--url", "http://127.0.0.1:1")
    assert (found.returncode, found.stdout) == (4, "")
    (line,) = found.stderr.splitlines()
    assert line.startswith("headgate: cannot connect to http://127.0.0.1:1: ")
    assert line.endswith("--url or HEADGATE_URL names another)")
    found = headgate("queue", "list", "--url", "http://127.0.0.1:1", "--json")
    error = json.loads(found.stderr)["error"]
    assert (found.returncode, error["code"]) == (4, "connection_error")


@pytest.mark.parametrize("url", ["ftp://x", "nowhere", "http://"])
def test_a_url_that_is_none_is_told_in_one_line(url: str) -> None:
    found = headgate("queue", "list", "--url", url)
    assert found.returncode == 2
    assert found.stderr.startswith("headgate: url must be http://HOST")


def test_tokens_are_needed_where_the_server_has_them(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "tokens.toml").write_text(TOKENS.format(sha256(b"secret").hexdigest()))
    cli = Asked(serve("--store", "memory:", "--config", "tokens.toml"), tmp_path)
    line = cli.refused("queue", "list", code=5)
    assert line.endswith("(--token or HEADGATE_TOKEN names a token)")
    line = cli.refused("queue", "list", "--token", "secret", code=5)
    assert line.startswith("shop lacks the role admin or operator (")
    cli.run("enqueue", "a.b", "--token", "secret")
    cli.run("enqueue", "a.b", HEADGATE_TOKEN="secret")


def test_a_reader_who_goes_away_is_no_error(cli: Asked) -> None:
    import subprocess
    import sys

    command = f"{sys.executable} -m headgate queue list --url {cli.url}"
    done = subprocess.run(
        ["bash", "-c", f"{command} | true; echo ${{PIPESTATUS[0]}}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() in {"0", "141"}
    assert done.stderr == ""


def test_a_server_may_be_started_where_clients_are(serve: Serve) -> None:
    served = serve("--store", "memory:", HEADGATE_URL="http://elsewhere", HEADGATE_TOKEN="x")
    assert served.ask("GET", "/ready")[0] == 200


@pytest.mark.parametrize(
    ("status", "error", "code", "hint"),
    [
        (400, {"code": "invalid_request", "hint": "Correct it."}, 2, ""),
        (404, {"code": "not_found", "message": "there is no pool x"}, 3, "headgate pool list shows those that there are"),
        (409, {"code": "conflict", "hint": "Read it."}, 1, ""),
        (429, {"code": "QUEUE_FULL"}, 6, "try again later, or let it wait for room with --block SECONDS"),
        (429, {"code": "rate_limited", "hint": "Wait."}, 6, "Wait"),
        (503, {"code": "backend_unavailable", "hint": "Again."}, 1, "Again"),
        (403, {"code": "permission_denied", "hint": "Ask."}, 5, "Ask"),
    ],
)  # fmt: skip
def test_every_refusal_has_an_exit_code_and_the_best_hint(
    status: int, error: dict[str, str], code: int, hint: str
) -> None:
    found = refused(from_answer(status, {"error": error}, {}))
    assert (found.code, found.hint) == (code, hint)


def test_tables_stand_in_columns_and_give_way_at_the_first() -> None:
    rows = [("a-very-long-name", "1", "x"), ("b", "1,000", "y")]
    assert table(("NAME", ">N", "WHAT"), rows) == [
        "NAME                  N  WHAT",
        "a-very-long-name      1  x",
        "b                 1,000  y",
    ]
    assert table(("NAME", ">N", "WHAT"), rows, 23) == [
        "NAME            N  WHAT",
        "a-very-lo…      1  x",
        "b           1,000  y",
    ]
    assert [len(line) <= 12 for line in table(("NAME", ">N", "WHAT"), rows, 12)] == [True] * 3
    assert facts([("a", "1"), ("long", "2"), ("none", "")]) == ["a     1", "long  2"]
    assert plain("a\x1b[2J\nb\x07ä") == "a�[2J b�ä"
    assert (cut("abc", 3), cut("abcd", 3)) == ("abc", "ab…")


def test_amounts_are_told_as_people_say_them() -> None:
    assert [counted(n, "job") for n in (0, 1, 1000)] == ["0 jobs", "1 job", "1,000 jobs"]
    assert [span(ms) for ms in (0, 999, 1_000, 61_000, 3_600_000, 90_061_000)] == [
        "0 ms", "999 ms", "1 s", "1 min 1 s", "1 h", "1 d 1 h",
    ]  # fmt: skip
    assert [short_span(ms) for ms in (10, 59_999, 3_599_999, 10**8)] == ["0 s", "59 s", "59 min", "1 d"]  # fmt: skip
    assert joined(["a", "b", "c"], 2) == "a, b and 1 more"
    assert moment("1970-01-01T00:01:00Z", 0).endswith("(in 1 min)")
    assert moment("1970-01-01T00:00:00Z", 5_000).endswith("(5 s ago)")
    assert moment(None, 0) == ""
