"""The official suites, where they are at hand: `OJS_CONFORMANCE` names their directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conformance.expected import FAILING
from tests.conformance.runner import Result, Test, load, run_all

SERVERS = 6

_SUITES = os.environ.get("OJS_CONFORMANCE", "")
_TESTS = {test.path: test for test in load(Path(_SUITES))} if _SUITES else {}

pytestmark = pytest.mark.skipif(
    not _SUITES, reason="OJS_CONFORMANCE does not name the directory of the official suites"
)


@pytest.fixture(scope="module")
def results(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Result]:
    """Of all the tests that were chosen, run side by side: many of them only wait."""
    chosen: list[Test] = []
    for item in request.session.items:
        called = getattr(item, "callspec", None)
        if called is not None and item.path == request.path and "path" in called.params:
            chosen.append(_TESTS[called.params["path"]])
    ran = run_all(chosen, tmp_path_factory.mktemp("stores"), min(SERVERS, len(chosen)))
    return {result.path: result for result in ran}


@pytest.mark.parametrize("path", _TESTS)
def test_official(path: str, results: dict[str, Result]) -> None:
    failure = results[path].failure
    if path in FAILING:
        assert failure, "it passes: take it off the list in expected.py"
    else:
        assert not failure, f"{results[path].id}: {failure}"


def test_only_official_tests_are_listed_as_failing() -> None:
    assert set(FAILING) <= set(_TESTS)
    assert _TESTS
