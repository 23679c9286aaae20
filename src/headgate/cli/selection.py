"""Which jobs a command is for: ids, or options that all of them must match."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final

from headgate.cli.refusal import WRONG, Refusal

_ABOUT: Final = {
    "queue": ("QUEUE", "of this queue"),
    "type": ("TYPE", "of this type, or with a prefix that ends in *"),
    "state": ("STATES", "in these states, with commas between them"),
    "key": ("KEY", "with this rate-limit key"),
    "error_type": ("TYPE", "whose newest error is of this type"),
    "tenant": ("TENANT", "of this tenant"),
}


def add_filters(command: argparse.ArgumentParser, names: Sequence[str]) -> None:
    for name in names:
        metavar, text = _ABOUT[name]
        command.add_argument(
            f"--{name.replace('_', '-')}", metavar=metavar, help=f"only jobs {text}"
        )


def filters(asked: argparse.Namespace) -> dict[str, Any]:
    """Those that were given, as a query."""
    options = vars(asked)
    return {name: options[name] for name in _ABOUT if options.get(name) is not None}


def body_of(query: dict[str, Any]) -> dict[str, Any]:
    """The same as the filter of a command for many jobs."""
    states = query.get("state")
    return query | ({"state": states.split(",")} if states else {})


def one_way(asked: argparse.Namespace, *, every: bool = False) -> None:
    """Refuse ids together with options, and neither of them. `every` says that all jobs are meant."""
    query = filters(asked)
    if asked.jobs and (query or every):
        raise Refusal("name jobs by their ids or by options, not both", WRONG)
    if not asked.jobs and not query and not every:
        raise Refusal(
            "name the jobs that are meant", WRONG, "by their ids or by --queue and others"
        )


def in_words(query: dict[str, Any]) -> str:
    """` of the queue a with the state b`"""
    parts = [f" with the {name.replace('_', ' ')} {value}" for name, value in query.items()]
    return " and".join(parts)
