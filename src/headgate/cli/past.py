"""`headgate job history` and `headgate job lineage`: what happened to a job, and to whom it belongs"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from headgate.cli.asking import add_server, asking
from headgate.cli.consent import add_yes, agreed
from headgate.cli.table import show, table

if TYPE_CHECKING:
    from headgate.client.app import Headgate

HEAD: Final = ("AT", "EVENT", "STATE", ">ATTEMPT", "BY", "WHY")
FAMILY: Final = ("RELATION", "JOB", "TYPE", "QUEUE", "STATE")
_PAGE: Final = 200
_RELATIONS: Final = {"children": "child", "family": "family", "workflow": "workflow"}


def add(kinds: Any) -> None:
    history = kinds.add_parser("history", help="show what happened to a job")
    history.add_argument("job", metavar="JOB", help="its id")
    history.add_argument("--delete", action="store_true", help="forget it, where the job has ended")
    add_yes(history)
    add_server(history)
    history.set_defaults(run=show_history)
    lineage = kinds.add_parser("lineage", help="show whom a job comes from and who comes from it")
    lineage.add_argument("job", metavar="JOB", help="its id")
    lineage.add_argument(
        "--relation",
        choices=tuple(_RELATIONS),
        default="children",
        help="who is listed besides its ancestors (children)",
    )
    add_server(lineage)
    lineage.set_defaults(run=show_lineage)


def _every(
    client: Headgate, path: str, part: str, **query: Any
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The first answer, and the items of all pages."""
    first: dict[str, Any] = {}
    found: list[dict[str, Any]] = []
    while True:
        asked = {**query, "limit": _PAGE, "offset": len(found)}
        body = client.admin.request("GET", path, query=asked)
        first = first or body
        found += body[part]
        if not body["pagination"]["has_more"]:
            return first, found


def show_history(asked: argparse.Namespace) -> None:
    from headgate.client.core import at

    path = f"{at('jobs', asked.job)}/history"
    with asking(asked) as client:
        if asked.delete:
            if not asked.yes:
                agreed(asked, f"Forget what happened to job {asked.job}?")
            answer = client.admin.request("DELETE", path)
            print(json.dumps(answer) if asked.json else f"the history of {asked.job} is deleted")
            return
        body, changes = _every(client, path, "history")
    if asked.json:
        print(json.dumps(changes))
        return
    if body["omitted"]:
        print(f"{body['omitted']:,} earlier changes are not kept")
    if "deleted_at" in body:
        print(f"what happened before {body['deleted_at']} was deleted")
    show(table(HEAD, [_change(change) for change in changes]))


def _change(change: Mapping[str, Any]) -> Sequence[str]:
    error = change.get("error") or {}
    kind = error.get("type") or error.get("code") or ""
    why = [change.get("reason", ""), f"{kind}: {error.get('message', '')}" if error else ""]
    times = change.get("times", 1)
    return (
        change["at"],
        change["event"] + (f" ×{times:,}" if times > 1 else ""),  # noqa: RUF001 - a times sign
        change["state"],
        str(change.get("attempt", "")),
        change.get("by") or change.get("worker_id") or "",
        "; ".join(part for part in why if part),
    )


def show_lineage(asked: argparse.Namespace) -> None:
    from headgate.client.core import at

    path = f"{at('jobs', asked.job)}/lineage"
    with asking(asked) as client:
        body, relatives = _every(client, path, "relatives", relation=asked.relation)
    if asked.json:
        print(json.dumps({**body, "relatives": relatives}))
        return
    rows = [("ancestor", each) for each in reversed(body["ancestors"])]
    rows += [(_RELATIONS[asked.relation], each) for each in relatives]
    if not body["complete"]:
        print("its line of ancestors cannot be followed to its beginning")
    show(table(FAMILY, [_relative(relation, each) for relation, each in rows]))


def _relative(relation: str, job: Mapping[str, Any]) -> Sequence[str]:
    return relation, job["id"], job["type"], job["queue"], job["state"]
