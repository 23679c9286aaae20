from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from functools import cache

import pytest

from headgate.cli.completion import fish, tree, zsh
from headgate.cli.main import parser
from tests.cli.served import headgate

COMMANDS = list(tree.commands(parser()))


@cache
def script(shell: str) -> str:
    found = headgate("completion", shell)
    assert (found.returncode, found.stderr) == (0, "")
    return str(found.stdout)


def completed(*words: str) -> list[str]:
    """What bash offers for the last of the words."""
    line = " ".join(map(shlex.quote, words))
    source = (
        f"{script('bash')}\nCOMP_WORDS=({line})\nCOMP_CWORD={len(words) - 1}\n_headgate\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(["bash", "-eu"], input=source, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_the_tree_knows_every_command() -> None:
    places = {command.place: command for command in COMMANDS}
    assert places[""].parts["queue"] == "look after queues"
    assert "/job/explain" in places
    options = {flag: option for option in places["/serve"].options for flag in option.flags}
    assert options["--durability"].choices == ("full", "normal")
    assert options["--config"].takes_file
    assert not options["--strict-queues"].takes_value
    assert places["/completion"].words == ("bash", "zsh", "fish")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_that_its_shell_can_read(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    done = subprocess.run([shell, "-n"], input=script(shell), capture_output=True, text=True, check=False)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("headgate", "qu"), ["queue"]),
        (("headgate", "queue", "p"), ["pause"]),
        (("headgate", "queue", "show", "--u"), ["--url"]),
        (("headgate", "queue", "show", "list", "--u"), ["--url"]),
        (("headgate", "serve", "--durability", ""), ["full", "normal"]),
        (("headgate", "serve", "--durability", "n"), ["normal"]),
        (("headgate", "serve", "--store", ""), []),
        (("headgate", "completion", "z"), ["zsh"]),
        (("headgate", "enqueue", "--on-limit", "d"), ["drop"]),
        (("headgate", "nothing", "qu"), ["queue"]),
        (("headgate", "--v"), ["--version"]),
    ],
)
def test_bash_completes_commands_options_and_their_values(
    words: tuple[str, ...], offered: list[str]
) -> None:
    assert completed(*words) == offered


def test_bash_offers_every_command_and_every_option() -> None:
    for command in COMMANDS:
        flags = [flag for option in command.options for flag in option.flags]
        offered = completed("headgate", *command.place.split("/")[1:], "")
        assert offered == [*command.parts, *command.words, *flags], command.place


def test_files_are_offered_where_a_file_is_meant() -> None:
    assert "pyproject.toml" in completed("headgate", "serve", "--config", "pyproj")


def test_zsh_and_fish_are_told_every_command_and_option() -> None:
    of_zsh, of_fish = script("zsh"), script("fish")
    for command in COMMANDS:
        block = of_zsh.split(f"        {shlex.quote(command.place)})\n")[1].split(";;")[0]
        parts, options = (
            shlex.split(re.search(rf"{name}=\((.*)\)", block)[1])  # type: ignore[index]
            for name in ("parts", "options")
        )
        assert [word.partition(":")[0] for word in parts] == [*command.parts, *command.words]
        flags = [flag for option in command.options for flag in option.flags]
        assert [word.partition(":")[0] for word in options] == flags
        at = f"-n {fish.quoted(f'__headgate_at {fish.quoted(command.place)}')} "
        lines = [line for line in of_fish.splitlines() if at in line]
        assert len(lines) == len(command.parts) + len(command.options) + bool(command.words)


def test_quotes_and_colons_in_texts_stay_texts() -> None:
    option = tree.Option(("--it",), "it's: a \\ 'thing'", takes_value=False)
    command = tree.Command("", {"a": "it's"}, (option,))
    assert "-d 'it\\'s: a \\\\ \\'thing\\''" in fish.script([command])
    line = next(line for line in zsh.script([command]).splitlines() if "options=(" in line)
    assert shlex.split(line.split("options=(")[1].removesuffix(") ;;")) == [
        "--it:it's: a \\ 'thing'"
    ]


def test_no_shell_or_an_unknown_one_is_refused() -> None:
    found = headgate("completion", "tcsh")
    assert found.returncode == 2
    assert len(found.stderr.splitlines()) == 1
