"""Log records as JSON or text. What is logged never holds a job's arguments or result."""

from __future__ import annotations

import logging
import sys
from typing import Any, TextIO

import msgspec

from headgate.core.times import instant_text
from headgate.server.settings import LogFormat, LogLevel

SEVERITIES = {
    "TRACE": (5, 1),
    "DEBUG": (logging.DEBUG, 5),
    "INFO": (logging.INFO, 9),
    "WARN": (logging.WARNING, 13),
    "ERROR": (logging.ERROR, 17),
    "FATAL": (logging.CRITICAL, 21),
}
"""Name -> the least level of the standard library that it stands for, and its number in OJS."""

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}
_encode = msgspec.json.Encoder(enc_hook=str).encode


class Json(logging.Formatter):
    """One JSON object a line; what a record carries besides its message becomes members."""

    def format(self, record: logging.LogRecord) -> str:
        name, number = _severity(record.levelno)
        line: dict[str, Any] = {
            "timestamp": _time(record),
            "severity": name,
            "severity_number": number,
            "message": record.getMessage(),
            "component": _component(record),
            **_extra(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _encode(line).decode()


class Text(logging.Formatter):
    """For people: time, severity, component, message, then members as name=value."""

    def format(self, record: logging.LogRecord) -> str:
        name, _ = _severity(record.levelno)
        message = record.getMessage().replace("\n", "\\n")
        extra = "".join(f" {key}={value!r}" for key, value in _extra(record).items())
        line = f"{_time(record)} {name:5} {_component(record)}: {message}{extra}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def set_up(form: LogFormat, level: LogLevel, *, stream: TextIO | None = None) -> None:
    """Send every logger of this process, the HTTP server's included, through one handler."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(Json() if form == "json" else Text())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    # Its start and stop are told by us.
    logging.getLogger("uvicorn").setLevel(max(logging.WARNING, root.level))
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True


def _time(record: logging.LogRecord) -> str:
    return instant_text(int(record.created * 1000))


def _component(record: logging.LogRecord) -> str:
    return record.name.removeprefix("headgate.")


def _severity(level: int) -> tuple[str, int]:
    found = ("TRACE", 1)
    for name, (least, number) in SEVERITIES.items():
        if level >= least:
            found = (name, number)
    return found


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}
