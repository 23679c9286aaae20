"""`headgate dead rules`: list, set, delete"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from headgate.cli import values, words
from headgate.cli.asking import add_server, asking
from headgate.cli.table import show, table

HEAD: Final = ("RULE", "ENABLED", "AFTER", ">REPLAYS", "DEAD LETTERS")
_PATH: Final = "/dead-letter/replay-rules"
_FILTERS: Final = (
    ("queue", "queue", "only those that came from this queue"),
    ("type", "type", "only of this type, or with a prefix that ends in *"),
    ("error_type", "error type", "only with this type in their newest error"),
)


def add(commands: Any) -> None:
    command = commands.add_parser("rules", help="look after rules by which dead letters start over")
    kinds = command.add_subparsers(metavar="COMMAND", required=True)
    listing = kinds.add_parser("list", help="list the rules")
    add_server(listing)
    listing.set_defaults(run=list_all)
    setting = kinds.add_parser(
        "set",
        help="create a rule, or replace it",
        epilog="It is for what lies there already, too. What is not given has its default again.",
    )
    setting.add_argument("name", metavar="NAME", help="the rule")
    for member, _, about in _FILTERS:
        setting.add_argument(f"--{member.replace('_', '-')}", metavar="NAME", help=about)
    setting.add_argument(
        "--after",
        type=values.duration,
        metavar="TIME",
        help="how long they lie before that (at once)",
    )
    setting.add_argument(
        "--most", type=values.whole, metavar="N", help="how often a job starts over (once)"
    )
    setting.add_argument("--disabled", action="store_true", help="not yet, or not any more")
    add_server(setting)
    setting.set_defaults(run=put)
    delete = kinds.add_parser("delete", help="delete a rule; dead letters stay what they are")
    delete.add_argument("name", metavar="NAME", help="the rule")
    add_server(delete)
    delete.set_defaults(run=delete_one)


def list_all(asked: argparse.Namespace) -> None:
    with asking(asked) as client:
        found = client.admin.request("GET", _PATH, query={"limit": 200})["rules"]
    if asked.json:
        print(json.dumps(found))
    else:
        show(table(HEAD, [row(rule) for rule in found]))


def row(rule: Mapping[str, Any]) -> Sequence[str]:
    """Its place in a table with the heading HEAD."""
    from headgate.core.times import duration_ms

    delay = 0 if rule["delay"] == "PT0S" else duration_ms(rule["delay"])
    wanted = rule["filter"]
    return (
        rule["name"],
        "yes" if rule["enabled"] else "no",
        words.span(delay) if delay else "at once",
        words.number(rule["max_replays"]),
        ", ".join(f"{name} {wanted[member]}" for member, name, _ in _FILTERS if member in wanted)
        or "all",
    )


def put(asked: argparse.Namespace) -> None:
    from headgate.client.core import at

    wanted = {member: getattr(asked, member) for member, _, _ in _FILTERS}
    body = {
        "filter": {member: value for member, value in wanted.items() if value is not None},
        "delay": asked.after,
        "max_replays": asked.most,
        "enabled": not asked.disabled,
    }
    body = {name: value for name, value in body.items() if value is not None}
    with asking(asked) as client:
        found = client.admin.request("PUT", at("dead-letter", "replay-rules", asked.name), body)
    if asked.json:
        print(json.dumps(found))
        return
    show(table(HEAD, [row(found["rule"])]))
    if "task" in found:
        print(f"the server goes through what lies there with the task {found['task']['id']}")
    elif found["replayed"]:
        print(f"{words.counted(found['replayed'], 'dead letter')} started over at once")


def delete_one(asked: argparse.Namespace) -> None:
    from headgate.client.core import at

    with asking(asked) as client:
        found = client.admin.request("DELETE", at("dead-letter", "replay-rules", asked.name))
    if asked.json:
        print(json.dumps(found))
    else:
        print(f"rule {asked.name} is deleted; dead letters stay what they are")
