"""`headgate simulate`"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from headgate.cli.progress import Bar
from headgate.cli.refusal import WRONG, Refusal


def add(commands: Any) -> None:
    command = commands.add_parser(
        "simulate",
        help="play a scenario on the real engine in virtual time",
        description="Play a scenario on the real engine in virtual time, and say how long jobs waited.",
        epilog="The same scenario with the same seed gives the same figures. "
        "docs/simulation.md says how a scenario is written.",
    )
    command.add_argument("scenario", metavar="FILE", help="a TOML file")
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
        raise Refusal(f"--series: must end in .csv or .json, not {series.name!r}", WRONG)
    bar = Bar("seconds played")
    try:
        found = scenario.load(asked.scenario)
        if asked.seed is not None:
            found.seed = asked.seed
        if asked.duration is not None:
            found.duration = asked.duration
            scenario.check(found)
        length_s = found.duration_us // 1_000_000
        done = asyncio.run(played(found, lambda part: bar.at(round(part * length_s), length_s)))
    except scenario.Wrong as error:
        raise Refusal(f"{asked.scenario}: {error}", WRONG) from None
    finally:
        bar.end()
    if asked.json:
        print(json.format(json.encode(report.summary(done)), indent=2).decode())
    else:
        print(report.table(done))
    if series is not None:
        try:
            report.write_series(done, series)
        except OSError as error:
            raise Refusal(f"--series: {series} cannot be written: {error.strerror}") from None
