"""A command in a terminal of its own, and what stands on its screen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.served import LATE_S

_TAKE_THE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Only a process whose terminal it is gets the signals of its keys."""
_SEQUENCE = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])")


class Page:
    """What a terminal shows, as far as our commands ask it for anything. What it does not know is an error."""

    def __init__(self, columns: int, lines: int) -> None:
        self.columns, self.lines = columns, lines
        self.on_own_page = False
        self.cursor_hidden = False
        self._cells: list[list[str]] = []
        self._row = self._column = 0
        self._rest = ""
        self.clear()

    def clear(self) -> None:
        self._cells = [[" "] * self.columns for _ in range(self.lines)]
        self._row = self._column = 0

    def text(self) -> list[str]:
        return ["".join(row).rstrip() for row in self._cells]

    def write(self, text: str) -> None:
        text = self._rest + text
        self._rest = ""
        place = 0
        while place < len(text):
            char = text[place]
            if char == "\x1b":
                found = _SEQUENCE.match(text, place)
                if found is None:
                    assert len(text) - place < 16, f"not known here: {text[place : place + 16]!r}"
                    self._rest = text[place:]
                    return
                self._obey(found[1], found[2], found[3])
                place = found.end()
                continue
            if char == "\r":
                self._column = 0
            elif char == "\n":
                self._row += 1
                assert self._row < self.lines, "the page would scroll"
            else:
                assert char.isprintable(), repr(char)
                assert self._column < self.columns, "the line is too long"
                self._cells[self._row][self._column] = char
                self._column += 1
            place += 1

    def _obey(self, private: str, numbers: str, verb: str) -> None:
        match private + numbers + verb:
            case "?1049h":
                self.on_own_page = True
                self.clear()
            case "?1049l":
                self.on_own_page = False
                self.clear()
            case "?25l":
                self.cursor_hidden = True
            case "?25h":
                self.cursor_hidden = False
            case "H":
                self._row = self._column = 0
            case "K":
                self._cells[self._row][self._column :] = [" "] * (self.columns - self._column)
            case "J":
                self._cells[self._row][self._column :] = [" "] * (self.columns - self._column)
                for row in range(self._row + 1, self.lines):
                    self._cells[row] = [" "] * self.columns
            case "0m" | "1m":
                pass
            case other:
                raise AssertionError(f"not known here: {other}")


class Terminal:
    def __init__(self, arguments: tuple[str, ...], where: Path, columns: int, lines: int) -> None:
        self.page = Page(columns, lines)
        self.said = ""
        """All that was ever written, escape sequences included."""
        self._leader, follower = pty.openpty()
        self.size(columns, lines)
        self._modes = termios.tcgetattr(follower)
        clean = {k: v for k, v in os.environ.items() if not k.startswith("HEADGATE_")}
        for name in ("COLUMNS", "LINES"):
            clean.pop(name, None)
        self.process = subprocess.Popen(
            [sys.executable, "-c", _TAKE_THE_TERMINAL, sys.executable, "-m", "headgate", *arguments],
            cwd=where, env=clean, stdin=follower, stdout=follower, stderr=follower,
            start_new_session=True,
        )  # fmt: skip
        self._follower = follower

    def size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._leader, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def resize(self, columns: int, lines: int) -> None:
        self.page = Page(columns, lines)
        self.page.on_own_page = self.page.cursor_hidden = True
        self.size(columns, lines)
        self.process.send_signal(signal.SIGWINCH)

    def press(self, keys: str) -> None:
        os.write(self._leader, keys.encode())

    def until(self, seen: Callable[[Page], bool]) -> list[str]:
        """The screen once it shows what is waited for."""
        end = time.monotonic() + LATE_S
        while not seen(self.page):
            assert time.monotonic() < end, "\n".join(self.page.text())
            ready, _, _ = select.select([self._leader], [], [], 0.2)
            if ready:
                self._read()
        return self.page.text()

    def shows(self, text: str) -> list[str]:
        return self.until(lambda page: any(text in line for line in page.text()))

    def end(self) -> int:
        """The exit code, when all that it wrote is on the page."""
        code = self.process.wait(LATE_S)
        while select.select([self._leader], [], [], 0)[0]:
            self._read()
        return code

    def _read(self) -> None:
        text = os.read(self._leader, 65_536).decode()
        self.said += text
        self.page.write(text)

    def left_as_found(self) -> None:
        """The shell gets its own page back, its cursor, and a keyboard that shows what is typed."""
        assert (self.page.on_own_page, self.page.cursor_hidden) == (False, False)
        assert termios.tcgetattr(self._follower) == self._modes

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._leader)
        os.close(self._follower)


@contextmanager
def terminal(
    *arguments: str, where: Path, columns: int = 80, lines: int = 24
) -> Iterator[Terminal]:
    found = Terminal(arguments, where, columns, lines)
    try:
        yield found
    finally:
        found.close()
