"""The commands and their options as plain data."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

PLACES_OF_FILES = frozenset({"FILE"})


@dataclass(frozen=True)
class Option:
    flags: tuple[str, ...]
    about: str
    takes_value: bool
    takes_file: bool = False
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Command:
    place: str
    """`/queue/list`; "" is the command itself."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """Subcommands with what they do."""
    options: tuple[Option, ...] = ()
    words: tuple[str, ...] = ()
    """What an argument may be, where only some words are allowed."""


def commands(parser: argparse.ArgumentParser, place: str = "") -> Iterator[Command]:
    """The command and all below it, outer ones first."""
    parts: dict[str, str] = {}
    options: list[Option] = []
    words: list[str] = []
    inner: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to look
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            inner = action.choices
            about = {each.dest: each.help or "" for each in action._choices_actions}  # noqa: SLF001 - as above
            parts = {name: about.get(name, "") for name in inner}
        elif action.option_strings:
            options.append(_option(action))
        else:
            words += map(str, action.choices or ())
    yield Command(place, parts, tuple(options), tuple(words))
    for name, command in inner.items():
        yield from commands(command, f"{place}/{name}")


def _option(action: argparse.Action) -> Option:
    return Option(
        tuple(action.option_strings),
        action.help or "",
        takes_value=action.nargs != 0,
        takes_file=action.metavar in PLACES_OF_FILES,
        choices=tuple(map(str, action.choices or ())),
    )
