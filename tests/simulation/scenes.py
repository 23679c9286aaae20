"""Small scenarios for tests."""

from __future__ import annotations

import asyncio
import tomllib
from pathlib import Path
from typing import Any

from headgate.simulation.play import Played, played
from headgate.simulation.scenario import read

PLAIN = """
duration = "10m"
[[jobs]]
type = "work"
queue = "q"
arrivals = { pattern = "constant", rate = "10/s" }
service = "500ms"
[[workers]]
concurrency = 10
"""


def given(text: str = PLAIN) -> dict[str, Any]:
    return tomllib.loads(text)


def play(scenario: dict[str, Any] | str, folder: Path = Path()) -> Played:
    found = tomllib.loads(scenario) if isinstance(scenario, str) else scenario
    return asyncio.run(played(read(found, folder)))
