"""One queue: its settings, its lines of available jobs, how many jobs it has and what happened lately."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from typing import TYPE_CHECKING, Any

import msgspec

from headgate.core import queues as rules
from headgate.core.bounds import Depth, Load, loads, tightest
from headgate.core.job import Job
from headgate.core.limits import tenant_key
from headgate.core.queues import EMPTY, SYSTEM, QueueConfig, Resolved
from headgate.core.states import ACTIVE, AVAILABLE, STATES, TERMINAL
from headgate.core.tenants import Shares
from headgate.engines.contract import QueueView
from headgate.engines.local.dues import Dues
from headgate.engines.local.groups import (
    AGE,
    FAIR,
    PLAIN,
    Group,
    Groups,
    actionable,
    age,
    blocker_of,
    plain,
    turn_of,
)
from headgate.engines.local.heads import Heads
from headgate.engines.local.keys import Key, Keys
from headgate.engines.local.lanes import Lane, Uses
from headgate.engines.local.rates import Recent
from headgate.engines.local.some import all_of

if TYPE_CHECKING:
    from headgate.engines.local.line import Waiter
    from headgate.engines.local.rotas import Rota
    from headgate.engines.local.waiting import Waiting

LIVE = tuple(state for state in STATES if state not in TERMINAL)
WAITING = tuple(state for state in LIVE if state != ACTIVE)


class Stored(msgspec.Struct, omit_defaults=True):
    """What is kept of a queue besides its jobs."""

    created_at: int
    updated_at: int
    state: str = rules.ACTIVE
    paused_at: int = 0
    config: dict[str, Any] = {}
    draining: bool = False
    leaving: str = ""
    """What becomes of the jobs of a queue that is deleted: discard or move."""
    target: str = ""


class Tenanted:
    """One tenant in one queue: its live jobs per state, and its lanes."""

    __slots__ = ("counts", "heads", "lanes")

    def __init__(self) -> None:
        self.counts: dict[str, int] = dict.fromkeys(LIVE, 0)
        self.lanes: dict[Lane, None] = {}
        self.heads: Heads[Lane] | None = None
        """In plain order; made when the first fetch asks for this tenant only."""

    def notice(self, lane: Lane) -> None:
        if self.heads is not None:
            self.heads.put(lane)

    def first(self, *, actors: bool = True) -> Lane | None:
        """The lane whose head may start, or has to be acted upon, before all others of the tenant."""
        if self.heads is None:
            self.heads = Heads(plain, "tenant_entry", self.lanes)
        aside: list[Lane] = []
        try:
            while (lane := self.heads.first()) is not None:
                blocker = blocker_of(lane)
                if blocker is None:
                    return lane
                if actionable(lane):
                    if actors:
                        return lane
                    aside.append(lane)
                else:
                    blocker.set_aside(self, lane)
                self.heads.drop(lane)
            return None
        finally:
            for lane in aside:
                self.heads.put(lane)


class Queue:
    __slots__ = (
        "_lanes",
        "_vouching",
        "_witness",
        "bounded",
        "bytes",
        "config",
        "counts",
        "created_at",
        "draining",
        "dues",
        "exists",
        "fair",
        "filled",
        "followed",
        "gate",
        "groups",
        "keys",
        "leaving",
        "line",
        "name",
        "paused",
        "paused_at",
        "plain",
        "recent",
        "resolved",
        "rotas",
        "shares",
        "target",
        "tenants",
        "updated_at",
        "waiting",
        "warned",
    )

    def __init__(self, name: str, keys: Keys) -> None:
        self.name = name
        self.keys = keys
        self.followed = False
        """Whether somebody has to be told when something changes here."""
        self.bounded = False
        """Whether it has a bound."""
        self.exists = False
        """A deleted queue is remembered while finished jobs of it are kept."""
        self.paused = False
        self.paused_at = 0
        self.draining = False
        self.leaving = ""
        self.target = ""
        self.created_at = 0
        self.updated_at = 0
        self.config: QueueConfig = EMPTY
        self.resolved: Resolved = SYSTEM
        self.counts: dict[str, int] = dict.fromkeys(STATES, 0)
        self.bytes = 0
        self.tenants: dict[str, Tenanted] = {}
        self.recent = Recent()
        self.dues = Dues()
        self.gate: Key | None = None
        """Its own limits, where it has any."""
        self.shares = Shares()
        self.fair = False
        """Whether some fetch lets its tenants take turns."""
        self.waiting: dict[Waiting, None] = {}
        """Those who wait for work of this queue, in the order in which they came."""
        self.line: dict[Waiter, tuple[int, int]] = {}
        """Producers who wait for room, in the order in which they came, with the jobs and bytes they want in."""
        self.rotas: list[tuple[Rota, int]] = []
        """Pools that take turns here, and the place of this queue in them."""
        self.warned = self.filled = False
        """Whether it was told that it is nearly, and quite, full."""
        self._witness: Lane | None = None
        """The lane by which pools know that there is something here."""
        self._vouching: tuple[Key, ...] = ()
        """The gates that may change that without anybody looking here."""
        self.groups = Groups(self, keys.news)
        self.plain = Lane("", ())
        """Of the jobs that pass no gate and belong to no tenant."""
        self.groups.own.enter(self.plain)
        self._lanes: dict[tuple[str, Uses], Lane] = {}

    # lines

    def place_of(self, order: int) -> Any:
        """What orders lanes in this order."""
        if order == PLAIN:
            return plain
        return age if order == AGE else turn_of(self.shares)

    def line_up(self, job: Job) -> None:
        """Let an available job stand in its lane."""
        uses = job.keys
        if not uses and not job.tenant:
            lane = self.plain
        else:
            if job.dead and uses:
                uses = tuple((name, "wait") for name, _ in uses)
            found = self._lanes.get((job.tenant, uses))
            lane = self._open_lane(job.tenant, uses) if found is None else found
            if job.keys == lane.uses:
                job.keys = lane.uses
            for group in lane.posts:
                self.keys.line_up(group)
        if lane.add(job):
            self.groups.notice(lane)
            if lane.tenant:
                self.tenants[lane.tenant].notice(lane)

    def step_out(self, job: Job) -> None:
        """Let an available job leave its lane."""
        lane: Lane | None = job.lane
        if lane is not None:
            lane.leave(job)
            self._left(lane)

    def take(self, lane: Lane) -> Job:
        """Remove the head of a lane."""
        job = lane.take()
        assert job is not None
        self._left(lane)
        return job

    def _left(self, lane: Lane) -> None:
        for group in lane.posts:
            self.keys.step_out(group)
        if not lane.size and lane.group.hidden:
            self.groups.emptied(lane.group)

    def _open_lane(self, tenant: str, uses: Uses) -> Lane:
        keys = self.keys
        lane = self._lanes[tenant, uses] = Lane(tenant, uses)
        gates = [(keys.named(name), on_limit) for name, on_limit in uses]
        own = keys.inner.get(tenant_key(tenant)) if tenant else None
        if own is not None:
            gates.append((own, "wait"))
        self._equip(lane, gates)
        self.groups.settle_in(lane)
        if tenant:
            self.tenants[tenant].lanes[lane] = None
        return lane

    def _equip(self, lane: Lane, gates: list[tuple[Key, str]]) -> None:
        lane.gates = tuple(gates)
        if len(gates) > 1:
            lane.acts_at = tuple(key for key, on_limit in gates if on_limit != "wait")
        else:
            # Nothing else can keep it from being met.
            lane.acts_at = ()
        for key, _ in gates:
            key.meet(lane)
        lane.posts = tuple(self.groups.of(key) for key, _ in gates)
        for group in lane.posts:
            group.passing += 1

    def _strip(self, lane: Lane) -> None:
        for key, _ in lane.gates:
            key.part(lane)
        self._pass_no_more(lane.posts)
        lane.gates = lane.posts = lane.acts_at = ()

    def _reequip(self, lane: Lane, gates: list[tuple[Key, str]]) -> None:
        """Let it pass other gates; its jobs do not cease to wait for those that it passes as before."""
        size, before = lane.size, lane.posts
        for key, _ in lane.gates:
            key.part(lane)
        self._equip(lane, gates)
        for group in lane.posts:
            self.keys.line_up(group, size)
        for group in before:
            self.keys.step_out(group, size)
        self._pass_no_more(before)

    def _pass_no_more(self, posts: Iterable[Group]) -> None:
        for group in posts:
            group.passing -= 1
            if not group.passing:
                assert group.key is not None
                self.groups.forget(group.key)

    def close_lane(self, lane: Lane) -> None:
        """One of its keys, or its tenant, has no job any more: neither has the lane."""
        del self._lanes[lane.tenant, lane.uses]
        self.groups.leave(lane)
        self._strip(lane)
        if lane.tenant:
            tenanted = self.tenants.get(lane.tenant)
            if tenanted is not None:
                tenanted.lanes.pop(lane, None)
                if tenanted.heads is not None:
                    tenanted.heads.drop(lane)

    def close_lanes(self) -> None:
        """Nobody will stand here any more."""
        for lane in list(self._lanes.values()):
            self.close_lane(lane)

    @property
    def is_forgettable(self) -> bool:
        """Whether another one of its name could take its place without anybody noticing."""
        return not (
            self.exists or self.waiting or self.line or self.rotas or any(self.counts.values())
        )

    def regate(self, tenant: str) -> None:
        """The tenant got limits of its own, or lost them: its lanes pass other gates from now on."""
        tenanted = self.tenants.get(tenant)
        if tenanted is None:
            return
        own = self.keys.inner.get(tenant_key(tenant))
        for lane in list(tenanted.lanes):
            gates = [(key, on_limit) for key, on_limit in lane.gates if key.client]
            if own is not None:
                gates.append((own, "wait"))
            self.groups.leave(lane)
            self._reequip(lane, gates)
            self.groups.settle_in(lane)
            self.groups.notice(lane)
            tenanted.notice(lane)

    def meet_actor(self, lane: Lane) -> None:
        """A key was closed at which this lane does not wait: the next fetch has to meet it."""
        self.groups.move(lane)
        if lane.tenant:
            self.tenants[lane.tenant].notice(lane)
        self.keys.tables.touch(self)

    def look(self) -> bool:
        """Whether there is something to fetch, for those who are told when that changes."""
        lane = self.groups.first(PLAIN)
        if lane is not self._witness or lane is not None:
            self._call(lane)
        return lane is not None

    def _call(self, witness: Lane | None) -> None:
        self._witness = witness
        vouching: tuple[Key, ...] = ()
        if witness is not None:
            gates = witness.gates
            if len(gates) > 1 or (gates and gates[0][1] == "wait"):
                vouching = tuple([key for key, _ in gates])
        if vouching == self._vouching:
            return
        for key in self._vouching:
            key.vouch_no_more(self)
        for key in vouching:
            key.vouch_for(self)
        self._vouching = vouching

    @property
    def is_plain(self) -> bool:
        """Whether all its jobs stand in the plain lane, and no limit or turn of tenants is to be heeded."""
        return not self._lanes and self.gate is None and not self.fair

    def first(self, order: int = PLAIN, tenant: str = "", *, actors: bool = True) -> Lane | None:
        """The lane whose head may start, or has to be acted upon, before all others."""
        if not tenant:
            return self.groups.first(order, actors=actors)
        tenanted = self.tenants.get(tenant)
        return None if tenanted is None else tenanted.first(actors=actors)

    def by_age(self) -> Iterator[Job]:
        """The available jobs, oldest first; nothing may change while this goes on."""
        lane = self.groups.oldest()
        first = None if lane is None else lane.oldest()
        if first is None:
            return
        yield first
        # Mostly one is enough; only from here on all lanes have to be looked at.
        lanes = [lane for lane in (self.plain, *self._lanes.values()) if lane.size]
        for job in merge(*(lane.by_age() for lane in lanes), key=lambda job: job.seq):
            if job is not first:
                yield job

    def first_behind(self, key: Key) -> Job | None:
        """One of the jobs that pass this gate, the first in line if that is easily known."""
        groups = self.groups
        for group in (groups.by_key.get(key), groups.acting_by_key.get(key)):
            lane = None if group is None else group.first(PLAIN)
            if lane is not None:
                return lane.head()
        # Other gates may have many more lanes here, or this one elsewhere: neither may cost its opening anything.
        post = groups.by_key[key]
        if key.lanes < len(self._lanes):
            lanes = (each for each in key.passing if each.group.queue is self)
        else:
            lanes = (each for each in self._lanes.values() if post in each.posts)
        lane = next((each for each in lanes if each.size), None)
        return None if lane is None else lane.head()

    @property
    def open(self) -> bool:
        """Whether it gives out jobs, as far as that is its own matter."""
        return not self.paused and (self.gate is None or self.gate.shut is None)

    # counts

    def count(self, job: Job, state: str, by: int) -> None:
        """So many more live jobs in this state."""
        self.counts[state] += by
        if job.tenant:
            self.count_tenant(job.tenant, state, by)

    def count_tenant(self, tenant: str, state: str, by: int) -> None:
        tenanted = self.tenants.get(tenant)
        if tenanted is None:
            if by < 0:
                return
            tenanted = self.tenants[tenant] = Tenanted()
        if state in tenanted.counts:
            tenanted.counts[state] += by
            if by < 0 and not any(tenanted.counts.values()):
                for lane in list(tenanted.lanes):
                    self.close_lane(lane)
                del self.tenants[tenant]

    @property
    def live(self) -> int:
        """How many jobs have not ended."""
        counts = self.counts
        return sum(counts[state] for state in LIVE)

    @property
    def depth(self) -> Depth:
        counts = self.counts
        return Depth(sum(counts[state] for state in WAITING), counts[ACTIVE], self.bytes)

    @property
    def load(self) -> Load | None:
        """Of its tightest bound."""
        return tightest(loads(self.resolved.bounds, self.depth))

    def refollow(self) -> None:
        """Somebody came who wants to be told of changes here, or left."""
        self.followed = bool(
            self.waiting
            or self.rotas
            or self.line
            or self.draining
            or self.bounded
            or self.warned
            or self.filled
        )

    def check(self) -> None:
        """Raise AssertionError where the lines contradict the counts or themselves; for tests."""
        self.groups.catch_up()
        lanes = [self.plain, *self._lanes.values()]
        size = sum(lane.size for lane in lanes)
        assert size == self.counts[AVAILABLE], f"{self.name}: {size} in line"
        for lane in lanes:
            group = lane.group
            assert lane in group.lanes, f"{self.name}: a lane stands nowhere"
            shut = group.key.shut if group.key is not None else None
            assert not group.hidden or shut is not None, f"{self.name}: hidden behind an open gate"
            assert group.hidden == (group.key is not None and group in all_of(group.key.hidden))
            known = self.keys.known
            used = all(known.get(key.key) is key for key, _ in lane.gates if key.client)
            assert used, f"{self.name}: a lane of a key that was forgotten"
            assert not lane.tenant or lane.tenant in self.tenants, f"{self.name}: nobody's lane"
            if actionable(lane):
                met = group.acts or (not group.hidden and shut is None)
                assert met, f"{self.name}: hidden from those who must meet it"
        for group in self.groups.by_key.values():
            assert group.key is not None
            waiting = sum(lane.size for lane in lanes if group in lane.posts)
            assert waiting == group.waiting, f"{group.key.key} in {self.name}: {waiting} wait"
            assert (group in group.key.waits) == (waiting > 0), f"{group.key.key}: {self.name}"
            if group.key.shut is not None and group.key.shut.opens_at_us is not None:
                assert group.key.look_at, f"{group.key.key} opens, but nobody will look"

    # what is kept and shown

    @property
    def state(self) -> str:
        if self.draining:
            return rules.DRAINING
        return rules.PAUSED if self.paused else rules.ACTIVE

    def stored(self) -> bytes:
        return msgspec.msgpack.encode(
            Stored(
                self.created_at,
                self.updated_at,
                rules.PAUSED if self.paused else rules.ACTIVE,
                self.paused_at,
                msgspec.to_builtins(self.config),
                self.draining,
                self.leaving,
                self.target,
            )
        )

    def restore(self, packed: bytes) -> None:
        stored = msgspec.msgpack.decode(packed, type=Stored)
        self.exists = True
        self.created_at = stored.created_at
        self.updated_at = stored.updated_at
        self.paused = stored.state == rules.PAUSED
        self.paused_at = stored.paused_at
        self.config = msgspec.convert(stored.config, QueueConfig)
        self.draining = stored.draining
        self.leaving = stored.leaving
        self.target = stored.target

    def view(self, now_ms: int, *, rests: bool = False) -> QueueView:
        """What is to be seen of it; while the server rests, none of its jobs could run."""
        oldest = self.groups.oldest()
        waiting = None if oldest is None else oldest.oldest()
        lane = self.groups.first(AGE, actors=False) if self.open and not rests else None
        runnable = None if lane is None else lane.oldest()
        return QueueView(
            self.name,
            self.state,
            self.created_at,
            self.updated_at,
            self.config,
            self.resolved,
            dict(self.counts),
            self.recent.rates(now_ms),
            waiting.enqueued_at if waiting is not None else 0,
            self.paused_at,
            runnable.enqueued_at if runnable is not None else 0,
            self.load,
            self.bytes,
            len(self.line),
            None if self.gate is None else self.gate.state(self.keys.now_us),
        )


def size_of(job: Job) -> int:
    """The bytes that a job is reckoned with."""
    return len(job.fixed) + len(job.type) + 200


__all__ = ["AGE", "FAIR", "LIVE", "PLAIN", "WAITING", "Queue", "Tenanted", "size_of"]
