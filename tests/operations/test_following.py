from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from headgate.core.job import Job, More
from headgate.engines.contract import Event, EventPage, Interest, Subscription
from headgate.engines.local.events import MOST_BEHIND, EventLog
from headgate.operations.following import (
    DROPPED,
    STATE_CHANGED,
    Changed,
    Gap,
    Present,
    Quiet,
    Stopping,
    follow,
    follow_job,
    wants,
)


class Tape:
    """As much of an engine as can be followed: a log of events, and jobs."""

    def __init__(self, size: int = 10_000) -> None:
        self.log = EventLog(size)
        self.jobs: dict[str, Job] = {}
        self.settled_after: list[int] = []

    def tell(self, kind: str, subject: str = "j", state: str = "", queue: str = "q") -> int:
        self.log.add(kind, 1, subject, "t" if state else "", queue, state)
        self.log.settle(self.log.number)
        return self.log.number

    async def events(self, after: int, limit: int, interest: Interest, _now_ms: int) -> EventPage:
        return self.log.page(after, limit, interest)

    def subscribe(self, interest: Interest) -> Subscription:
        return self.log.follow(interest)

    async def find(self, job_id: str, _now_ms: int) -> Job | None:
        return self.jobs.get(job_id)

    async def settled(self) -> None:
        self.settled_after.append(self.log.number)


def job(state: str, **more: Any) -> Job:
    return Job("j", "t", "q", 0, b'"args":[]', 1, state=state, finished_at=9, **more)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 10))


def all_of(
    tape: Any, after: int | None = None, interest: Interest | None = None, **more: Any
) -> Any:
    return follow(tape, interest or Interest(), lambda: 5, after=after, quiet_s=60, **more)


def one_job(tape: Any, *kinds: str, after: int | None = None) -> Any:
    return follow_job(tape, "j", kinds, lambda: 5, after=after, quiet_s=60)


def told(pieces: list[Any]) -> list[Any]:
    return [p.kind if isinstance(p, Event) else p for p in pieces]


async def begun(pieces: Any) -> asyncio.Future[Any]:
    """What comes next, once nothing is missed any longer."""
    assert await anext(pieces) == Present()
    coming: asyncio.Future[Any] = asyncio.ensure_future(anext(pieces))
    return coming


def test_events_come_as_they_happen() -> None:
    async def live() -> None:
        tape = Tape()
        tape.tell("job.enqueued")
        pieces = all_of(tape)
        assert await anext(pieces) == Present()
        coming = asyncio.ensure_future(anext(pieces))
        await asyncio.sleep(0)
        number = tape.tell("job.started")
        event = await coming
        assert (event.kind, event.number) == ("job.started", number)
        await pieces.aclose()

    run(live)


def test_what_was_missed_comes_first_and_nothing_twice() -> None:
    async def live() -> None:
        tape = Tape()
        numbers = [tape.tell(f"job.{n}") for n in range(2_500)]
        pieces = all_of(tape, after=numbers[99])
        seen: list[int] = []
        while len(seen) < 1_000:
            seen.append((await anext(pieces)).number)
        # Happens while the reader is still being told of the past, and is in the subscription as well.
        numbers.append(tape.tell("job.late"))
        while True:
            piece = await anext(pieces)
            if piece == Present():
                break
            seen.append(piece.number)
        assert seen == numbers[100:]
        numbers.append(tape.tell("job.later"))
        assert (await anext(pieces)).number == numbers[-1]
        await pieces.aclose()

    run(live)


def test_a_gap_is_told_before_what_is_left() -> None:
    async def live() -> None:
        tape = Tape(size=10)
        for n in range(30):
            tape.tell(f"job.{n}")
        pieces = all_of(tape, after=5)
        found = [await anext(pieces) for _ in range(12)]
        assert found[0] == Gap(5)
        assert told(found[1:11]) == [f"job.{n}" for n in range(20, 30)]
        assert found[11] == Present()
        await pieces.aclose()

    run(live)


def test_an_id_that_is_still_kept_leaves_no_gap_and_nor_does_the_beginning() -> None:
    async def live() -> None:
        tape = Tape(size=10)
        for n in range(30):
            tape.tell(f"job.{n}")
        for after, first in ((21, "job.21"), (0, "job.20")):
            pieces = all_of(tape, after=after)
            assert (await anext(pieces)).kind == first
            await pieces.aclose()

    run(live)


def test_an_id_that_nobody_gave_out_is_a_gap() -> None:
    async def live() -> None:
        tape = Tape()
        tape.tell("job.enqueued")
        pieces = all_of(tape, after=77)
        assert [await anext(pieces), await anext(pieces)] == [Gap(77), Present()]
        await pieces.aclose()

    run(live)


def test_silence_is_told() -> None:
    async def live() -> None:
        pieces = follow(Tape(), Interest(), lambda: 5, after=None, quiet_s=0.001)  # type: ignore[arg-type]
        assert [await anext(pieces), await anext(pieces)] == [Present(), Quiet()]
        await pieces.aclose()

    run(live)


