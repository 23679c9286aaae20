"""Sets of which there may be as many as jobs, and which mostly hold one thing: nothing, that thing alone, or a dictionary of many."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Some: TypeAlias = T | dict[T, None] | None


def with_one(some: Some[T], item: T) -> Some[T]:
    """The same and this one."""
    if some is None or some is item:
        return item
    if isinstance(some, dict):
        some[item] = None
        return some
    return {some: None, item: None}


def without(some: Some[T], item: T) -> Some[T]:
    """The same but for this one, whether it was there or not."""
    if isinstance(some, dict):
        some.pop(item, None)
        return some or None
    return None if some is item else some


def all_of(some: Some[T]) -> Collection[T]:
    """What is in it, in the order in which it came."""
    if some is None:
        return ()
    return some if isinstance(some, dict) else (some,)
