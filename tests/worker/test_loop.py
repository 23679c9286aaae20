"""The turns of a worker against servers that fail, forget and do not know delays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from headgate import AsyncJobContext, OjsError, Snooze, Waits
from headgate.client.chain import Chain
from headgate.client.clock import SystemClock
from headgate.client.core import Core
from headgate.client.declared import Declared, Register
from headgate.client.errors import ConflictError, OjsConnectionError, ValidationError
from headgate.worker.child import Home
from headgate.worker.link import Traded, Turn
from headgate.worker.loop import Loop, Pace
from headgate.worker.outcome import Ack, Nack
from headgate.worker.processes import Processes
from headgate.worker.run import Runs
from tests.client.fakes import FakeServer, answer
from tests.worker.conftest import until

Reply = Callable[[Turn], Traded]


def job(n: int, **more: Any) -> dict[str, Any]:
    return {"id": f"j{n}", "type": "task", "args": [n], "claim": 1, **more}


class FakeLink:
    """Gives the first jobs to the first turns that only fetch, and answers those that say something by a script; beyond it all is well."""

    def __init__(self, jobs: Sequence[dict[str, Any]], *script: Reply | OjsError) -> None:
        self.jobs = list(jobs)
        self.at_once = 100
        self.script = list(script)
        self.turns: list[Turn] = []
        """Those that said something."""
        self.at: list[float] = []

    async def trade(self, turn: Turn) -> Traded:
        await asyncio.sleep(0.002)
        if not (turn.acks or turn.nacks):
            most = min(turn.fetch, self.at_once)
            given, self.jobs = self.jobs[:most], self.jobs[most:]
            return well(turn, *given)
        self.turns.append(turn)
        self.at.append(asyncio.get_running_loop().time())
        entry = self.script.pop(0) if self.script else giving()
        if isinstance(entry, OjsError):
            raise entry
        return entry(turn)

    def answers(self) -> list[Ack | Nack]:
        found: list[Ack | Nack] = []
        for turn in self.turns:
            found += [*turn.acks, *turn.nacks]
        return found


def well(turn: Turn, *jobs: dict[str, Any], **more: Any) -> Traded:
    return Traded([None] * len(turn.acks), [None] * len(turn.nacks), jobs=list(jobs), **more)


def giving(*jobs: dict[str, Any], **more: Any) -> Reply:
    return lambda turn: well(turn, *jobs, **more)


def run(
    link: FakeLink,
    handler: Callable[..., Awaitable[Any]],
    answers: int,
    introduced: list[str] | None = None,
) -> None:
    """Let a loop work until the link has heard so many answers."""

    async def introduce() -> None:
        if introduced is not None:
            introduced.append("again")

    async def story() -> None:
        waits = Waits(failure_first_s=0.001)
        core = Core(FakeServer(answer(200, {})), clock=SystemClock(), waits=waits, timeout_s=5)
        register = Register()
        register.add(Declared(handler, "task", None, {}))
        runs = Runs(core, Chain(), Processes(1, Home("")), "w", 100)
        pace = Pace(heartbeat_s=0.05, wait_s=0.01, poll_s=0.01)
        loop = Loop(core, link, runs, register, 5, pace, introduce)
        pump = asyncio.create_task(loop.pump())
        async with asyncio.timeout(20):
            await until(lambda: len(link.answers()) >= answers, "the answers are heard")
            loop.finish()
            await pump
        await loop.close()
        runs.end()

    asyncio.run(story())


async def fine(n: int) -> int:
    return n


def test_answers_that_nobody_confirmed_are_said_again() -> None:
    introduced: list[str] = []
    lost = OjsConnectionError("cut", uncertain=True)
    link = FakeLink([job(1)], lost, lost)
    run(link, fine, 3, introduced)
    assert [[ack.job_id for ack in turn.acks] for turn in link.turns] == [["j1"]] * 3
    assert introduced == ["again"]


def refusing(error: OjsError) -> Reply:
    return lambda turn: Traded([error] * len(turn.acks), [error] * len(turn.nacks))


def test_an_answer_that_comes_too_late_is_said_once() -> None:
    late = ConflictError("not yours", status=409)
    link = FakeLink([job(1)], lambda _: Traded([late], [], jobs=[job(2)]))
    run(link, fine, 2)
    assert [one.job_id for one in link.answers()] == ["j1", "j2"]


def test_a_result_that_is_too_large_fails_the_job() -> None:
    link = FakeLink([job(1)], refusing(ValidationError("too large", status=413)))
    run(link, fine, 2)
    (ack, nack) = link.answers()
    assert isinstance(ack, Ack)
    assert isinstance(nack, Nack)
    assert (nack.error["code"], nack.error["retryable"]) == ("RESULT_TOO_LARGE", False)


async def odd(n: int) -> None:
    raise LookupError("x" * 5_000)


def test_an_error_that_the_server_refuses_is_shortened() -> None:
    link = FakeLink([job(1)], refusing(ValidationError("no", status=400)))
    run(link, odd, 2)
    first, second = link.answers()
    assert isinstance(first, Nack)
    assert isinstance(second, Nack)
    assert set(second.error) == {"code", "message"}
    assert len(second.error["message"]) == 200


async def snoozing(n: int) -> None:
    raise Snooze(0.15)


def test_delays_that_the_server_does_not_know_are_waited_for_here() -> None:
    link = FakeLink([job(1)], giving(job(1, claim=2), delayed=[False]))
    run(link, snoozing, 2)
    nacks = [turn.nacks[0] for turn in link.turns if turn.nacks]
    times = [at for at, turn in zip(link.at, link.turns, strict=True) if turn.nacks]
    assert [nack.claim for nack in nacks] == [1, 2]
    assert times[1] - times[0] >= 0.15


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_job_that_comes_back_while_it_runs_counts_once(at_once: int) -> None:
    """Whether the old run has begun or not."""
    stopped: list[int] = []

    async def slow(context: AsyncJobContext, n: int) -> int:
        try:
            await asyncio.sleep(60 if context.job["claim"] == 1 else 0.03)
        finally:
            stopped.append(context.job["claim"])
        return n

    link = FakeLink([job(1), job(1, claim=2)])
    link.at_once = at_once
    run(link, slow, 1)
    assert [one.claim for one in link.answers()] == [2]
    assert stopped == ([1, 2] if at_once == 1 else [2])


def test_a_worker_never_has_more_jobs_than_places() -> None:
    now = most = 0

    async def counting(n: int) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01 * (n % 3))
        now -= 1

    many = [job(n) for n in range(40)]

    def more(turn: Turn) -> Traded:
        given = link.jobs[: turn.fetch]
        del link.jobs[: turn.fetch]
        return well(turn, *given)

    link = FakeLink(many, *[more] * 100)
    run(link, counting, 40)
    assert most == 5
    assert {one.job_id for one in link.answers()} == {f"j{n}" for n in range(40)}
