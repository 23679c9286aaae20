"""The command `headgate`: finds the subcommand and turns its refusals into one line each."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from headgate.cli import serve, simulate, token, version
from headgate.cli.refusal import Refusal
from headgate.version import VERSION

_COMMANDS = (serve, simulate, token, version)


class Parser(argparse.ArgumentParser):
    """Refuses in one line, as the commands themselves do, instead of repeating all options."""

    def error(self, message: str) -> NoReturn:
        line = " ".join(message.removeprefix("argument ").split())
        self.exit(2, f"headgate: {line} (see {self.prog} --help)\n")


def parser() -> argparse.ArgumentParser:
    """Every command with its options."""
    top = Parser(
        prog="headgate", description="A job server with flow control that speaks the Open Job Spec."
    )
    top.add_argument("--version", action="version", version=f"headgate {VERSION}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the result is the exit code: 0 done, 1 failed, 2 asked for wrongly."""
    asked = parser().parse_args(arguments)
    try:
        asked.run(asked)
    except Refusal as refusal:
        print(f"headgate: {refusal}", file=sys.stderr)
        return refusal.code
    except KeyboardInterrupt:
        return 130
    return 0
