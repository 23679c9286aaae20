from __future__ import annotations

import json

from headgate.wire import sse


def test_an_event_is_told_in_lines() -> None:
    assert sse.event("job.started", b'{"a":1}', 7) == (
        b'id: 7\nevent: job.started\ndata: {"a":1}\n\n'
    )
    assert sse.event("result", b"1") == b"event: result\ndata: 1\n\n"


def test_what_breaks_lines_in_data_does_not_break_the_event() -> None:
    for text in (b'{"a":\n1}', b'{"a":\r\n1}', b"[\r1,\n2]"):
        (kind, data, *rest) = sse.event("x", text).decode().split("\n")
        assert (kind, rest) == ("event: x", ["", ""])
        assert json.loads(data.removeprefix("data: ")) == json.loads(text)


def test_a_notice_has_no_id_so_that_nobody_comes_back_for_it() -> None:
    assert sse.notice("system.gap", {"last_event_id": "5"}) == (
        b'event: system.gap\ndata: {"last_event_id":"5"}\n\n'
    )
