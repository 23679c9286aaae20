from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from headgate.cli.doctor import keys, packages, queues, server
from headgate.cli.doctor.facts import Facts
from headgate.cli.doctor.finding import Finding
from headgate.core.times import instant_text
from headgate.version import VERSION
from tests.cli.asked import Asked
from tests.cli.served import Serve, headgate

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000


# Through the real entry point


def findings(cli: Asked, *arguments: str, code: int, **variables: str) -> list[dict[str, str]]:
    found = json.loads(cli.run("doctor", "--json", *arguments, code=code, **variables))
    assert found["errors"] == sum(each["level"] == "error" for each in found["findings"])
    assert found["warnings"] == sum(each["level"] == "warning" for each in found["findings"])
    assert found["well"] == (code == 0)
    return list(found["findings"])


def test_an_installation_that_is_well_is_told_so(serve: Serve, tmp_path: Path) -> None:
    cli = Asked(serve(), tmp_path)
    cli.run("queue", "set", "_default", "--max-depth", "1000")
    found = findings(cli, code=0)
    assert {each["level"] for each in found} == {"ok"}
    assert {each["about"] for each in found} == {
        "python", "server", "version", "store", "clock", "durability", "tokens", "bounds",
        "consumers", "workers", "dead letters", "keys",
    }  # fmt: skip
    assert cli.run("doctor", "--brief", "--strict") == "0 errors, 0 warnings\n"


def test_everything_that_is_wrong_is_found_with_what_to_do(serve: Serve, tmp_path: Path) -> None:
    cli = Asked(serve("--store", "memory:", "--test-hooks"), tmp_path)
    cli.server.enqueue(queue="lonely")
    for _ in range(2):
        cli.server.enqueue(queue="halted")
    cli.run("queue", "pause", "halted")
    cli.server.enqueue(queue="leaving")
    cli.run("queue", "drain", "leaving")
    cli.run("queue", "set", "full", "--max-depth", "1")
    cli.server.enqueue(queue="full", rate_limit={"key": "shut", "concurrency": 3})
    cli.run("limit", "set", "shut", "--concurrency", "0")
    dead = cli.server.enqueue(
        queue="dying", retry={"max_attempts": 1, "on_exhaustion": "dead_letter"}
    )
    cli.server.ask("POST", "/ojs/v1/workers/fetch", {"queues": ["dying"]})
    error = {"code": "E", "type": "Broken", "message": "x"}
    cli.server.ask("POST", "/ojs/v1/workers/nack", {"job_id": dead["id"], "error": error})
    found = findings(cli, code=1)
    told = {(each["level"], each["message"]): each["remedy"] for each in found}
    for level, message, remedy in (
        ("error", "queue lonely has 1 job and nobody fetches from it", "headgate worker APP --queues lonely"),
        ("error", "key shut is closed by an override without end; it keeps 1 job waiting", "headgate limit clear shut"),
        ("error", "test hooks are on: whoever may come in can wipe everything", "headgate serve --no-test-hooks"),
        ("warning", "the store is memory: every job is forgotten when the server ends", "headgate serve --store"),
        ("warning", "queue full is 100 % full", "more workers"),
        ("warning", "queue leaving is draining, with 1 job left", "headgate queue resume leaving"),
        ("warning", "1 of 1 came in the last hour, mostly Broken", "headgate dead list"),
    ):  # fmt: skip
        assert told[level, message].startswith(remedy), message
    messages = [message for level, message in told if level == "warning"]
    assert any(message.startswith("queue halted has been paused for ") for message in messages)
    assert any("without a bound: default, dying, halted" in message for message in messages)
    assert not any("halted has 2 jobs and nobody" in message for _, message in told)
    lines = cli.run("doctor", "--brief", code=1).splitlines()
    assert lines[0].startswith("error")
    assert any(line.strip() == "-> headgate limit clear shut" for line in lines)
    assert lines[-1].endswith(" warnings")
    assert not any(line.startswith("ok") for line in lines)


