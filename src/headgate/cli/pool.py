"""`headgate pool`: list, set, delete"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from headgate.cli import values, words
from headgate.cli.asking import add_server, asking
from headgate.cli.table import show, table

HEAD: Final = ("POOL", "STRATEGY", ">WORKERS", ">RUNNING", "QUEUES AND THEIR SHARES")


def add(commands: Any) -> None:
    command = commands.add_parser("pool", help="look after pools of workers")
    kinds = command.add_subparsers(metavar="COMMAND", required=True)
    listing = kinds.add_parser("list", help="list the pools with the shares of their queues")
    add_server(listing)
    listing.set_defaults(run=list_all)
    setting = kinds.add_parser(
        "set",
        help="create a pool, or replace it",
        epilog="What is not given has its default again.",
    )
    setting.add_argument("name", metavar="NAME", help="the pool")
    setting.add_argument(
        "--queues", type=values.names, required=True, help="names with commas between them"
    )
    setting.add_argument(
        "--strategy",
        choices=("strict", "round-robin", "weighted", "least-loaded"),
        help="in which turns they are served (round-robin)",
    )
    setting.add_argument(
        "--weight",
        action="append",
        type=values.weight,
        metavar="QUEUE=NUMBER",
        help="with weighted; may be given several times",
    )
    setting.add_argument(
        "--concurrency", type=values.whole, metavar="JOBS", help="how many it may run at a time"
    )
    setting.add_argument("--isolated", action="store_true", help="nobody else may serve its queues")
    setting.add_argument(
        "--min-share",
        type=float,
        metavar="PART",
        help="what every queue gets at least of all turns, 0 to 1",
    )
    setting.add_argument(
        "--rotation",
        type=values.duration,
        metavar="TIME",
        help="the longest time that a queue gets nothing (30 s)",
    )
    add_server(setting)
    setting.set_defaults(run=put)
    delete = kinds.add_parser("delete", help="delete a pool; its workers stay")
    delete.add_argument("name", metavar="NAME", help="the pool")
    add_server(delete)
    delete.set_defaults(run=delete_one)


def list_all(asked: argparse.Namespace) -> None:
    with asking(asked) as client:
        pools = client.pools.all()
        shares = client.pools.shares()
    if asked.json:
        print(json.dumps({"pools": pools, "queues": shares}))
    else:
        show(table(HEAD, [row(pool, shares) for pool in pools]))


def row(pool: Mapping[str, Any], shares: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    """Its place in a table with the heading HEAD; `shares` is what each queue got lately."""
    most = pool.get("concurrency")
    running = f"{pool['active_jobs']:,}" + (f"/{most:,}" if most else "")
    alone = " isolated" if pool["isolated"] else ""
    return (
        pool["name"],
        pool["strategy"] + alone,
        words.number(pool["active_workers"]),
        running,
        ", ".join(_share(name, pool, shares) for name in pool["queues"]),
    )


def _share(name: str, pool: Mapping[str, Any], shares: Sequence[Mapping[str, Any]]) -> str:
    """What the queue got of the starts of the pool's queues in the last minute, and what its weight says."""
    started = {one["name"]: one["dispatch_count_1m"] for one in shares}
    total = sum(started.get(queue, 0) for queue in pool["queues"])
    got = f" {words.percent(started.get(name, 0) / total)}" if total else ""
    if pool["strategy"] != "weighted":
        return name + got
    weights = pool.get("weights", {})
    due = weights.get(name, 1) / sum(weights.get(queue, 1) for queue in pool["queues"])
    return f"{name}{got or ' -'} of {words.percent(due)}"


def put(asked: argparse.Namespace) -> None:
    starvation: dict[str, Any] = {}
    if asked.min_share is not None:
        starvation["min_dispatch_ratio"] = asked.min_share
    if asked.rotation is not None:
        starvation["rotation_interval"] = asked.rotation
    with asking(asked) as client:
        found = client.pools[asked.name].set(
            asked.queues,
            concurrency=asked.concurrency,
            strategy=asked.strategy,
            weights=dict(asked.weight) if asked.weight else None,
            isolated=asked.isolated or None,
            starvation_prevention={"enabled": True, **starvation} if starvation else None,
        )
    pool = found.get("pool", found)
    if asked.json:
        print(json.dumps(pool))
    else:
        show(table(HEAD, [row(pool, ())]))


def delete_one(asked: argparse.Namespace) -> None:
    with asking(asked) as client:
        client.pools[asked.name].delete()
    if asked.json:
        print(json.dumps({"deleted": True, "name": asked.name}))
    else:
        print(
            f"pool {asked.name} is deleted; its workers serve the queues that they name themselves"
        )
