from __future__ import annotations

import pytest

from tests.cli.asked import Asked


def cells(cli: Asked, key: str) -> list[str]:
    rows = cli.table("limit", "list")
    return next([cell.strip() for cell in row] for row in rows if row[0].strip() == key)


def told(cli: Asked, *arguments: str) -> dict[str, str]:
    text = cli.run("limit", *arguments).split("\n\n")[0]
    return {name: value.strip() for name, value in (line.split("  ", 1) for line in text.splitlines())}  # fmt: skip


def test_keys_are_listed_with_their_use(cli: Asked) -> None:
    limits = {"key": "used", "concurrency": 2, "rate": {"limit": 100, "period": "PT1M"}}
    for _ in range(4):
        cli.server.enqueue(queue="used", rate_limit=limits)
    cli.server.ask("POST", "/ojs/v1/workers/fetch", {"queues": ["used"], "count": 4})
    assert cells(cli, "used") == ["used", "2", "2/2", "2/100 per 1 min", "-"]
    (found,) = [limit for limit in cli.json("limit", "list") if limit["key"] == "used"]
    assert found["waiting_count"] == 2
    shown = told(cli, "show", "used")
    assert shown["concurrency"] == "2 of 2 run"
    assert shown["rate"].startswith("2 started of 100 per 1 min, all of them free again ")
    assert shown["waiting"] == "2 jobs"
    both = cli.run("limit", "show", "used")
    assert "\n2 may run\n" in both
    assert "\n2 must wait\n" in both
    assert len(cli.json("limit", "show", "used")["rate_limited"]) == 2


def test_an_override_is_put_on_and_taken_back(cli: Asked) -> None:
    cli.server.enqueue(queue="o", rate_limit={"key": "over", "concurrency": 5})
    shown = told(cli, "set", "over", "--concurrency", "0", "--for", "1h")
    assert shown["concurrency"] == "0 of 0 run"
    assert shown["override"].startswith('{"concurrency": 0} until ')
    assert "(in 59 min 5" in shown["override"] or "(in 1 h" in shown["override"]
    assert cells(cli, "over")[-1] in {"override 59 min", "override 1 h"}
    shown = told(cli, "set", "over", "--rate", "5/s", "--concurrency", "none", "--until", "2099-01-01T00:00:00Z")  # fmt: skip
    assert "concurrency" not in shown
    assert shown["rate"] == "0 started of 5 per 1 s"
    assert cli.run("limit", "clear", "over") == "key over has the limits that its jobs say\n"
    assert told(cli, "show", "over")["concurrency"] == "0 of 5 run"


def test_an_override_without_end_says_so(cli: Asked) -> None:
    cli.server.enqueue(queue="o", rate_limit={"key": "endless", "throttle": {"limit": 1, "period": "PT1S"}})  # fmt: skip
    shown = told(cli, "set", "endless", "--throttle", "2/m")
    assert shown["throttle"] == "2 per 1 min, the next now"
    assert shown["override"].endswith(" without end")
    assert cells(cli, "endless")[-2:] == ["2 per 1 min", "override"]


def test_a_tenants_own_key_is_another_one(cli: Asked) -> None:
    limit = {"key": "own", "concurrency": 3, "scope": "tenant"}
    cli.server.enqueue(queue="t", rate_limit=limit, meta={"tenant_id": "acme"})
    cli.refused("limit", "show", "own", code=3)
    assert told(cli, "show", "own", "--tenant", "acme")["tenant"] == "acme"
    assert cells(cli, "own (acme)")[2] == "0/3"
    cli.run("limit", "set", "own", "--tenant", "acme", "--concurrency", "1")
    assert told(cli, "show", "own", "--tenant", "acme")["concurrency"] == "0 of 1 run"
    cli.run("limit", "clear", "own", "--tenant", "acme")
    assert told(cli, "show", "own", "--tenant", "acme")["concurrency"] == "0 of 3 run"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("show", "nokey"), 3, "nothing is known of the key nokey (headgate limit list"),
        (("clear", "nokey"), 3, "nothing is known of the key nokey"),
        (("set", "k"), 2, "nothing to change (see headgate limit set --help)"),
        (("set", "k", "--rate", "5"), 2, "--rate: must be like 100/m"),
        (("set", "k", "--concurrency", "1", "--for", "ever"), 2, "--for: must be a time"),
        (
            ("set", "k", "--concurrency", "1", "--until", "noon"),
            2,
            "body.expires_at: 'noon' is not",
        ),
        (("set", "k", "--for", "1h", "--until", "x"), 2, "--until: not allowed with"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    cli: Asked, arguments: tuple[str, ...], code: int, words: str
) -> None:
    assert cli.refused("limit", *arguments, code=code).startswith(words)
