from __future__ import annotations

import contextlib
import json
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.server.settings import MOST, Limits, Settings
from tests.cli.served import LATE_S, Serve, Served, headgate, servers

QUICK_S = 5.0


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    with servers(tmp_path) as serve:
        yield serve


def refused(where: Path, *arguments: str, code: int = 1, **variables: str) -> str:
    """The one line with which a start is refused."""
    found = headgate("serve", "--port", "0", *arguments, where=where, **variables)
    assert (found.returncode, found.stdout) == (code, "")
    (line,) = found.stderr.splitlines()
    assert line.startswith("headgate: ")
    return str(line.removeprefix("headgate: "))


# Start


def test_it_says_where_it_listens_and_what_it_found(serve: Serve, tmp_path: Path) -> None:
    served = serve()
    assert served.said == [
        f"headgate 0.1.0, listening on http://127.0.0.1:{served.port}",
        "store sqlite:///headgate.db, durability full, recovered 0 live jobs and 0 journal records",
    ]
    assert served.port > 0
    assert (tmp_path / "headgate.db").exists()
    status, health = served.ask("GET", "/ojs/v1/health")
    assert (status, health["status"]) == (200, "ok")


def test_it_warns_of_what_lets_anybody_in(serve: Serve) -> None:
    served = serve("--store", "memory:", "--test-hooks", "--insecure", "--host", "0.0.0.0")
    served.signal()
    assert served.end() == 0
    assert served.said[1] == "store memory:, everything is forgotten at the end"
    assert served.said[2].startswith("warning: test hooks are on")
    assert served.said[3].startswith("warning: insecure")


