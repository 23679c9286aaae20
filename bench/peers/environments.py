"""Throw-away environments with what is pinned in a lock file, in a cache, so that a second run is quick.

A lock file names versions and hashes, never an address: what is installed comes from wherever the machine is told to get packages, and is what the hashes say.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import msgspec
from msgspec import Struct

LOCKS = Path(__file__).parent / "locks"
_TOOK_LONG_S = 900


class Unavailable(Exception):
    """Something cannot be had on this machine, and why."""


class Environment(Struct, frozen=True):
    place: Path
    """Where it is; modules of Node.js are in `node_modules` there."""
    bin: Path
    """Where its programs are."""


OURS = Environment(Path(sys.prefix), Path(sys.prefix) / "bin")


def prepared(lock: str, cache: Path | None = None, locks: Path = LOCKS) -> Environment:
    """The environment of a lock file, made if it is not there yet. Raises Unavailable."""
    if not lock:
        return OURS
    source = locks / lock
    digest = hashlib.sha256(source.read_bytes() + sys.version.encode()).hexdigest()[:16]
    place = (cache or _cache()) / f"{source.stem}-{digest}"
    environment = Environment(place, place / "bin")
    done = place / ".complete"
    if not done.exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        print(f"installing {source.stem}", file=sys.stderr, flush=True)
        if source.suffix == ".json":
            _node(source, place)
        else:
            _python(source, place)
        done.touch()
    return environment


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "headgate-bench"


def _python(source: Path, place: Path) -> None:
    # pip of the environment that runs this installs into the other one, which so needs none of its own.
    venv.create(place, with_pip=False, symlinks=True)
    _run(
        [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install",
         "--quiet", "--disable-pip-version-check", "--require-hashes", "-r", str(source)],
        place,
    )  # fmt: skip


def _node(source: Path, place: Path) -> None:
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        raise Unavailable("Node.js and npm are not installed")
    lock = msgspec.json.decode(source.read_bytes())
    (place / "package.json").write_bytes(msgspec.json.encode(lock["packages"][""]))
    shutil.copy(source, place / "package-lock.json")
    # Not `npm ci`: that wants to know packages of every platform, which not every registry has. Versions and hashes are those of the lock file all the same.
    _run(
        [npm, "install", "--no-save", "--omit", "optional", "--ignore-scripts",
         "--loglevel", "error", "--no-audit", "--no-fund"],
        place,
    )  # fmt: skip
    (place / "bin").mkdir()
    (place / "bin" / "node").symlink_to(node)


def _run(command: list[str], place: Path) -> None:
    try:
        found = subprocess.run(
            command, cwd=place, capture_output=True, text=True, timeout=_TOOK_LONG_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"its installation took more than {_TOOK_LONG_S} s") from None
    if found.returncode:
        said = (found.stderr or found.stdout).strip().splitlines() or ["without a word"]
        raise Unavailable(f"it could not be installed: {said[-1]}")
