"""`headgate dead`: list, retry, purge, rules"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from headgate import clock
from headgate.cli import job as jobs
from headgate.cli import rules, selection, values, words
from headgate.cli.asking import add_server, asking, listed
from headgate.cli.consent import add_yes, agreed
from headgate.cli.progress import Bar, add_no_wait, followed
from headgate.cli.table import show, table

HEAD: Final = ("JOB", "TYPE", "QUEUE", ">ATTEMPTS", ">AGE", "ERROR")
_FILTERS: Final = ("queue", "type", "error_type")
_ERROR_LENGTH: Final = 60


def add(commands: Any) -> None:
    command = commands.add_parser("dead", help="look after dead letters")
    kinds = command.add_subparsers(metavar="COMMAND", required=True)
    listing = kinds.add_parser("list", help="list dead letters, the newest first")
    selection.add_filters(listing, _FILTERS)
    listing.add_argument(
        "--most", type=values.whole, default=50, metavar="N", help="how many are listed (50)"
    )
    add_server(listing)
    listing.set_defaults(run=list_some)
    for name, about, run in (
        ("retry", "try dead letters again", retry),
        ("purge", "forget dead letters", purge),
    ):
        command = kinds.add_parser(
            name, help=about, epilog="Give ids, or options that say which are meant, or --all."
        )
        command.add_argument("jobs", metavar="JOB", nargs="*", help="their ids")
        selection.add_filters(command, _FILTERS)
        command.add_argument("--all", action="store_true", help="every dead letter")
        add_yes(command)
        add_no_wait(command)
        add_server(command)
        command.set_defaults(run=run)
    rules.add(kinds)


def list_some(asked: argparse.Namespace) -> None:
    with asking(asked) as client:
        query = selection.filters(asked)
        found, total = listed(client, "/admin/dead-letter", query, asked.most)
    if asked.json:
        print(json.dumps(found))
        return
    now_ms = clock.wall_ms()
    show(table(HEAD, [_row(job, now_ms) for job in found]))
    if total > len(found):
        print(f"… and {words.counted(total - len(found), 'more dead letter')}")


def _row(job: Mapping[str, Any], now_ms: int) -> Sequence[str]:
    moved = job.get("dead_letter") or {}
    error = job.get("error") or {}
    said = f"{error.get('type') or error.get('code') or ''}: {error.get('message', '')}"
    since = moved.get("at") or job.get("discarded_at") or job.get("finished_at")
    return (
        job["id"],
        job["type"],
        moved.get("original_queue") or job["queue"],
        str(moved.get("attempts") or job["attempt"]),
        words.age(since or job.get("enqueued_at"), now_ms),
        (said if len(said) <= _ERROR_LENGTH else said[: _ERROR_LENGTH - 1] + "…") if error else "",
    )


def retry(asked: argparse.Namespace) -> None:
    _each_or_all(asked, "retry", "retried", "Try")


def purge(asked: argparse.Namespace) -> None:
    _each_or_all(asked, "purge", "deleted", "Forget")


def _each_or_all(asked: argparse.Namespace, verb: str, done: str, question: str) -> None:
    selection.one_way(asked, every=asked.all)
    query = selection.filters(asked)
    with asking(asked) as client:
        if asked.jobs:
            answers = _each(client, asked.jobs, verb)
            report = {"matched": len(answers), done: len(answers), "skipped": 0, "items": answers}
            jobs.report(asked, report, done)
            return
        if not asked.yes:
            _, total = listed(client, "/admin/dead-letter", query, 1)
            what = words.counted(total, "dead letter")
            again = " again" if verb == "retry" else ""
            agreed(asked, f"{question} {what}{selection.in_words(query)}{again}?")
        if verb == "retry":
            answer = client.admin.retry_all_dead(query)
        else:
            answer = client.admin.purge_dead(query)
        jobs.report(asked, followed(client, asked, answer, verb), done)


def _each(client: Any, ids: Sequence[str], verb: str) -> list[dict[str, Any]]:
    """One after the other; the first that is refused ends it, and the message names it."""
    from headgate.client.core import at

    found = []
    progress = Bar(verb)
    try:
        for count, job in enumerate(ids):
            progress.at(count, len(ids))
            path = at("dead-letter", job)
            if verb == "retry":
                found.append(client.admin.request("POST", f"{path}/retry", {}))
            else:
                found.append(client.admin.request("DELETE", path))
    finally:
        progress.end()
    return found