def test_it_ends_when_the_server_stops() -> None:
    async def live() -> None:
        stop = asyncio.Event()

        async def gone() -> None:
            await stop.wait()

        tape = Tape()
        pieces = all_of(tape, gone=gone)
        assert await anext(pieces) == Present()
        coming = asyncio.ensure_future(anext(pieces))
        await asyncio.sleep(0)
        stop.set()
        assert await coming == Stopping()
        assert [piece async for piece in pieces] == []

    run(live)


def test_a_reader_who_is_too_slow_loses_the_oldest_and_is_told_so() -> None:
    async def live() -> None:
        tape = Tape()
        pieces = all_of(tape)
        assert await anext(pieces) == Present()
        for n in range(MOST_BEHIND + 5):
            tape.tell(f"job.{n}")
        note = await anext(pieces)
        assert (note.kind, note.data) == (DROPPED, {"events_dropped": 5})
        assert (await anext(pieces)).kind == "job.5"
        await pieces.aclose()

    run(live)


def test_a_subscription_ends_with_its_reader() -> None:
    async def live() -> None:
        tape = Tape()
        pieces = all_of(tape)
        await anext(pieces)
        assert len(tape.log._followers) == 1
        await pieces.aclose()
        assert not tape.log._followers

    run(live)


def test_a_job_is_followed_to_its_end() -> None:
    async def live() -> None:
        tape = Tape()
        tape.jobs["j"] = job("available")
        pieces = one_job(tape)
        coming = await begun(pieces)
        await asyncio.sleep(0)
        tape.tell("job.started", state="active")
        tape.tell("job.started", subject="other", state="active")
        tape.tell("job.progress", state="active")
        tape.jobs["j"] = job("completed")
        tape.tell("job.completed", state="completed")
        found = [await coming] + [piece async for piece in pieces]
        assert told(found) == [
            "job.started",
            Changed("j", "t", "q", "available", "active", 1),
            "job.progress",
            "job.completed",
            Changed("j", "t", "q", "active", "completed", 1),
        ]

    run(live)


def test_only_what_is_asked_for_is_told_of_a_job_and_the_stream_still_ends() -> None:
    async def live() -> None:
        tape = Tape()
        tape.jobs["j"] = job("active")
        pieces = one_job(tape, "job.prog*")
        coming = await begun(pieces)
        await asyncio.sleep(0)
        tape.tell("job.heartbeat", state="active")
        tape.tell("job.progress", state="active")
        tape.jobs["j"] = job("completed")
        tape.tell("job.completed", state="completed")
        assert told([await coming] + [piece async for piece in pieces]) == ["job.progress"]

    run(live)


def test_a_job_that_has_ended_is_told_once() -> None:
    async def live() -> None:
        tape = Tape()
        ended = (
            (job("completed"), "active"),
            (job("cancelled", more=More(cancelled_while_active=True)), "active"),
            (job("cancelled"), ""),
            (job("discarded", more=More(reason="expired")), ""),
        )
        for one, before in ended:
            tape.jobs["j"] = one
            found = [piece async for piece in one_job(tape)]
            assert found == [Present(), Changed("j", "t", "q", before, one.state, 9)]
            assert [piece async for piece in one_job(tape, "queue.*")] == [Present()]
        assert len(tape.settled_after) == 2 * len(ended), "what was looked up may be undone"

    run(live)


def test_a_reader_that_comes_back_after_the_end_gets_what_it_missed() -> None:
    async def live() -> None:
        tape = Tape()
        first = tape.tell("job.started", state="active")
        tape.tell("job.completed", state="completed")
        tape.jobs["j"] = job("completed")
        found = [piece async for piece in one_job(tape, after=first)]
        ended = Changed("j", "t", "q", "active", "completed", 9)
        assert told(found) == ["job.completed", Present(), ended]

    run(live)


def test_a_dead_letter_that_goes_on_elsewhere_is_followed_there() -> None:
    async def live() -> None:
        tape = Tape()
        tape.jobs["j"] = job("active")
        pieces = one_job(tape, "job.d*", "job.c*")
        coming = await begun(pieces)
        await asyncio.sleep(0)
        tape.jobs["j"] = job("available")
        tape.tell("job.discarded", state="discarded")
        assert (await coming).kind == "job.discarded"
        coming = asyncio.ensure_future(anext(pieces))
        await asyncio.sleep(0)
        tape.jobs["j"] = job("completed")
        tape.tell("job.completed", state="completed")
        assert (await coming).kind == "job.completed"
        assert [piece async for piece in pieces] == []

    run(live)


def test_a_job_that_is_forgotten_meanwhile_ends_the_stream() -> None:
    async def live() -> None:
        assert [piece async for piece in one_job(Tape())] == []

    run(live)


def test_kinds_are_exact_or_prefixes() -> None:
    assert wants((), "job.started")
    assert wants(("*",), "job.started")
    assert wants(("queue.*", "job.*"), "job.started")
    assert wants(("job.started",), "job.started")
    assert not wants(("job.started",), STATE_CHANGED)
    assert not wants(("queue.*",), "job.started")
    assert wants(("queue.*",), DROPPED), "a loss concerns every reader"
