"""`python -m bench`: choose what to measure, print a table, write JSON."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import gettempdir

import msgspec

from bench import engine, flow, http, standing
from bench.machine import this_machine
from bench.peers import measure as peers
from bench.report import Row, document, table
from bench.sizes import NORMAL, QUICK, Size

Measure = Callable[[str, Path, Size], list[Row]]

WHAT: dict[str, tuple[Measure, str]] = {
    "engine": (engine.measure, "the engine's steps in process: µs for each operation and life"),
    "standing": (standing.measure, "many waiting jobs: memory, pauses, the time of a restart"),
    "flow": (flow.measure, "blocked jobs, keys, tenants: what they cost those that are free"),
    "http": (http.measure, "the server under load from another process: rates and latencies"),
}
CONFIGURATIONS = ("memory", "normal", "full")
PEERS = "peers"
PEERS_ON = ("normal", "full")
"""Peers keep their jobs on disk unless they are asked not to."""


def main(arguments: Sequence[str] | None = None) -> None:
    asked = _parser().parse_args(arguments)
    directory = asked.dir
    machine = this_machine(directory)
    print(machine, flush=True)
    size: Size = QUICK if asked.quick else NORMAL
    given = {"rounds": asked.rounds, "load_s": asked.seconds, "waiting": asked.waiting,
             "connections": asked.connections, "depth": asked.pipeline}  # fmt: skip
    size = msgspec.structs.replace(size, **{k: v for k, v in given.items() if v is not None})
    wanted = asked.what or tuple(WHAT)
    rows = list(measured(
        [name for name in wanted if name != PEERS], asked.on or CONFIGURATIONS, directory, size
    ))  # fmt: skip
    if PEERS in wanted:
        for configuration in asked.on or PEERS_ON:
            print(f"measuring {PEERS} on {configuration}", file=sys.stderr, flush=True)
            rows += peers.measure(configuration, directory, size, asked.peer)
    print(f"\n{table(rows)}")
    if asked.json is not None:
        asked.json.write_bytes(
            msgspec.json.format(msgspec.json.encode(document(machine, rows)), indent=2) + b"\n"
        )


def measured(
    what: Sequence[str], configurations: Sequence[str], directory: Path, size: Size
) -> Iterator[Row]:
    """Row after row, those about the same together."""
    for name in what:
        measure, _ = WHAT[name]
        rows = []
        for configuration in configurations:
            print(f"measuring {name} on {configuration}", file=sys.stderr, flush=True)
            rows += measure(configuration, directory, size)
        yield from together(rows)


def together(rows: Sequence[Row]) -> list[Row]:
    """The same rows, those about the same beside each other, in the order of the first of them."""
    subjects = list(dict.fromkeys(row.about for row in rows))
    names = list(dict.fromkeys((row.about, row.name) for row in rows))
    return sorted(
        rows, key=lambda row: (subjects.index(row.about), names.index((row.about, row.name)))
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Measure the engine and the server, and hold the numbers against the budgets.\n\n"
        + "\n".join(f"  {name:<9} {text}" for name, (_, text) in WHAT.items())
        + f"\n  {PEERS:<9} the worker end to end, beside other job queues, which it installs",
        epilog="A ratio is the value divided by its budget: at most 1 is wanted for ≤, at least 1 for ≥.",
    )
    parser.add_argument("what", nargs="*", choices=[*WHAT, PEERS, []],
                        help="everything but the peers if not given")  # fmt: skip
    parser.add_argument("--on", nargs="+", choices=CONFIGURATIONS, metavar="CONFIGURATION",
                        help="memory, normal, full: where the state is kept (all)")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="small and short: under a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    parser.add_argument("--dir", type=Path, metavar="DIR", default=Path(gettempdir()),
                        help="where the files are written (%(default)s)")  # fmt: skip
    parser.add_argument("--rounds", type=int, help="repeat so often, the medians count")
    parser.add_argument("--seconds", type=float, help="under load for each kind of request")
    parser.add_argument("--waiting", type=int, metavar="JOBS", help="for `standing`")
    parser.add_argument("--peer", nargs="+", default=(), metavar="NAME",
                        help="of the peers only those whose names begin so")  # fmt: skip
    parser.add_argument("--connections", type=int, help="of the load generator")
    parser.add_argument("--pipeline", type=int, metavar="DEPTH",
                        help="send so many enqueues ahead of their answers")  # fmt: skip
    return parser


if __name__ == "__main__":
    main()
