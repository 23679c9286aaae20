"""`headgate worker`: run the jobs of an application"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from headgate.cli import values
from headgate.cli.refusal import WRONG, Refusal

if TYPE_CHECKING:
    from headgate.client.app import AsyncHeadgate, Headgate


def add(commands: Any) -> None:
    command = commands.add_parser(
        "worker",
        help="run the jobs of an application",
        description="Run the jobs of an application until told to stop: TERM or INT lets running "
        "jobs end, a second one does not; TSTP fetches nothing more, CONT goes on.",
    )
    command.add_argument(
        "app", metavar="MODULE[:NAME]", help="where the Headgate object is, such as app:hg"
    )
    command.add_argument(
        "--queues",
        type=values.names,
        metavar="QUEUES",
        help="names with commas between them, in their order (those of the handlers)",
    )
    command.add_argument("--pool", help="the pool of workers that it belongs to")
    command.add_argument(
        "--concurrency", type=values.whole, metavar="JOBS", help="how many jobs at a time (10)"
    )
    command.add_argument(
        "--processes",
        type=values.whole,
        metavar="N",
        help="how many handlers run in processes at a time (one for each core)",
    )
    command.add_argument(
        "--grace", type=float, metavar="SECONDS", help="what running jobs have to end when it stops (25)"
    )  # fmt: skip
    command.add_argument("--worker-id", metavar="ID", help="its name; one is made up otherwise")
    command.add_argument(
        "--label",
        action="append",
        type=values.pair,
        metavar="NAME=TEXT",
        default=[],
        help="shown with the worker; may be given several times",
    )
    command.add_argument(
        "--burst", action="store_true", help="end when there is nothing left to do"
    )
    command.add_argument(
        "--no-exchange",
        dest="exchange",
        action="store_false",
        default=None,
        help="keep to the standard requests of the protocol",
    )
    command.add_argument(
        "--url",
        help="where the server is, unless the application says it; HEADGATE_URL says it too",
    )
    command.add_argument("--token", help="what lets it in; HEADGATE_TOKEN says it too")
    command.add_argument("--log-format", choices=("json", "text"), default="text", help="(text)")
    command.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), default="info", help="(info)"
    )
    command.set_defaults(run=run)


def run(asked: argparse.Namespace) -> None:
    from headgate.client.errors import ValidationError
    from headgate.server import logs
    from headgate.worker.worker import Worker

    for variable, value in (("HEADGATE_URL", asked.url), ("HEADGATE_TOKEN", asked.token)):
        if value is not None:
            os.environ[variable] = value
    logs.set_up(asked.log_format, asked.log_level)
    app = find(asked.app)
    try:
        worker = Worker(
            app,
            queues=asked.queues,
            pool=asked.pool,
            concurrency=asked.concurrency,
            processes=asked.processes,
            grace=asked.grace,
            worker_id=asked.worker_id,
            labels=dict(asked.label),
            exchange=asked.exchange,
            burst=asked.burst,
        )
    except ValidationError as error:
        raise Refusal(error.message, WRONG) from None
    if not len(app.parts.register):
        raise Refusal(f"{asked.app} has no handlers", WRONG, "declare them with @hg.job")
    worker.run()


def find(place: str) -> Headgate | AsyncHeadgate:
    """The client that a module has under this name, or the only one that it has."""
    from importlib import import_module
    from pathlib import Path

    from headgate.client.app import AsyncHeadgate, Headgate

    module, _, name = place.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and module.startswith(error.name):
            raise Refusal(
                f"there is no module {module} here", WRONG, "it is looked for from this directory"
            ) from None
        raise Refusal(_failure(module, error)) from error
    except Exception as error:
        raise Refusal(_failure(module, error)) from error
    if not name:
        all_of_it = {
            id(one): one
            for one in vars(found).values()
            if isinstance(one, Headgate | AsyncHeadgate)
        }
        if len(all_of_it) != 1:
            raise Refusal(
                f"{module} has {len(all_of_it)} Headgate objects", WRONG, f"name one: {module}:hg"
            )
        return next(iter(all_of_it.values()))  # fmt: skip
    for part in name.split("."):
        if not hasattr(found, part):
            raise Refusal(f"{module} has no {name}", WRONG)
        found = getattr(found, part)
    if not isinstance(found, Headgate | AsyncHeadgate):
        raise Refusal(f"{place} is a {type(found).__name__}, not a Headgate", WRONG)
    return found


def _failure(module: str, error: Exception) -> str:
    """The place in the application's own code, and what went wrong there."""
    from traceback import extract_tb

    frames = [
        frame for frame in extract_tb(error.__traceback__) if "importlib" not in frame.filename
    ]
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if len(frames) > 1 else ""
    return f"{module} cannot be imported: {type(error).__name__}: {error}{place}"
