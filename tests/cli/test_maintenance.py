from __future__ import annotations

import pytest

from tests.cli.asked import Asked


def test_maintenance_is_begun_shown_and_ended(cli: Asked) -> None:
    assert cli.run("maintenance", "show") == "the server is not in maintenance\n"
    said = cli.run("maintenance", "begin", "--reason", "a new disk", "--estimate", "2h")
    first, second = said.splitlines()
    assert first.startswith("the server is in maintenance since ")
    assert first.endswith(": a new disk")
    assert second.startswith("it should end ")
    _, answer = cli.server.ask("POST", "/ojs/v1/workers/fetch", {"queues": ["mended"]})[:2]
    assert answer["reasons"] == {"mended": "maintenance"}
    found = cli.json("maintenance", "show")
    assert (found["maintenance"], found["reason"]) == (True, "a new disk")
    assert cli.json("maintenance", "end") == {"maintenance": False}
    assert cli.run("maintenance", "show") == "the server is not in maintenance\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("begin", "--estimate", "soon"), "--estimate: must be a time"),
        (("begin", "--reason", "x" * 10_000), "reason must be"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    cli: Asked, arguments: tuple[str, ...], words: str
) -> None:
    assert cli.refused("maintenance", *arguments, code=2).startswith(words)
