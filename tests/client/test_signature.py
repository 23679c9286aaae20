"""Arguments become JSON and the same arguments again."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

import msgspec
import pydantic
import pytest

from headgate import AsyncHeadgate, Headgate, JobContext, SerializationError, ValidationError
from headgate.client.declared import type_of
from headgate.client.signature import Signature
from headgate.client.values import convert, encode


@dataclass
class Point:
    x: int
    y: int = 0


class Line(msgspec.Struct):
    start: Point
    end: Point


class Person(pydantic.BaseModel):
    name: str
    born: datetime


class Colour(Enum):
    RED = "red"


MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def through(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """As if a worker had got it."""
    signature = Signature(function, (JobContext,))
    packed = msgspec.json.decode(msgspec.json.encode(signature.pack(args, kwargs)))
    given, named = signature.unpack(packed)
    return function(*given, **named)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(Point, Point(1, 2)), (Line, Line(Point(1), Point(2, 3))), (Colour, Colour.RED), (datetime, MOMENT),
     (Person, Person(name="Ada", born=MOMENT)), (list[Person], [Person(name="Ada", born=MOMENT)]),
     (dict[str, Point], {"a": Point(1)}), (Point | None, None), (Point | None, Point(1)),
     (uuid.UUID, uuid.UUID(int=5)), (Decimal, Decimal("1.50")), (timedelta, timedelta(hours=1)),
     (bytes, b"\x00\xff"), (tuple[int, str], (1, "a")), (set[int], {1, 2}), (Any, {"a": [1, None]}),
     (int, 2**70), (list[int], [2**70, -(2**60)]), (str, "ä"), (bool, True), (float, 1.5)],
)  # fmt: skip
def test_values_come_back_as_their_annotation_says(annotation: Any, value: Any) -> None:
    data = encode(value, "it")
    assert convert(msgspec.json.decode(data), annotation, "it") == value


def test_large_integers_travel_as_text() -> None:
    assert encode([2**53 - 1, 2**53, -(2**53)], "it") == (
        b'[9007199254740991,"9007199254740992","-9007199254740992"]'
    )


@pytest.mark.parametrize("value", [object(), {1j}, lambda: None, float("nan")])
def test_what_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises(SerializationError, match="it cannot be written"):
        encode(value, "it")


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(int, "x"), (Point, {"y": 1}), (Person, {"name": 1}), (Colour, "blue")],
)
def test_what_does_not_fit_is_refused(annotation: Any, value: Any) -> None:
    with pytest.raises(SerializationError, match="it: "):
        convert(value, annotation, "it")


def test_arguments_by_place_and_by_name() -> None:
    def f(a: int, b: int = 2, *, c: int = 3, d: Point | None = None) -> Any:
        return a, b, c, d

    signature = Signature(f, ())
    assert signature.pack((1,), {}) == [1]
    assert signature.pack((1,), {"c": 9}) == [1, 2, 9]
    assert through(f, 1, c=9) == (1, 2, 9, None)
    assert through(f, b=5, a=4, d=Point(7)) == (4, 5, 3, Point(7))
    assert signature.named([1]) == {"a": 1, "b": 2, "c": 3, "d": None}


def test_any_number_of_arguments() -> None:
    def f(first: str, *points: Point) -> Any:
        return first, points

    assert through(f, "a", Point(1), Point(2)) == ("a", (Point(1), Point(2)))
    assert through(f, "a") == ("a", ())


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((1, 2), {}), ((1,), {"b": 1}), ((1,), {"a": 1})]
)
def test_wrong_calls_are_refused_before_anything_is_sent(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    def f(a: int) -> None: ...

    with pytest.raises(TypeError, match="f"):
        Signature(f, ()).pack(args, kwargs)


@pytest.mark.parametrize("packed", [[], [1, 2]])
def test_jobs_that_do_not_fit_the_handler_are_refused(packed: list[Any]) -> None:
    def f(a: int) -> None: ...

    with pytest.raises(TypeError, match="f"):
        Signature(f, ()).unpack(packed)


def test_a_parameter_that_no_job_can_have() -> None:
    def named(**rest: int) -> None: ...

    def both(*rest: int, a: int) -> None: ...

    for function in (named, both):
        with pytest.raises(ValidationError):
            Signature(function, ())


def test_the_context_is_no_argument() -> None:
    def f(context: JobContext, a: int) -> None: ...

    signature = Signature(f, (JobContext,))
    assert signature.context is JobContext
    assert signature.pack((1,), {}) == [1]


def test_annotations_that_exist_for_checkers_only_are_no_obstacle() -> None:
    def f(a: Nowhere, b: int) -> None: ...  # type: ignore[name-defined] # noqa: F821

    assert through(lambda: None) is None
    assert Signature(f, ()).unpack(["x", 1]) == (["x", 1], {})


@pytest.mark.parametrize(
    ("name", "job_type"),
    [("send_mail", "send_mail"), ("sendMail", "send_mail"), ("Mail.send", "mail.send"),
     ("test.<locals>.inner", "inner"), ("_hidden", "hidden")],
)  # fmt: skip
def test_types_are_named_after_functions(name: str, job_type: str) -> None:
    def f() -> None: ...

    f.__qualname__ = name
    assert type_of(f) == job_type


def test_one_type_has_one_handler() -> None:
    hg = Headgate()

    @hg.job
    def one() -> None: ...

    def other() -> None: ...

    with pytest.raises(ValidationError, match="handled by"):
        hg.job(type="one")(other)
    assert [declared.type for declared in hg.register] == ["one"]


def test_a_function_must_run_where_it_can() -> None:
    hg = AsyncHeadgate()

    async def coroutine() -> None: ...

    def plain() -> None: ...

    def takes_the_other_context(context: JobContext) -> None: ...

    with pytest.raises(ValidationError, match="coroutine"):
        hg.job(run_in="thread")(coroutine)
    with pytest.raises(ValidationError, match="stop the loop"):
        hg.job(run_in="loop")(plain)
    with pytest.raises(ValidationError, match="top of a module"):
        hg.job(run_in="process")(plain)
    with pytest.raises(ValidationError, match="no job type"):
        hg.job(type="Not A Type")(plain)
    assert hg.job(takes_the_other_context).type == "takes_the_other_context"


def test_a_task_is_still_its_function() -> None:
    hg = Headgate()

    @hg.job
    def double(n: int) -> int:
        """Twice as much."""
        return 2 * n

    assert double(4) == 8
    assert (double.__name__, double.__doc__) == ("double", "Twice as much.")
