"""Keys: the gates of this process, who passes them, when they open, and what of them must survive.

Whether a gate is closed is found out once, when something changes it, and kept in `shut`; a fetch only looks there.
What changes by time alone is looked at when that time has come: the end of a window, a hold, an override, an interval.
Time is in microseconds here; what happens is told in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from heapq import heappop, heappush, merge
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from headgate.core.gates import Closed, Gate, Kind, Limits, LimitsChange, Override, changed
from headgate.core.job import Job
from headgate.core.limits import Use, queue_key, tenant_key, uses_from
from headgate.engines.local.groups import Group
from headgate.engines.local.lanes import Lane
from headgate.engines.local.timers import NEVER

if TYPE_CHECKING:
    from headgate.engines.local.queue import Queue, Tenanted
    from headgate.engines.local.tables import Tables

GATE: Final = "gate"


class _Said(Struct):
    """What is wanted of a job's fixed members."""

    rate_limit: Any = None


_said = msgspec.json.Decoder(_Said)
_NO_LIMITS: Final = Limits()


class Key(Gate):
    """One gate: a client's key, or the limits of a queue or a tenant."""

    __slots__ = (
        "_actors",
        "_asides",
        "_passing",
        "client",
        "hidden",
        "look_at",
        "owner",
        "postponed",
        "posts",
        "shut",
        "users",
        "waiting",
    )

    def __init__(self, key: str, limits: Limits | None = None) -> None:
        super().__init__(key, limits)
        self.client = True
        self.owner: Queue | None = None
        """The queue whose limits it keeps."""
        self.shut: Closed | None = None
        """Why nothing may pass now."""
        self.users = 0
        """Live jobs that name it."""
        self.waiting = 0
        """Available jobs that pass it."""
        self._passing: Lane | dict[Lane, None] | None = None
        self.postponed = 0
        """Scheduled jobs that it put off."""
        self.look_at = 0
        """The instant of the next look; 0 when none is planned."""
        self.posts: list[Group] = []
        """Its group in each queue that has lanes which pass it."""
        self.hidden: list[Group] | None = None
        self._asides: dict[Lane, Tenanted] | None = None
        self._actors: dict[Lane, None] | None = None

    def hide(self, group: Group) -> None:
        """A fetch met this group while the gate was closed: the opening shows it."""
        if self.hidden is None:
            self.hidden = []
        self.hidden.append(group)

    def set_aside(self, tenanted: Tenanted, lane: Lane) -> None:
        """The same for a lane that the fetch for one tenant met."""
        if self._asides is None:
            self._asides = {}
        self._asides[lane] = tenanted

    def meet(self, lane: Lane, on_limit: str) -> None:
        """A lane passes this gate from now on."""
        if self._passing is None:
            # Mostly it stays alone, and there may be as many gates as jobs.
            self._passing = lane
        elif isinstance(self._passing, dict):
            self._passing[lane] = None
        else:
            self._passing = {self._passing: None, lane: None}
        if on_limit != "wait":
            if self._actors is None:
                self._actors = {}
            self._actors[lane] = None

    def part(self, lane: Lane) -> None:
        if isinstance(self._passing, dict):
            self._passing.pop(lane, None)
        elif self._passing is lane:
            self._passing = None
        if self._actors is not None:
            self._actors.pop(lane, None)
        if self._asides is not None:
            self._asides.pop(lane, None)

    @property
    def passing(self) -> list[Lane]:
        """The lanes that pass this gate."""
        if self._passing is None:
            return []
        return list(self._passing) if isinstance(self._passing, dict) else [self._passing]

    @property
    def lanes(self) -> int:
        """How many lanes pass this gate."""
        if isinstance(self._passing, dict):
            return len(self._passing)
        return 0 if self._passing is None else 1

    def by_age(self) -> Iterator[Job]:
        """The available jobs that pass it, oldest first; nothing may change while this goes on."""
        return merge(*(lane.by_age() for lane in self.passing), key=lambda job: job.seq)

    def shown(self) -> list[Group]:
        """The groups that the opening shows."""
        found, self.hidden = self.hidden, None
        return found or []

    def brought_back(self) -> Iterable[tuple[Lane, Tenanted]]:
        found, self._asides = self._asides, None
        return (found or {}).items()

    @property
    def actors(self) -> Iterable[Lane]:
        """The lanes that do not wait when it is closed."""
        return list(self._actors or ())