def test_maintenance_is_told_with_what_ends_it(serve: Serve, tmp_path: Path) -> None:
    cli = Asked(serve(), tmp_path)
    body = {"enabled": True, "reason": "new disk", "estimated_duration": "PT1H"}
    begun = cli.server.ask("POST", "/ojs/v1/admin/system/maintenance", body)[1]
    (found,) = [each for each in findings(cli, code=0) if each["about"] == "maintenance"]
    assert found["level"] == "warning"
    assert found["message"] == (
        f"the server is in maintenance since {begun['enabled_at']}, "
        f"meant to end at {begun['estimated_end']} (new disk): no job is given out"
    )
    assert found["remedy"] == "headgate maintenance end"


def test_a_worker_makes_the_difference(serve: Serve, tmp_path: Path) -> None:
    cli = Asked(serve(), tmp_path)
    cli.run("queue", "set", "_default", "--max-depth", "1000")
    cli.server.enqueue(queue="served")
    assert any(each["about"] == "consumers" for each in findings(cli, code=1))
    worker = {"worker_id": "w", "queues": ["served"], "concurrency": 1}
    assert cli.server.ask("POST", "/ojs/v1/workers/register", worker)[0] in {200, 201}
    assert all(each["level"] == "ok" for each in findings(cli, code=0))


def test_warnings_count_where_they_are_to(cli: Asked) -> None:
    findings(cli, code=0)
    findings(cli, "--strict", code=1)


def test_no_server_is_told_besides_what_can_be_known_without_it(tmp_path: Path) -> None:
    found = headgate("doctor", "--url", "http://127.0.0.1:1", where=tmp_path)
    assert (found.returncode, found.stderr) == (4, "")
    lines = found.stdout.splitlines()
    assert lines[0].startswith("error  server  cannot connect to http://127.0.0.1:1")
    assert "headgate serve starts one" in lines[1]
    assert any(line.startswith("ok     python") for line in lines)


def test_what_the_token_does_not_show_is_named(serve: Serve, tmp_path: Path) -> None:
    roles = {"shop": "producer", "boss": "admin"}
    blocks = [
        f'[[tokens]]\nname = "{name}"\nroles = ["{role}"]\nsha256 = "{sha256(name.encode()).hexdigest()}"\n'
        for name, role in roles.items()
    ]
    (tmp_path / "tokens.toml").write_text("".join(blocks))
    cli = Asked(serve("--config", "tokens.toml"), tmp_path)
    found = findings(cli, "--token", "shop", code=0)
    unseen = [each["about"] for each in found if each["level"] == "note"]
    assert unseen == ["settings", "queues", "workers", "pools", "dead letters"]
    found = findings(cli, "--token", "boss", code=0)
    assert any(each["message"] == "2 tokens: shop (producer), boss (admin)" for each in found)
    nobody = findings(cli, code=0)
    assert any(each["message"].startswith("not looked at: ") for each in nobody)


class Answers(BaseHTTPRequestHandler):
    body = b""
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("content-length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def stranger() -> Iterator[Any]:
    """A server that always answers the same."""
    handler = type("Handler", (Answers,), {})
    with HTTPServer(("127.0.0.1", 0), handler) as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.01,))
        thread.start()
        yield handler, f"http://127.0.0.1:{found.server_port}"
        found.shutdown()
        thread.join()


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}"])
def test_what_is_no_job_server_is_told(stranger: Any, body: bytes) -> None:
    handler, url = stranger
    handler.body = body
    found = headgate("doctor", "--url", url)
    assert found.returncode == 4
    assert "what answers there is no job server" in found.stdout


def test_a_store_that_fails_is_the_first_thing_to_know(stranger: Any) -> None:
    handler, url = stranger
    backend = {"type": "sqlite", "status": "unavailable"}
    health = {"status": "degraded", "version": VERSION, "uptime_seconds": 5, "backend": backend}
    handler.body, handler.status = json.dumps(health).encode(), 503
    found = headgate("doctor", "--url", url)
    assert found.returncode == 1
    first = found.stdout.splitlines()[0].split(maxsplit=2)
    assert first == ["error", "store", "the sqlite store is unavailable: nothing can be written"]


# Rules


