"""The plugin in a pytest of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

APP = """
from headgate import Headgate, RateLimit

hg = Headgate("http://127.0.0.1:9")


@hg.job(queue="pay", rate_limit=RateLimit("stripe", rate="100/m"))
def charge(number: int) -> int:
    return number
"""

TESTS = """
import pytest
from app import charge


def test_harness(harness):
    harness.enqueue_many(charge, [(i,) for i in range(500)])
    harness.run_for("PT1M", workers=20)
    assert harness.started("stripe") == 100


def test_harness_from_the_application(harness):
    charge.enqueue(1)
    harness.run_for("1s")
    assert harness.completed(task=charge) == 1


def test_fake(headgate_fake):
    charge.enqueue(1)
    headgate_fake.assert_enqueued(charge, args=(1,))


def test_inline(headgate_inline):
    assert charge.enqueue(4).result == 4


def test_real(headgate_real):
    job = charge.enqueue(4)
    assert headgate_real.drain() == 1
    assert job.wait(timeout=5).result == 4
"""

LIGHT = """
import sys


def test_nothing_is_imported():
    assert [name for name in sys.modules if name == "headgate" or name.startswith("headgate.")] == []
    assert "headgate_pytest" in sys.modules
"""


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
        cwd=folder, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    (tmp_path / "test_app.py").write_text(TESTS, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\npythonpath = .\nheadgate_app = app:hg\n", encoding="utf-8"
    )
    return tmp_path


def test_fixtures(folder: Path) -> None:
    done = run(folder)
    assert "5 passed" in done.stdout, done.stdout + done.stderr


def test_an_application_from_a_fixture(folder: Path) -> None:
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\n", encoding="utf-8")
    (folder / "conftest.py").write_text(
        "import pytest\n\n\n@pytest.fixture\ndef headgate_app():\n    import app\n\n    return app.hg\n",
        encoding="utf-8",
    )
    assert "5 passed" in run(folder).stdout


def test_without_an_application(folder: Path) -> None:
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\n", encoding="utf-8")
    done = run(folder, "-k", "fake or test_harness")
    assert "no application is known: set headgate_app" in done.stdout
    # The harness learns of it from the first task, so only the others need to be told.
    assert "1 passed" in done.stdout


def test_a_wrong_name(folder: Path) -> None:
    (folder / "pytest.ini").write_text("[pytest]\nheadgate_app = app\n", encoding="utf-8")
    assert "headgate_app must be MODULE:NAME, not 'app'" in run(folder).stdout


def test_who_does_not_use_it_does_not_import_it(tmp_path: Path) -> None:
    (tmp_path / "test_light.py").write_text(LIGHT, encoding="utf-8")
    done = run(tmp_path)
    assert "1 passed" in done.stdout, done.stdout
