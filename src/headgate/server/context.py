"""What every request handler may use."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from headgate.engines.contract import Engine
from headgate.server.settings import Settings


class Context(Struct, eq=False):
    engine: Engine
    settings: Settings
    now_ms: Callable[[], int]
    """The one clock of this process; it never goes back."""
    new_id: Callable[[int], str]
    """A UUIDv7 for the given time."""
    uniform: Callable[[], float]
    """A random number in [0, 1)."""
    started_at: int = 0
