"""Asking back before something that cannot be taken back."""

from __future__ import annotations

import argparse
import sys

from headgate.cli.refusal import WRONG, Refusal


def add_yes(command: argparse.ArgumentParser) -> None:
    command.add_argument("--yes", action="store_true", help="do it without asking back")


def agreed(asked: argparse.Namespace, question: str) -> None:
    """Return if it may be done. Raises Refusal."""
    if asked.yes:
        return
    if not sys.stdin.isatty():
        raise Refusal("nothing was done, for nobody can be asked back", WRONG, "--yes agrees")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise Refusal("nothing was done")
