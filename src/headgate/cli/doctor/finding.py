from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

Level: TypeAlias = Literal["ok", "note", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """Something that was looked at. An error needs somebody now, a warning needs somebody, a note is good to know."""

    level: Level
    about: str
    message: str
    remedy: str = ""
    """What to do about it, a command where there is one."""


well = partial(Finding, "ok")
note = partial(Finding, "note")
warning = partial(Finding, "warning")
error = partial(Finding, "error")
