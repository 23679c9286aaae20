"""The Python that runs this command, and the packages that it needs."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from typing import Final

from headgate.cli.doctor.finding import Finding, error, note, warning, well
from headgate.version import VERSION

_OLDEST: Final = (3, 11)
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


def judged(
    version: tuple[int, int] = sys.version_info[:2],
    requirements: Callable[[str], Sequence[str] | None] = metadata.requires,
    installed: Callable[[str], str] = metadata.version,
) -> Iterator[Finding]:
    if version < _OLDEST:
        told = f"Python {version[0]}.{version[1]} is too old"
        yield error("python", told, "install 3.11 or newer")
    try:
        needed = requirements("headgate") or ()
        own = installed("headgate")
    except metadata.PackageNotFoundError:
        yield note("packages", "headgate is not installed as a package: what it needs is not known")
        return
    if own != VERSION:
        told = f"headgate {own} is installed, but what runs is {VERSION}"
        yield warning(
            "packages",
            told,
            "install it anew from where it came, with pip install --force-reinstall",
        )
    found, missing = _looked_up(needed, installed)
    if missing:
        told = f"missing: {', '.join(missing)}"
        yield error("packages", told, f"pip install {' '.join(missing)}")
    yield well("python", f"{platform.python_version()} with {', '.join(found)}")


def _looked_up(
    needed: Sequence[str], installed: Callable[[str], str]
) -> tuple[list[str], list[str]]:
    """What is there with its version, and what is not."""
    found, missing = [], []
    for requirement in needed:
        name, _, condition = requirement.partition(";")
        match = _NAME.match(name)
        if match is None or "extra ==" in condition:
            continue
        try:
            found.append(f"{match[0]} {installed(match[0])}")
        except metadata.PackageNotFoundError:
            # What only some systems need may be missing on the others.
            missing += [] if condition else [match[0]]
    return sorted(found), missing
