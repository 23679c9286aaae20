from __future__ import annotations

import subprocess
import sys

import pytest

import headgate
from headgate import public


def test_all_public_names_are_there() -> None:
    assert set(public.__all__) <= set(dir(headgate))
    for name in public.__all__:
        assert getattr(headgate, name) is getattr(public, name)
    names: dict[str, object] = {}
    exec("from headgate import *", names)
    assert set(public.__all__) <= set(names)


@pytest.mark.parametrize("name", ["nothing", "Nothing", "TYPE_CHECKING_", "_core", "annotations_"])
def test_other_names_are_not(name: str) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
        getattr(headgate, name)


@pytest.mark.parametrize(
    "code",
    [
        "from headgate.cli.main import main, parser; parser()",
        "from headgate import clock, ids, version",
    ],
)
def test_what_needs_no_client_imports_none(code: str) -> None:
    seen = f"{code}\nimport sys\nprint(*(name for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", seen], capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    assert "headgate" in modules
    assert not modules & {
        "asyncio", "ssl", "apsw", "uvicorn", "headgate.client.app", "headgate.worker.worker",
        "headgate.engines.contract",
    }  # fmt: skip
