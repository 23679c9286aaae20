"""Things that are written now and read rarely: checkpoints, and answers for repeated requests.

Memory holds a value until it is folded into the file; from then on the file does.
"""

from __future__ import annotations

from collections import deque

from headgate.engines.local.tables import Log

_SELECT = "SELECT value FROM things WHERE kind = ? AND key = ?"


class Kept:
    __slots__ = ("_fresh", "_in_memory", "_log", "_order")

    def __init__(self, log: Log, *, in_memory: bool) -> None:
        self._log = log
        self._in_memory = in_memory
        self._fresh: dict[tuple[str, str], tuple[int, bytes | None]] = {}
        """(batch, value) of what is not folded yet; without a file, of all."""
        self._order: deque[tuple[int, tuple[str, str]]] = deque()

    def set(self, kind: str, key: str, value: bytes | None) -> None:
        """Keep a value, or with None forget it."""
        self._log.write(("", kind, key, value))
        number = self._log.number
        if self._in_memory and value is None:
            self._fresh.pop((kind, key), None)
        else:
            self._fresh[kind, key] = number, value
        if not self._in_memory:
            self._order.append((number, (kind, key)))

    def get(self, kind: str, key: str) -> bytes | None:
        fresh = self._fresh.get((kind, key))
        if fresh is not None:
            return fresh[1]
        rows = self._log.rows(_SELECT, (kind, key))
        return bytes(rows[0][0]) if rows else None

    def folded(self, number: int) -> None:
        order = self._order
        while order and order[0][0] <= number:
            at, name = order.popleft()
            if name in self._fresh and self._fresh[name][0] == at:
                del self._fresh[name]
