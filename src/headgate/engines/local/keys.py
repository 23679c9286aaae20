"""Keys: the gates of this process, who passes them, when they open, and what of them must survive.

Whether a gate is closed is found out once, when something changes it, and kept in `shut`; a fetch only looks there.
What changes by time alone is looked at when that time has come: the end of a window, a hold, an override, an interval.
Time is in microseconds here; what happens is told in milliseconds.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from heapq import heappop, heappush, merge
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from headgate.core.gates import Closed, Gate, Kind, Limits, LimitsChange, Override, changed
from headgate.core.job import Job
from headgate.core.limits import Use, queue_key, tenant_key, uses_from
from headgate.engines import contract
from headgate.engines.contract import KEY_WAITED
from headgate.engines.local.groups import Group, News
from headgate.engines.local.lanes import Lane
from headgate.engines.local.some import Some, all_of, with_one, without
from headgate.engines.local.timers import NEVER

if TYPE_CHECKING:
    from headgate.engines.local.queue import Queue, Tenanted
    from headgate.engines.local.rotas import Rota
    from headgate.engines.local.tables import Tables

GATE: Final = "gate"
FEW = 4
"""Where more queues than that wait at a gate, its opening does not look at each of them."""


class _Said(Struct):
    """What is wanted of a job's fixed members."""

    rate_limit: Any = None


_said = msgspec.json.Decoder(_Said)
_NO_LIMITS: Final = Limits()


class Key(Gate):
    """One gate: a client's key, or the limits of a queue or a tenant."""

    __slots__ = (
        "_asides",
        "_away",
        "_passing",
        "_waits",
        "_witnessed",
        "bundles",
        "client",
        "hidden",
        "look_at",
        "opened_us",
        "owner",
        "postponed",
        "shut",
        "told",
        "users",
        "waiting",
        "was",
    )

    def __init__(self, key: str, limits: Limits | None = None) -> None:
        super().__init__(key, limits)
        self.client = True
        self.owner: Queue | None = None
        """The queue whose limits it keeps."""
        self.shut: Closed | None = None
        """Why nothing may pass now."""
        self.was: Kind | None = None
        """What had closed it, when it opened last."""
        self.opened_us = 0
        """When that was."""
        self.users = 0
        """Live jobs that name it."""
        self.waiting = 0
        """Available jobs that pass it."""
        self._passing: Some[Lane] = None
        self.postponed = 0
        """Scheduled jobs that it put off."""
        self.look_at = 0
        """The instant of the next look; 0 when none is planned."""
        self._waits: Group | list[Group] | None = None
        self.told: tuple[Queue, ...] = ()
        """Where it was told that jobs wait because of it."""
        self.hidden: Some[Group] = None
        """What fetches met while it was closed: its opening shows them."""
        self.bundles: Bundles | None = None
        """What its opening tells the turns of pools; None until it is needed."""
        self._asides: dict[Lane, Tenanted] | None = None
        self._away: dict[Lane, None] | None = None
        self._witnessed: Some[Queue] = None

    # what its opening shows

    def hide(self, group: Group) -> None:
        """A fetch met this group while the gate was closed: the opening shows it."""
        self.hidden = with_one(self.hidden, group)
        if self.bundles is not None:
            self.bundles.add(group)

    def unhide(self, group: Group) -> None:
        self.hidden = without(self.hidden, group)
        if self.bundles is not None:
            self.bundles.discard(group)

    def set_aside(self, tenanted: Tenanted, lane: Lane) -> None:
        """The same for a lane that the fetch for one tenant met."""
        if self._asides is None:
            self._asides = {}
        self._asides[lane] = tenanted
        for key in lane.acts_at:
            key.remember_away(lane)

    def brought_back(self) -> Iterable[tuple[Lane, Tenanted]]:
        found, self._asides = self._asides, None
        return (found or {}).items()

    # what its closing changes

    def remember_away(self, lane: Lane) -> None:
        """A lane that does not wait here cannot be met at present: when this closes, it has to be."""
        if self._away is None:
            self._away = {}
        self._away[lane] = None

    def called_back(self) -> Iterable[Lane]:
        found, self._away = self._away, None
        return found or ()

    def vouch_for(self, queue: Queue) -> None:
        """That the queue has something to fetch is known by a lane that passes this gate."""
        self._witnessed = with_one(self._witnessed, queue)

    def vouch_no_more(self, queue: Queue) -> None:
        self._witnessed = without(self._witnessed, queue)

    @property
    def witnessed(self) -> Collection[Queue]:
        return all_of(self._witnessed)

    # who passes

    def meet(self, lane: Lane) -> None:
        """A lane passes this gate from now on."""
        self._passing = with_one(self._passing, lane)

    def part(self, lane: Lane) -> None:
        self._passing = without(self._passing, lane)
        if self._asides is not None:
            self._asides.pop(lane, None)
        if self._away is not None:
            self._away.pop(lane, None)

    @property
    def passing(self) -> Collection[Lane]:
        """The lanes that pass this gate."""
        return all_of(self._passing)

    @property
    def lanes(self) -> int:
        """How many lanes pass this gate."""
        return len(all_of(self._passing))

    def by_age(self) -> Iterator[Job]:
        """The available jobs that pass it, oldest first; nothing may change while this goes on."""
        return merge(*(lane.by_age() for lane in self.passing), key=lambda job: job.seq)

    # who waits

    @property
    def waits(self) -> Sequence[Group]:
        """Where jobs wait that pass it, by the names of the queues."""
        if self._waits is None:
            return ()
        return self._waits if isinstance(self._waits, list) else (self._waits,)

    def begin_to_wait(self, group: Group) -> None:
        if self._waits is None:
            self._waits = group
            return
        if not isinstance(self._waits, list):
            self._waits = [self._waits]
        insort(self._waits, group, key=_queue_name)

    def cease_to_wait(self, group: Group) -> None:
        if isinstance(self._waits, list):
            del self._waits[bisect_left(self._waits, group.queue.name, key=_queue_name)]
            if not self._waits:
                self._waits = None
        else:
            self._waits = None


