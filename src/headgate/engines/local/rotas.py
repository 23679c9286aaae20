"""Turns among queues: which of them have something to fetch, and whose turn it is."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from headgate.core.order import (
    NOBODY,
    Guarantee,
    LeastLoaded,
    RoundRobin,
    Strategy,
    Turn,
    Weighted,
    turn_of,
)
from headgate.core.states import AVAILABLE

if TYPE_CHECKING:
    from headgate.core.pools import Starvation
    from headgate.engines.local.queue import Queue


class Rota:
    """The turns of some queues, for the fetches of one pool or of one kind."""

    __slots__ = ("_grows", "_guarantee", "_interval_ms", "_there", "pool", "queues", "turn")

    def __init__(self, pool: str, queues: Sequence[Queue], turn: Turn) -> None:
        self.pool = pool
        self.queues = queues
        self.turn = turn
        self._guarantee: Guarantee | None = None
        self._interval_ms = 0
        self._there: set[int] = set()
        self._grows = isinstance(turn, LeastLoaded)

    def guarantee(self, starvation: Starvation, now_ms: int) -> None:
        """Let no queue starve from now on, or leave everything to the turn."""
        self._guarantee = None
        if starvation.enabled:
            size = len(self.queues)
            self._interval_ms = starvation.interval_ms
            self._guarantee = Guarantee(self.turn, starvation.ratio, starvation.interval_ms, size)
            for i in sorted(self._there):
                self._guarantee.add(i, now_ms)

    def sync(self, i: int, fetchable: bool, now_ms: int) -> None:
        """Say whether queue `i` has something to fetch."""
        there = self._there
        if fetchable:
            if i not in there or self._grows:
                there.add(i)
                if self._guarantee is not None:
                    self._guarantee.add(i, now_ms)
                else:
                    self.turn.add(i)
        elif i in there:
            there.remove(i)
            (self._guarantee or self.turn).drop(i)

    @property
    def empty(self) -> bool:
        return not self._there

    def choose(self, now_ms: int, skip: AbstractSet[int] = NOBODY) -> int | None:
        if self._guarantee is not None:
            return self._guarantee.choose(now_ms, skip)
        return self.turn.choose(skip)

    def served(self, i: int, now_ms: int) -> int:
        """Gives for how many milliseconds the queue had starved; 0 when it had not."""
        if self._guarantee is None:
            self.turn.served(i)
            return 0
        waited_ms = self._guarantee.waited_ms(i, now_ms)
        self._guarantee.served(i, now_ms)
        return waited_ms if waited_ms >= self._interval_ms else 0

    def pack(self) -> bytes | None:
        """What must survive a restart of whose turn it is; None when nothing does."""
        turn = self.turn
        return turn.pack() if isinstance(turn, RoundRobin | Weighted) else None


def rota(
    pool: str,
    queues: Sequence[Queue],
    strategy: Strategy,
    weights: Sequence[int],
    packed: bytes | None = None,
) -> Rota:
    """Turns by this strategy, with nobody there yet; `packed` is what was kept of earlier ones."""
    turn = turn_of(strategy, len(queues), weights, lambda i: queues[i].counts[AVAILABLE])
    if packed is not None:
        if isinstance(turn, RoundRobin):
            turn = RoundRobin.unpack(len(queues), packed)
        elif isinstance(turn, Weighted):
            turn = Weighted.unpack(weights, packed)
    return Rota(pool, queues, turn)
