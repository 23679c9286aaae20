"""The server that a command asks: where it is, with what rights, and what its refusals mean here."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from headgate.cli.refusal import (
    FAILED,
    FORBIDDEN,
    LATER,
    MISSING,
    UNREACHABLE,
    WRONG,
    Refusal,
)

if TYPE_CHECKING:
    from headgate.client.app import Headgate
    from headgate.client.errors import OjsError

SHARED: Final = ("--url", "--token", "--json")
"""Options of every command that asks a server."""
_UNREACHABLE: Final = (
    "is the server running? headgate serve starts one, --url or HEADGATE_URL names another"
)
_PER_PAGE: Final = 100
_PATIENCE_S: Final = 30.0
_REPEATED: Final = 2
"""How often a request is sent at most when nobody answers: a person is waiting."""


def add_server(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--url", help="where the server is; HEADGATE_URL says it too (http://127.0.0.1:8080)"
    )
    command.add_argument("--token", help="what lets you in; HEADGATE_TOKEN says it too")
    add_json(command)


def add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--json", action="store_true", help="print one JSON document instead of a text for people"
    )


@contextmanager
def asking(
    asked: argparse.Namespace,
    *,
    tries: int = _REPEATED,
    block: float = 0.0,
    timeout: float = _PATIENCE_S,
) -> Iterator[Headgate]:
    """A client of the server; what it raises becomes a refusal."""
    from headgate.client.app import Headgate
    from headgate.client.errors import OjsError
    from headgate.client.pressure.waits import Waits

    waits = Waits(tries=tries)
    try:
        with Headgate(
            asked.url, token=asked.token, retry=waits, breaker=False, block=block, timeout=timeout
        ) as client:
            yield client
    except OjsError as error:
        raise refused(error) from None


def refused(error: OjsError) -> Refusal:
    code, hint = _meaning(error)
    return Refusal(error.message, code, error.hint if hint is None else hint, error.code)


def _meaning(error: OjsError) -> tuple[int, str | None]:
    """The exit code, and the hint; None where the server's own is the best."""
    from headgate.client import errors

    match error:
        case errors.OjsConnectionError():
            return UNREACHABLE, _UNREACHABLE
        case errors.OjsTimeoutError() if not error.status:
            return UNREACHABLE, "headgate doctor looks at the server"
        case errors.AuthenticationError() if error.status == 401:
            return FORBIDDEN, "--token or HEADGATE_TOKEN names a token"
        case errors.AuthenticationError():
            return FORBIDDEN, None
        case errors.JobNotFoundError():
            return MISSING, "finished jobs are forgotten when their retention ends"
        case errors.NotFoundError():
            return MISSING, _listing(error)
        case errors.QueueFullError():
            return LATER, "try again later, or let it wait for room with --block SECONDS"
        case errors.ResourceError():
            return LATER, None
        case errors.ConflictError() if "unfinished_jobs" in error.details:
            return FAILED, "--discard or --move-to says what becomes of them"
        case errors.ConflictError():
            return FAILED, ""
        case errors.ValidationError():
            # Its message names the member and what was expected.
            return WRONG, ""
        case _:
            return FAILED, None


def _listing(error: OjsError) -> str:
    """How to find out what there is."""
    for word, command in (("queue", "queue"), ("pool", "pool"), ("key", "limit")):
        if f"no {word} " in error.message or f"the {word} " in error.message:
            return f"headgate {command} list shows those that there are"
    return "finished jobs are forgotten when their retention ends" if "job" in error.message else ""


def listed(
    client: Headgate, path: str, query: dict[str, Any] | None = None, most: int | None = None
) -> tuple[list[dict[str, Any]], int]:
    """The items of an administrative list, so many at most, and how many there are."""
    found: list[dict[str, Any]] = []
    page = 1
    while True:
        asked = {**(query or {}), "page": page, "per_page": _PER_PAGE}
        answer = client.admin.request("GET", path, query=asked)
        found += answer["items"]
        total = answer["pagination"]["total"]
        if page * _PER_PAGE >= total or (most is not None and len(found) >= most):
            return found[:most], total
        page += 1