def _queue_name(group: Group) -> str:
    return group.queue.name


class Bundles:
    """The queues in which something is hidden behind one gate, as the turns of pools know them.

    Kept only of gates that have opened while very many waited, so that all queues of a pool are told by one number.
    """

    __slots__ = ("by_turns", "unsure")

    def __init__(self, groups: Iterable[Group]) -> None:
        self.by_turns: dict[Rota, int] = {}
        """Queues that will certainly have something when the gate opens."""
        self.unsure: dict[Group, None] = {}
        """Groups of which other gates have a say as well: they have to be looked at."""
        for group in groups:
            self.add(group)

    def add(self, group: Group) -> None:
        if group.acts or not group.queue.rotas:
            # Whoever acts has something to do whether the gate is open or not.
            return
        if group.mixed:
            self.unsure[group] = None
            return
        for turns, i in group.queue.rotas:
            self.by_turns[turns] = self.by_turns.get(turns, 0) | 1 << i

    def discard(self, group: Group) -> None:
        if group.acts:
            return
        self.unsure.pop(group, None)
        for turns, i in group.queue.rotas:
            if turns in self.by_turns:
                self.by_turns[turns] &= ~(1 << i)


class Keys:
    """All gates; `now_us` is the latest instant that a step was given."""

    __slots__ = (
        "_bundled",
        "_count",
        "_dirty",
        "_looks",
        "_quiet",
        "inner",
        "known",
        "lenders",
        "news",
        "next_us",
        "now_us",
        "on_sooner",
        "swung",
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
        self.news = News()
        self.swung: dict[Key, None] = {}
        """Those that opened or closed, or at which others wait than before, as far as somebody is told of it."""
        self._bundled: dict[Key, None] = {}
        """Those that have bundles."""
        self.lenders: dict[Key, None] = {}
        """Those that are open and have told the turns of pools so, instead of each queue."""

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
        self.let_go([self.known[name] for name, _ in job.keys])

    def keep(self, job: Job) -> list[Key]:
        """Let nothing be forgotten of the keys that this job is about to name, until they are let go."""
        found = [self.known[name] for name, _ in job.keys if name in self.known]
        for key in found:
            key.users += 1
        return found

    def let_go(self, keys: Iterable[Key]) -> None:
        for key in keys:
            key.users -= 1
            if not key.users:
                # Its lanes are empty: whoever stands there names it.
                for lane in list(key.passing):
                    lane.group.queue.close_lane(lane)
                self._forget_if_idle(key)

    def start(self, job: Job, gates: Iterable[Key], since_ms: int) -> None:
        """The job, which has been available since then, takes its place in all of them."""
        now_us, since_us = self.now_us, since_ms * 1000
        for key in gates:
            if key.opened_us > since_us and key.client:
                data = {"key": key.key, "wait_ms": (key.opened_us - since_us) // 1000}
                self.tables.events.whisper(KEY_WAITED, self.tables.now, job.queue, data)
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
                key.take(job.id, job.claim)
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
            key.shut = None
            self._open(key)
        key.look_at = 0
        return key

    # open and closed

    def recheck(self, key: Key) -> None:
        """Something changed this gate: find out whether it is open."""
        closed = key.closed(self.now_us)
        before, key.shut = key.shut, closed
        if closed is None:
            if before is not None:
                key.was = before.kind
                key.opened_us = self.now_us
                self._open(key)
        else:
            if before is None:
                self._close(key)
            elif before.opens_at_us != closed.opens_at_us:
                self._expect(key)
            if closed.opens_at_us is not None:
                self._look_at(key, closed.opens_at_us)

    def _close(self, key: Key) -> None:
        touch = self.tables.touch
        for lane in key.called_back():
            lane.group.queue.meet_actor(lane)
        for queue in key.witnessed:
            touch(queue)
        if key in self.lenders or (key.waiting and key.client):
            self._swing(key)
        if key.owner is not None:
            touch(key.owner)

    def _open(self, key: Key) -> None:
        touch = self.tables.touch
        hidden = all_of(key.hidden)
        if len(hidden) > FEW:
            self.news.add(key)
            self._swing(key)
        else:
            for group in list(hidden):
                group.queue.groups.show(group)
                touch(group.queue)
        for lane, tenanted in key.brought_back():
            tenanted.notice(lane)
            touch(lane.group.queue)
        for queue in key.witnessed:
            touch(queue)
        if key.told:
            self._swing(key)
        if key.owner is not None:
            touch(key.owner)

    def _expect(self, key: Key) -> None:
        """It opens at another time than those thought who wait."""
        hidden = all_of(key.hidden)
        if len(hidden) > FEW:
            self.news.add(key)
        else:
            for group in hidden:
                group.queue.groups.expect(group)

    def _swing(self, key: Key) -> None:
        if not self.swung:
            self.tables.on_touched()
        self.swung[key] = None

    def settle(self, at: int) -> list[Key]:
        """Tell of those that swung, as they are now; gives those of which pools and fetches know only by this."""
        swung, self.swung = self.swung, {}
        opened = []
        for key in swung:
            self._tell(key)
            if key.shut is None:
                if key not in self.lenders and len(all_of(key.hidden)) > FEW:
                    self._lend(key, at)
                    opened.append(key)
            elif key in self.lenders:
                self._take_back(key)
        return opened

    def _lend(self, key: Key, at: int) -> None:
        """The pools learn of all their queues at once that these have something."""
        self.lenders[key] = None
        bundles = self.bundles_of(key)
        for turns, queues in bundles.by_turns.items():
            turns.lend(queues, at)
        for group in bundles.unsure:
            self.tables.touch(group.queue)

    def _take_back(self, key: Key) -> None:
        """But what is also there by another gate that is open."""
        del self.lenders[key]
        for turns, queues in self.bundles_of(key).by_turns.items():
            others = 0
            for other in self.lenders:
                others |= self.bundles_of(other).by_turns.get(turns, 0)
            turns.take_back(queues & ~others)

    def bundles_of(self, key: Key) -> Bundles:
        if key.bundles is None:
            key.bundles = Bundles(all_of(key.hidden))
            self._bundled[key] = None
        return key.bundles

    def forget_bundles(self) -> None:
        """There are other pools than before."""
        for key in self._bundled:
            key.bundles = None
        self._bundled.clear()

    def line_up(self, group: Group, jobs: int = 1) -> None:
        """So many more jobs wait in this queue that pass this gate."""
        key = group.key
        assert key is not None
        if jobs and not group.waiting:
            key.begin_to_wait(group)
        group.waiting += jobs
        key.waiting += jobs
        if (
            key.shut is not None
            and group.waiting
            and key.client
            and len(key.told) < contract.TOLD_QUEUES
            and group.queue not in key.told
        ):
            self._swing(key)

    def step_out(self, group: Group, jobs: int = 1) -> None:
        key = group.key
        assert key is not None
        group.waiting -= jobs
        key.waiting -= jobs
        if jobs and not group.waiting:
            key.cease_to_wait(group)
            if group.queue in key.told:
                self._swing(key)

    def _tell(self, key: Key) -> None:
        """Of a few queues it is told that jobs wait there because of the key, and of the same that they need not any more."""
        if not key.client:
            return
        closed = key.shut
        staying: list[Queue] = []
        for queue in key.told:
            group = queue.groups.by_key.get(key)
            if group is None or not group.waiting:
                continue
            if closed is not None:
                staying.append(queue)
            else:
                job = queue.first_behind(key)
                name = "" if job is None else job.id
                self._say("rate_limit.released", key, queue, strategy=key.was, job_id=name)
        if closed is not None:
            about = {"strategy": closed.kind, "limit": closed.limit, "current": closed.current}
            for group in key.waits:
                if len(staying) >= contract.TOLD_QUEUES:
                    break
                if group.queue not in staying:
                    staying.append(group.queue)
                    self._say("rate_limit.exceeded", key, group.queue, **about)
        key.told = tuple(staying)

    def _say(self, kind: str, key: Key, queue: Queue, **data: Any) -> None:
        if self._quiet:
            return
        name = key.key
        found = {"key": name, **data}
        self.tables.events.add(kind, self.tables.now, name, queue=queue.name, data=found)

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
                key.take(job.id, job.claim)
        for key in [*self.known.values(), *self.inner.values()]:
            latest = key.last_start_us
            if latest is not None:
                self.now_us = max(self.now_us, latest)
        for key in [*self.known.values(), *self.inner.values()]:
            self.recheck(key)
            self._forget_if_idle(key)
        for queue in self.tables.queues.values():
            for group in queue.groups.all():
                queue.groups.keep_hidden(group)
        self.settle(self.tables.now)
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
