from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from headgate.server import logs
from headgate.server.settings import LogFormat, LogLevel


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    names = (None, "uvicorn", "uvicorn.error", "uvicorn.access", "asyncio")
    loggers = [logging.getLogger(name) for name in names]
    before = [(each.handlers[:], each.level, each.propagate) for each in loggers]
    yield
    for each, (handlers, level, propagate) in zip(loggers, before, strict=True):
        each.handlers[:] = handlers
        each.setLevel(level)
        each.propagate = propagate


def lines(form: LogFormat, level: LogLevel = "debug") -> Any:
    stream = io.StringIO()
    logs.set_up(form, level, stream=stream)
    return stream


def test_a_record_is_one_object_on_one_line() -> None:
    stream = lines("json")
    logging.getLogger("headgate.server.app").warning(
        "two\nlines and %s", "ä", extra={"ojs.job_id": "j-1", "odd": object}
    )
    (line,) = stream.getvalue().splitlines()
    found = json.loads(line)
    assert list(found)[:5] == ["timestamp", "severity", "severity_number", "message", "component"]
    assert found["timestamp"].endswith("Z")
    assert (found["severity"], found["severity_number"]) == ("WARN", 13)
    assert found["message"] == "two\nlines and ä"
    assert found["component"] == "server.app"
    assert found["ojs.job_id"] == "j-1"
    assert set(found) == {*list(found)[:5], "ojs.job_id", "odd"}


@pytest.mark.parametrize(
    ("level", "name", "number"),
    [(3, "TRACE", 1), (5, "TRACE", 1), (10, "DEBUG", 5), (20, "INFO", 9), (25, "INFO", 9),
     (30, "WARN", 13), (40, "ERROR", 17), (50, "FATAL", 21), (60, "FATAL", 21)],
)  # fmt: skip
def test_severities_are_those_of_ojs(level: int, name: str, number: int) -> None:
    record = logging.makeLogRecord({"levelno": level, "msg": "m", "name": "n"})
    found = json.loads(logs.Json().format(record))
    assert (found["severity"], found["severity_number"]) == (name, number)


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_traceback_comes_along(form: LogFormat) -> None:
    stream = lines(form)
    try:
        raise KeyError("gone")
    except KeyError:
        logging.getLogger("headgate.x").exception("it failed")
    text = stream.getvalue()
    assert "it failed" in text
    assert "KeyError: 'gone'" in text
    assert len(text.splitlines()) == 1 if form == "json" else len(text.splitlines()) > 1


def test_text_is_for_people_and_cannot_be_forged() -> None:
    stream = lines("text")
    logging.getLogger("headgate.server.app").info("a\nFATAL b", extra={"request_id": "r\n1"})
    (line,) = stream.getvalue().splitlines()
    assert line.endswith(" INFO  server.app: a\\nFATAL b request_id='r\\n1'")


def test_what_is_less_than_the_level_is_left_out() -> None:
    stream = lines("text", "warning")
    logging.getLogger("headgate.x").info("no")
    logging.getLogger("headgate.x").warning("yes")
    assert "yes" in stream.getvalue()
    assert "no" not in stream.getvalue().replace("yes", "")


def test_the_http_server_logs_through_the_same_handler() -> None:
    logging.getLogger("uvicorn.error").addHandler(logging.StreamHandler(io.StringIO()))
    stream = lines("json")
    logging.getLogger("uvicorn.error").error("bad news")
    logging.getLogger("uvicorn.error").info("Started server process")
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["component"] == "uvicorn.error"


def test_setting_up_again_replaces() -> None:
    first = lines("json")
    second = lines("json")
    logging.getLogger("headgate.x").info("once")
    assert first.getvalue() == ""
    assert len(second.getvalue().splitlines()) == 1