class Keys:
    """All gates; `now_us` is the latest instant that a step was given."""

    __slots__ = (
        "_count",
        "_dirty",
        "_looks",
        "_quiet",
        "inner",
        "known",
        "next_us",
        "now_us",
        "on_sooner",
        "tables",
    )

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.known: dict[str, Key] = {}
        """Clients' keys, those known longest first."""
        self.inner: dict[str, Key] = {}
        """The gates of queues and tenants."""
        self.now_us = 0
        self.next_us = NEVER
        """The next instant at which a gate may change by itself; it may be too early, never too late."""
        self.on_sooner: Callable[[], None] | None = None
        self._looks: list[tuple[int, int, Key]] = []
        self._count = 0
        self._dirty: dict[Key, None] = {}
        self._quiet = False

    # time

    def look(self) -> None:
        """Look at the gate whose time has come; `now_us` is that time."""
        at, _, key = heappop(self._looks)
        self._look_ahead()
        if key.look_at != at:
            return
        key.look_at = 0
        override = key.override
        if override is not None and override.expires_at and override.expires_at * 1000 <= at:
            key.impose(None)
            self._dirty[key] = None
        self.recheck(key)
        self._forget_if_idle(key)

    def _look_ahead(self) -> None:
        looks = self._looks
        while looks and looks[0][2].look_at != looks[0][0]:
            heappop(looks)
        self.next_us = looks[0][0] if looks else NEVER

    def _arm(self, key: Key) -> None:
        at = NEVER
        if key.shut is not None and key.shut.opens_at_us is not None:
            at = key.shut.opens_at_us
        override = key.override
        if override is not None and override.expires_at:
            at = min(at, override.expires_at * 1000)
        if not key.users and key.client:
            idle = key.idle_at()
            if idle is not None:
                at = min(at, idle)
        if at < NEVER:
            self._look_at(key, max(at, self.now_us))

    def _look_at(self, key: Key, at: int) -> None:
        if key.look_at and key.look_at <= at:
            return
        key.look_at = at
        self._count += 1
        heappush(self._looks, (at, self._count, key))
        if at < self.next_us:
            self.next_us = at
            if self.on_sooner is not None:
                self.on_sooner()

    # who passes

    def of(self, job: Job) -> list[Key]:
        """All gates that a start of this job passes."""
        found = [self.known[name] for name, _ in job.keys]
        inner = self.inner
        if inner:
            for name in (tenant_key(job.tenant) if job.tenant else "", queue_key(job.queue)):
                key = inner.get(name)
                if key is not None:
                    found.append(key)
        return found

    def named(self, name: str) -> Key:
        """The client's key of this name, known or not."""
        key = self.known.get(name)
        if key is None:
            key = self.known[name] = Key(name)
        return key

    def register(self, job: Job, uses: Iterable[Use]) -> None:
        """An accepted job names these keys and says something of them."""
        for (name, _), use in zip(job.keys, uses, strict=True):
            key = self.known.get(name)
            if key is None:
                key = self._new(name, use.change)
            elif key.register(use.change):
                self._dirty[key] = None
                self.recheck(key)
            key.users += 1

    def use(self, job: Job) -> None:
        """A job that lives names its keys again."""
        for name, _ in job.keys:
            self.named(name).users += 1

    def use_again(self, job: Job) -> None:
        """A job that had ended names its keys again; of a key about which nobody else says anything, it says what it said before."""
        said: Sequence[Use] | None = None
        for place, (name, _) in enumerate(job.keys):
            key = self.known.get(name)
            if key is None or (not key.users and key.limits == _NO_LIMITS):
                if said is None:
                    said = uses_from(_said.decode(b"{%b}" % job.fixed).rate_limit, job.queue)
                change = said[place].change if place < len(said) else LimitsChange()
                if key is None:
                    key = self._new(name, change)
                elif key.register(change):
                    self._dirty[key] = None
                    self.recheck(key)
            key.users += 1

    def _new(self, name: str, change: LimitsChange) -> Key:
        key = self.known[name] = Key(name, _first(change))
        self._dirty[key] = None
        if key.limits.concurrency == 0:
            # Nothing else closes a gate that nobody has passed yet.
            self.recheck(key)
        return key

    def unuse(self, job: Job) -> None:
        """A job has ended."""
        for name, _ in job.keys:
            key = self.known[name]
            key.users -= 1
            if not key.users:
                # Its lanes are empty: whoever stands there names it.
                for lane in key.passing:
                    lane.group.queue.close_lane(lane)
                self._forget_if_idle(key)

    def start(self, job: Job, gates: Iterable[Key]) -> None:
        now_us = self.now_us
        for key in gates:
            key.start(job.id, job.claim, now_us)
            self._dirty[key] = None
            self.recheck(key)

    def release(self, job: Job) -> None:
        """The reservation of this job is over."""
        for key in self.of(job):
            if key.release(job.id, job.claim):
                self.recheck(key)

    def hold(self, key: Key, until_ms: int, reason: str) -> bool:
        if not key.hold(until_ms * 1000, reason, self.now_us):
            return False
        self.save(key)
        self.recheck(key)
        return True

    def override(self, name: str, override: Override) -> None:
        """Put other limits upon a client's key for a time."""
        key = self.named(name)
        key.impose(override)
        self.save(key)
        self.recheck(key)

    def lift(self, name: str) -> bool:
        """Take back what holds a client's key for a time; false when nobody knows it."""
        key = self.known.get(name)
        if key is None:
            return False
        if key.lift():
            self.save(key)
            self.recheck(key)
            self._forget_if_idle(key)
        return True

    # gates of queues and tenants

    def limit(self, name: str, limits: Limits, active: Iterable[Job], owner: Queue | None) -> Key:
        """Let this inner gate keep these limits; a new one starts with the jobs that are active."""
        key = self.inner.get(name)
        if key is None:
            key = self.inner[name] = Key(name, limits)
            key.client = False
            for job in sorted(active, key=lambda job: (job.started_at, job.seq)):
                key.holders[job.id] = job.claim
            key.owner = owner
        else:
            # One that was read from the file does not know yet whose limits it keeps.
            key.owner = owner
            change = LimitsChange(limits.concurrency, limits.rate, limits.throttle)
            if not key.register(change):
                return key
        self.save(key)
        self.recheck(key)
        return key

    def unlimit(self, name: str) -> Key | None:
        """The gate is gone; what waited behind it does not any more."""
        key = self.inner.pop(name, None)
        if key is None:
            return None
        key.register(LimitsChange(None, None, None))
        self._dirty.pop(key, None)
        self.tables.set_thing(GATE, name, None)
        if key.shut is not None:
            kind, key.shut = key.shut.kind, None
            self._open(key, kind)
        key.look_at = 0
        return key

    # open and closed

    def recheck(self, key: Key) -> None:
        """Something changed this gate: find out whether it is open."""
        closed = key.closed(self.now_us)
        before, key.shut = key.shut, closed
        if closed is None:
            if before is not None:
                self._open(key, before.kind)
        else:
            if before is None:
                self._close(key, closed)
            elif before.opens_at_us != closed.opens_at_us:
                for group in key.hidden or ():
                    group.queue.groups.expect(group)
            if closed.opens_at_us is not None:
                self._look_at(key, closed.opens_at_us)

    def _close(self, key: Key, closed: Closed) -> None:
        touch = self.tables.touch
        for lane in key.actors:
            lane.group.queue.meet_actor(lane)
        for group in key.posts:
            if group.waiting:
                self._tell_exceeded(key, group, closed)
                touch(group.queue)
        if key.owner is not None:
            touch(key.owner)

    def _open(self, key: Key, kind: Kind) -> None:
        touch = self.tables.touch
        for group in key.shown():
            groups = group.queue.groups
            if groups.by_key.get(key) is group:
                groups.show(group)
        for lane, tenanted in key.brought_back():
            tenanted.notice(lane)
        for group in key.posts:
            if group.waiting:
                self._tell_released(key, group, kind)
                touch(group.queue)
        if key.owner is not None:
            touch(key.owner)

    def line_up(self, group: Group, jobs: int = 1) -> None:
        """So many more jobs wait in this queue that pass this gate."""
        key = group.key
        assert key is not None
        group.waiting += jobs
        key.waiting += jobs
        if key.shut is not None and group.waiting:
            self._tell_exceeded(key, group, key.shut)

    def step_out(self, group: Group, jobs: int = 1) -> None:
        key = group.key
        assert key is not None
        group.waiting -= jobs
        key.waiting -= jobs
        if not group.waiting:
            group.told = False

    def _tell_exceeded(self, key: Key, group: Group, closed: Closed) -> None:
        if group.told or not key.client:
            return
        group.told = True
        data = {
            "key": key.key,
            "strategy": closed.kind,
            "limit": closed.limit,
            "current": closed.current,
        }
        self._tell("rate_limit.exceeded", key, group, data)

    def _tell_released(self, key: Key, group: Group, kind: Kind) -> None:
        if not group.told:
            return
        group.told = False
        job = group.queue.first_behind(group)
        data = {"key": key.key, "strategy": kind, "job_id": "" if job is None else job.id}
        self._tell("rate_limit.released", key, group, data)

    def _tell(self, kind: str, key: Key, group: Group, data: dict[str, Any]) -> None:
        if self._quiet:
            return
        at = self.tables.now
        self.tables.events.add(kind, at, key.key, queue=group.queue.name, data=data)

    # what stays

    def save(self, key: Key) -> None:
        """Record a key that a command changed."""
        self._dirty.pop(key, None)
        self.tables.set_thing(GATE, key.key, key.pack())
        self._arm(key)

    def write_changes(self, write: Callable[[tuple[Any, ...]], None]) -> None:
        """Record every key that starts have changed, once for all of them; the batch is about to be closed."""
        for key in self._dirty:
            write(("", GATE, key.key, key.pack()))
        self._dirty.clear()

    def restore(self, name: str, packed: bytes) -> None:
        key = Key.unpack(name, packed)
        assert isinstance(key, Key)
        if name.startswith("/"):
            key.client = False
            self.inner[name] = key
        else:
            self.known[name] = key

    def wake_up(self) -> None:
        """Everything was restored: find out what is open, and who is not needed any more.

        What was told before is not told again.
        """
        self._quiet = True
        active = [job for held in self.tables.held.values() for job in held.values()]
        for job in sorted(active, key=lambda job: (job.started_at, job.seq)):
            for key in self.of(job):
                key.holders[job.id] = job.claim
        for key in [*self.known.values(), *self.inner.values()]:
            latest = key.last_start_us
            if latest is not None:
                self.now_us = max(self.now_us, latest)
        for key in [*self.known.values(), *self.inner.values()]:
            self.recheck(key)
            for group in key.posts:
                group.queue.groups.keep_hidden(group)
            self._forget_if_idle(key)
        self._quiet = False

    def _forget_if_idle(self, key: Key) -> None:
        """A key that nobody names and that remembers nothing could be another one as well."""
        if not key.client or key.users:
            self._arm(key)
            return
        if not key.idle(self.now_us):
            self._arm(key)
        elif self.known.get(key.key) is key:
            del self.known[key.key]
            key.look_at = 0
            self._dirty.pop(key, None)
            self.tables.set_thing(GATE, key.key, None)


@lru_cache(maxsize=1_024)
def _first(change: LimitsChange) -> Limits:
    """The limits of a new key; equal ones are one record, because there may be as many keys as jobs."""
    return changed(Limits(), change)
