"""What a handler is, once it is declared, and the register of all of an application's handlers."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

from headgate.client.context import AsyncJobContext, JobContext
from headgate.client.errors import ValidationError
from headgate.client.signature import Signature

RunIn: TypeAlias = Literal["loop", "thread", "process"]

_TYPE: Final = re.compile(r"[a-z][a-z0-9_-]*(?:\.[a-z][a-z0-9_-]*)*")
_LONGEST: Final = 255


class Declared:
    """A function, the job type that it handles, and where it runs."""

    def __init__(
        self,
        function: Callable[..., Any],
        job_type: str | None,
        run_in: RunIn | None,
        options: Mapping[str, Any],
    ) -> None:
        self.function = function
        self.type = job_type or type_of(function)
        if len(self.type) > _LONGEST or not _TYPE.fullmatch(self.type):
            raise ValidationError(
                f"{self.type!r} is no job type: segments of a-z, 0-9, _ and - with dots between "
                "them, each starting with a letter"
            )
        self.signature = Signature(function, (JobContext, AsyncJobContext))
        self.options = dict(options)
        self.is_async = inspect.iscoroutinefunction(function)
        self.run_in: RunIn = run_in or ("loop" if self.is_async else "thread")
        if self.is_async and self.run_in == "thread":
            raise ValidationError(f"{self.type} is a coroutine, which runs in the loop")
        if not self.is_async and self.run_in == "loop":
            raise ValidationError(
                f"{self.type} is a plain function, which would stop the loop while it runs"
            )
        fitting = AsyncJobContext if self.is_async else JobContext
        if self.signature.context not in {None, fitting}:
            raise ValidationError(f"{self.type} must take {fitting.__name__} as its context")
        if self.run_in == "process" and "<locals>" in function.__qualname__:
            raise ValidationError(
                f"{self.type} runs in a process, which finds it only at the top of a module"
            )


class Register:
    """Handlers by job type."""

    def __init__(self) -> None:
        self._found: dict[str, Declared] = {}

    def add(self, declared: Declared) -> None:
        other = self._found.get(declared.type)
        if other is not None and _place(other.function) != _place(declared.function):
            raise ValidationError(
                f"{declared.type} is handled by {other.signature.name} already; "
                "give one of them another type"
            )
        self._found[declared.type] = declared

    def get(self, job_type: str) -> Declared | None:
        return self._found.get(job_type)

    def queues(self) -> list[str]:
        """The queues that the handlers name, in the order of their declaration."""
        return list(dict.fromkeys(one.options.get("queue", "default") for one in self))

    def __iter__(self) -> Iterator[Declared]:
        return iter(list(self._found.values()))

    def __contains__(self, job_type: object) -> bool:
        return job_type in self._found

    def __len__(self) -> int:
        return len(self._found)


def type_of(function: Callable[..., Any]) -> str:
    """The job type that a function's name gives: `sendMail` and `send_mail` give `send_mail`."""
    name = function.__qualname__.rsplit("<locals>.", 1)[-1]
    found = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return ".".join(part.strip("_") for part in found.split("."))


def _place(function: Callable[..., Any]) -> tuple[str, str]:
    return function.__module__, function.__qualname__
