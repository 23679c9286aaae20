"""`headgate watch`: queues, keys and pools at a glance, again and again"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from headgate import clock
from headgate.cli.asking import add_server, asking, listed
from headgate.cli.refusal import WRONG, Refusal
from headgate.cli.table import show

if TYPE_CHECKING:
    from headgate.cli.picture import Look
    from headgate.client.app import Headgate

_MOST: Final = 500
"""So many queues, and so many keys, are looked at each time."""
_PATIENCE_S: Final = 5.0
_SHORTEST_S: Final = 0.1
_GO: Final = ("q", "Q", "\x04")
"""Besides Ctrl-C, which is a signal: q, and the end of input."""


def add(commands: Any) -> None:
    command = commands.add_parser(
        "watch",
        help="show queues, keys and pools, and go on showing them",
        description="Show queues with their depth, pressure and rates, keys with the use of their "
        "limits and pools with the shares of their queues, and go on showing them until q or Ctrl-C. "
        "Where there is no terminal, they are shown once.",
    )
    command.add_argument(
        "--interval", type=float, default=2.0, metavar="SECONDS", help="how long one look lasts (2)"
    )
    command.add_argument("--once", action="store_true", help="show them once and end")
    add_server(command)
    command.set_defaults(run=run)


def run(asked: argparse.Namespace) -> None:
    if not asked.interval >= _SHORTEST_S:
        raise Refusal(f"--interval must be at least {_SHORTEST_S} seconds", WRONG)
    with asking(asked, timeout=_PATIENCE_S) as client:
        if asked.json:
            print(json.dumps(_record(look(client))))
        elif asked.once or not _on_a_screen():
            from headgate.cli.picture import picture

            width = shutil.get_terminal_size().columns
            show(picture(look(client), width))
        else:
            _go_on(client, asked.interval)


def _on_a_screen() -> bool:
    """Not every system has terminals of the kind that is needed here."""
    from importlib.util import find_spec

    return sys.stdin.isatty() and sys.stdout.isatty() and find_spec("termios") is not None


def _go_on(client: Headgate, interval_s: float) -> None:
    from headgate.cli.picture import picture
    from headgate.cli.screen import screen
    from headgate.client.errors import OjsError

    # A server that does not answer now is told as any command tells it; one that is lost later is waited for.
    found = look(client)
    with suppress(KeyboardInterrupt), screen() as terminal:
        trouble = ""
        due_s = clock.elapsed_s() + interval_s
        while True:
            terminal.show(picture(found, *terminal.size(), trouble))
            key = terminal.key(max(0.0, due_s - clock.elapsed_s()))
            if key in _GO:
                return
            if key != " " and clock.elapsed_s() < due_s:
                continue
            try:
                found, trouble = look(client), ""
            except OjsError as error:
                trouble = f"no news from the server: {error.message}"
            due_s = clock.elapsed_s() + interval_s


def look(client: Headgate) -> Look:
    """All that the server says now. Raises OjsError."""
    from headgate.cli.picture import Look
    from headgate.client.transport.http import HttpTransport

    transport = client.parts.core.transport
    queues, queues_total = listed(client, "/admin/queues", None, _MOST)
    keys, keys_total = listed(client, "/rate-limits", None, _MOST)
    pools, _ = listed(client, "/admin/pools")
    return Look(
        url=transport.url if isinstance(transport, HttpTransport) else "",
        now_ms=clock.wall_ms(),
        health=client.admin.health(),
        stats=client.admin.stats(),
        dead_letters=client.admin.request("GET", "/dead-letter/stats")["total"],
        queues=queues,
        queues_total=queues_total,
        keys=keys,
        keys_total=keys_total,
        pools=pools,
        shares=client.pools.shares(),
    )


def _record(found: Look) -> dict[str, Any]:
    """The same for programs, in the server's own words."""
    return {
        "health": found.health,
        "stats": found.stats,
        "dead_letters": found.dead_letters,
        "queues": found.queues,
        "keys": found.keys,
        "pools": found.pools,
        "shares": found.shares,
    }
