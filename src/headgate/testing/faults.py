"""Failures that tests ask for."""

from __future__ import annotations

from msgspec import Struct


class PlannedError(Exception):
    """What a handler is made to raise where a test names no other error."""


class _Fault(Struct):
    job_type: str
    """"" is every type."""
    error: BaseException
    left: int
    """How often it still happens; -1 is without end."""


class Faults:
    """Which runs fail, whatever their handlers would do."""

    def __init__(self) -> None:
        self._planned: list[_Fault] = []

    def plan(self, job_type: str, error: BaseException | None, times: int) -> None:
        self._planned.append(_Fault(job_type, error or PlannedError("planned by the test"), times))

    def next(self, job_type: str) -> BaseException | None:
        """What this run shall raise; None lets it go its way."""
        for fault in self._planned:
            if fault.job_type in {"", job_type} and fault.left:
                fault.left -= 1 if fault.left > 0 else 0
                return fault.error
        return None

    def clear(self) -> None:
        self._planned.clear()
