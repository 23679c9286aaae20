from __future__ import annotations

import time

import pytest

from headgate import clock
from headgate.clock import Clock, steady, wall_ms

SECOND_NS = 1_000_000_000


class Machine:
    """A wall clock that can be set, and a counter that only moves on."""

    def __init__(self) -> None:
        self.wall_ns = 1_770_000_000 * SECOND_NS
        self.elapsed_ns = 12_345 * SECOND_NS

    def pass_s(self, seconds: int) -> None:
        self.wall_ns += seconds * SECOND_NS
        self.elapsed_ns += seconds * SECOND_NS

    def read(self, which: int) -> int:
        assert which == clock._ELAPSED
        return self.elapsed_ns


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(time, "time_ns", lambda: machine.wall_ns)
    monkeypatch.setattr(time, "clock_gettime_ns", machine.read)
    return machine


def test_it_starts_at_the_wall_clock_and_counts_milliseconds(machine: Machine) -> None:
    now_ms = steady()
    assert now_ms() == wall_ms() == 1_770_000_000_000
    machine.elapsed_ns += 1_999_999
    assert now_ms() == 1_770_000_000_001


def test_microseconds_are_those_of_the_same_instant(machine: Machine) -> None:
    now = Clock()
    machine.elapsed_ns += 1_999_999
    assert (now.now_ms(), now.now_us()) == (1_770_000_000_001, 1_770_000_000_001_999)


def test_setting_the_wall_clock_moves_nothing(machine: Machine) -> None:
    now_ms = steady()
    machine.wall_ns -= 3_600 * SECOND_NS
    assert now_ms() == 1_770_000_000_000
    machine.pass_s(5)
    assert now_ms() == 1_770_000_005_000


def test_it_starts_no_earlier_than_what_was_known(machine: Machine) -> None:
    known = wall_ms() + 60_000
    now_ms = steady(known)
    assert now_ms() == known
    machine.pass_s(1)
    assert now_ms() == known + 1_000
    assert steady(known - 120_000)() == wall_ms()


def test_the_real_clocks_agree_and_never_go_back() -> None:
    now_ms = steady()
    assert abs(now_ms() - wall_ms()) < 60_000
    seen = [now_ms() for _ in range(1_000)]
    assert seen == sorted(seen)
