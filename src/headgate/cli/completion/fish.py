from __future__ import annotations

from collections.abc import Iterator, Sequence

from headgate.cli.completion.tree import Command, Option


def script(commands: Sequence[Command]) -> str:
    places = " ".join(command.place for command in commands if command.place)
    return "\n".join(
        [
            "# Made by: headgate completion fish",
            "function __headgate_at",
            '    set -l place ""',
            "    for word in (commandline -opc)",
            '        switch "$place/$word"',
            f"            case {places}",
            '                set place "$place/$word"',
            "        end",
            "    end",
            '    test "$place" = "$argv[1]"',
            "end",
            "complete -c headgate -f",
            *(line for command in commands for line in _lines(command)),
        ]
    )


def _lines(command: Command) -> Iterator[str]:
    begin = f"complete -c headgate -n {quoted(f'__headgate_at {quoted(command.place)}')}"
    for name, about in command.parts.items():
        yield f"{begin} -a {name} -d {quoted(about)}"
    if command.words:
        yield f"{begin} -a {quoted(' '.join(command.words))}"
    for option in command.options:
        yield f"{begin} {_flags(option)}{_value(option)} -d {quoted(option.about)}"


def _flags(option: Option) -> str:
    return " ".join(
        f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags
    )


def _value(option: Option) -> str:
    if option.takes_file:
        return " -r -F"
    if option.choices:
        return f" -x -a {quoted(' '.join(option.choices))}"
    return " -x" if option.takes_value else ""


def quoted(text: str) -> str:
    """As fish reads it: in single quotes only these two are special."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
