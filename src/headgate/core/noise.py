"""Whether one tenant takes so much that its neighbours may feel it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

from msgspec import Struct

DEPTH: Final = 10
"""So many times the median of the other tenants' waiting jobs."""
RATE: Final = 5
"""So many times what the others enqueue on average."""
ERRORS: Final = 3
"""So many times what the others lose on average."""


class Noise(Struct, frozen=True):
    """What a tenant has and does, beside all others that have jobs."""

    depth: int
    """Available and scheduled jobs."""
    depths: Sequence[int]
    """Of each of the others."""
    enqueued: int
    """In the last minute."""
    enqueued_by_others: int
    active: int
    active_of_all: int
    discarded: int
    """In the last minute."""
    discarded_by_others: int


def signals(noise: Noise) -> list[str]:
    """Which of depth, rate, active and errors is out of proportion; none where nobody else is there."""
    others = len(noise.depths)
    if not others:
        return []
    found = {
        "depth": noise.depth > DEPTH * max(1, median(noise.depths)),
        "rate": noise.enqueued > RATE * max(1, noise.enqueued_by_others / others),
        "active": 2 * noise.active > noise.active_of_all,
        "errors": noise.discarded > ERRORS * max(1, noise.discarded_by_others / others),
    }
    return [name for name, is_loud in found.items() if is_loud]
