"""How a function's arguments become the array of a job, and that array arguments again.

The places of the array are the parameters in their order. Parameters that are only given by name have their places after the others.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from typing import Any, get_type_hints

from headgate.client.errors import ValidationError
from headgate.client.values import builtins, convert


class Signature:
    """What a handler takes, besides the context that its first parameter may ask for."""

    def __init__(self, function: Callable[..., Any], contexts: Sequence[type[Any]]) -> None:
        self.name = getattr(function, "__qualname__", repr(function))
        hints = _hints(function)
        found = list(inspect.signature(function).parameters.values())
        first = hints.get(found[0].name) if found else None
        self.context: type[Any] | None = next((one for one in contexts if one is first), None)
        self._parameters = found if self.context is None else found[1:]
        self._types = [hints.get(one.name, Any) for one in self._parameters]
        self._rest = Any
        self.returns = hints.get("return", Any)
        kinds = {one.kind for one in self._parameters}
        if Parameter.VAR_KEYWORD in kinds:
            raise ValidationError(
                f"{self.name} takes **{self._parameters[-1].name}, which a job's arguments cannot be"
            )
        self._open = Parameter.VAR_POSITIONAL in kinds
        if self._open:
            if Parameter.KEYWORD_ONLY in kinds:
                raise ValidationError(
                    f"{self.name} takes both any number of arguments and some by name only"
                )
            self._parameters.pop()
            self._rest = self._types.pop()
        self._plain = not self._open and Parameter.KEYWORD_ONLY not in kinds
        """All arguments given by their places are all there is."""
        self._signature = inspect.Signature(
            [one.replace(annotation=Parameter.empty) for one in self._parameters]
        )

    def pack(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The job's `args`. Raises TypeError as the call itself would, and SerializationError."""
        if self._plain and not kwargs and len(args) == len(self._parameters):
            return list(builtins(list(args), f"an argument of {self.name}"))
        rest: Sequence[Any] = ()
        if self._open:
            args, rest = args[: len(self._parameters)], args[len(self._parameters) :]
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}(): {error}") from None
        given = bound.arguments
        last = max((n for n, one in enumerate(self._parameters) if one.name in given), default=-1)
        values = [given.get(one.name, one.default) for one in self._parameters[: last + 1]]
        found = builtins([*values, *rest], f"an argument of {self.name}")
        return list(found)

    def named(self, packed: Sequence[Any]) -> dict[str, Any]:
        """The packed arguments by name, defaults included."""
        found = {
            one.name: one.default for one in self._parameters if one.default is not Parameter.empty
        }
        return found | dict(zip((one.name for one in self._parameters), packed, strict=False))

    def unpack(self, packed: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """What to call the function with. Raises SerializationError or TypeError."""
        if len(packed) > len(self._parameters) and not self._open:
            raise TypeError(
                f"{self.name} takes {len(self._parameters)} arguments, the job has {len(packed)}"
            )
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for one, annotation, value in zip(self._parameters, self._types, packed, strict=False):
            read = convert(value, annotation, f"argument {one.name} of {self.name}")
            if one.kind is Parameter.KEYWORD_ONLY:
                kwargs[one.name] = read
            else:
                args.append(read)
        missing = [
            one.name for one in self._parameters[len(packed) :] if one.default is Parameter.empty
        ]
        if missing:
            raise TypeError(f"{self.name} needs {', '.join(missing)}, which the job does not have")
        what = f"an argument of {self.name}"
        args += [convert(value, self._rest, what) for value in packed[len(self._parameters) :]]
        return args, kwargs


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError):
        # An annotation that only exists for type checkers: read those that do exist.
        found = {}
        for name, text in getattr(function, "__annotations__", {}).items():
            try:
                only = type("Only", (), {"__annotations__": {name: text}})
                scope = getattr(function, "__globals__", {})
                found.update(get_type_hints(only, globalns=scope, include_extras=True))
            except (NameError, TypeError):
                continue
        return found
