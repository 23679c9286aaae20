from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from headgate.cli.picture import Look, picture
from tests.cli.asked import Asked
from tests.cli.served import Serve
from tests.cli.terminal import terminal

LIMITS = {"key": "stripe", "concurrency": 2, "rate": {"limit": 100, "period": "PT1M"}}


@pytest.fixture(scope="module")
def busy(cli: Asked) -> Asked:
    """A server with something to see."""
    for _ in range(5):
        cli.server.enqueue(queue="payments", rate_limit=LIMITS)
    cli.server.ask("POST", "/ojs/v1/workers/fetch", {"queues": ["payments"], "count": 5})
    cli.server.ask("PUT", "/ojs/v1/queues/payments/config", {"backpressure": {"max_depth": 10}})
    pool = {"queues": ["payments", "mail"], "strategy": "weighted", "weights": {"payments": 3}}
    cli.server.ask("PUT", "/ojs/v1/admin/pools/general", pool)
    return cli


def row(lines: list[str], name: str) -> list[str]:
    return next(line.split() for line in lines if line.startswith(name))


def test_the_screen_shows_queues_keys_and_pools_and_goes_with_q(busy: Asked) -> None:
    with terminal("watch", "--url", busy.url, "--interval", "0.2", where=busy.where) as screen:
        lines = screen.shows("q quits")
        assert screen.page.on_own_page
        assert screen.page.cursor_hidden
        assert lines[0].startswith(f"headgate 0.1.0 at {busy.url}: ok, up ")
        assert "2 running" in lines[1]
        assert lines[-1] == "q quits, space looks again"
        assert row(lines, "QUEUE") == [
            "QUEUE", "READY", "RUNNING", "LATER", "FULL", "STARTS/M", "DONE/M", "FAIL/M", "OLDEST",
        ]  # fmt: skip
        assert row(lines, "payments")[:6] == ["payments", "3", "2", "0", "30", "%"]
        assert row(lines, "stripe")[:4] == ["stripe", "3", "2/2", "2/100"]
        assert row(lines, "general")[:5] == ["general", "weighted", "0", "0", "payments"]
        assert "75 %" in next(line for line in lines if line.startswith("general"))
        busy.server.enqueue(queue="mail")
        lines = screen.shows("mail ")
        screen.until(lambda page: any(line.startswith("mail ") for line in page.text()))
        screen.press("q")
        assert screen.end() == 0
        screen.left_as_found()


@pytest.mark.parametrize("way", ["ctrl-c", "ctrl-d", "sigterm"])
def test_there_are_other_ways_out(busy: Asked, way: str) -> None:
    with terminal("watch", "--url", busy.url, where=busy.where) as screen:
        screen.shows("q quits")
        if way == "sigterm":
            screen.process.send_signal(signal.SIGTERM)
        else:
            screen.press({"ctrl-c": "\x03", "ctrl-d": "\x04"}[way])
        assert screen.end() == 0
        screen.left_as_found()


def test_space_looks_again_and_a_new_size_is_filled(busy: Asked) -> None:
    with terminal("watch", "--url", busy.url, "--interval", "600", where=busy.where) as screen:
        screen.shows("q quits")
        busy.run("queue", "pause", "payments")
        screen.press(" ")
        screen.shows("payments (paused)")
        screen.resize(120, 40)
        lines = screen.until(lambda page: page.text()[-1] == "q quits, space looks again")
        assert len(lines) == 40
        busy.run("queue", "resume", "payments")
        screen.press("q")
        assert screen.end() == 0


def test_a_server_that_goes_away_is_waited_for(serve: Serve, tmp_path: Path) -> None:
    served = serve("--store", "memory:")
    url = f"http://127.0.0.1:{served.port}"
    with terminal("watch", "--url", url, "--interval", "0.1", where=tmp_path) as screen:
        screen.shows("default")
        served.signal()
        served.end()
        lines = screen.shows("no news from the server")
        assert any(line.startswith("default") for line in lines), "the last picture stays"
        screen.press("q")
        assert screen.end() == 0


