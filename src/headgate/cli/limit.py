"""`headgate limit`: list, show, set, clear"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from headgate import clock
from headgate.cli import job as jobs
from headgate.cli import values, words
from headgate.cli.asking import add_server, asking, listed
from headgate.cli.refusal import WRONG, Refusal
from headgate.cli.table import facts, show, table

HEAD: Final = ("KEY", ">WAITING", ">RUNNING", ">STARTED", "THROTTLE", "BESIDES")
_LIMITS: Final = ("concurrency", "rate", "throttle")
_SHOWN_JOBS: Final = 10


def add(commands: Any) -> None:
    command = commands.add_parser("limit", help="look after the rate limits of keys")
    kinds = command.add_subparsers(metavar="COMMAND", required=True)
    listing = kinds.add_parser("list", help="list the keys and how far they are used up")
    listing.add_argument(
        "--most", type=values.whole, default=200, metavar="N", help="how many are listed (200)"
    )
    add_server(listing)
    listing.set_defaults(run=list_some)
    _one(kinds, "show", "show a key, who runs and who waits", show_one)
    override = _one(kinds, "set", "put other limits upon a key, for a time or until clear", put)
    override.epilog = "What is not given stays as jobs say; none lifts a limit meanwhile."
    for name, kind, metavar, about in (
        ("concurrency", values.whole, "JOBS", "how many may run at a time; 0 stops the key"),
        ("rate", values.rate, "N/PERIOD", "how many may start in any period: 100/m, 5/30s"),
        ("throttle", values.rate, "N/PERIOD", "the same, evenly spaced"),
    ):
        override.add_argument(
            f"--{name}",
            type=values.or_none(kind),
            metavar=metavar,
            default=argparse.SUPPRESS,
            help=about,
        )
    end = override.add_mutually_exclusive_group()
    end.add_argument(
        "--for",
        dest="lasting",
        type=values.milliseconds,
        metavar="TIME",
        help="for so long: 30m, 2h",
    )
    end.add_argument("--until", metavar="INSTANT", help="until then: 2030-01-31T08:00:00Z")
    _one(kinds, "clear", "take back an override, and end a hold", clear)


def _one(kinds: Any, name: str, about: str, run: Any) -> Any:
    command = kinds.add_parser(name, help=about)
    command.add_argument("key", metavar="KEY", help="the key")
    command.add_argument("--tenant", help="whose key it is, where jobs named it as their tenant's")
    add_server(command)
    command.set_defaults(run=run)
    return command


def list_some(asked: argparse.Namespace) -> None:
    with asking(asked) as client:
        found, total = listed(client, "/rate-limits", None, asked.most)
    if asked.json:
        print(json.dumps(found))
        return
    now_ms = clock.wall_ms()
    show(table(HEAD, [row(limit, now_ms) for limit in found]))
    if total > len(found):
        print(f"… and {words.counted(total - len(found), 'more key')}")


def row(limit: Mapping[str, Any], now_ms: int) -> Sequence[str]:
    """Its place in a table with the heading HEAD."""
    running, rate, throttle = (limit.get(name) for name in ("concurrency", "rate", "throttle"))
    tenant = f" ({limit['tenant']})" if limit.get("tenant") else ""
    return (
        limit["key"] + tenant,
        words.number(limit["waiting_count"]),
        f"{running['active']:,}/{running['limit']:,}" if running else "-",
        f"{rate['current_count']:,}/{words.per(rate)}" if rate else "-",
        words.per(throttle) if throttle else "-",
        _besides(limit, now_ms),
    )


def _besides(limit: Mapping[str, Any], now_ms: int) -> str:
    from headgate.core.times import instant_ms

    found = []
    if limit.get("hold"):
        left_ms = max(0, instant_ms(limit["hold"]["until"]) - now_ms)
        found.append(f"held {words.short_span(left_ms)}")
    if limit.get("override"):
        until = limit["override"].get("expires_at")
        left = f" {words.short_span(max(0, instant_ms(until) - now_ms))}" if until else ""
        found.append(f"override{left}")
    return ", ".join(found)


def show_one(asked: argparse.Namespace) -> None:
    with asking(asked) as client:
        path, query = _path(asked)
        limit = client.admin.request("GET", path, query=query)
        some = client.admin.request("GET", f"{path}/jobs", query={**query, "per_page": _SHOWN_JOBS})
    if asked.json:
        print(json.dumps(limit | {name: some[name] for name in ("allowed", "rate_limited")}))
        return
    now_ms = clock.wall_ms()
    show(facts(_facts(limit, now_ms)))
    for name, title in (("allowed", "may run"), ("rate_limited", "must wait")):
        if some[name]:
            print(f"\n{words.number(some[f'{name}_total'])} {title}")
            show(table(jobs.HEAD, [jobs.row(job, now_ms) for job in some[name]]))


def _facts(limit: Mapping[str, Any], now_ms: int) -> list[tuple[str, str]]:
    found = [("key", limit["key"]), ("tenant", limit.get("tenant", ""))]
    running, rate, throttle = (limit.get(name) for name in ("concurrency", "rate", "throttle"))
    if running:
        found.append(("concurrency", f"{running['active']:,} of {running['limit']:,} run"))
    if rate:
        resets = words.moment(rate["window_resets_at"], now_ms)
        used = f"{rate['current_count']:,} started of {words.per(rate)}"
        ends = f", all of them free again {resets}" if resets and rate["current_count"] else ""
        found.append(("rate", used + ends))
    if throttle:
        due = words.moment(throttle["next_allowed_at"], now_ms)
        found.append(
            ("throttle", f"{words.per(throttle)}, the next {due if '(in ' in due else 'now'}")
        )
    if limit.get("hold"):
        hold = limit["hold"]
        why = f": {hold['reason']}" if hold.get("reason") else ""
        found.append(("hold", f"until {words.moment(hold['until'], now_ms)}{why}"))
    if limit.get("override"):
        until = words.moment(limit["override"].get("expires_at"), now_ms)
        limits = {k: v for k, v in limit["override"].items() if k != "expires_at"}
        found.append(
            ("override", f"{json.dumps(limits)} {f'until {until}' if until else 'without end'}")
        )
    return [*found, ("waiting", words.counted(limit["waiting_count"], "job"))]  # fmt: skip


def put(asked: argparse.Namespace) -> None:
    from headgate.core.times import instant_text

    options = vars(asked)
    body: dict[str, Any] = {name: options[name] for name in _LIMITS if name in options}
    if not body:
        raise Refusal("nothing to change", WRONG, "see headgate limit set --help")
    if asked.lasting is not None:
        body["expires_at"] = instant_text(clock.wall_ms() + asked.lasting)
    elif asked.until is not None:
        body["expires_at"] = asked.until
    with asking(asked) as client:
        path, query = _path(asked)
        limit = client.admin.request("PUT", path, body, query=query)
    if asked.json:
        print(json.dumps(limit))
    else:
        show(facts(_facts(limit, clock.wall_ms())))


def clear(asked: argparse.Namespace) -> None:
    with asking(asked) as client:
        path, query = _path(asked)
        found = client.admin.request("DELETE", path, query=query)
    print(json.dumps(found) if asked.json else f"key {asked.key} has the limits that its jobs say")


def _path(asked: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    from headgate.client.core import at

    return at("rate-limits", asked.key), {"tenant": asked.tenant} if asked.tenant else {}
