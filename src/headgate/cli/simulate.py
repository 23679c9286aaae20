"""`headgate simulate`"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from headgate.cli.refusal import Refusal

_WIDTH = 40


def add(commands: Any) -> None:
    command = commands.add_parser(
        "simulate",
        help="play a scenario on the real engine in virtual time",
        description="Play a scenario on the real engine in virtual time, and say how long jobs waited.",
        epilog="The same scenario with the same seed gives the same figures. "
        "docs/simulation.md says how a scenario is written.",
    )
    command.add_argument("scenario", metavar="FILE", help="a TOML file; required")
    command.add_argument("--seed", type=int, help="instead of the one in the scenario")
    command.add_argument("--duration", help="instead of the one in the scenario: 90s, 5m, PT1H")
    command.add_argument(
        "--series", metavar="FILE", help="write figures for every step: FILE.csv or FILE.json"
    )
    command.add_argument("--json", action="store_true", help="the summary as JSON")
    command.set_defaults(run=run)


def run(asked: argparse.Namespace) -> None:
    import asyncio

    from msgspec import json

    from headgate.simulation import report, scenario
    from headgate.simulation.play import played

    series = None if asked.series is None else Path(asked.series)
    if series is not None and series.suffix not in {".csv", ".json"}:
        raise Refusal(f"--series: must end in .csv or .json, not {series.name!r}", 2)
    try:
        found = scenario.load(asked.scenario)
        if asked.seed is not None:
            found.seed = asked.seed
        if asked.duration is not None:
            found.duration = asked.duration
            scenario.check(found)
        done = asyncio.run(played(found, _bar if sys.stderr.isatty() else _nothing))
    except scenario.Wrong as error:
        raise Refusal(f"{asked.scenario}: {error}", 2) from None
    if asked.json:
        print(json.format(json.encode(report.summary(done)), indent=2).decode())
    else:
        print(report.table(done))
    if series is not None:
        try:
            report.write_series(done, series)
        except OSError as error:
            raise Refusal(f"--series: {series} cannot be written: {error.strerror}") from None


def _nothing(_part: float) -> None:
    pass


def _bar(part: float) -> None:
    """On the terminal, over itself; gone at the end."""
    done = round(part * _WIDTH)
    line = f"\r{'█' * done}{'░' * (_WIDTH - done)} {part:4.0%}"
    print(line if part < 1 else f"\r{' ' * (_WIDTH + 5)}\r", end="", file=sys.stderr, flush=True)
