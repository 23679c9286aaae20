"""Writes the generated parts of the documentation; with `--check` only says whether they are up to date.

A part stands in a page between `<!-- made by make gen: NAME -->` and `<!-- end -->`; all around it is written by hand.
"""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from headgate.server.openapi import document
from tests.conformance.page import conformance_page, known_results
from tools import reference

ROOT = Path(__file__).parent.parent

PARTS: dict[str, Callable[[], str]] = {
    "states": reference.states,
    "settings": reference.settings_table,
    "limits": reference.limits_table,
    "metrics": reference.metrics,
    "errors": reference.errors,
    "commands": reference.commands,
    **{f"routes {tag}": partial(reference.routes, tag) for tag in reference.TAGS},
}

_PLACE = re.compile(r"(<!-- made by make gen: ([^>]+) -->\n)(.*?)(<!-- end -->\n)", re.DOTALL)


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print("usage: python -m tools.gen [--check]", file=sys.stderr)
        return 2
    if arguments:
        stale = [line for path, text in made(ROOT) for line in difference(path, text)]
        if stale:
            print("\n".join(stale))
            print("\ngenerated documentation is out of date; run: make gen", file=sys.stderr)
        return 1 if stale else 0
    for path, text in made(ROOT):
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    return 0


def made(root: Path) -> Iterable[tuple[Path, str]]:
    """Every file that has generated parts, as it should be."""
    missing = set(PARTS)
    for page in sorted((root / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        names = [name for _, name, _, _ in _PLACE.findall(text)]
        unknown = set(names) - set(PARTS)
        if unknown:
            raise SystemExit(f"{page}: nothing makes {', '.join(sorted(unknown))}")
        missing -= set(names)
        if names:
            yield (
                page,
                _PLACE.sub(lambda place: f"{place[1]}\n{PARTS[place[2]]()}\n\n{place[4]}", text),
            )
    if missing:
        raise SystemExit(f"docs: no page has a place for {', '.join(sorted(missing))}")
    routes = json.dumps(document(reference.ALL_ROUTES), indent=1, ensure_ascii=False)
    yield root / "docs/openapi.json", f"{routes}\n"
    yield root / "docs/conformance.md", conformance_page(known_results())


def difference(path: Path, text: str) -> list[str]:
    """What `make gen` would change in the file, as a diff."""
    found = path.read_text(encoding="utf-8") if path.exists() else ""
    name = str(path.name)
    return list(
        difflib.unified_diff(
            found.splitlines(),
            text.splitlines(),
            f"{name} as it is",
            f"{name} as made",
            "",
            "",
            1,
            "",
        )
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
