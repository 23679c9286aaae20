from __future__ import annotations

import pytest
from msgspec.structs import replace

from headgate.core.noise import Noise, signals

QUIET = Noise(
    depth=10, depths=(10, 12, 14), enqueued=10, enqueued_by_others=30, active=1, active_of_all=4,
    discarded=1, discarded_by_others=3,
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "most", "told"),
    [
        ("depth", 120, ["depth"]),
        ("enqueued", 50, ["rate"]),
        ("active", 2, ["active"]),
        ("discarded", 3, ["errors"]),
    ],
)
def test_a_signal_is_given_above_its_bound(name: str, most: int, told: list[str]) -> None:
    assert signals(QUIET) == []
    assert signals(replace(QUIET, **{name: most})) == []
    assert signals(replace(QUIET, **{name: most + 1})) == told


def test_nobody_is_loud_alone() -> None:
    assert signals(Noise(1_000, (), 1_000, 0, 9, 9, 99, 0)) == []


def test_beside_idle_neighbours_a_few_jobs_are_no_noise() -> None:
    idle = Noise(10, (0, 0), 5, 0, 0, 0, 3, 0)
    assert signals(idle) == []
    assert signals(replace(idle, depth=11, enqueued=6, discarded=4)) == ["depth", "rate", "errors"]
