from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import pytest

from tools import gen, reference


@pytest.fixture
def docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the documentation, which the tool takes for the real one."""
    shutil.copytree(gen.ROOT / "docs", tmp_path / "docs")
    monkeypatch.setattr(gen, "ROOT", tmp_path)
    assert gen.main([]) == 0
    return tmp_path / "docs"


def test_what_was_just_made_is_up_to_date(docs: Path) -> None:
    assert gen.main(["--check"]) == 0


def test_a_difference_is_shown_with_what_to_run(
    docs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = docs / "operating.md"
    text = page.read_text()
    page.write_text(text.replace("| `port` | `--port` | `8080` |", "| `port` | `--port` | `80` |"))
    capsys.readouterr()
    assert gen.main(["--check"]) == 1
    said = capsys.readouterr()
    assert "-| `port` | `--port` | `80` |" in said.out
    assert "+| `port` | `--port` | `8080` |" in said.out
    assert "make gen" in said.err
    assert gen.main([]) == 0
    assert page.read_text() == text


def test_a_missing_file_is_a_difference(docs: Path) -> None:
    (docs / "openapi.json").unlink()
    assert gen.main(["--check"]) == 1
    assert gen.main([]) == 0
    assert (docs / "openapi.json").exists()


def test_checking_changes_nothing(docs: Path) -> None:
    page = docs / "cli.md"
    page.write_text(page.read_text().replace("--port", "--bort"))
    gen.main(["--check"])
    assert "--bort" in page.read_text()


def test_what_is_written_by_hand_stays(docs: Path) -> None:
    page = docs / "cli.md"
    page.write_text(f"By hand.\n\n{page.read_text()}")
    assert gen.main([]) == 0
    assert page.read_text().startswith("By hand.\n")


def test_a_part_without_a_place_is_missed(docs: Path) -> None:
    page = docs / "errors.md"
    page.write_text(page.read_text().replace("made by make gen: errors", "nothing"))
    with pytest.raises(SystemExit, match="no page has a place for errors"):
        gen.main([])


def test_a_place_for_nothing_is_refused(docs: Path) -> None:
    page = docs / "errors.md"
    page.write_text(page.read_text().replace("gen: errors", "gen: mistakes"))
    with pytest.raises(SystemExit, match="nothing makes mistakes"):
        gen.main([])


def test_arguments_that_mean_nothing_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert gen.main(["--chekc"]) == 2
    assert "usage" in capsys.readouterr().err


def test_an_option_without_help_cannot_be_described(monkeypatch: pytest.MonkeyPatch) -> None:
    top = argparse.ArgumentParser()
    command = top.add_subparsers().add_parser("serve", help="run")
    command.add_argument("--quietly", action="store_true")
    monkeypatch.setattr(reference, "parser", lambda: top)
    with pytest.raises(SystemExit, match="--quietly has no help"):
        reference.commands()
