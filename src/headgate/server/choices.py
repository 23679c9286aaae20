"""Which values may stand at a place of a document that takes only certain ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec import inspect

_STEP = re.compile(r"\[[^\]]*\]|[^.\[\]]+")


def choices(kind: Any, path: str) -> list[str]:
    """The values that `kind` allows at a path such as `[0].roles[...]`; none where others do as well."""
    places = list(_single(inspect.type_info(kind)))
    for step in _STEP.findall(path):
        places = [
            each for place in places for inner in _inside(place, step) for each in _single(inner)
        ]
    return [
        str(value)
        for place in places
        if isinstance(place, inspect.LiteralType)
        for value in place.values
    ]


def _single(place: inspect.Type) -> Iterator[inspect.Type]:
    """Each of the types that may stand there."""
    if isinstance(place, inspect.UnionType):
        for one in place.types:
            yield from _single(one)
    elif isinstance(place, inspect.Metadata):
        yield from _single(place.type)
    else:
        yield place


def _inside(place: inspect.Type, step: str) -> Iterator[inspect.Type]:
    match place:
        case inspect.StructType():
            for field in place.fields:
                if field.encode_name == step:
                    yield field.type
        case inspect.DictType():
            yield place.value_type
        case inspect.ListType() | inspect.VarTupleType():
            yield place.item_type
        case _:
            pass
