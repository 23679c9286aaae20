"""Bounds: whether a queue takes more jobs.

Only producers are ever refused: what retries, moves or a lowered bound bring in may leave a queue above its bound, and then nobody else enters.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from msgspec import Struct

Strategy: TypeAlias = Literal["reject", "block", "drop_oldest"]
Measure: TypeAlias = Literal["jobs", "active_included", "bytes"]


class Bounds(Struct, frozen=True, gc=False):
    """0 is no bound."""

    max_depth: int = 0
    """Of jobs that wait, by whatever name: available, scheduled, retryable, pending."""
    max_size: int = 0
    """Of all jobs that have not ended, active ones included."""
    max_size_bytes: int = 0
    """Of all jobs that have not ended, together."""
    strategy: Strategy = "reject"
    warning_threshold: float = 0.8
    """The pressure from which on producers are warned."""

    @property
    def bounded(self) -> bool:
        return bool(self.max_depth or self.max_size or self.max_size_bytes)


NONE = Bounds()


class Depth(Struct, frozen=True, gc=False):
    """How full a queue is."""

    waiting: int = 0
    active: int = 0
    bytes: int = 0
    reserved: int = 0
    """Places that are kept for a producer who waits; they count as taken."""
    reserved_bytes: int = 0


class Load(Struct, frozen=True, gc=False):
    """How far one bound is used up; `depth` and `bound` are in the unit of the measure."""

    measure: Measure
    depth: int
    bound: int

    @property
    def pressure(self) -> float:
        """From 0 to 1, whatever has come in past the bound."""
        return min(1.0, self.depth / self.bound)


class Accept(Struct, frozen=True, gc=False):
    """The jobs may enter."""

    load: Load | None
    """Of the tightest bound, with the jobs counted in; None when there is no bound."""
    warns: bool
    """Whether that load is at the warning threshold or above it."""


class Full(Struct, frozen=True, gc=False):
    """The jobs may not enter; nothing changes."""

    load: Load
    """Of the bound that is in the way, as it is without the jobs."""
    never: bool
    """The jobs are more than an empty queue could take, so waiting is no use."""


class DropOldest(Struct, frozen=True, gc=False):
    """The jobs may enter once the `count` oldest available jobs have been discarded."""

    count: int
    bytes: int
    """Of those that are discarded."""
    accept: Accept


Decision: TypeAlias = Accept | Full | DropOldest


def loads(bounds: Bounds, depth: Depth, jobs: int = 0, size: int = 0) -> list[Load]:
    """The load of every bound that there is, when so many jobs of so many bytes have come in."""
    waiting = depth.waiting + depth.reserved + jobs
    found = []
    if bounds.max_depth:
        found.append(Load("jobs", waiting, bounds.max_depth))
    if bounds.max_size:
        found.append(Load("active_included", waiting + depth.active, bounds.max_size))
    if bounds.max_size_bytes:
        found.append(
            Load("bytes", depth.bytes + depth.reserved_bytes + size, bounds.max_size_bytes)
        )
    return found


def tightest(found: list[Load]) -> Load | None:
    """The load with the highest pressure, the first of equals; None when there is none."""
    best = None
    for load in found:
        if best is None or load.depth * best.bound > best.depth * load.bound:
            best = load
    return best


def warns(bounds: Bounds, load: Load | None) -> bool:
    """Whether producers are to be warned of this load."""
    return load is not None and load.depth >= bounds.warning_threshold * load.bound


def decide(
    bounds: Bounds, depth: Depth, jobs: int, size: int, oldest: Iterable[int] = ()
) -> Decision:
    """Decide about so many jobs, of so many bytes together: all of them or none.

    `oldest` gives the bytes of the available jobs, oldest first; it is read only as far as jobs would have to be dropped.
    Never is anything accepted that would leave the queue above a bound.
    """
    after = loads(bounds, depth, jobs, size)
    above = [load for load in after if load.depth > load.bound]
    if not above or not jobs:
        load = tightest(after)
        return Accept(load, warns(bounds, load))
    for load in above:
        own = size if load.measure == "bytes" else jobs
        if own > load.bound:
            return Full(_without(load, jobs, size), never=True)
    if bounds.strategy == "drop_oldest":
        dropped = _drop(above, oldest)
        if dropped is not None:
            count, freed = dropped
            load = tightest(loads(bounds, depth, jobs - count, size - freed))
            return DropOldest(count, freed, Accept(load, warns(bounds, load)))
    return Full(_without(_first_reached(above), jobs, size), never=False)


def _first_reached(above: list[Load]) -> Load:
    """Of jobs coming one by one, the bound at which the first is stopped: the one exceeded by most.

    Bytes are named only when no number of jobs is in the way.
    """
    return max(above, key=lambda load: (load.measure != "bytes", load.depth - load.bound))


def _without(load: Load, jobs: int, size: int) -> Load:
    own = size if load.measure == "bytes" else jobs
    return Load(load.measure, load.depth - own, load.bound)


def _drop(above: list[Load], oldest: Iterable[int]) -> tuple[int, int] | None:
    """How many of the oldest have to go, and their bytes; None when all of them are too few."""
    jobs = size = 0
    for load in above:
        if load.measure == "bytes":
            size = load.depth - load.bound
        else:
            jobs = max(jobs, load.depth - load.bound)
    freed = 0
    for count, bytes_of_one in enumerate(oldest, 1):
        freed += bytes_of_one
        if count >= jobs and freed >= size:
            return count, freed
    return None
