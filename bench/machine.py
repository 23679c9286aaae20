"""Where it was measured: numbers without their machine mean nothing."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

import apsw
from msgspec import Struct

from headgate.version import VERSION


class Machine(Struct):
    processor: str
    cores: int
    memory_gib: float
    system: str
    python: str
    sqlite: str
    http: str
    file_system: str
    """Of the directory in which the files are written."""
    load: float
    """Of others, at the start: processes that wanted to run in the last minute."""
    headgate: str = VERSION

    def __str__(self) -> str:
        return (
            f"{self.processor}, {self.cores} cores, {self.memory_gib:.1f} GiB, {self.system}\n"
            f"Python {self.python}, SQLite {self.sqlite}, {self.http}, "
            f"files on {self.file_system}, Headgate {self.headgate}\n"
            f"load before the start {self.load:.2f}"
        )


def this_machine(directory: Path) -> Machine:
    return Machine(
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30),
        system=f"{platform.system()} {platform.release()}",
        python=f"{platform.python_version()} ({platform.python_implementation()})",
        sqlite=apsw.sqlite_lib_version(),
        http=f"uvicorn {version('uvicorn')}, uvloop {version('uvloop')}",
        file_system=_file_system(directory),
        load=os.getloadavg()[0],
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _file_system(directory: Path) -> str:
    """The kind of the innermost mount that holds the directory."""
    where = directory.resolve()
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    kinds = [
        (len(point), kind) for _, point, kind, *_ in mounts if where.is_relative_to(Path(point))
    ]
    return max(kinds)[1] if kinds else "unknown"
