"""`headgate enqueue`: one job from the command line, or many from a file"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from headgate.cli import values, words
from headgate.cli.asking import add_server, asking
from headgate.cli.progress import Bar
from headgate.cli.refusal import LATER, WRONG, Refusal

if TYPE_CHECKING:
    from headgate.client.app import Headgate
    from headgate.client.jobs import Job

_CHUNK: Final = 500
_OPTIONS: Final = (
    "queue", "priority", "at", "expires", "retry", "timeout", "tenant", "id", "pending", "result_ttl",
)  # fmt: skip


def add(commands: Any) -> None:
    command = commands.add_parser(
        "enqueue",
        help="enqueue a job, or many from a file",
        epilog="An ARG that is JSON is taken as that, any other as text: 3 is a number, three is "
        "not. Times are such as 90s, 5m, 2h, 7d or PT5M.",
    )
    command.add_argument("type", metavar="TYPE", nargs="?", help="the type of the job")
    command.add_argument("arguments", metavar="ARG", nargs="*", help="its arguments")
    command.add_argument(
        "--args", type=values.array, metavar="JSON", help="its arguments as one array"
    )
    command.add_argument(
        "--from",
        dest="source",
        metavar="FILE",
        help="enqueue the jobs that this file has, one JSON object a line; - is the standard input",
    )
    command.add_argument("--queue", help="where it goes (default)")
    command.add_argument("--priority", type=int, help="from -100 to 100, highest first")
    when = command.add_mutually_exclusive_group()
    when.add_argument(
        "--delay", type=values.milliseconds, metavar="TIME", help="not before so long"
    )
    when.add_argument("--at", metavar="INSTANT", help="not before then: 2030-01-31T08:00:00Z")
    command.add_argument(
        "--expires", metavar="TIME|INSTANT", help="discard it if it has not started by then"
    )
    command.add_argument(
        "--retry", type=values.whole, metavar="N", help="how often it is started at most"
    )
    command.add_argument("--timeout", metavar="TIME", help="what one attempt may take")
    command.add_argument("--result-ttl", metavar="TIME", help="how long its result is kept")
    command.add_argument(
        "--unique",
        action="store_true",
        help="only if there is none with this type and these arguments",
    )
    command.add_argument("--key", help="the rate-limit key that it passes")
    command.add_argument(
        "--concurrency",
        type=values.whole,
        metavar="JOBS",
        help="with --key: how many run at a time",
    )
    command.add_argument(
        "--rate", metavar="N/PERIOD", help="with --key: how many start in any period"
    )
    command.add_argument("--throttle", metavar="N/PERIOD", help="the same, evenly spaced")
    command.add_argument(
        "--on-limit",
        choices=("wait", "reschedule", "drop"),
        help="with --key: what becomes of it while the key is closed",
    )
    command.add_argument("--tag", action="append", help="may be given several times")
    command.add_argument(
        "--meta",
        action="append",
        type=values.member,
        metavar="NAME=JSON",
        help="may be given several times",
    )
    command.add_argument("--tenant", help="whose job it is")
    command.add_argument("--id", help="a UUIDv7: to repeat the command enqueues nothing twice")
    command.add_argument(
        "--pending", action="store_true", default=None, help="let it wait until it is activated"
    )
    command.add_argument(
        "--block",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="wait so long for room in a full queue",
    )
    command.add_argument(
        "--wait",
        type=float,
        metavar="SECONDS",
        help="wait so long for its end and print its result",
    )
    add_server(command)
    command.set_defaults(run=run)  # fmt: skip


def run(asked: argparse.Namespace) -> None:
    if (asked.type is None) == (asked.source is None):
        raise Refusal(
            "name either a TYPE or a file with --from", WRONG, "see headgate enqueue --help"
        )
    if asked.arguments and asked.args is not None:
        raise Refusal("give arguments either one by one or with --args", WRONG)
    envelopes = [] if asked.source is None else _read(asked.source)
    # A full queue is told at once, unless it is to be waited for.
    with asking(asked, tries=1, block=asked.block) as client:
        if asked.source is None:
            _one(client, asked)
        else:
            _many(client, asked, envelopes)


def _one(client: Headgate, asked: argparse.Namespace) -> None:
    from headgate.client.errors import DuplicateJobError

    arguments = [values.json_value(text) for text in asked.arguments]
    try:
        job = client.enqueue(asked.type, *(asked.args or arguments), **_options(asked))
    except DuplicateJobError as error:
        if asked.id is None or error.existing_job_id != asked.id:
            raise
        # The command was given before: what it was for has been done.
        job = client.job_by_id(asked.id)
        if job.type != asked.type:
            raise
        job.deduplicated = True
    if asked.wait is not None:
        _end(job, asked)
    elif asked.json:
        print(json.dumps(job.record))
    else:
        said = "exists already and" if job.deduplicated else "is enqueued and"
        full = f", which is {words.percent(job.pressure)} full" if job.pressure is not None else ""
        print(f"job {job.id} {said} {job.state} in the queue {job.queue}{full}")


def _end(job: Job[Any], asked: argparse.Namespace) -> None:
    from headgate.client.errors import OjsTimeoutError

    try:
        found = job.wait(timeout=asked.wait)
    except OjsTimeoutError as error:
        why = f"headgate explain {job.id} says why"
        raise Refusal(error.message, LATER, why, error.code) from None
    if asked.json:
        print(json.dumps(found.record))
        return
    print(json.dumps(found.result, ensure_ascii=False))


def _options(asked: argparse.Namespace) -> Any:
    from headgate.client.policies import RateLimit

    found = values.given(asked, _OPTIONS)
    if asked.delay is not None:
        found["delay"] = asked.delay / 1000
    if asked.unique:
        found["unique"] = True
    if asked.tag:
        found["tags"] = asked.tag
    if asked.meta:
        found["meta"] = dict(asked.meta)
    limits = values.given(asked, ("concurrency", "rate", "throttle", "on_limit"))
    if limits and not asked.key:
        raise Refusal("limits belong to a key", WRONG, "name it with --key")
    if asked.key:
        found["rate_limit"] = RateLimit(asked.key.replace("{", "{{").replace("}", "}}"), **limits)
    return found


def _read(source: str) -> list[dict[str, Any]]:
    """All jobs of the file, so that a line that is none lets nothing be enqueued."""
    from pathlib import Path

    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
    except OSError as error:
        raise Refusal(f"{source} cannot be read: {error.strerror}", WRONG) from None
    found = []
    for line, words_of_it in enumerate(text.splitlines(), 1):
        if not words_of_it.strip():
            continue
        job = values.json_value(words_of_it)
        if not isinstance(job, dict) or not isinstance(job.get("type"), str):
            raise Refusal(
                f'{source}:{line} is not a job such as {{"type": "mail.send", "args": []}}', WRONG
            )
        found.append({"args": [], **job})
    return found


def _many(client: Headgate, asked: argparse.Namespace, envelopes: list[dict[str, Any]]) -> None:
    from headgate.client.errors import OjsError

    done: list[Mapping[str, Any]] = []
    progress = Bar("enqueued")
    try:
        for begin in range(0, len(envelopes), _CHUNK):
            progress.at(begin, len(envelopes))
            try:
                accepted = client.enqueue_batch(envelopes[begin : begin + _CHUNK])
            except OjsError as error:
                taken = len(done) + error.extra.get("accepted", 0)
                error.message += f"; {words.counted(taken, 'job')} before it were enqueued"
                raise
            done += [job.record for job in accepted]
    finally:
        progress.end()
    if asked.json:
        print(json.dumps({"count": len(done), "ids": [record["id"] for record in done]}))
    else:
        print(f"{words.counted(len(done), 'job')} enqueued")
