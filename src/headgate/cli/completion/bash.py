from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

from headgate.cli.completion.tree import Command, Option


def script(commands: Sequence[Command]) -> str:
    places = "|".join(command.place for command in commands if command.place)
    values = [
        f"        {command.place or '/'}:{flag}) {_value(option)}; return ;;"
        for command in commands
        for option in command.options
        if option.takes_value
        for flag in option.flags
    ]
    words = [
        f"        {quote(command.place)}) words={quote(' '.join(_words(command)))} ;;"
        for command in commands
    ]
    return "\n".join(
        [
            "# Made by: headgate completion bash",
            "_headgate() {",
            '    local place="" words="" word="${COMP_WORDS[COMP_CWORD]}" i',
            "    COMPREPLY=()",
            "    for ((i = 1; i < COMP_CWORD; i++)); do",
            '        case "$place/${COMP_WORDS[i]}" in',
            f"            {places})",
            '                place="$place/${COMP_WORDS[i]}" ;;',
            "        esac",
            "    done",
            '    case "${place:-/}:${COMP_WORDS[COMP_CWORD - 1]}" in',
            *values,
            "    esac",
            '    case "$place" in',
            *words,
            "    esac",
            '    COMPREPLY=($(compgen -W "$words" -- "$word"))',
            "}",
            "complete -F _headgate headgate",
        ]
    )


def _value(option: Option) -> str:
    if option.takes_file:
        return 'COMPREPLY=($(compgen -f -- "$word"))'
    if option.choices:
        return f'COMPREPLY=($(compgen -W {quote(" ".join(option.choices))} -- "$word"))'
    return ":"


def _words(command: Command) -> list[str]:
    flags = [flag for option in command.options for flag in option.flags]
    return [*command.parts, *command.words, *flags]
