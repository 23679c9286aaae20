"""A declared handler as its producers see it: enqueue it, once or many times, now or later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack

from headgate import ids
from headgate.client.amounts import Duration, Instant
from headgate.client.declared import Declared
from headgate.client.draft import Draft
from headgate.client.errors import ValidationError
from headgate.client.jobs import AsyncJob, Job
from headgate.client.options import Options, check, envelope, merged
from headgate.client.sides import AsyncSide, SyncSide, verb

if TYPE_CHECKING:
    from headgate.client.parts import Parts

P = ParamSpec("P")
T = TypeVar("T")
J = TypeVar("J")


class Call(Generic[T]):
    """A call that is prepared and not enqueued yet."""

    __slots__ = ("args",)

    def __init__(self, args: Sequence[Any]) -> None:
        self.args = args


class _Task(Generic[P, T, J]):
    """A handler with the options of its jobs."""

    def __init__(self, parts: Parts, declared: Declared, options: dict[str, Any]) -> None:
        self._parts = parts
        self._declared = declared
        self._options = options
        self.__name__ = declared.function.__name__
        self.__qualname__ = declared.function.__qualname__
        self.__module__ = declared.function.__module__
        self.__doc__ = declared.function.__doc__
        self.__wrapped__ = declared.function

    @property
    def type(self) -> str:
        """The type of the jobs."""
        return self._declared.type

    @property
    def function(self) -> Callable[..., Any]:
        """What is run."""
        return self._declared.function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function here and now, without any job."""
        return self._declared.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.type}>"

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[T]:
        """A call for `enqueue_many`, with its arguments checked."""
        return Call(self._declared.signature.pack(args, kwargs))

    @verb
    async def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> J:
        """Enqueue one job. Raises what `OjsError` stands for when the server does not take it."""
        return await self._one(self._declared.signature.pack(args, kwargs))

    @verb
    async def enqueue_many(self, calls: Iterable[Call[T] | tuple[Any, ...]], /) -> list[J]:
        """Enqueue many jobs with few requests: calls, or tuples of arguments.

        Each request is all or nothing. A job that middleware dropped is missing from the list.
        """
        pack = self._declared.signature.pack
        drafts = [
            self._draft(call.args if isinstance(call, Call) else pack(call, {})) for call in calls
        ]
        done = await self._parts.enqueue.many(drafts)
        return [self._handle(one) for one in done if one is not None]

    async def _one(self, packed: Sequence[Any]) -> J:
        done = await self._parts.enqueue.one(self._draft(packed))
        if done is None:
            raise ValidationError(f"middleware dropped the job {self.type}", code="dropped")
        return self._handle(done)

    def _draft(self, packed: Sequence[Any]) -> Draft:
        now_ms = self._parts.core.clock.now_ms()
        named = self._declared.signature.named(packed)
        body = envelope(self.type, packed, named, self._options, now_ms)
        body.setdefault("id", ids.uuid7(now_ms))
        return Draft(body)

    def _handle(self, done: Any) -> J:
        raise NotImplementedError


class Task(_Task[P, T, Job[T]], SyncSide):
    """A handler with the options of its jobs, for producers that block."""

    def options(self, **options: Unpack[Options]) -> Task[P, T]:
        """The same task with other options laid over its own."""
        check(options)
        return Task(self._parts, self._declared, merged(self._options, options))

    def schedule(self, *, at: Instant | None = None, after: Duration | None = None) -> Task[P, T]:
        """The same task for later: `task.schedule(after="5m").enqueue(...)`."""
        return self.options(**when(at, after))

    @property
    def aio(self) -> AsyncTask[P, T]:
        """The same task for producers that await."""
        return AsyncTask(self._parts, self._declared, self._options)

    def _handle(self, done: Any) -> Job[T]:
        return Job(self._parts.core, done, self._declared.signature.returns)


class AsyncTask(_Task[P, T, AsyncJob[T]], AsyncSide):
    """A handler with the options of its jobs, for producers that await."""

    def options(self, **options: Unpack[Options]) -> AsyncTask[P, T]:
        """The same task with other options laid over its own."""
        check(options)
        return AsyncTask(self._parts, self._declared, merged(self._options, options))

    def schedule(
        self, *, at: Instant | None = None, after: Duration | None = None
    ) -> AsyncTask[P, T]:
        """The same task for later: `await task.schedule(after="5m").enqueue(...)`."""
        return self.options(**when(at, after))

    def _handle(self, done: Any) -> AsyncJob[T]:
        return AsyncJob(self._parts.core, done, self._declared.signature.returns)


def when(at: Instant | None, after: Duration | None) -> Options:
    if at is not None and after is None:
        return {"at": at}
    if after is not None and at is None:
        return {"delay": after}
    raise ValidationError("schedule takes either at or after")
