"""The command `headgate`: finds the subcommand and turns its refusals into one line each."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from headgate.cli import (
    dead,
    enqueue,
    explain,
    job,
    limit,
    maintenance,
    pool,
    queue,
    serve,
    simulate,
    token,
    version,
    watch,
    worker,
)
from headgate.cli.completion import command as completion
from headgate.cli.doctor import command as doctor
from headgate.cli.refusal import INTERRUPTED, Refusal
from headgate.version import VERSION

_COMMANDS = (
    serve,
    worker,
    enqueue,
    job,
    explain,
    queue,
    limit,
    pool,
    dead,
    maintenance,
    watch,
    doctor,
    simulate,
    token,
    completion,
    version,
)
_UNREAD = 141
"""As a shell has it for a program whose reader went away."""


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
    """Run one command; the result is the exit code."""
    asked = parser().parse_args(arguments)
    try:
        code: int | None = asked.run(asked)
        sys.stdout.flush()
    except Refusal as refusal:
        as_json = getattr(asked, "json", False)
        said = json.dumps(refusal.record()) if as_json else f"headgate: {refusal.line()}"
        print(said, file=sys.stderr)
        return refusal.code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read this has seen enough; nothing may be said to them at the exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _UNREAD
    return code or 0
