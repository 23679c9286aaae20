"""A terminal as a screen: pictures one over the other, and keys that need no return.

Plain escape sequences that every terminal of the last decades knows; the screen is left as it was found, whatever happens.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

_ENTER: Final = "\x1b[?1049h\x1b[?25l"
"""Another page than the one with the shell's lines, and no cursor."""
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HOME, _REST_OF_LINE, _REST_OF_PAGE = "\x1b[H", "\x1b[K", "\x1b[J"
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


class Screen:
    def __init__(self, woken: int) -> None:
        self._woken = woken

    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        return shutil.get_terminal_size()

    def show(self, lines: Sequence[str]) -> None:
        """One picture in one write, so that nothing flickers; a line after an empty one is a heading."""
        drawn = []
        for number, line in enumerate(lines):
            heading = number == 0 or (line and not lines[number - 1] and number + 1 < len(lines))
            text = f"{_BOLD}{line}{_PLAIN}" if heading else line
            drawn.append(text + _REST_OF_LINE)
        sys.stdout.write(_HOME + "\r\n".join(drawn) + _REST_OF_PAGE)
        sys.stdout.flush()

    def key(self, patience_s: float) -> str:
        """The key that was pressed; "" when none was in time, or when the size has changed."""
        ready, _, _ = select.select([sys.stdin, self._woken], [], [], patience_s)
        if self._woken in ready:
            os.read(self._woken, 1024)
        if sys.stdin not in ready:
            return ""
        pressed = os.read(sys.stdin.fileno(), 64).decode(errors="replace")
        # An end of input is as good as a wish to go.
        return pressed[:1] if pressed else "q"


@contextmanager
def screen() -> Iterator[Screen]:
    """The terminal of this process as a screen, until the end of the block."""
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    # A handler of its own makes the signal arrive at the pipe.
    old_handlers = {
        signal.SIGWINCH: signal.signal(signal.SIGWINCH, _nothing),
        signal.SIGTERM: signal.signal(signal.SIGTERM, _interrupt),
    }
    old_waker = signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    try:
        tty.setcbreak(keyboard)
        _no_suspending(keyboard)
        sys.stdout.write(_ENTER)
        yield Screen(woken)
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
        signal.set_wakeup_fd(old_waker)
        for number, handler in old_handlers.items():
            signal.signal(number, handler)
        os.close(woken)
        os.close(waker)


def _no_suspending(keyboard: int) -> None:
    """Stopped in the middle, it would leave the shell without a cursor and without echo."""
    modes: list[Any] = termios.tcgetattr(keyboard)
    modes[6][termios.VSUSP] = b"\x00"
    termios.tcsetattr(keyboard, termios.TCSADRAIN, modes)


def _nothing(_number: int, _frame: object) -> None:
    pass


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
