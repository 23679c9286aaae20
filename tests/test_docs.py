"""Runs what README and docs show, and follows every link in them.

Every fenced block is of one of these kinds, and each kind is checked:

- `sh` is run; all blocks of a page run in one directory, and the commands of a page share one shell until the next `sh server`.
- `sh server` runs the server: `make serve` with its ARGS, on a free port instead of the default one. Pages without it talk to a server with default settings.
- `json answer` and `text answer` show what the `sh` block before them prints. `…` stands for anything: a part of a text, all further lines, or, as a member or an item, all others.
- `python` is run, `json` must be JSON, `toml` must be a configuration that the server takes.
- `sh not-run` is for what cannot run inside a test; NOT_RUN says what that may be.
- `mermaid` may only stand in generated parts.

An address of the default port is replaced by the address of the page's own server.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headgate.core.errors import CATALOGUE, OjsError
from headgate.core.states import mermaid
from headgate.server.configuration import load
from headgate.server.routes import ROUTES
from headgate.server.settings import Limits, Settings
from tests.pages import PAGES, ROOT, Block, anchors, blocks_of, prose
from tests.site import CURLS, Site, knows_json
from tools import gen, reference

KINDS = {
    "sh",
    "sh server",
    "sh not-run",
    "json",
    "json answer",
    "text answer",
    "toml",
    "python",
    "mermaid",
}
RUN = {"sh", "python"}
NOT_RUN = re.compile(r"make (test|check|fix|gen|lock|docs|bench|lint|types|contracts)( ARGS=.+)?")

ANYTHING = "…"
REFUSAL = re.compile(r'\{"error":\s*\{')


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def of_kind(*kinds: str) -> list[Any]:
    return [pytest.param(b, id=b.place) for b in BLOCKS if b.kind in kinds]


# Blocks


def test_every_fence_is_a_block_of_a_known_kind() -> None:
    fences = sum(
        line.startswith("```") for page in PAGES for line in page.read_text("utf-8").splitlines()
    )
    assert fences == 2 * len(BLOCKS)
    assert [block.place for block in BLOCKS if block.kind not in KINDS] == []
    assert sum(block.kind in RUN for block in BLOCKS) >= 20


@pytest.mark.parametrize("block", of_kind("json", "json answer"))
def test_json_is_json(block: Block) -> None:
    json.loads(block.text)


@pytest.mark.parametrize("block", of_kind("toml"))
def test_toml_is_a_configuration(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "headgate.toml"
    file.write_text(block.text, encoding="utf-8")
    assert load({}, {}, str(file)) != Settings(), "it sets nothing"


@pytest.mark.parametrize("block", of_kind("mermaid"))
def test_diagrams_are_generated(block: Block) -> None:
    assert block.text == mermaid()


@pytest.mark.parametrize("block", of_kind("sh not-run"))
def test_what_is_not_run_may_not_be_run(block: Block) -> None:
    for line in block.text.splitlines():
        assert NOT_RUN.fullmatch(line), f"{line!r} could be run"


def test_the_commands_of_make_exist() -> None:
    listed = subprocess.run(
        ["make", "-C", ROOT, "--no-print-directory", "help"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    targets = {line.split()[1] for line in listed.splitlines()}
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    named = {name for text in texts for name in re.findall(r"`make ([a-z]+)", text)}
    named |= {b.text.split()[1] for b in BLOCKS if b.kind in {"sh server", "sh not-run"}}
    assert named
    assert named <= targets


def test_make_serve_runs_the_server_with_the_arguments_given() -> None:
    told = subprocess.run(
        ["make", "-C", ROOT, "--no-print-directory", "-n", "serve", "ARGS=--port 9000"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert told.splitlines()[-1] == "exec .venv/bin/headgate serve --port 9000"


def test_nobody_is_told_to_install_another_project() -> None:
    """What indexes call `headgate` is not this, so an installation names a place."""
    texts = [*PAGES, *(ROOT / "src").rglob("*.py")]
    by_name = re.compile(r"pip install (?:-\S+ )*[\"']?headgate\b")
    assert [str(t) for t in texts if by_name.search(t.read_text(encoding="utf-8"))] == []


def test_the_address_in_the_documentation_is_the_default_one() -> None:
    assert (Settings().host, Settings().port) == ("127.0.0.1", 8080)


# Pages as a reader follows them


def runs(page: Path) -> list[Block]:
    return [
        b for b in blocks_of(page) if b.kind in RUN | {"sh server", "json answer", "text answer"}
    ]


@pytest.mark.parametrize("curl", CURLS)
@pytest.mark.parametrize("page", [pytest.param(p, id=p.name) for p in PAGES if runs(p)])
def test_what_a_page_shows_is_what_happens(page: Path, curl: str, tmp_path: Path) -> None:
    if curl == "curl" and not knows_json(curl):
        pytest.skip("no curl with --json here; the stand-in runs the page")
    site = Site(tmp_path, CURLS[curl])
    left = runs(page)
    try:
        if not any(block.kind == "sh server" for block in left):
            site.serve()
        while left:
            printed: list[tuple[Block, str]] = []
            if left[0].kind == "sh server":
                block = left.pop(0)
                printed.append((block, site.serve(arguments_of(block))))
            # Until another server is to run.
            ends = next((i for i, b in enumerate(left) if b.kind == "sh server"), len(left))
            shown, left = left[:ends], left[ends:]
            commands = [block for block in shown if block.kind in RUN]
            printed += zip(commands, site.run(commands), strict=True)
            compare(printed, shown)
    finally:
        site.stop()


def arguments_of(block: Block) -> list[str]:
    make, target, *rest = shlex.split(block.text)
    assert (make, target) == ("make", "serve"), block.place
    assert all(word.startswith("ARGS=") for word in rest), block.place
    return [argument for word in rest for argument in shlex.split(word.removeprefix("ARGS="))]


def compare(printed: Sequence[tuple[Block, str]], shown: Sequence[Block]) -> None:
    answers = [block for block in shown if block.kind not in RUN]
    for block, text in printed:
        following = next((b for b in shown if b.line > block.line), None)
        if following is None or following not in answers:
            assert not REFUSAL.search(text), f"{block.place} was refused: {text}"
            continue
        answers.remove(following)
        if following.kind == "json answer":
            wrong = difference(json.loads(following.text), json.loads(text))
        else:
            wrong = "" if pattern(following.text).fullmatch(text) else "other text"
        assert not wrong, f"{following.place}: {wrong}\n{text}"
    assert answers == [], "an answer to nothing"


def difference(shown: Any, found: Any, path: str = "") -> str:
    """Where what was found is not what is shown; "" when it is."""
    if isinstance(shown, str) and ANYTHING in shown:
        fits = shown == ANYTHING or (isinstance(found, str) and pattern(shown).fullmatch(found))
        return "" if fits else f"{path} is {found!r}"
    if isinstance(shown, dict) and isinstance(found, dict):
        missing = set(shown) - set(found) - {ANYTHING}
        more = set() if ANYTHING in shown else set(found) - set(shown)
        if missing or more:
            return f"{path} lacks {sorted(missing)}, has besides {sorted(more)}"
        pairs = [
            (member, value, found[member]) for member, value in shown.items() if member != ANYTHING
        ]
    elif isinstance(shown, list) and isinstance(found, list):
        items = shown[:-1] if shown[-1:] == [ANYTHING] else shown
        if len(found) < len(items) or (len(found) > len(items) and items is shown):
            return f"{path} has {len(found)} items"
        pairs = [(str(i), item, found[i]) for i, item in enumerate(items)]
    else:
        same = shown == found and type(shown) is type(found)
        return "" if same else f"{path} is {found!r}"
    return next(filter(None, (difference(s, f, f"{path}/{name}") for name, s, f in pairs)), "")


def pattern(shown: str) -> re.Pattern[str]:
    """`…` alone on a line is any lines, elsewhere any part of one."""
    lines = [
        "(?:.*\n)*" if line == f"{ANYTHING}\n" else ".*".join(map(re.escape, line.split(ANYTHING)))
        for line in shown.splitlines(keepends=True)
    ]
    return re.compile("".join(lines))


@pytest.mark.parametrize(
    ("shown", "found", "same"),
    [
        ({"a": 1}, {"a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1, "…": "…"}, {"a": 1, "b": 2}, True),
        ({"a": 1, "…": "…"}, {"b": 2}, False),
        ({"a": "…"}, {"a": [1]}, True),
        ({"a": "x…z"}, {"a": "xyz"}, True),
        ({"a": "x…z"}, {"a": "xy"}, False),
        ([1, 2], [1, 2, 3], False),
        ([1, 2], [1], False),
        ([1, "…"], [1, 2, 3], True),
        ([2, "…"], [1, 2, 3], False),
    ],
)
def test_differences_are_seen(shown: Any, found: Any, same: bool) -> None:
    assert (difference(shown, found) == "") == same


@pytest.mark.parametrize(
    ("shown", "found", "same"),
    [
        ("a …\n", "a b\n", True),
        ("a …\n", "b\n", False),
        ("a\n…\nd\n", "a\nb\nc\nd\n", True),
        ("a\n…\nd\n", "a\nb\nc\n", False),
        ("a.c\n", "abc\n", False),
    ],
)
def test_other_texts_are_seen(shown: str, found: str, same: bool) -> None:
    assert bool(pattern(shown).fullmatch(found)) == same


# Links


@pytest.mark.parametrize("page", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        assert "://" not in target, f"{target} leaves the project"
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{target}: there is no such file"
        assert file.is_relative_to(ROOT), f"{target} leaves the project"
        if anchor:
            assert anchor in anchors(file), f"{target}: there is no such heading"


def test_every_page_can_be_reached_from_the_first_one() -> None:
    reached: set[Path] = set()
    todo = {ROOT / "README.md"}
    while todo:
        page = todo.pop()
        reached.add(page)
        links = re.findall(r"\]\(([^)#\s]+)", prose(page))
        found = {(page.parent / link).resolve() for link in links if link.endswith(".md")}
        todo |= {page for page in found - reached if page.exists()}
    assert [str(page.relative_to(ROOT)) for page in PAGES if page not in reached] == []


# What the code has and the pages must tell


def test_generated_parts_are_up_to_date() -> None:
    stale = [path.name for path, text in gen.made(ROOT) if gen.difference(path, text)]
    assert stale == [], "run: make gen"


def test_every_command_and_option_is_described() -> None:
    page = (ROOT / "docs/cli.md").read_text(encoding="utf-8").partition("\n## Reference\n")[2]
    said = {name: part for name, _, part in (s.partition("\n") for s in page.split("\n### ")[1:])}
    commands = dict(reference.commands_and_options())
    assert set(said) == {f"headgate {name}" for name in commands}
    for name, options in commands.items():
        for option in options:
            assert re.search(rf"`{option}[` ]", said[f"headgate {name}"]), f"{name} {option}"


NOT_SHOWN = {"serve": "a page's own server runs already"}
"""Commands that no page runs, and why."""


def test_every_command_is_shown_at_work() -> None:
    run = "\n".join(block.text for block in BLOCKS if block.kind == "sh")
    names = {name for name, _ in reference.commands_and_options()}
    shown = {name for name in names if re.search(rf"\bheadgate {name}\b", run)}
    assert names - shown == set(NOT_SHOWN)


def test_every_setting_and_limit_is_described() -> None:
    page = (ROOT / "docs/operating.md").read_text(encoding="utf-8")
    names = {*Settings.__struct_fields__, *Limits.__struct_fields__} - {"tokens", "limits"}
    assert sorted(name for name in names if f"\n| `{name}` |" not in page) == []


def test_every_request_is_listed() -> None:
    page = (ROOT / "docs/http.md").read_text(encoding="utf-8")
    requests = [f"`{route.method} {route.path}`" for route in ROUTES]
    assert [request for request in requests if f"| {request} |" not in page] == []


def test_every_event_is_listed() -> None:
    page = (ROOT / "docs/http.md").read_text(encoding="utf-8")
    sources = (ROOT / "src/headgate/engines").rglob("*.py")
    texts = [source.read_text(encoding="utf-8") for source in sources]
    kinds = {
        k
        for text in texts
        for k in re.findall(
            r'"((?:job|queue|worker|priority|rate_limit|backpressure|scheduling|tenant)\.[a-z_]+)"',
            text,
        )
    }
    assert len(kinds) > 10
    assert sorted(kind for kind in kinds if f"`{kind}`" not in page) == []


@pytest.mark.parametrize("code", sorted(CATALOGUE))
def test_every_error_points_at_its_description(code: str) -> None:
    refusal = type("Refusal", (OjsError,), {"code": code})()
    path, _, anchor = refusal.body("req")["error"]["docs_url"].partition("#")
    assert anchor in anchors(ROOT / path)
