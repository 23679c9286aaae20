"""`headgate doctor`"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from headgate.cli import words
from headgate.cli.asking import add_server, asking
from headgate.cli.doctor.finding import Finding
from headgate.cli.refusal import FAILED, UNREACHABLE, Refusal
from headgate.cli.table import plain, show

_ORDER: Final = ("error", "warning", "note", "ok")


def add(commands: Any) -> None:
    command = commands.add_parser(
        "doctor",
        help="find out what is wrong with this installation, and what to do",
        description="Find out what is wrong with this installation, and what to do: the server, its "
        "store, settings, tokens and clock; queues, workers, keys and dead letters; the Python here.",
        epilog="Ends with 0 when there is no error, 1 when there is one, and 4 when the server does "
        "not answer.",
    )
    command.add_argument(
        "--strict", action="store_true", help="let warnings count as errors in the exit code"
    )
    command.add_argument("--brief", action="store_true", help="leave out what is well")
    add_server(command)
    command.set_defaults(run=run)


def run(asked: argparse.Namespace) -> int:
    findings, answers = _findings(asked)
    findings.sort(key=lambda finding: _ORDER.index(finding.level))
    errors = sum(finding.level == "error" for finding in findings)
    warnings = sum(finding.level == "warning" for finding in findings)
    well = not errors and not (asked.strict and warnings)
    if asked.json:
        told = [vars(finding) for finding in findings]
        print(json.dumps({"well": well, "errors": errors, "warnings": warnings, "findings": told}))
    else:
        shown = [each for each in findings if each.level != "ok" or not asked.brief]
        show(map(plain, lines(shown)))
        print(f"{words.counted(errors, 'error')}, {words.counted(warnings, 'warning')}")
    if not answers:
        return UNREACHABLE
    return 0 if well else FAILED


def _findings(asked: argparse.Namespace) -> tuple[list[Finding], bool]:
    """What was found, and whether the server answers."""
    from headgate.cli.doctor import keys, packages, queues, server
    from headgate.cli.doctor.facts import gathered

    found = list(packages.judged())
    try:
        with asking(asked) as client:
            facts = gathered(client)
    except Refusal as refusal:
        if refusal.code not in {FAILED, UNREACHABLE}:
            raise
        return [*found, Finding("error", "server", str(refusal), refusal.hint)], False
    return [*found, *server.judged(facts), *queues.judged(facts), *keys.judged(facts)], True


def lines(findings: Sequence[Finding]) -> Iterable[str]:
    """Level and subject in columns; what to do stands below."""
    levels = max((len(finding.level) for finding in findings), default=0)
    abouts = max((len(finding.about) for finding in findings), default=0)
    for finding in findings:
        head = f"{finding.level.ljust(levels)}  {finding.about.ljust(abouts)}"
        yield f"{head}  {finding.message}"
        if finding.remedy:
            yield f"{' ' * len(head)}  -> {finding.remedy}"
