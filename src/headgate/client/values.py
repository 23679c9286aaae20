"""Python values as JSON and back, by annotation: dataclasses, msgspec and pydantic models, dates; never pickle."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import isfinite
from typing import Any, Final, cast, get_args, get_origin

import msgspec
from msgspec import json

from headgate.client.errors import SerializationError

_SAFE: Final = 2**53 - 1
"""Beyond it, other readers of JSON lose digits; such integers travel as text."""


def encode(value: object, what: str) -> bytes:
    """JSON. Raises SerializationError, saying what could not be written."""
    try:
        plain = msgspec.to_builtins(value, enc_hook=_plain, str_keys=True)
        return json.encode(_careful(plain))
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise SerializationError(f"{what} cannot be written as JSON: {error}") from error


def builtins(value: object, what: str) -> Any:
    """The value in terms of JSON: dict, list, str, numbers, bool, None."""
    return json.decode(encode(value, what))


def convert(value: Any, annotation: Any, what: str) -> Any:
    """The value that the annotation asks for. Raises SerializationError.

    What carries no annotation, or one that only type checkers understand, stays as it came.
    """
    if annotation is Any or not _understood(annotation):
        return value
    try:
        return msgspec.convert(value, annotation, dec_hook=_model)
    except msgspec.ValidationError as error:
        refused = error
    try:
        # Integers that travelled as text are still integers.
        return msgspec.convert(value, annotation, dec_hook=_model, strict=False)
    except msgspec.ValidationError:
        raise SerializationError(f"{what}: {refused}") from None


def is_model(annotation: Any) -> bool:
    """Whether it is a pydantic model, which is known by what it can do."""
    return isinstance(annotation, type) and hasattr(annotation, "model_validate")


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _model(kind: type[Any], value: Any) -> Any:
    if is_model(kind):
        validate = cast("Callable[[Any], Any]", kind.model_validate)
        try:
            return validate(value)
        except ValueError as error:
            raise msgspec.ValidationError(str(error)) from error
    if isinstance(value, kind):
        return value
    raise msgspec.ValidationError(f"Expected `{kind.__name__}`, got `{type(value).__name__}`")


@lru_cache(maxsize=10_000)
def _understood_hashable(annotation: Any) -> bool:
    return _probe(annotation)


def _understood(annotation: Any) -> bool:
    try:
        return _understood_hashable(annotation)
    except TypeError:
        return _probe(annotation)


def _probe(annotation: Any) -> bool:
    """Whether the annotation can be read at all; type variables and protocols cannot."""
    if _has_model(annotation):
        return True
    try:
        msgspec.inspect.type_info(annotation)
        msgspec.json.Decoder(annotation, dec_hook=_model)
    except (TypeError, NameError):
        return False
    return True


def _has_model(annotation: Any) -> bool:
    if get_origin(annotation) is None:
        return is_model(annotation)
    return any(_has_model(part) for part in get_args(annotation))


def _careful(plain: Any) -> Any:
    if isinstance(plain, float) and not isfinite(plain):
        raise ValueError(f"{plain} has no form in JSON")
    if isinstance(plain, int):
        return plain if -_SAFE <= plain <= _SAFE else str(plain)
    if isinstance(plain, dict):
        return {name: _careful(value) for name, value in plain.items()}
    if isinstance(plain, list | tuple):
        return [_careful(value) for value in plain]
    return plain
