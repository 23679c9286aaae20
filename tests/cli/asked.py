"""Commands that ask a running server, each in a process of its own as a shell would run it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.served import Served, headgate


class Asked:
    def __init__(self, server: Served, where: Path) -> None:
        self.server = server
        self.url = f"http://127.0.0.1:{server.port}"
        self.where = where

    def run(self, *arguments: str, code: int = 0, **variables: str) -> str:
        """What the command prints; nothing else may be said."""
        found = headgate(*arguments, where=self.where, HEADGATE_URL=self.url, **variables)
        assert (found.returncode, found.stderr) == (code, ""), found
        return str(found.stdout)

    def json(self, *arguments: str) -> Any:
        """The one document that it prints for programs."""
        return json.loads(self.run(*arguments, "--json"))

    def refused(self, *arguments: str, code: int, **variables: str) -> str:
        """The one line with which it is refused."""
        found = headgate(*arguments, where=self.where, HEADGATE_URL=self.url, **variables)
        assert (found.returncode, found.stdout) == (code, ""), found
        (line,) = found.stderr.splitlines()
        assert line.startswith("headgate: ")
        return str(line).removeprefix("headgate: ")

    def table(self, *arguments: str) -> list[list[str]]:
        """The cells of the table that it prints, headings first."""
        lines = self.run(*arguments).splitlines()
        return [[cell for cell in line.split("  ") if cell.strip()] for line in lines]
