"""`headgate job`: list, show, cancel, retry, explain, history, lineage"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from headgate import clock
from headgate.cli import explain, past, selection, values, words
from headgate.cli.asking import add_server, asking, listed
from headgate.cli.consent import add_yes, agreed
from headgate.cli.progress import Bar, add_no_wait, amounts, followed
from headgate.cli.refusal import FAILED, Refusal
from headgate.cli.table import facts, show, table

if TYPE_CHECKING:
    from headgate.client.app import Headgate

HEAD: Final = ("JOB", "TYPE", "QUEUE", "STATE", ">PRIORITY", ">ATTEMPT", ">AGE")
_FILTERS: Final = ("queue", "type", "state", "key", "error_type", "tenant")
_CHUNK: Final = 200
"""Jobs that one request names."""
_DONE: Final = {"cancel": "cancelled", "retry": "retried"}
_STATES: Final = {"cancel": "available,scheduled", "retry": "discarded,retryable"}
"""Whose jobs the server means when nobody says which."""
_TIMES: Final = (
    "created_at", "enqueued_at", "scheduled_at", "next_attempt_at", "started_at", "completed_at",
    "cancelled_at", "discarded_at", "expires_at", "visible_until",
)  # fmt: skip
_DATA: Final = ("args", "meta", "tags", "rate_limit", "unique", "progress", "result")
_TOLD: Final = frozenset(
    {"id", "type", "queue", "state", "priority", "attempt", "max_attempts", "metadata", "errors",
     "error", "specversion", *_TIMES, *_DATA}
)  # fmt: skip
"""What stands in a place of its own, or is said already."""


def add(commands: Any) -> None:
    command = commands.add_parser("job", help="look after jobs")
    kinds = command.add_subparsers(metavar="COMMAND", required=True)
    listing = kinds.add_parser("list", help="list jobs, the newest first")
    selection.add_filters(listing, _FILTERS)
    listing.add_argument(
        "--most", type=values.whole, default=50, metavar="N", help="how many are listed (50)"
    )
    add_server(listing)
    listing.set_defaults(run=list_some)
    showing = kinds.add_parser("show", help="show all that is known of a job")
    showing.add_argument("job", metavar="JOB", help="its id")
    add_server(showing)
    showing.set_defaults(run=show_one)
    _many(kinds, "cancel", "cancel jobs", cancel)
    _many(
        kinds, "retry", "start failed jobs over, and those at once that wait to be retried", retry
    )
    explain.add(kinds)
    past.add(kinds)


def _many(kinds: Any, name: str, about: str, run: Any) -> None:
    command = kinds.add_parser(
        name,
        help=about,
        epilog="Give ids, or options that say which jobs are meant; those in states that do not "
        f"allow it are left alone. Without --state, {' and '.join(_STATES[name].split(','))} jobs "
        "are meant.",
    )
    command.add_argument("jobs", metavar="JOB", nargs="*", help="their ids")
    selection.add_filters(command, _FILTERS)
    add_yes(command)
    add_no_wait(command)
    add_server(command)
    command.set_defaults(run=run)


def list_some(asked: argparse.Namespace) -> None:
    with asking(asked) as client:
        found, total = listed(client, "/admin/jobs", selection.filters(asked), asked.most)
    if asked.json:
        print(json.dumps(found))
        return
    now_ms = clock.wall_ms()
    show(table(HEAD, [row(job, now_ms) for job in found]))
    if total > len(found):
        print(f"… and {words.counted(total - len(found), 'more job')}")


def row(job: Mapping[str, Any], now_ms: int) -> Sequence[str]:
    """Its place in a table with the heading HEAD."""
    return (
        job["id"],
        job["type"],
        job["queue"],
        job["state"],
        str(job.get("priority", 0)),
        f"{job.get('attempt', 0)}/{job.get('max_attempts', '-')}",
        words.age(job.get("created_at"), now_ms),
    )


def show_one(asked: argparse.Namespace) -> None:
    from headgate.client.core import at

    with asking(asked) as client:
        job = client.admin.request("GET", at("admin", "jobs", asked.job))
    job = job.get("job", job)
    if asked.json:
        print(json.dumps(job))
        return
    now_ms = clock.wall_ms()
    times = {**job.get("metadata", {}), **job}
    show(
        facts(
            [
                ("job", job["id"]),
                ("type", job["type"]),
                ("queue", f"{job['queue']}, priority {job['priority']}"),
                ("state", job["state"]),
                ("attempt", f"{job['attempt']} of {job['max_attempts']}"),
                *((name.removesuffix("_at"), words.moment(times.get(name), now_ms)) for name in _TIMES),
                *((name, _text(job[name])) for name in _DATA if job.get(name)),
                *((name, _text(value)) for name, value in job.items() if name not in _TOLD),
                *(_error(error, now_ms) for error in _errors(job)),
            ]
        )
    )  # fmt: skip


def _errors(job: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = job.get("errors") or ([job["error"]] if job.get("error") else [])
    return list(found)


def _error(error: Mapping[str, Any], now_ms: int) -> tuple[str, str]:
    attempt = f"error {error['attempt']}" if "attempt" in error else "error"
    kind = error.get("type") or error.get("code") or "error"
    at = words.moment(error.get("occurred_at") or error.get("at"), now_ms)
    return attempt, f"{kind}: {error.get('message', '')}{f', {at}' if at else ''}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def cancel(asked: argparse.Namespace) -> None:
    _each_or_all(asked, "cancel")


def retry(asked: argparse.Namespace) -> None:
    _each_or_all(asked, "retry")


def _each_or_all(asked: argparse.Namespace, verb: str) -> None:
    selection.one_way(asked)
    with asking(asked) as client:
        match asked.jobs:
            case []:
                _all(client, asked, verb)
            case [job]:
                _one(client, asked, verb, job)
            case _:
                _each(client, asked, verb)


def _one(client: Headgate, asked: argparse.Namespace, verb: str, job: str) -> None:
    from headgate.client.core import at

    found = client.admin.request("POST", f"{at('admin', 'jobs', job)}/{verb}", {})
    now = found["job"]["state"]
    if asked.json:
        print(json.dumps(found))
    elif verb == "cancel":
        print(f"job {job} is {now}")
    else:
        print(f"job {job} is {now} in the queue {found['job']['queue']}")


def _each(client: Headgate, asked: argparse.Namespace, verb: str) -> None:
    """One request for many ids; what one of them refuses does not stop the rest."""
    done, items = 0, []
    progress = Bar(f"{verb}: ")
    for begin in range(0, len(asked.jobs), _CHUNK):
        progress.at(begin, len(asked.jobs))
        body = {"job_ids": asked.jobs[begin : begin + _CHUNK]}
        answer = client.admin.request("POST", f"/jobs/bulk/{verb}", body)
        done += answer[_DONE[verb]]
        items += answer["items"]
    progress.end()
    skipped = [item for item in items if item["status"] == "skipped"]
    if asked.json:
        print(json.dumps({_DONE[verb]: done, "skipped": len(skipped), "items": items}))
    else:
        print(f"{words.counted(done, 'job')} {_DONE[verb]}")
        show(f"{item['job_id']} was left alone: {_why(item)}" for item in skipped)
    if skipped:
        raise Refusal(f"{words.counted(len(skipped), 'job')} could not be {_DONE[verb]}", FAILED)


def _why(item: Mapping[str, Any]) -> str:
    reason = str(item.get("reason", ""))
    if reason == "not_found":
        return "there is no such job"
    return f"it is {reason.removeprefix('state_')}"


def _all(client: Headgate, asked: argparse.Namespace, verb: str) -> None:
    query = selection.filters(asked)
    if not asked.yes:
        about = {"state": _STATES[verb], **query}
        _, total = listed(client, "/admin/jobs", about, 1)
        agreed(asked, f"{verb.title()} {words.counted(total, 'job')}{selection.in_words(query)}?")
    body = {"filter": selection.body_of(query)}
    answer = client.admin.request("POST", f"/jobs/bulk/{verb}", body)
    report(asked, followed(client, asked, answer, verb), _DONE[verb])


def report(asked: argparse.Namespace, answer: dict[str, Any], done: str) -> None:
    """What became of a command for all jobs that match."""
    if asked.json:
        print(json.dumps(answer))
        return
    count, skipped, going_on = amounts(answer, done)
    left = f", {words.counted(skipped, 'job')} left alone" if skipped else ""
    more = f"; the server goes on with the task {going_on}" if going_on else ""
    print(f"{words.counted(count, 'job')} {done}{left}{more}")
