"""The testing kit as type checkers must see it. It is checked, never run."""

from __future__ import annotations

from typing import assert_type

from headgate import Headgate
from headgate.testing import AsyncHarness, Harness, fake, inline, real

hg = Headgate()


@hg.job
def charge(number: int) -> str:
    return str(number)


@hg.job
async def charged(number: int, more: str = "") -> str:
    return f"{number} {more}"


def kept_and_run() -> None:
    with fake(hg) as jobs:
        jobs.assert_enqueued(charge, args=(1,), count=1)
        jobs.assert_completed(charged)
        assert_type(jobs.drain(), int)
        jobs.fail_next(charge, ValueError())
        jobs.advance_time("5m")
    with inline(hg) as done:
        done.assert_completed(charge)
    with real(hg) as served:
        assert_type(served.drain(), int)
    with Harness(hg) as harness:
        harness.enqueue_many(charge, [(i,) for i in range(500)])
        harness.run_for("PT1M", workers=20)
        assert_type(harness.started("stripe"), int)


async def awaited(harness: AsyncHarness) -> None:
    await harness.run_for("1s")
    with fake(hg) as jobs:
        assert_type(await jobs.aio.drain(), int)
