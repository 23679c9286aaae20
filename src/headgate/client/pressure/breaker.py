"""The circuit breaker: a queue that keeps refusing is left alone for a while."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from msgspec import Struct


class _Circuit(Struct):
    refusals: int = 0
    open_until_s: float = 0.0
    probing: bool = False


class Breaker:
    """Per queue: opens after `after` refusals in a row; after `cooldown_s` lets a single request try.

    What that request meets decides: accepted closes, refused opens for as long again.
    """

    def __init__(self, after: int = 5, cooldown_s: float = 10.0) -> None:
        self.after = after
        self.cooldown_s = cooldown_s
        self._circuits: dict[str, _Circuit] = {}
        self._lock = threading.Lock()

    def ask(self, queues: Iterable[str], now_s: float) -> float:
        """0 when the request may be sent, else in how many seconds one may try."""
        with self._lock:
            wait_s = 0.0
            probes = []
            for queue in queues:
                circuit = self._circuits.get(queue)
                if circuit is None or circuit.refusals < self.after:
                    continue
                if now_s < circuit.open_until_s:
                    wait_s = max(wait_s, circuit.open_until_s - now_s)
                elif circuit.probing:
                    wait_s = max(wait_s, self.cooldown_s)
                else:
                    probes.append(circuit)
            if not wait_s:
                for circuit in probes:
                    circuit.probing = True
            return wait_s

    def refused(self, queues: Iterable[str], now_s: float) -> None:
        """A 429 came back."""
        with self._lock:
            for queue in queues:
                circuit = self._circuits.setdefault(queue, _Circuit())
                circuit.refusals += 1
                circuit.probing = False
                if circuit.refusals >= self.after:
                    circuit.open_until_s = now_s + self.cooldown_s

    def accepted(self, queues: Iterable[str]) -> None:
        """Any other answer came back: the server takes jobs of this queue, or says why not."""
        if self._circuits:
            with self._lock:
                for queue in queues:
                    self._circuits.pop(queue, None)

    def unknown(self, queues: Iterable[str]) -> None:
        """No answer came back: the next request may try."""
        with self._lock:
            for queue in queues:
                circuit = self._circuits.get(queue)
                if circuit is not None:
                    circuit.probing = False

    def state(self, queue: str, now_s: float) -> str:
        """closed, open or half-open."""
        with self._lock:
            circuit = self._circuits.get(queue)
            if circuit is None or circuit.refusals < self.after:
                return "closed"
            return "open" if now_s < circuit.open_until_s else "half-open"