def facts(**more: Any) -> Facts:
    health = {
        "status": "ok",
        "version": VERSION,
        "uptime_seconds": 5,
        "backend": {"type": "sqlite", "status": "ok", "latency_ms": 1.0},
    }
    given: dict[str, Any] = {
        "url": "http://127.0.0.1:8080",
        "token": False,
        "now_ms": NOW_MS,
        "health": health,
        "answered_ms": 3.0,
    }
    return Facts(**(given | more))


def queue(name: str = "q", available: int = 0, **more: Any) -> dict[str, Any]:
    counts = dict.fromkeys(("active", "scheduled", "retryable", "pending"), 0)
    return {
        "name": name,
        "state": "active",
        "paused": False,
        "pressure": 0.0,
        "counts": counts | {"available": available},
        **more,
    }


def bad(found: Iterator[Finding]) -> list[tuple[str, str, str]]:
    return [(each.level, each.about, each.message) for each in found if each.level != "ok"]


@pytest.mark.parametrize(
    ("more", "level", "about", "words"),
    [
        ({"answered_ms": 2_000.0}, "warning", "server", "answers in 2 s"),
        ({"manifest": {"implementation": {"name": "headgate", "version": "9.9"}}}, "warning", "version", "the server is Headgate 9.9, here is"),
        ({"manifest": {"implementation": {"name": "other", "version": "1"}}}, "warning", "version", "the server is other 1"),
        ({"clock_off_ms": 5_000}, "warning", "clock", "the server's clock is 5 s ahead of"),
        ({"clock_off_ms": -60_000}, "warning", "clock", "the server's clock is 1 min behind"),
        ({"system": {"store": "sqlite:///a.db", "durability": "normal", "host": "::1"}}, "note", "durability", "normal: "),
        ({"system": {"store": "memory:", "test_hooks": True, "host": "localhost"}}, "error", "settings", "test hooks are on"),
        ({"system": {"store": "memory:", "host": "0.0.0.0", "tokens": []}}, "error", "tokens", "there are no tokens, and others can reach 0.0.0.0"),
        ({"token": True, "url": "http://jobs.example:8080"}, "warning", "token", "your token travels"),
        ({"unseen": {"queues": "no role"}}, "note", "queues", "not looked at: no role"),
        ({"health": {"status": "ok", "version": VERSION, "backend": {"type": "sqlite", "status": "ok", "latency_ms": 400.0}}}, "warning", "store", "the last commit took 400 ms"),
    ],
)  # fmt: skip
def test_the_server_is_judged(more: dict[str, Any], level: str, about: str, words: str) -> None:
    found = bad(
        server.judged(facts(**({"system": {"host": "127.0.0.1", "store": "memory:"}} | more)))
    )
    assert [each[:2] for each in found] == [(level, about)]
    assert words in found[0][2]


