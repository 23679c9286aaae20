from __future__ import annotations

import tomllib
from hashlib import sha256

import pytest

from headgate.cli import serve
from headgate.cli.main import main, parser
from headgate.server.configuration import load
from headgate.server.settings import Settings
from headgate.version import VERSION


def test_versions_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out.startswith(f"headgate {VERSION} (Python ")
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"headgate {VERSION}\n"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "COMMAND"),
        (["nothing"], "'nothing'"),
        (["token"], "COMMAND"),
        (["token", "new"], "--name, --role"),
        (["token", "new", "--name", "a", "--role", "boss"], "--role: "),
        (["token", "new", "--name"], "--name: "),
        (["serve", "--port", "http"], "--port: "),
        (["serve", "--durability", "some"], "--durability: "),
        (["serve", "--log-format", "a\nb"], "--log-format: "),
        (["serve", "--prot", "1"], "--prot"),
        (["serve", "here"], "here"),
    ],
)
def test_what_is_no_command_is_refused_in_one_line(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    assert line.startswith("headgate: ")
    assert named in line
    assert "--help)" in line
    assert said.out == ""


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("serve", "simulate", "token", "version"):
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code == 0
        assert f"usage: headgate {command}" in capsys.readouterr().out


def test_a_refused_command_says_why_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--config", "/nowhere.toml"]) == 2
    error = capsys.readouterr().err
    assert error == "headgate: config: /nowhere.toml cannot be read: No such file or directory\n"


def test_options_not_given_leave_the_settings_alone() -> None:
    asked = vars(parser().parse_args(["serve"]))
    names = set(asked) - {"run", "config"}
    assert all(asked[name] is None for name in names)
    assert names <= set(Settings.__struct_fields__)
    assert asked["run"] is serve.run
    asked = vars(parser().parse_args(["serve", "--no-access-log", "--strict-queues"]))
    given = {name: asked[name] for name in names}
    found = load(given, {"HEADGATE_ACCESS_LOG": "true"})
    assert (found.access_log, found.strict_queues) == (False, True)


def test_a_token_is_shown_once_and_kept_as_a_hash(capsys: pytest.CaptureFixture[str]) -> None:
    seen = set()
    for _ in range(3):
        assert (
            main(["token", "new", "--name", 'ä\n"b', "--role", "worker", "--role", "worker"]) == 0
        )
        text, block = capsys.readouterr().out.split("[[tokens]]")
        (token,) = [line for line in text.splitlines() if len(line) == 64]
        seen.add(token)
        assert tomllib.loads("[[tokens]]" + block) == {
            "tokens": [
                {
                    "name": 'ä\n"b',
                    "roles": ["worker"],
                    "sha256": sha256(token.encode()).hexdigest(),
                }
            ]
        }
    assert len(seen) == 3
