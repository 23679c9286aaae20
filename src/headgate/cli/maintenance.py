"""`headgate maintenance`: show, begin, end"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any, Final

from headgate import clock
from headgate.cli import values, words
from headgate.cli.asking import add_server, asking

_PATH: Final = "/admin/system/maintenance"


def add(commands: Any) -> None:
    command = commands.add_parser(
        "maintenance", help="let the server take jobs and give none out for a while"
    )
    kinds = command.add_subparsers(metavar="COMMAND", required=True)
    showing = kinds.add_parser("show", help="say whether the server is in maintenance")
    add_server(showing)
    showing.set_defaults(run=show)
    beginning = kinds.add_parser(
        "begin",
        help="give out no job until it is ended, and let none become due",
        epilog="Jobs that run go on, and new ones are taken. It outlives a restart.",
    )
    beginning.add_argument("--reason", metavar="TEXT", help="why, for those who wonder")
    beginning.add_argument(
        "--estimate",
        type=values.duration,
        metavar="TIME",
        help="how long it will take; it does not end by itself",
    )
    add_server(beginning)
    beginning.set_defaults(run=begin)
    ending = kinds.add_parser("end", help="go on as before")
    add_server(ending)
    ending.set_defaults(run=end)


def show(asked: argparse.Namespace) -> None:
    with asking(asked) as client:
        tell(asked, client.admin.request("GET", _PATH))


def begin(asked: argparse.Namespace) -> None:
    body = {"enabled": True, "reason": asked.reason, "estimated_duration": asked.estimate}
    body = {name: value for name, value in body.items() if value is not None}
    with asking(asked) as client:
        tell(asked, client.admin.request("POST", _PATH, body))


def end(asked: argparse.Namespace) -> None:
    with asking(asked) as client:
        tell(asked, client.admin.request("POST", _PATH, {"enabled": False}))


def tell(asked: argparse.Namespace, found: Mapping[str, Any]) -> None:
    if asked.json:
        print(json.dumps(found))
    elif not found["maintenance"]:
        print("the server is not in maintenance")
    else:
        now_ms = clock.wall_ms()
        since = words.moment(found["enabled_at"], now_ms)
        why = f": {found['reason']}" if found.get("reason") else ""
        print(f"the server is in maintenance since {since}{why}")
        if "estimated_end" in found:
            print(f"it should end {words.moment(found['estimated_end'], now_ms)}")
