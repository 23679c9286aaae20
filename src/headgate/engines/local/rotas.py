"""Turns among queues: which of them have something to fetch, and whose turn it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headgate.core.order import (
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

    __slots__ = (
        "_allowed",
        "_grows",
        "_guarantee",
        "_interval_ms",
        "_lent",
        "_own",
        "pool",
        "queues",
        "turn",
    )

    def __init__(self, pool: str, queues: Sequence[Queue], turn: Turn) -> None:
        self.pool = pool
        self.queues = queues
        self.turn = turn
        self._guarantee: Guarantee | None = None
        self._interval_ms = 0
        self._allowed = 0
        """Queues that give out jobs to this pool at present, if they have any."""
        self._own = 0
        """Those that had something to fetch when they were looked at."""
        self._lent = 0
        """Those that have something since a gate opened that many wait for, though nobody looked."""
        self._grows = isinstance(turn, LeastLoaded)

    def guarantee(self, starvation: Starvation, now_ms: int) -> None:
        """Let no queue starve from now on, or leave everything to the turn."""
        self._guarantee = None
        if starvation.enabled:
            size = len(self.queues)
            self._interval_ms = starvation.interval_ms
            self._guarantee = Guarantee(self.turn, starvation.ratio, starvation.interval_ms, size)
            self._guarantee.add(self.there, now_ms)

    def sync(self, i: int, now_ms: int, *, allowed: bool, fetchable: bool) -> None:
        """Say whether queue `i` gives jobs to this pool, and whether it has something now."""
        bit = 1 << i
        before = self.there & bit
        self._lent &= ~bit
        if allowed:
            self._allowed |= bit
        else:
            self._allowed &= ~bit
        if fetchable:
            self._own |= bit
            if not before or self._grows:
                self._add(bit, now_ms)
        else:
            self._own &= ~bit
            if before:
                self._drop(bit)

    def lend(self, queues: int, now_ms: int) -> None:
        """A gate has opened behind which each of these has something."""
        queues &= self._allowed
        new = queues & ~self.there
        self._lent |= queues
        if new:
            self._add(new, now_ms)

    def take_back(self, queues: int) -> None:
        """It has closed again."""
        gone = self._lent & queues
        self._lent &= ~gone
        gone &= ~self._own
        if gone:
            self._drop(gone)

    def _add(self, queues: int, now_ms: int) -> None:
        if self._guarantee is not None:
            self._guarantee.add(queues, now_ms)
        else:
            self.turn.add(queues)

    def _drop(self, queues: int) -> None:
        (self._guarantee or self.turn).drop(queues)

    @property
    def there(self) -> int:
        """The queues that may have something for this pool; no other has."""
        return self._own | self._lent

    def choose(self, now_ms: int, skip: int = 0) -> int | None:
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