@pytest.mark.parametrize(
    "more",
    [
        {"clock_off_ms": 1_500},
        {"token": True, "url": "https://jobs.example"},
        {"token": True, "url": "http://localhost:1"},
        {"system": {"store": "sqlite:///a", "durability": "full", "host": "0.0.0.0", "tokens": [{"name": "a", "roles": ["admin"]}]}},
    ],
)  # fmt: skip
def test_a_server_that_is_well_has_nothing_against_it(more: dict[str, Any]) -> None:
    assert bad(server.judged(facts(**more))) == []


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"queues": [queue("a", 5)], "workers": [], "consumers": {"a": 0}}, [("error", "queue a has 5 jobs and nobody fetches from it")]),
        ({"queues": [queue("a", 5)], "workers": [], "consumers": {"a": 1}}, []),
        ({"queues": [queue("d", 5)], "workers": [], "consumers": {"d": 0}, "dead_letters": {"total": 1, "by_error_type": {}}, "newest_dead": [{"queue": "d", "dead_letter": {"original_queue": "a", "at": instant_text(NOW_MS - 2 * HOUR_MS)}}]}, [("note", "queue d has 5 jobs and nobody fetches from it; it keeps dead letters"), ("note", "1, none of them in the last hour")]),
        ({"queues": [queue("a", 5, oldest_runnable_at=instant_text(NOW_MS - HOUR_MS))]}, [("warning", "a job of the queue a has been waiting for a free worker for 1 h")]),
        ({"queues": [queue("a", 5, oldest_runnable_at=instant_text(NOW_MS - 1_000))]}, []),
        ({"queues": [queue("a", 5, oldest_available_at=instant_text(NOW_MS - HOUR_MS))]}, []),
        ({"queues": [queue("a", 5, paused=True, state="paused", paused_at=instant_text(NOW_MS - HOUR_MS))]}, [("warning", "queue a has been paused for 1 h, with 5 jobs waiting")]),
        ({"queues": [queue("a", 0, paused=True, state="paused")]}, []),
        ({"queues": [queue("a", 5, state="draining")]}, [("warning", "queue a is draining, with 5 jobs left")]),
        ({"queues": [queue("a", pressure=0.95, parked=2)]}, [("warning", "queue a is 95 % full, with 2 producers waiting for room")]),
        ({"workers": [{"id": "w", "state": "stale"}]}, [("warning", "1 worker fell silent: w")]),
        ({"workers": [{"id": "w", "state": "quiet"}]}, [("note", "1 worker told to fetch nothing: w")]),
        ({"dead_letters": {"total": 10_000, "by_error_type": {}}}, [("warning", "10,000: the oldest are forgotten")]),
        ({"dead_letters": {"total": 200, "by_error_type": {"A": 1, "B": 5}}, "newest_dead": [{"queue": "q", "discarded_at": instant_text(NOW_MS)}] * 100}, [("warning", "100 or more of 200 came in the last hour, mostly B, A")]),
    ],
)  # fmt: skip
def test_queues_and_workers_are_judged(
    more: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    found = [(level, message) for level, _, message in bad(queues.judged(facts(**more)))]
    assert found == expected


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ({"waiting_count": 2, "concurrency": {"limit": 0}}, [("error", "key k is closed by its jobs, which say concurrency 0; it keeps 2 jobs waiting")]),
        ({"waiting_count": 0, "concurrency": {"limit": 0}, "override": {"concurrency": 0}}, [("warning", "key k is closed by an override without end")]),
        ({"waiting_count": 2, "concurrency": {"limit": 0}, "override": {"concurrency": 0, "expires_at": "2099-01-01T00:00:00Z"}}, []),
        ({"waiting_count": 2, "concurrency": {"limit": 1}, "override": {"concurrency": 1}}, [("note", "key k has an override without end")]),
        ({"waiting_count": 2, "concurrency": {"limit": 1}}, []),
        ({"waiting_count": 2, "hold": {"until": instant_text(NOW_MS + HOUR_MS // 2)}}, []),
        ({"waiting_count": 2, "hold": {"until": instant_text(NOW_MS + 2 * HOUR_MS)}}, [("warning", "key k is held until 2027-01-15T10:00:00.000Z (in 2 h); it keeps 2 jobs waiting")]),
    ],
)  # fmt: skip
def test_keys_that_nothing_opens_are_found(
    key: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    found = list(keys.judged(facts(keys=[{"key": "k", **key}])))
    assert [(each.level, each.message) for each in found if each.level != "ok"] == expected
    tenants = list(keys.judged(facts(keys=[{"key": "k", "tenant": "t", **key}])))
    assert all("--tenant t" in each.remedy for each in tenants if each.level != "ok")


def test_packages_that_are_missing_are_named() -> None:
    there = {"headgate": VERSION, "msgspec": "1"}

    def version(name: str) -> str:
        if name not in there:
            raise PackageNotFoundError(name)
        return there[name]

    needs = ["msgspec>=0.2", "apsw>=3", "uvloop; sys_platform != 'win32'", "otel; extra == 'otel'"]
    found = list(packages.judged((3, 11), lambda _: needs, version))
    assert [(each.level, each.message, each.remedy) for each in found[:-1]] == [
        ("error", "missing: apsw", "pip install apsw")
    ]
    assert found[-1].message.endswith(" with msgspec 1")
    assert [each.level for each in packages.judged((3, 10), lambda _: [], version)] == [
        "error",
        "ok",
    ]
    there["headgate"] = "0.0.1"
    assert [each.level for each in packages.judged((3, 14), lambda _: [], version)] == [
        "warning",
        "ok",
    ]
