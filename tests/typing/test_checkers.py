"""Type checkers understand the public API: what is right passes, what is wrong is found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def mypy(file: Path) -> set[int]:
    """The lines of the file with errors."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--no-pretty"),
            *("--cache-dir", str(ROOT / ".mypy_cache"), "--config-file", str(ROOT / "pyproject.toml")),
            str(file),
        ],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in {0, 1}, done.stderr
    lines = [line.split(":") for line in done.stdout.splitlines() if ": error:" in line]
    assert all(Path(place[0]).name == file.name for place in lines), done.stdout
    return {int(place[1]) for place in lines}


def pyright(file: Path) -> set[int]:
    """The lines of the file with errors, by pyright's own strictness."""
    settings = file.parent / "pyrightconfig.json"
    settings.write_text(
        json.dumps(
            {
                "include": [str(file)],
                "extraPaths": [str(ROOT / "src")],
                "typeCheckingMode": "strict",
                "pythonVersion": "3.11",
            }
        )
    )
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "basedpyright"),
            *("--outputjson", "--pythonpath", sys.executable, "--project", str(settings)),
        ],
        cwd=file.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in {0, 1}, done.stderr
    found = json.loads(done.stdout)["generalDiagnostics"]
    return {one["range"]["start"]["line"] + 1 for one in found if one["severity"] == "error"}


CHECKERS = {"mypy": mypy, "pyright": pyright}


@pytest.mark.parametrize("name", ["good.py", "kit.py"])
@pytest.mark.parametrize("checker", CHECKERS)
def test_what_is_right_passes(checker: str, name: str, tmp_path: Path) -> None:
    file = tmp_path / "right.py"
    file.write_text((HERE / name).read_text())
    assert CHECKERS[checker](file) == set()


@pytest.mark.parametrize("checker", CHECKERS)
def test_what_is_wrong_is_found(checker: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text((HERE / "bad.txt").read_text())
    wrong = {n for n, line in enumerate(file.read_text().splitlines(), 1) if "# wrong" in line}
    assert len(wrong) > 15
    assert CHECKERS[checker](file) == wrong
