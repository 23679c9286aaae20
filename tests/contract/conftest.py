from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.home import Home


@pytest.fixture(params=["memory", "file"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    """Every kind of engine."""
    return Home(":memory:" if request.param == "memory" else str(tmp_path / "jobs.db"))


@pytest.fixture
def durable(tmp_path: Path) -> Home:
    """Every kind of engine that keeps its state when it is closed."""
    return Home(str(tmp_path / "jobs.db"))
