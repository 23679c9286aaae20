"""Workers in virtual time at a server inside the program: they fetch, run and answer as workers do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct

from headgate.client.core import Core
from headgate.client.pressure.waits import Waits
from headgate.core.times import instant_text
from headgate.testing.floor import Fleet, Floor
from headgate.testing.local import LocalServer
from headgate.version import VERSION
from headgate.worker.link import ExchangeLink, Identity, Turn
from headgate.worker.outcome import Ack, Nack, claim_of

BEAT_US: Final = 10_000_000
MOST_FETCHED: Final = 500


class Running(Struct, eq=False):
    """A job in the hands of a worker, and how it is going to end."""

    record: Mapping[str, Any]
    outcome: Ack | Nack


Perform: TypeAlias = Callable[[dict[str, Any]], Awaitable[tuple[int, Ack | Nack]]]
Ended: TypeAlias = Callable[[str, Ack | Nack], None]


class Hands:
    """A floor's desk: every request takes the way that it takes in a server."""

    floor: Floor[Running]

    def __init__(
        self,
        server: LocalServer,
        perform: Perform,
        ended: Ended,
        queues: Callable[[], Sequence[str]],
    ) -> None:
        self._server = server
        self._perform = perform
        self._ended = ended
        self._queues = queues
        """Those that workers serve who name none."""
        self._core = Core(server, clock=server.time, waits=Waits(tries=1), timeout_s=30.0)
        self._links: dict[tuple[str, str, tuple[str, ...], int], ExchangeLink] = {}
        self._beating = False

    async def take(self, fleet: Fleet, count: int) -> Sequence[tuple[int, Running]]:
        taken = []
        for record in await self.fetch(fleet, count):
            length_us, outcome = await self._perform(record)
            taken.append((length_us, Running(record, outcome)))
        if taken and not self._beating:
            self._beating = True
            self.floor.call_at(self._server.time.now_us() + BEAT_US, self._beat)
        return taken

    async def fetch(self, fleet: Fleet, count: int) -> list[dict[str, Any]]:
        """The records of jobs that belong to the fleet now."""
        queues = fleet.queues or self._queues()
        if not queues:
            return []
        link = self._link(fleet, queues)
        found: list[dict[str, Any]] = []
        while len(found) < count:
            asked = min(count - len(found), MOST_FETCHED)
            traded = await link.trade(Turn(fetch=asked))
            found += traded.jobs
            if len(traded.jobs) < asked:
                break
        return found

    async def give(self, fleet: Fleet, ended: Sequence[Running]) -> None:
        for one in ended:
            self._ended(one.record["id"], one.outcome)
        await self.answer(fleet, [one.outcome for one in ended])

    async def answer(self, fleet: Fleet, outcomes: Sequence[Ack | Nack]) -> None:
        """Tell the server; what comes too late for it is dropped, as by any worker."""
        for start in range(0, len(outcomes), MOST_FETCHED):
            some = outcomes[start : start + MOST_FETCHED]
            acks = [one for one in some if isinstance(one, Ack)]
            nacks = [one for one in some if isinstance(one, Nack)]
            traded = await self._link(fleet, fleet.queues or ["default"]).trade(
                Turn(acks=acks, nacks=nacks)
            )
            for error in (*traded.acks, *traded.nacks):
                if error is not None and error.status not in {404, 409}:
                    raise error

    def has_work(self) -> bool:
        return True

    def next_due_us(self) -> int | None:
        return self._server.next_due_us()

    async def tick(self) -> None:
        await self._server.tick()

    async def _beat(self) -> None:
        """Renew all that runs, as long as something does."""
        by_worker: dict[str, list[tuple[str, int]]] = {}
        for one in self.floor.running():
            worker = str(one.record["worker_id"])
            by_worker.setdefault(worker, []).append((one.record["id"], claim_of(one.record)))
        self._beating = bool(by_worker)
        if self._beating:
            self.floor.call_at(self._server.time.now_us() + BEAT_US, self._beat)
        for worker, jobs in by_worker.items():
            for start in range(0, len(jobs), MOST_FETCHED):
                await self._identified(worker, [], 0, "").trade(
                    Turn(extend=jobs[start : start + MOST_FETCHED])
                )

    def _link(self, fleet: Fleet, queues: Sequence[str]) -> ExchangeLink:
        return self._identified(fleet.name, queues, fleet.slots, fleet.pool)

    def _identified(
        self, worker: str, queues: Sequence[str], slots: int, pool: str
    ) -> ExchangeLink:
        named = (worker, pool, tuple(queues), slots)
        found = self._links.get(named)
        if found is None:
            started_at = instant_text(self._server.time.now_ms())
            found = self._links[named] = ExchangeLink(
                self._core,
                Identity(worker, list(queues), slots, "", 0, {}, VERSION, pool or None, started_at),
            )
        return found
