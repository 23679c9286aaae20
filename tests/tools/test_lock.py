from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def wanted(*groups: str) -> set[str]:
    """The names of what the project needs, with and without these groups."""
    found = list(PROJECT["project"]["dependencies"])
    for group in groups:
        found += [each for each in PROJECT["dependency-groups"][group] if isinstance(each, str)]
    return {re.split(r"[^\w.-]", each)[0] for each in found}


@pytest.mark.parametrize(
    ("lock", "groups"),
    [("requirements.lock", ["build"]), ("requirements-dev.lock", ["build", "dev"])],
)
def test_what_the_project_needs_is_locked(lock: str, groups: list[str]) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    locked = set(re.findall(r"^([\w.-]+)==", text, flags=re.MULTILINE))
    assert wanted(*groups) - locked == set(), "run: make lock"
    assert "://" not in text
