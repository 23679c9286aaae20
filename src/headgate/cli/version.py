"""`headgate version`"""

from __future__ import annotations

import argparse
import json
import platform
from typing import Any

from headgate.cli.asking import add_json
from headgate.version import VERSION


def add(commands: Any) -> None:
    command = commands.add_parser("version", help="say which version this is")
    add_json(command)
    command.set_defaults(run=run)


def run(asked: argparse.Namespace) -> None:
    if asked.json:
        print(json.dumps({"version": VERSION, "python": platform.python_version()}))
    else:
        print(f"headgate {VERSION} (Python {platform.python_version()})")
