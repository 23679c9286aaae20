"""What every request handler may use."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field

from headgate.engines.contract import Engine
from headgate.server.metrics import Metrics
from headgate.server.settings import Settings


def _NOT_GIVEN() -> int:  # noqa: N802
    raise NotImplementedError


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
    metrics: Metrics = field(default_factory=Metrics)
    """Whoever opens the engine lets it `listen` to these."""
    now_us: Callable[[], int] = _NOT_GIVEN
    """The same clock in microseconds, by which fetches reckon; made of `now_ms` where it is not given."""

    def __post_init__(self) -> None:
        if self.now_us is _NOT_GIVEN:
            self.now_us = lambda: self.now_ms() * 1_000
