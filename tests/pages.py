"""The pages of the documentation, and what they are made of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "changes/README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


class Block(NamedTuple):
    page: Path
    line: int
    kind: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> Iterator[Block]:
    kind: str | None = None
    begun = 0
    lines: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            if kind is None:
                kind, begun, lines = line[3:].strip(), number, []
            else:
                assert line == "```", f"{page}:{number}: a fence inside a fence"
                yield Block(page, begun, kind, "\n".join(lines) + "\n")
                kind = None
        elif kind is not None:
            lines.append(line)
        else:
            assert not re.match(r"\s+(```|~~~)|~~~", line), f"{page}:{number}: not a plain fence"
    assert kind is None, f"{page}: a fence is left open"


def prose(page: Path) -> str:
    """The page without its blocks and its code."""
    text = re.sub(
        r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    return re.sub(r"`[^`\n]+`", lambda code: re.sub(r"[\[\]()]", "", code[0]), text)


def anchors(page: Path) -> set[str]:
    """As the usual viewers make them out of headings."""
    found: dict[str, int] = {}
    result = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *$", prose(page), flags=re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        times = found.get(slug, 0)
        found[slug] = times + 1
        result.add(f"{slug}-{times}" if times else slug)
    return result
