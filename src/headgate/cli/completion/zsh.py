from __future__ import annotations

from collections.abc import Iterable, Sequence
from shlex import quote

from headgate.cli.completion.tree import Command, Option


def script(commands: Sequence[Command]) -> str:
    places = "|".join(command.place for command in commands if command.place)
    values = [
        f"        {command.place or '/'}:{flag}) {_value(option)} return ;;"
        for command in commands
        for option in command.options
        if option.takes_value
        for flag in option.flags
    ]
    words = [line for command in commands for line in _words(command)]
    return "\n".join(
        [
            "#compdef headgate",
            "# Made by: headgate completion zsh",
            "_headgate() {",
            # Not `path`, which is the search path of commands.
            '    local place=""',
            "    local -i i",
            "    local -a parts options",
            "    for ((i = 2; i < CURRENT; i++)); do",
            '        case "$place/${words[i]}" in',
            f"            {places})",
            '                place="$place/${words[i]}" ;;',
            "        esac",
            "    done",
            '    case "${place:-/}:${words[CURRENT - 1]}" in',
            *values,
            "    esac",
            '    case "$place" in',
            *words,
            "    esac",
            "    (( ${#parts} )) && _describe command parts",
            "    _describe -o option options",
            "}",
            'if [ "${funcstack[1]}" = _headgate ]; then',
            '    _headgate "$@"',
            "else",
            "    compdef _headgate headgate",
            "fi",
        ]
    )


def _value(option: Option) -> str:
    if option.takes_file:
        return "_files;"
    if option.choices:
        return f"compadd -- {' '.join(map(quote, option.choices))};"
    return ""


def _words(command: Command) -> list[str]:
    parts = [_described(name, about) for name, about in command.parts.items()]
    parts += [_described(word, "") for word in command.words]
    options = [
        _described(flag, option.about) for option in command.options for flag in option.flags
    ]
    return [
        f"        {quote(command.place)})",
        f"            parts=({_listed(parts)})",
        f"            options=({_listed(options)}) ;;",
    ]


def _described(name: str, about: str) -> str:
    name = name.replace(":", "\\:")
    return f"{name}:{about}" if about else name


def _listed(words: Iterable[str]) -> str:
    return " ".join(map(quote, words))
