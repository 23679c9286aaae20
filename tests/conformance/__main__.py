"""`OJS_CONFORMANCE=SUITES python -m tests.conformance`: run everything, write the results and the page made of them."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import msgspec

from tests.conformance.expected import FAILING
from tests.conformance.page import RESULTS, conformance_page
from tests.conformance.runner import load, run_all

SERVERS = 6
PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"


def main() -> int:
    suites = os.environ.get("OJS_CONFORMANCE", "")
    if not Path(suites or "none").is_dir():
        print("OJS_CONFORMANCE must name the directory of the official suites", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as place:
        results = run_all(load(Path(suites)), Path(place), SERVERS)
    surprises = [result for result in results if bool(result.failure) != (result.path in FAILING)]
    for result in surprises:
        print(f"{result.path}: {result.failure or 'passes, but is listed as failing'}")
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(conformance_page(results))
    print(f"{sum(not result.failure for result in results)} of {len(results)} pass: {PAGE}")
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
