"""`headgate explain`: why a job stands where it stands, in sentences"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import Any

from headgate.cli.asking import add_server, asking
from headgate.cli.table import plain, show


def add(commands: Any) -> None:
    command = commands.add_parser("explain", help="say why a job stands where it stands")
    command.add_argument("job", metavar="JOB", help="its id")
    add_server(command)
    command.set_defaults(run=run)


def run(asked: argparse.Namespace) -> None:
    with asking(asked) as client:
        found = client.explain(asked.job)
    if asked.json:
        print(json.dumps(found))
    else:
        show(map(plain, sentences(found)))


def sentences(found: Mapping[str, Any]) -> Iterator[str]:
    """What the server says, with commands in the place of its requests."""
    requests = {barrier.get("remedy") for barrier in found["barriers"]}
    yield from (sentence for sentence in found["summary"] if sentence not in requests)
    told = (remedy(barrier, found) for barrier in found["barriers"])
    yield from dict.fromkeys(text for text in told if text)


def remedy(barrier: Mapping[str, Any], job: Mapping[str, Any]) -> str:
    """The command that would end it; the server's own words where there is none, "" where time alone does."""
    name = barrier.get("name", "")
    match barrier["kind"], barrier["scope"]:
        case ("hold", "key"):
            return f"headgate limit clear {_key(barrier)} lifts the hold."
        case ("concurrency" | "rate" | "throttle", "key"):
            return _of_key(barrier)
        case ("concurrency" | "rate" | "throttle" as kind, "queue"):
            return _stuck(barrier, f"headgate queue set {name} --{kind} … changes the limit")
        case ("paused", _):
            return f"headgate queue resume {name} lets it give out jobs again."
        case ("pool", _):
            return f"headgate pool set {name} --concurrency … gives the pool another limit."
        case ("isolated", _):
            return f"headgate worker APP --pool {name} --queues {job['queue']} serves it."
        case ("no_consumers", _):
            return f"headgate worker APP --queues {job['queue']} serves it."
        case ("retry", _):
            return f"headgate job retry {job['job_id']} makes it due at once."
        case _:
            return str(barrier.get("remedy", ""))


def _of_key(barrier: Mapping[str, Any]) -> str:
    key = _key(barrier)
    if barrier.get("limit") == 0:
        return f"headgate limit clear {key} takes back an override, headgate limit set {key} puts another one."
    return _stuck(barrier, f"headgate limit set {key} --{barrier['kind']} … overrides the limit")


def _stuck(barrier: Mapping[str, Any], change: str) -> str:
    holders = barrier.get("holders")
    if barrier["kind"] != "concurrency" or not holders:
        return f"{change}."
    return f"{change}; if a holder is stuck, headgate job cancel {holders[0]} frees its place."


def _key(barrier: Mapping[str, Any]) -> str:
    tenant = barrier.get("tenant")
    return f"{barrier['name']} --tenant {tenant}" if tenant else str(barrier["name"])
