"""For tests of programs that enqueue and run jobs.

`fake` keeps jobs, `inline` runs them where they are enqueued, `real` has a server; `Harness` lets virtual time pass on the real engine.
"""

from __future__ import annotations

from headgate.testing.enqueued import Enqueued
from headgate.testing.faults import PlannedError
from headgate.testing.harness import AsyncHarness, Harness
from headgate.testing.memory import AsyncFake, AsyncInline, Fake, Inline
from headgate.testing.real import AsyncReal, Real
from headgate.testing.starts import Start

fake = Fake
inline = Inline
real = Real

__all__ = [
    "AsyncFake",
    "AsyncHarness",
    "AsyncInline",
    "AsyncReal",
    "Enqueued",
    "Fake",
    "Harness",
    "Inline",
    "PlannedError",
    "Real",
    "Start",
    "fake",
    "inline",
    "real",
]
