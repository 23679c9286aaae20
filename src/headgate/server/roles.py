"""Sets of roles that routes ask for."""

from __future__ import annotations

from typing import Final

EVERYBODY: Final = frozenset({"producer", "worker", "operator", "admin"})
"""Everybody who has a token."""
PRODUCERS: Final = frozenset({"producer", "operator", "admin"})
WORKERS: Final = frozenset({"worker", "admin"})
OPERATORS: Final = frozenset({"operator", "admin"})
ADMINS: Final = frozenset({"admin"})
ANYBODY: Final[frozenset[str]] = frozenset()
"""Even those who have none."""