def test_it_serves_the_second_version_of_the_address_family(serve: Serve) -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    served = serve("--store", "memory:", "--host", "::1")
    assert served.host == "[::1]"
    with socket.create_connection(("::1", served.port), LATE_S) as connection:
        connection.sendall(b"GET /ready HTTP/1.1\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 200"


# Restart


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("durability", ["full", "normal"])
def test_what_was_answered_is_there_after_a_restart(
    serve: Serve, number: int, durability: str
) -> None:
    first = serve("--durability", durability)
    job = first.enqueue(queue="kept")
    first.signal(number)
    assert first.end() == (0 if number == signal.SIGTERM else -signal.SIGKILL)
    second = serve("--durability", durability)
    assert f"durability {durability}, recovered 1 live jobs" in second.said[1]
    _, found = second.ask("POST", "/ojs/v1/workers/fetch", {"queues": ["kept"]})
    assert [each["id"] for each in found["jobs"]] == [job["id"]]


def test_it_works_with_the_largest_numbers_that_may_be_set(serve: Serve) -> None:
    numbers = {
        f"{prefix}{name.upper()}": str(MOST)
        for owner, prefix in ((Settings(), "HEADGATE_"), (Limits(), "HEADGATE_LIMITS_"))
        for name in owner.__struct_fields__
        if name != "port" and type(getattr(owner, name)) in {int, float}
    }
    assert len(numbers) > 20
    served = serve(**numbers)
    job = served.enqueue(args=["x" * 100_000])
    wish = {"queues": ["default"], "worker_id": "w", "wait_ms": MOST}
    status, body = served.ask("POST", "/ojs/v1/workers/fetch", wish)
    assert (status, [found["id"] for found in body["jobs"]]) == (200, [job["id"]])
    assert served.ask("POST", "/ojs/v1/workers/ack", {"job_id": job["id"]})[0] == 200
    assert served.ask("GET", "/ojs/v1/events")[0] == 200
    served.signal()
    assert served.end() == 0
    assert "Traceback" not in served.errors()


# Stop


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_when_told(serve: Serve, number: int) -> None:
    served = serve("--store", "memory:")
    served.signal(number)
    assert served.end() == 0
    assert served.said[-1] == "stopped"
    assert "Traceback" not in served.errors()


def test_who_waits_is_answered_when_it_stops(serve: Serve) -> None:
    served = serve("--store", "memory:")
    body = b'{"queues":["empty"],"wait_ms":30000}'
    with socket.create_connection(("127.0.0.1", served.port), LATE_S) as waiting:
        waiting.sendall(
            b"POST /ojs/v1/workers/fetch HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s"
            % (len(body), body)
        )
        # What was sent before this is read before it.
        assert served.ask("GET", "/ready")[0] == 200
        begun = time.monotonic()
        served.signal()
        head, _, answer = b"".join(iter(lambda: waiting.recv(4_096), b"")).partition(b"\r\n\r\n")
    assert served.end() == 0
    assert time.monotonic() - begun < QUICK_S
    assert head.startswith(b"HTTP/1.1 200")
    assert json.loads(answer)["jobs"] == []


def stuck(served: Served) -> socket.socket:
    """A client that asked for more than the system buffers and takes nothing of it."""
    job = served.enqueue(args=["x" * 9_000_000])
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    connection.connect(("127.0.0.1", served.port))
    connection.sendall(f"GET /ojs/v1/jobs/{job['id']} HTTP/1.1\r\n\r\n".encode())
    assert connection.recv(12) == b"HTTP/1.1 200"
    return connection


def test_it_waits_for_the_slow_only_so_long(serve: Serve) -> None:
    served = serve("--store", "memory:", HEADGATE_SHUTDOWN_S="0.5")
    with stuck(served):
        begun = time.monotonic()
        served.signal()
        assert served.end() == 0
        assert 0.5 <= time.monotonic() - begun < QUICK_S


def test_a_second_signal_forces_it(serve: Serve) -> None:
    served = serve("--store", "memory:", "--log-format", "text")
    with stuck(served):
        served.signal()
        while "stopping" not in served.errors():
            time.sleep(0.01)
        assert served.process.poll() is None
        begun = time.monotonic()
        served.signal()
        assert served.end() == 1
        assert time.monotonic() - begun < QUICK_S


def test_a_second_signal_forces_it_while_the_journal_is_folded(
    serve: Serve, tmp_path: Path
) -> None:
    served = serve("--log-format", "text")
    with contextlib.closing(
        sqlite3.connect(tmp_path / "headgate.db", isolation_level=None)
    ) as other:
        # Folding waits for whoever holds the file.
        while True:
            kept = served.enqueue()
            other.execute("BEGIN IMMEDIATE")
            if other.execute("SELECT count(*) FROM journal").fetchone()[0]:
                break
            other.execute("ROLLBACK")
        served.signal()
        while "stopping" not in served.errors():
            time.sleep(0.01)
        with pytest.raises(subprocess.TimeoutExpired):
            served.process.wait(0.5)
        begun = time.monotonic()
        served.signal()
        assert served.end() == 1
        assert time.monotonic() - begun < QUICK_S
        assert "forced to stop" in served.errors()
    assert served.said[-1] != "stopped"
    assert serve().ask("GET", f"/ojs/v1/jobs/{kept['id']}")[0] == 200


def test_nothing_is_begun_after_the_signal(serve: Serve) -> None:
    served = serve("--store", "memory:", HEADGATE_SHUTDOWN_S="3")
    with stuck(served):
        served.signal()
        deadline = time.monotonic() + QUICK_S
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", served.port), 1).close()
            except OSError:
                break
        else:
            pytest.fail("it still accepts connections")


# Idle


def test_an_idle_server_sleeps(serve: Serve) -> None:
    if not Path("/proc/self/task").exists():
        pytest.skip("this system does not tell how often a process was woken")
    served = serve()
    served.enqueue()
    time.sleep(1.0)

    def wakes() -> int:
        total = 0
        for task in Path(f"/proc/{served.process.pid}/task").iterdir():
            for line in (task / "status").read_text().splitlines():
                if line.startswith("voluntary_ctxt_switches"):
                    total += int(line.split()[1])
        return total

    before = wakes()
    time.sleep(2.0)
    assert wakes() - before <= 10


# Refusals


def test_a_taken_port_is_told_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refused(tmp_path, "--port", str(port))
    assert line == f"127.0.0.1:{port}: address already in use"
    assert not (tmp_path / "headgate.db").exists()


def test_an_address_that_is_not_here_is_told_in_one_line(tmp_path: Path) -> None:
    line = refused(tmp_path, "--host", "203.0.113.7", "--insecure")
    assert line.startswith("203.0.113.7:0: ")


def test_a_store_that_cannot_be_is_told_in_one_line(tmp_path: Path) -> None:
    line = refused(tmp_path, "--store", "sqlite:///no/such/x.db")
    assert "no/such" in line


def test_a_file_that_is_something_else_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is not a database, but long enough to be one" * 50)
    assert refused(tmp_path, "--store", "sqlite:///text.db").startswith("text.db: not a SQLite")
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE other (x)")
    other.close()
    assert "not one of Headgate's" in refused(tmp_path, "--store", "sqlite:///other.db")


def test_a_store_of_a_newer_version_is_told_in_one_line(serve: Serve, tmp_path: Path) -> None:
    served = serve()
    served.signal()
    assert served.end() == 0
    with sqlite3.connect(tmp_path / "headgate.db") as newer:
        newer.execute("PRAGMA user_version = 999")
    newer.close()
    assert "written by a newer Headgate (schema 999" in refused(tmp_path)


def test_a_store_in_use_is_told_in_one_line(serve: Serve, tmp_path: Path) -> None:
    served = serve()
    line = refused(tmp_path)
    assert f"in use by another Headgate server (process {served.process.pid})" in line
    assert served.ask("GET", "/ready")[0] == 200


@pytest.mark.parametrize(
    ("arguments", "variables", "words"),
    [
        (("--store", "postgres://x"), {}, "store: must be sqlite:///PATH"),
        (("--store", "sqlite:///"), {}, "store: must be sqlite:///PATH"),
        (("--host", "0.0.0.0"), {}, "host: others can reach 0.0.0.0 and there are no tokens"),
        ((), {"HEADGATE_DURABILITY": "some"}, "durability: must be one of full, normal"),
        (("--config", "nowhere.toml"), {}, "config: nowhere.toml cannot be read"),
        (("--port", "http"), {}, "--port: invalid int value"),
        (("--durability", "some"), {}, "--durability: invalid choice"),
        (("--prot", "1"), {}, "--prot"),
        ((), {"HEADGATE_PROT": "1"}, "HEADGATE_PROT: there is no such setting"),
    ],
)
def test_a_bad_setting_is_told_in_one_line(
    tmp_path: Path, arguments: tuple[str, ...], variables: dict[str, str], words: str
) -> None:
    assert words in refused(tmp_path, *arguments, code=2, **variables)


# Logs and tokens


def test_logs_are_json_and_hold_no_arguments(serve: Serve) -> None:
    served = serve("--store", "memory:", "--access-log")
    served.enqueue(args=["private"], meta={"also": "private"})
    served.ask("POST", "/ojs/v1/jobs", {"type": "NOT", "args": ["private"]})
    served.signal()
    served.end()
    lines = [json.loads(line) for line in served.errors().splitlines()]
    assert [line["message"] for line in lines if line["component"] == "access"] == [
        "POST /ojs/v1/jobs 201",
        "POST /ojs/v1/jobs 400",
    ]
    assert "private" not in served.errors()


def test_a_new_token_opens_the_door_that_it_says(serve: Serve, tmp_path: Path) -> None:
    made = headgate("token", "new", "--name", 'the "web"', "--role", "producer")
    assert made.returncode == 0
    head, block = made.stdout.split("[[tokens]]")
    (token,) = [line for line in head.splitlines() if len(line) == 64]
    assert token not in block
    (tmp_path / "headgate.toml").write_text("[[tokens]]" + block)
    served = serve("--store", "memory:", HEADGATE_CONFIG="headgate.toml")
    job = {"type": "a.b", "args": []}
    bearer = {"Authorization": f"Bearer {token}"}
    assert served.ask("POST", "/ojs/v1/jobs", job)[0] == 401
    assert served.ask("POST", "/ojs/v1/jobs", job, bearer)[0] == 201
    status, answer = served.ask("POST", "/ojs/v1/workers/fetch", {"queues": ["default"]}, bearer)
    assert (status, answer["error"]["message"]) == (403, 'the "web" lacks the role admin or worker')
    assert served.ask("GET", "/health")[0] == 200
