"""The first part of an HTTP/1.1 answer: status line and headers, as bytes."""

from __future__ import annotations

from http import HTTPStatus
from time import gmtime, strftime

from headgate.server.pipeline import JSON, SPEC
from headgate.server.route import Answer, Request, Stream

_LINES = {
    status.value: b"HTTP/1.1 %d %s\r\nOJS-Version: %s\r\n"
    % (status.value, status.phrase.encode(), SPEC)
    for status in HTTPStatus
}
_USUAL = {
    status: line + b"Content-Type: " + JSON + b"\r\nX-Request-Id: "
    for status, line in _LINES.items()
}


class Heads:
    """Builds heads; the Date is written once a second."""

    __slots__ = ("_date", "_second")

    def __init__(self) -> None:
        self._second = -1
        self._date = b""

    def answer(self, request: Request, answer: Answer, *, keep: bool) -> bytes:
        status = answer.status
        parts = [
            _USUAL[status]
            if answer.content_type is JSON or answer.content_type == JSON
            else self._unusual(status, answer.content_type),
            request.request_id.encode(),
            self._at(request.now_ms),
        ]
        if status != 204:
            parts.append(b"\r\nContent-Length: %d" % len(answer.body))
        for name, value in answer.headers:
            parts += (b"\r\n", name, b": ", value)
        for name, value in request.cors:
            parts += (b"\r\n", name, b": ", value)
        parts.append(b"\r\n\r\n" if keep else b"\r\nConnection: close\r\n\r\n")
        return b"".join(parts)

    def stream(self, request: Request, stream: Stream, *, chunked: bool, keep: bool) -> bytes:
        parts = [
            self._unusual(200, stream.content_type),
            request.request_id.encode(),
            self._at(request.now_ms),
        ]
        for name, value in (*stream.headers, *request.cors):
            parts += (b"\r\n", name, b": ", value)
        if chunked:
            parts.append(b"\r\nTransfer-Encoding: chunked")
        parts.append(b"\r\n\r\n" if keep else b"\r\nConnection: close\r\n\r\n")
        return b"".join(parts)

    def _unusual(self, status: int, content_type: bytes) -> bytes:
        kind = b"Content-Type: " + content_type + b"\r\n" if content_type else b""
        return _LINES[status] + kind + b"X-Request-Id: "

    def _at(self, now_ms: int) -> bytes:
        second = now_ms // 1000
        if second != self._second:
            self._second = second
            text = strftime("%a, %d %b %Y %H:%M:%S GMT", gmtime(second))
            self._date = b"\r\nDate: " + text.encode()
        return self._date
