"""How long and how large the measurements are."""

from __future__ import annotations

from msgspec import Struct


class Size(Struct, frozen=True):
    rounds: int
    """Each measurement is repeated, and the median counts."""
    jobs: int
    """For each operation of the engine, in each round."""
    waiting: int
    """Jobs that wait while memory, pauses and the restart are measured."""
    flow_s: float
    """How long jobs flow past them."""
    load_s: float
    """How long the server is under load, for each kind of request."""
    warm_s: float
    """Under load before anything counts."""
    connections: int
    wakes: int
    idle_s: float
    depth: int = 1
    """How many enqueues a connection sends ahead of their answers."""


NORMAL = Size(3, 60_000, 1_000_000, 30.0, 3.0, 0.7, 64, 300, 5.0)
QUICK = Size(1, 6_000, 50_000, 1.0, 0.4, 0.2, 64, 50, 0.5)
