"""`headgate version`"""

from __future__ import annotations

import argparse
import platform
from typing import Any

from headgate.version import VERSION


def add(commands: Any) -> None:
    command = commands.add_parser("version", help="say which version this is")
    command.set_defaults(run=run)


def run(_asked: argparse.Namespace) -> None:
    print(f"headgate {VERSION} (Python {platform.python_version()})")
