"""`headgate queue`: list, show, set, pause, resume, drain, delete"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from headgate import clock
from headgate.cli import values, words
from headgate.cli.asking import add_server, asking
from headgate.cli.consent import add_yes, agreed
from headgate.cli.progress import add_no_wait, followed
from headgate.cli.refusal import WRONG, Refusal
from headgate.cli.table import facts, show, table

HEAD: Final = (
    "QUEUE", "STATE", ">READY", ">RUNNING", ">LATER", ">FULL", ">DONE/MIN", ">FAILED/MIN", ">OLDEST",
)  # fmt: skip
_DEFAULT_POLICY: Final = "_default"
_BOUNDS: Final = ("max_depth", "max_size_bytes", "warning_threshold")
_LIMITS: Final = ("rate", "throttle")
_PLAIN: Final = (
    "max_size", "overflow_policy", "concurrency", "visibility_timeout", "default_timeout",
    "dead_letter_queue", "dead_letter_ttl", "dead_letter_max_size", "allowed_job_types",
    "producers",
)  # fmt: skip


def add(commands: Any) -> None:
    command = commands.add_parser("queue", help="look after queues")
    kinds = command.add_subparsers(metavar="COMMAND", required=True)
    _one(kinds, "list", "list the queues with their load", list_all, named=False)
    _one(kinds, "show", "show the load and the settings of a queue", show_one)
    _settings(_one(kinds, "set", "change settings of a queue, or of _default", configure))
    _one(kinds, "pause", "give out no more jobs of a queue", pause)
    _one(kinds, "resume", "end a pause, or call off draining", resume)
    _one(kinds, "drain", "take no new jobs and delete the queue after its last one", drain)
    delete = _one(kinds, "delete", "delete a queue", delete_one)
    what = delete.add_mutually_exclusive_group()
    what.add_argument("--discard", action="store_true", help="discard the jobs that wait in it")
    what.add_argument("--move-to", metavar="QUEUE", help="move them to another queue")
    add_yes(delete)
    add_no_wait(delete)


def _one(kinds: Any, name: str, about: str, run: Any, *, named: bool = True) -> Any:
    command = kinds.add_parser(name, help=about)
    if named:
        command.add_argument("name", metavar="NAME", help="the queue")
    add_server(command)
    command.set_defaults(run=run)
    return command


def _settings(command: argparse.ArgumentParser) -> None:
    command.epilog = (
        "What is not given stays as it is; none takes a setting away, so that _default decides."
    )
    number = values.or_none(values.whole)
    span = values.or_none(values.milliseconds)
    several = values.or_none(values.names)

    def option(name: str, kind: Any, metavar: str, about: str) -> None:
        command.add_argument(
            f"--{name}", type=kind, metavar=metavar, help=about, default=argparse.SUPPRESS
        )

    option("max-depth", number, "JOBS", "how many jobs may wait before producers are refused")
    option("max-size", number, "JOBS", "the same, counting those that run")
    option("max-size-bytes", number, "BYTES", "the same in bytes")
    command.add_argument(
        "--overflow",
        dest="overflow_policy",
        choices=("reject", "block", "drop_oldest"),
        default=argparse.SUPPRESS,
        help="what a full queue does",
    )
    option(
        "warning-threshold", values.or_none(float), "PART", "how full it is when it warns, 0 to 1"
    )
    option("concurrency", number, "JOBS", "how many of its jobs may run at a time")
    option("rate", values.or_none(values.rate), "N/PERIOD", "how many may start in any period")
    option("throttle", values.or_none(values.rate), "N/PERIOD", "the same, evenly spaced")
    option("visibility-timeout", span, "TIME", "how long a reservation lasts")
    option("default-timeout", span, "TIME", "how long an attempt may take that says nothing itself")
    option("dead-letter-queue", values.or_none(str), "QUEUE", "where exhausted jobs go")
    option("dead-letter-ttl", values.or_none(values.duration), "TIME", "how long they are kept")
    option("dead-letter-max-size", number, "JOBS", "how many of them are kept")
    option("allowed-job-types", several, "TYPES", "patterns with commas between them")
    option("producers", several, "NAMES", "names of the tokens that may enqueue")
    command.add_argument(
        "--set",
        dest="others",
        action="append",
        type=values.member,
        metavar="NAME=JSON",
        default=[],
        help='any other setting, such as default_retry={"max_attempts": 5}',
    )


def list_all(asked: argparse.Namespace) -> None:
    with asking(asked) as client:
        found = client.admin.list_queues()
    if asked.json:
        print(json.dumps(found))
    else:
        now_ms = clock.wall_ms()
        show(table(HEAD, [row(queue, now_ms) for queue in found]))


def row(queue: Mapping[str, Any], now_ms: int) -> Sequence[str]:
    """Its place in a table with the heading HEAD."""
    counts = queue["counts"]
    later = counts["scheduled"] + counts["retryable"] + counts["pending"]
    return (
        queue["name"],
        queue["state"],
        words.number(counts["available"]),
        words.number(counts["active"]),
        words.number(later),
        words.percent(queue.get("pressure")) or "-",
        words.number(queue["throughput"]["processed_per_minute"]),
        words.number(queue["throughput"]["failed_per_minute"]),
        words.age(queue.get("oldest_available_at"), now_ms) or "-",
    )


def show_one(asked: argparse.Namespace) -> None:
    with asking(asked) as client:
        queue = client.queue(asked.name)
        config = queue.config()
        found: dict[str, Any] = {"stats": {}, "status": ""}
        if asked.name != _DEFAULT_POLICY:
            found = client.admin.request("GET", f"{_path(asked)}/stats")
    found = {"name": asked.name, **found, "config": config}
    if asked.json:
        print(json.dumps(found))
        return
    show(facts([*_load(found), *settings(config)]))


def _load(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    stats = found["stats"]
    if not stats:
        return [("queue", found["name"])]
    now_ms = clock.wall_ms()
    states = ("available", "active", "scheduled", "retryable", "pending")
    bound = stats.get("bound")
    return [
        ("queue", f"{found['name']} ({found['status']})"),
        ("jobs", ", ".join(f"{stats[state]:,} {state}" for state in states if stats[state]) or "none"),
        ("full", _full(bound, stats.get("pressure")) if bound else "no bound"),
        ("parked", words.counted(stats["parked"], "producer") if stats["parked"] else ""),
        ("oldest", words.moment(stats.get("oldest_available_at"), now_ms)),
        ("last hour", f"{stats['completed_last_hour']:,} completed, {stats['failed_last_hour']:,} failed"),
        ("mean times", f"{words.span(stats['avg_wait_ms'])} waiting, {words.span(stats['avg_duration_ms'])} running"),
    ]  # fmt: skip


def _full(bound: Mapping[str, Any], pressure: float | None) -> str:
    unit = {"jobs": "jobs", "active_included": "jobs, running ones included"}.get(
        bound["measure"], "bytes"
    )
    return f"{bound['depth']:,} of {bound['bound']:,} {unit} ({words.percent(pressure)})"


def settings(config: Mapping[str, Any], path: str = "") -> list[tuple[str, str]]:
    """Every setting that holds, nested ones with dots."""
    found: list[tuple[str, str]] = []
    for name, value in config.items():
        if isinstance(value, dict) and {"limit", "period"} != set(value):
            found += settings(value, f"{path}{name}.")
        elif isinstance(value, dict):
            found.append((f"{path}{name}", words.per(value)))
        elif isinstance(value, list):
            found.append((f"{path}{name}", ", ".join(map(str, value)) or "-"))
        else:
            found.append((f"{path}{name}", value if isinstance(value, str) else json.dumps(value)))
    return found


def configure(asked: argparse.Namespace) -> None:
    body = _body(vars(asked))
    if not body:
        raise Refusal("nothing to change", WRONG, "see headgate queue set --help")
    with asking(asked) as client:
        config = client.admin.request("PUT", f"{_path(asked)}/config", body)
    if asked.json:
        print(json.dumps(config))
    else:
        changed = {name: value for name, value in config.items() if name in body}
        show(facts([("queue", asked.name), *settings(changed)]))


def _body(options: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that were given, as the server reads them."""
    body: dict[str, Any] = {name: options[name] for name in _PLAIN if name in options}
    for name in ("visibility_timeout", "default_timeout"):
        if body.get(name) is not None:
            body[name] = -(-body[name] // 1000)
    for member, parts in (("backpressure", _BOUNDS), ("rate_limit", _LIMITS)):
        found = {name: options[name] for name in parts if name in options}
        if found:
            body[member] = found
    return body | dict(options["others"])


def pause(asked: argparse.Namespace) -> None:
    _change(asked, "pause", "is paused: new jobs are taken, none is given out")


def resume(asked: argparse.Namespace) -> None:
    _change(asked, "resume", "gives out jobs again")


def _change(asked: argparse.Namespace, verb: str, said: str) -> None:
    with asking(asked) as client:
        found = client.admin.request("POST", f"{_path(asked)}/{verb}", {})
    print(json.dumps(found) if asked.json else f"queue {asked.name} {said}")


def drain(asked: argparse.Namespace) -> None:
    with asking(asked) as client:
        found = client.queue(asked.name).drain()
    if asked.json:
        print(json.dumps(found))
    elif found["status"] == "deleted":
        print(f"queue {asked.name} was empty and is deleted")
    else:
        left = words.counted(found["unfinished_jobs"], "job")
        print(f"queue {asked.name} takes no new jobs and is deleted after {left}")


def delete_one(asked: argparse.Namespace) -> None:
    strategy = "discard" if asked.discard else "move" if asked.move_to else "reject"
    if asked.discard:
        agreed(asked, f"Delete the queue {asked.name} and discard all jobs that wait in it?")
    body = {"strategy": strategy} | ({"target_queue": asked.move_to} if asked.move_to else {})
    with asking(asked) as client:
        found = client.admin.request("DELETE", _path(asked), body)
        found = followed(client, asked, found, f"deleting {asked.name}")
    if asked.json:
        print(json.dumps(found))
        return
    affected = words.counted(found["jobs_affected"], "job")
    done = {"discard": f", {affected} discarded", "move": f", {affected} moved to {asked.move_to}"}
    task = found.get("task")
    if task is not None and not task["finished"]:
        print(f"queue {asked.name} is being deleted, task {task['id']}")
    else:
        print(f"queue {asked.name} is {_ending(found)}{done.get(strategy, '')}")


def _ending(found: Mapping[str, Any]) -> str:
    if found["state"] == "deleted" or "task" in found:
        return "deleted"
    return "draining: its running jobs end first"


def _path(asked: argparse.Namespace) -> str:
    from headgate.client.core import at

    return at("queues", asked.name)