def test_without_a_terminal_it_is_shown_once(busy: Asked) -> None:
    shown = busy.run("watch").splitlines()
    assert row(shown, "payments")[:2] == ["payments", "3"]
    assert "q quits" not in shown[-1]
    again = busy.run("watch", "--once").splitlines()
    assert [line[:20] for line in again[2:]] == [line[:20] for line in shown[2:]]
    found = busy.json("watch")
    assert {"queues", "keys", "pools", "shares", "health", "stats", "dead_letters"} == set(found)


def test_what_cannot_be_is_refused_in_one_line(cli: Asked) -> None:
    assert cli.refused("watch", "--interval", "0", code=2).startswith("--interval must be at least")
    assert cli.refused("watch", "--interval", "nan", code=2).startswith(
        "--interval must be at least"
    )
    cli.refused("watch", "--url", "http://127.0.0.1:1", code=4)


# Pictures


def queue(name: str, available: int = 0, **more: Any) -> dict[str, Any]:
    counts = dict.fromkeys(("active", "scheduled", "retryable", "pending"), 0)
    rates = {"processed_per_minute": 0, "failed_per_minute": 0}
    return {
        "name": name,
        "state": "active",
        "counts": counts | {"available": available},
        "throughput": rates,
        **more,
    }


def look(**more: Any) -> Look:
    stats = queue("")["counts"] | {"available": 123_456_789}
    found: dict[str, Any] = {
        "url": "http://somewhere",
        "now_ms": 0,
        "health": {"version": "1", "status": "ok", "uptime_seconds": 60, "workers": {"connected": 2, "stale": 1}},
        "stats": {"jobs": stats, "throughput": queue("")["throughput"]},
        "dead_letters": 1,
        "queues": [],
        "queues_total": 0,
        "keys": [],
        "keys_total": 0,
        "pools": [],
    }  # fmt: skip
    return Look(**(found | more))


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 10), (40, 12), (200, 60), (20, 3)])
def test_a_picture_fits_whatever_there_is_to_show(width: int, height: int) -> None:
    queues = [queue(f"queue-{n}." + "x" * 60, n * 10**6, pressure=0.5) for n in range(300)]
    keys = [{"key": "k" * 200, "waiting_count": n, "concurrency": {"active": 10**6, "limit": 10**6}, "rate": {"limit": 10**6, "period": "P1D", "current_count": 10**6}, "throttle": {"limit": 10**6, "period": "P1D"}} for n in range(300)]  # fmt: skip
    pools = [{"name": "p" * 100, "strategy": "least-loaded", "isolated": True, "queues": ["q" * 128] * 20, "active_workers": 10**6, "active_jobs": 10**6, "concurrency": 10**6}] * 9  # fmt: skip
    found = look(queues=queues, queues_total=10**6, keys=keys, keys_total=10**6, pools=pools)
    lines = picture(found, width, height)
    assert len(lines) == height
    assert max(map(len, lines)) <= width
    everything = picture(found, width)
    assert max(map(len, everything)) <= width
    assert len(everything) > 300


def test_80_columns_have_room_for_usual_names_and_large_numbers() -> None:
    name = "customer-exports"
    busy = queue(name, 12_345_678, pressure=1.0, oldest_available_at="1969-12-30T00:00:00Z")
    busy["counts"]["active"] = 20_000
    lines = picture(look(queues=[busy], queues_total=1), 80, 24)
    assert next(line for line in lines if line.startswith(name)).split() == [
        name, "12.3M", "20.0k", "0", "100", "%", "0", "0", "0", "2", "d",
    ]  # fmt: skip


def test_the_most_urgent_are_shown_in_their_own_order_when_there_is_no_room_for_all() -> None:
    queues = [queue(f"q{n}", n) for n in range(20)]
    queues[1]["pressure"] = 1.0
    queues[2]["state"] = "paused"
    lines = picture(look(queues=queues, queues_total=20), 80, 10)
    names = [line.split()[0] for line in lines if line.startswith("q") and "quits" not in line]
    assert names == ["q1", "q2", "q18", "q19"]
    assert "… and 16 more" in lines


def test_what_a_server_says_cannot_paint_the_screen() -> None:
    lines = picture(look(queues=[queue("a\x1b[2Jb")], queues_total=1), 80, 24, "bad\x1b[2J")
    assert not any("\x1b" in line for line in lines)
