"""A scenario, played: arrivals and workers of its own, everything else the real engine."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from msgspec import Struct

from headgate import clock, ids
from headgate.core.errors import OjsError
from headgate.core.gates import Limits, changed
from headgate.core.pools import check_pool_name, pool_from
from headgate.core.queues import check_name
from headgate.core.retry import Failure
from headgate.core.tenants import TenantLimits, check_tenant, tenant_limits_from
from headgate.engines.contract import (
    Ack,
    Draft,
    Event,
    Fail,
    Fetch,
    Full,
    Pushed,
    Report,
    TenantFull,
)
from headgate.engines.local.engine import LocalEngine
from headgate.engines.local.timers import NEVER
from headgate.operations.push import NOBODY, draft_of
from headgate.simulation.arrivals import Arrival
from headgate.simulation.figures import Figures, Tally
from headgate.simulation.scenario import Scenario, Wrong, rates_in
from headgate.simulation.shares import Share, Shares
from headgate.simulation.sources import FOREVER_MS, Source
from headgate.testing.clock import VirtualClock
from headgate.testing.floor import Fleet, Floor

BATCH: Final = 1_000
_FAILED: Final = Failure("simulated", "the scenario says so")
_LATE: Final = Failure("timeout", "the attempt took too long", "timeout")
_WAITING: Final = ("available", "scheduled", "retryable")


class Run(Struct, gc=False):
    """A job that runs."""

    job_id: str
    claim: int
    tallies: tuple[Tally, ...]
    failure: Failure | None


class Played(Struct):
    """What came of it."""

    scenario: Scenario
    figures: Figures
    waiting: dict[tuple[str, str], int]
    """At the end, by queue, tenant and altogether."""
    oldest_ms: dict[str, int]
    """By queue, how long the oldest available job has waited at the end."""
    shares: list[Share]
    took_s: float


class Play:
    """One scenario on one engine. A floor's desk too: its workers talk to the engine without any server."""

    def __init__(self, scenario: Scenario, engine: LocalEngine, time: VirtualClock) -> None:
        self.scenario = scenario
        self.engine = engine
        self.time = time
        self.figures = Figures(time.now_us())
        self.floor: Floor[Run] = Floor(time, self)
        self.sources: dict[str, Source] = {}
        self.tenants: dict[str, TenantLimits] = {}
        self._fetches: dict[str, Fetch] = {}
        self._done: list[str] = []
        """Completed jobs, to be forgotten many at once."""
        self._gone: list[str] = []
        """Discarded ones, to be counted first."""
        self._made = 0
        self._dice = ids.dice(scenario.seed)
        self.shares = Shares()
        engine.listen(self._hear)

    async def prepare(self) -> None:
        """Settings, sources and workers. Raises Wrong."""
        try:
            await self._configure()
        except OjsError as error:
            raise Wrong(error.message) from None

    async def _configure(self) -> None:
        scenario, engine, now = self.scenario, self.engine, self.time.now_ms()
        for name, given in scenario.queues.items():
            path = f"queues.{name}"
            check_name(name, field=path)
            if isinstance(given.get("rate_limit"), dict):
                limits = rates_in(given["rate_limit"], f"{path}.rate_limit")
                given = {**given, "rate_limit": limits}  # noqa: PLW2901
            try:
                await engine.configure(name, given, now)
            except OjsError as error:
                raise Wrong(error.message.replace("config.", f"{path}.")) from None
        for name, given in scenario.pools.items():
            check_pool_name(name, field=f"pools.{name}")
            await engine.set_pool(pool_from(given, name, path=f"pools.{name}"), now)
        for name, given in scenario.tenants.items():
            check_tenant(name, field=f"tenants.{name}")
            limits_of = tenant_limits_from(given, path=f"tenants.{name}")
            self.tenants[name] = limits_of
            await engine.set_tenant(name, limits_of, now)
        boosts = {name: limits.priority_boost for name, limits in self.tenants.items()}
        for number, jobs in enumerate(scenario.jobs):
            source = Source(jobs, number, scenario, boosts, scenario.seed)
            self.sources[jobs.type] = source
            for stream in source.streams:
                self._await_next(source, stream)
        served = list(dict.fromkeys(jobs.queue for jobs in scenario.jobs))
        for workers in scenario.workers:
            if workers.pool:
                check_pool_name(workers.pool, field="workers.pool")
            queues = [check_name(name, field="workers.queues") for name in workers.queues or served]
            slots = workers.count * workers.concurrency
            fleet = Fleet(workers.name, slots, queues, workers.pool)
            self.floor.fleets.append(fleet)
            self._fetches[fleet.name] = Fetch(queues, 1, fleet.name, pool=workers.pool)
            pool = workers.pool or None
            report = Report(fleet.name, queues=queues, concurrency=slots, pool=pool)
            await engine.beat(report, (), 0, now)

    # arrivals

    def _await_next(self, source: Source, stream: Iterator[Arrival]) -> None:
        arrival = next(stream, None)
        if arrival is not None:
            at_us = self.time.start_us + arrival.at_us
            self.floor.call_at(at_us, partial(self._arrive, source, stream, arrival))

    async def _arrive(self, source: Source, stream: Iterator[Arrival], arrival: Arrival) -> None:
        left = arrival.count
        while left:
            await self._push(source, arrival, min(left, BATCH))
            left -= min(left, BATCH)
        self._await_next(source, stream)

    async def _push(self, source: Source, arrival: Arrival, count: int) -> None:
        now_ms = self.time.now_ms()
        drafts = [self._draft(source, arrival, now_ms) for _ in range(count)]
        for draft, outcome in zip(
            drafts, await self.engine.push(drafts, now_ms, whole=False), strict=True
        ):
            tallies = self.figures.of(draft.job)
            if isinstance(outcome, Pushed):
                for tally in tallies:
                    tally.enqueued += 1
                if arrival.service_us >= 0:
                    source.traced[draft.job.id] = arrival.service_us
                continue
            for tally in tallies:
                tally.rejected += 1
            match outcome:
                case Full(load=load):
                    self.figures.because(f"queue full ({load.measure})")
                case TenantFull(limit=limit):
                    self.figures.because(f"tenant limit ({limit})")
                case _:
                    self.figures.because(type(outcome).__name__.lower())

    def _draft(self, source: Source, arrival: Arrival, now_ms: int) -> Draft:
        envelope = source.envelope(arrival)
        boost = source.boosts.get(envelope.tenant, 0) if source.boosts else 0
        draft = draft_of(self.engine, envelope, now_ms, self._id, NOBODY, boost)
        if source.expires_ms:
            draft.job.expires_at = now_ms + source.expires_ms
        for use in draft.uses:
            if use.key not in self.figures.limits:
                self.figures.limits[use.key] = changed(Limits(), use.change)
        return draft

    def _id(self, _now_ms: int) -> str:
        self._made += 1
        return f"s{self._made}"

    # as a desk

    async def take(self, fleet: Fleet, count: int) -> Sequence[tuple[int, Run]]:
        now_us = self.time.now_us()
        fetch = self._fetches[fleet.name]
        fetch.count = count
        now_ms, fetch.micros = divmod(now_us, 1000)
        taken = []
        for job in await self.engine.fetch(fetch, now_ms):
            source = self.sources[job.type]
            length_us = source.length()
            if source.traced:
                length_us = source.traced.get(job.id, length_us)
            failures = source.jobs.failures
            failure = _FAILED if failures and source.dice.random() < failures else None
            if length_us > job.timeout_ms * 1000:
                length_us, failure = job.timeout_ms * 1000, _LATE
            self.figures.started(job, now_us)
            taken.append((length_us, Run(job.id, job.claim, self.figures.of(job), failure)))
        return taken

    async def give(self, fleet: Fleet, ended: Sequence[Run]) -> None:
        now_us = self.time.now_us()
        now_ms = now_us // 1000
        acks = []
        fails = []
        for run in ended:
            self.figures.ended(run.tallies, now_us, well=run.failure is None)
            if run.failure is None:
                acks.append(Ack(run.job_id, fleet.name, run.claim))
            else:
                uniform = self._dice.random()
                fails.append(Fail(run.job_id, run.failure, fleet.name, run.claim, uniform))
        if acks:
            await self.engine.ack(acks, now_ms)
            self._done += [ack.job_id for ack in acks]
        if fails:
            await self.engine.fail(fails, now_ms)
        if len(self._done) + len(self._gone) > BATCH:
            await self._forget(now_ms)

    def has_work(self) -> bool:
        return self.engine.available > 0

    def next_due_us(self) -> int | None:
        due_ms = self.engine.next_due()
        return None if due_ms >= NEVER // 1_000 else due_ms * 1000

    async def tick(self) -> None:
        now_ms = self.time.now_ms()
        if self.engine.next_due() <= now_ms:
            await self.engine.tick(now_ms)

    def _hear(self, event: Event) -> None:
        if event.kind != "job.discarded" or event.data is None:
            return
        job_id = event.subject
        self._gone.append(job_id)
        self.figures.because(str(event.data["reason"]))

    async def _forget(self, now_ms: int) -> None:
        done, self._done = self._done, []
        for job_id in done:
            await self.engine.delete(job_id, now_ms)
        gone, self._gone = self._gone, []
        for job_id in gone:
            job = await self.engine.find(job_id, now_ms)
            if job is not None:
                for tally in self.figures.of(job):
                    tally.discarded += 1
                # One that is a dead letter by now has not ended, and stays.
                await self.engine.delete(job_id, now_ms)

    # looking

    async def look(self) -> dict[tuple[str, str], int]:
        """How many wait, by queue, tenant and altogether; and a sample of everything."""
        now_ms = self.time.now_ms()
        await self._forget(now_ms)
        waiting: dict[tuple[str, str], int] = {}
        total = 0
        for view in await self.engine.queues(now_ms):
            waiting["queue", view.name] = sum(view.counts[state] for state in _WAITING)
            total += waiting["queue", view.name]
        for one in await self.engine.tenants(now_ms):
            waiting["tenant", one.id] = sum(one.counts.get(state, 0) for state in _WAITING)
        waiting["total", ""] = total
        self.shares.look(self.figures.tallies, waiting)
        self.figures.sample(self.time.now_us(), waiting)
        return waiting

    async def whole(self, progress: Callable[[float], None]) -> Played:
        """From the first arrival to the end."""
        begun_s = clock.elapsed_s()
        begin_us, length_us = self.time.start_us, self.scenario.duration_us
        for at_us in range(self.scenario.step_us, length_us, self.scenario.step_us):
            await self.floor.run_until(begin_us + at_us)
            await self.look()
            progress(at_us / length_us)
            # Whoever wants to stop this gets his turn here.
            await asyncio.sleep(0)
        await self.floor.run_until(begin_us + length_us)
        waiting = await self.look()
        now_ms = self.time.now_ms()
        oldest_ms = {
            view.name: now_ms - view.oldest_available_at
            for view in await self.engine.queues(now_ms)
            if view.oldest_available_at
        }
        progress(1.0)
        shares = self.shares.found(await self.engine.pools(now_ms), self.tenants, self.figures)
        took_s = clock.elapsed_s() - begun_s
        return Played(self.scenario, self.figures, waiting, oldest_ms, shares, took_s)


def _silent(_part: float) -> None:
    pass


async def played(scenario: Scenario, progress: Callable[[float], None] = _silent) -> Played:
    """Play a scenario; `progress` is told which part of it is over. Raises Wrong."""
    time = VirtualClock(scenario.start_us)
    engine = await LocalEngine.open(
        ":memory:",
        now_ms=time.now_ms(),
        heartbeat_timeout_ms=FOREVER_MS,
        events_kept=1,
        lists=False,
        elapsed_s=clock.elapsed_s,
    )
    try:
        play = Play(scenario, engine, time)
        await play.prepare()
        with _no_collection():
            return await play.whole(progress)
    finally:
        await engine.close()


@contextmanager
def _no_collection() -> Iterator[None]:
    """Millions of records without a cycle among them need not be searched for cycles."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
