"""A place to follow a page of the documentation: a directory, a server and a shell."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.pages import ROOT, Block

MARK = "-- end of a block --"
CURL = """
curl() {
    case " $* " in
        *" -o /dev/null "*) command "${real[@]}" --show-error --fail "$@" ;;
        *) command "${real[@]}" --show-error "$@" ;;
    esac
}"""
"""An answer that is thrown away must not be a refusal."""
CURLS = {"curl": ["curl"], "stand-in": [sys.executable, str(ROOT / "tests/curl.py")]}


class Site:
    """A directory as a reader has it, and the server that runs there."""

    def __init__(self, path: Path, curl: Sequence[str]) -> None:
        self.path = path
        self.address = ""
        self._server: subprocess.Popen[str] | None = None
        (path / ".venv").symlink_to(sys.prefix)
        self._before = f"set -eu -o pipefail\nreal=({shlex.join(curl)})\n{CURL}"
        self._variables = {
            "PATH": f"{path}/.venv/bin:{os.environ['PATH']}",
            "HOME": str(path),
            "LANG": "C.UTF-8",
            "NO_PROXY": "*",
        }

    def serve(self, arguments: Sequence[str] = ()) -> str:
        """Start a server, stopping the one before; what it says at the start."""
        self.stop()
        with (self.path / "server.log").open("a") as log:
            self._server = subprocess.Popen(
                [".venv/bin/headgate", "serve", *arguments, "--port", "0"],
                cwd=self.path, env=self._variables, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        assert self._server.stdout is not None
        said = self._server.stdout.readline() + self._server.stdout.readline()
        found = re.search(r"listening on http://(\S+)", said)
        assert found, f"{said}\n{(self.path / 'server.log').read_text()}"
        self.address = found[1]
        return said.replace(self.address, "127.0.0.1:8080")

    def stop(self) -> None:
        if self._server is not None:
            self._server.send_signal(signal.SIGTERM)
            assert self._server.wait(20) == 0
            assert self._server.stdout is not None
            self._server.stdout.close()
            self._server = None

    def run(self, blocks: Sequence[Block]) -> list[str]:
        """What each block prints; none may fail."""
        script = [self._before]
        for block in blocks:
            text = re.sub(r"(localhost|127\.0\.0\.1):8080", self.address, block.text)
            script += [f"python3 - <<'{MARK}'\n{text}{MARK}" if block.kind == "python" else text]
            script += [f"printf '%s\\n' '{MARK}'"]
        done = subprocess.run(
            ["bash"], input="\n".join(script) + "\n",
            cwd=self.path, env=self._variables | {"HEADGATE_URL": f"http://{self.address}"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False,
        )  # fmt: skip
        printed = done.stdout.split(f"{MARK}\n")
        failed = printed.pop()
        if done.returncode:
            pytest.fail(f"{blocks[len(printed)].place} failed ({done.returncode}):\n{failed}")
        return printed


def knows_json(curl: str) -> bool:
    """Whether it is there and not older than its option `--json`."""
    if shutil.which(curl) is None:
        return False
    said = subprocess.run([curl, "--version"], check=True, capture_output=True, text=True).stdout
    major, minor = said.split()[1].split(".")[:2]
    return (int(major), int(minor)) >= (7, 82)
