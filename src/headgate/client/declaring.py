"""`hg.job`: a decorator that declares a handler and keeps its types."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack, cast, overload

from headgate.client.context import AsyncJobContext, JobContext
from headgate.client.declared import Declared, RunIn
from headgate.client.options import Options, check
from headgate.client.parts import Parts
from headgate.client.tasks import AsyncTask, Task

P = ParamSpec("P")
T = TypeVar("T")


class _Decorator:
    def __init__(
        self,
        parts: Parts,
        job_type: str | None = None,
        run_in: RunIn | None = None,
        options: Options | None = None,
    ) -> None:
        check(options or {})
        self._parts = parts
        self._type = job_type
        self._run_in = run_in
        self._options = options or Options()

    def _declared(self, function: Callable[..., Any]) -> Declared:
        declared = Declared(function, self._type, self._run_in, self._options)
        self._parts.register.add(declared)
        return declared


class TaskDecorator(_Decorator):
    """Declares handlers whose producers block.

    Called with a function it declares it, called with options it gives a decorator that has them. `type` is the job type, by default the function's name. `run_in` is where it runs: coroutines in the worker's loop, functions in a thread, or in a process of their own.
    """

    @overload
    def __call__(self, function: Callable[Concatenate[JobContext, P], T], /) -> Task[P, T]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[AsyncJobContext, P], Coroutine[Any, Any, T]], /
    ) -> Task[P, T]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, T]], /) -> Task[P, T]: ...
    @overload
    def __call__(self, function: Callable[P, T], /) -> Task[P, T]: ...
    @overload
    def __call__(
        self, *, type: str | None = None, run_in: RunIn | None = None, **options: Unpack[Options]
    ) -> TaskDecorator: ...
    def __call__(self, *functions: Callable[..., Any], **options: Any) -> Any:
        if not functions:
            job_type, run_in = options.pop("type", None), options.pop("run_in", None)
            return TaskDecorator(self._parts, job_type, run_in, cast("Options", options))
        (function,) = functions
        declared = self._declared(function)
        return Task(self._parts, declared, declared.options)


class AsyncTaskDecorator(_Decorator):
    """Declares handlers whose producers await; otherwise as `TaskDecorator`."""

    @overload
    def __call__(self, function: Callable[Concatenate[JobContext, P], T], /) -> AsyncTask[P, T]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[AsyncJobContext, P], Coroutine[Any, Any, T]], /
    ) -> AsyncTask[P, T]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, T]], /) -> AsyncTask[P, T]: ...
    @overload
    def __call__(self, function: Callable[P, T], /) -> AsyncTask[P, T]: ...
    @overload
    def __call__(
        self, *, type: str | None = None, run_in: RunIn | None = None, **options: Unpack[Options]
    ) -> AsyncTaskDecorator: ...
    def __call__(self, *functions: Callable[..., Any], **options: Any) -> Any:
        if not functions:
            job_type, run_in = options.pop("type", None), options.pop("run_in", None)
            return AsyncTaskDecorator(self._parts, job_type, run_in, cast("Options", options))
        (function,) = functions
        declared = self._declared(function)
        return AsyncTask(self._parts, declared, declared.options)
