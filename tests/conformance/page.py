"""The page that says which official tests pass, made of the results of a run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import msgspec

from tests.conformance.expected import FAILING
from tests.conformance.runner import Result

RESULTS = Path(__file__).with_name("results.json")
"""Of the last complete run."""

_HEAD = """# Conformance

The official Open Job Spec suites, run against this server by `python -m tests.conformance`.
Where the official runner passes over what a test says (captures, repetitions, types, raw bodies), this run carries it out.

| Suite | Pass | Of |
|---|---:|---:|
"""
_FAILING = """
## What does not pass

| Test | What it finds | Why |
|---|---|---|
"""
_PASSING = """
## What passes
"""


def known_results() -> list[Result]:
    return msgspec.json.decode(RESULTS.read_bytes(), type=list[Result])


def conformance_page(results: Sequence[Result]) -> str:
    """The same results give the same page."""
    ordered = sorted(results, key=lambda result: result.path)
    page = [_HEAD]
    for suite, tests in groupby(ordered, key=_suite):
        run = list(tests)
        page.append(f"| {suite} | {_passed(run)} | {len(run)} |\n")
    page.append(f"| **all** | {_passed(ordered)} | {len(ordered)} |\n")
    failed = [result for result in ordered if result.failure]
    if failed:
        page.append(_FAILING)
    for result in failed:
        why = FAILING.get(result.path, "Unknown.")
        page.append(f"| {_title(result)} | {_cell(result.failure)} | {why} |\n")
    page.append(_PASSING)
    passed = (result for result in ordered if not result.failure)
    for suite, tests in groupby(passed, key=_suite):
        page.append(f"\n### {suite}\n\n")
        page.extend(f"- {_title(result)}\n" for result in tests)
    return "".join(page)


def _suite(result: Result) -> str:
    return result.path.partition("/")[0]


def _passed(results: Sequence[Result]) -> int:
    return sum(not result.failure for result in results)


def _title(result: Result) -> str:
    return f"{result.id} {result.name}"


def _cell(text: str) -> str:
    return f"`{text[:120]}`".replace("|", "\\|")
