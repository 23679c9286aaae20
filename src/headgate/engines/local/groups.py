"""What a queue shows to fetches: its lanes in groups, each behind the gate that most likely closes it.

A lane stands in the group of its home gate; lanes without gates stand in the queue's own group, which nothing closes.
A fetch that meets a group whose gate is closed hides it as a whole, whatever number of lanes stand there; the opening of the gate shows the groups that were hidden.
Only when the lane that comes first is stopped by another of its gates does that one lane move, to that gate's group.
Lanes whose jobs do not wait at a gate stand in a group apart; while their gate is closed, it is found among those who have to be acted upon.

A gate at which many queues wait does not show their groups one by one when it opens: each queue hears of it when it is looked at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import TYPE_CHECKING, Final

from headgate.core.tenants import DEFAULT_TENANT, Shares
from headgate.engines.local.heads import Heads, Place
from headgate.engines.local.lanes import Lane
from headgate.engines.local.some import Some, all_of, with_one, without
from headgate.engines.local.timers import NEVER

if TYPE_CHECKING:
    from headgate.engines.local.keys import Key
    from headgate.engines.local.queue import Queue

PLAIN: Final = 0
"""By priority, then by sequence."""
FAIR: Final = 1
"""By priority, then by the turns of tenants, then by sequence."""
AGE: Final = 2
"""By sequence alone."""
ORDERS: Final = (PLAIN, FAIR, AGE)
ENTRIES: Final = ("plain_entry", "fair_entry", "age_entry")
"""Where lanes and groups keep their entry in each order."""
MOST_NEWS: Final = 1_000


class News:
    """The gates that changed lately without telling each queue."""

    __slots__ = ("count", "latest")

    def __init__(self) -> None:
        self.count = 0
        self.latest: deque[Key] = deque(maxlen=MOST_NEWS)

    def add(self, key: Key) -> None:
        self.count += 1
        self.latest.append(key)


def plain(lane: Lane) -> Place | None:
    head = lane.head()
    return None if head is None else (-head.priority, head.seq)


def age(lane: Lane) -> Place | None:
    oldest = lane.oldest()
    return None if oldest is None else (oldest.seq,)


class Group:
    """The lanes of one queue behind one gate; `key` is None for the queue's own group."""

    __slots__ = (
        "_heads",
        "_lanes",
        "acts",
        "age_entry",
        "all_entry",
        "fair_entry",
        "hidden",
        "key",
        "mixed",
        "passing",
        "plain_entry",
        "queue",
        "waiting",
    )

    def __init__(self, queue: Queue, key: Key | None, *, acts: bool = False) -> None:
        self.queue = queue
        self.key = key
        self.acts = acts
        """Whether these are the lanes that do not wait when the gate is closed."""
        self._lanes: Some[Lane] = None
        """Mostly one, and there may be as many groups as jobs."""
        self.plain_entry = self.fair_entry = self.age_entry = self.all_entry = None
        """What stands for it in the orders of its queue."""
        self.passing = 0
        """Lanes of the queue that pass this gate, wherever they stand."""
        self.waiting = 0
        """Jobs in them."""
        self.mixed = 0
        """Lanes that stand here and pass other gates as well."""
        self.hidden = False
        self._heads: list[Heads[Lane] | None] | None = None

    def __lt__(self, other: object) -> bool:
        """Entries in an order are equal only where one of them counts no longer, so either may be first."""
        return False

    def first(self, order: int) -> Lane | None:
        """The lane that comes first in this order; None when no job stands here."""
        if self._heads is None:
            for lane in self.lanes:
                return lane if lane.size else None
            return None
        heads = self._heads[order]
        if heads is None:
            heads = self._heads[order] = self._ordered(order)
        return heads.first()

    def _ordered(self, order: int) -> Heads[Lane]:
        return Heads(self.queue.place_of(order), ENTRIES[order], self.lanes)

    @property
    def lanes(self) -> Collection[Lane]:
        return all_of(self._lanes)

    def enter(self, lane: Lane) -> None:
        lane.group = self
        if len(lane.gates) > 1:
            self.mixed += 1
        self._lanes = with_one(self._lanes, lane)
        if self._heads is not None:
            self.notice(lane)
        elif isinstance(self._lanes, dict):
            wanted = ORDERS if self.queue.fair else (PLAIN, AGE)
            self._heads = [self._ordered(order) if order in wanted else None for order in ORDERS]

    def leave(self, lane: Lane) -> None:
        self._lanes = without(self._lanes, lane)
        if len(lane.gates) > 1:
            self.mixed -= 1
        if self._heads is not None:
            for heads in self._heads:
                if heads is not None:
                    heads.drop(lane)

    def notice(self, lane: Lane) -> None:
        """The lane may come earlier than before."""
        if self._heads is not None:
            for heads in self._heads:
                if heads is not None:
                    heads.put(lane)


class Orders:
    """Groups in each order; an order is made when it is first asked for."""

    __slots__ = ("_by_order", "_queue")

    def __init__(self, queue: Queue, wanted: Iterable[int], groups: Iterable[Group]) -> None:
        self._queue = queue
        self._by_order: list[Heads[Group] | None] = [None] * len(ORDERS)
        for order in wanted:
            self.make(order, groups)

    def make(self, order: int, groups: Iterable[Group]) -> Heads[Group]:
        found = Heads(_place_of(self._queue, order), ENTRIES[order], groups)
        self._by_order[order] = found
        return found

    def __getitem__(self, order: int) -> Heads[Group] | None:
        return self._by_order[order]

    def put(self, group: Group) -> None:
        for heads in self._by_order:
            if heads is not None:
                heads.put(group)

    def drop(self, group: Group) -> None:
        for heads in self._by_order:
            if heads is not None:
                heads.drop(group)


class Groups:
    """All groups of one queue."""

    __slots__ = (
        "_acting",
        "_everybody",
        "_gathering",
        "_heard",
        "_news",
        "_openings",
        "_seen",
        "acting_by_key",
        "by_key",
        "own",
        "queue",
    )

    def __init__(self, queue: Queue, news: News) -> None:
        self.queue = queue
        self._news = news
        self._heard = news.count
        """How many news it has heard."""
        self.own = Group(queue, None)
        self.by_key: dict[Key, Group] = {}
        self.acting_by_key: dict[Key, Group] = {}
        self._seen: Orders | None = None
        """The groups that are not hidden; None while there is only the own one."""
        self._acting: Orders | None = None
        """Those whose lanes have to be acted upon; None while there never was one."""
        self._everybody: Heads[Group] | None = None
        """All groups, by age."""
        self._gathering = False
        self._openings: list[tuple[int, int, Group]] = []
        """When hidden groups will be shown, as far as that is known."""

    def of(self, key: Key) -> Group:
        """The group of those who wait at this gate."""
        group = self.by_key.get(key)
        if group is None:
            group = self.by_key[key] = Group(self.queue, key)
            self._begin()
        return group

    def acting_at(self, key: Key) -> Group:
        """The group of those who do not wait there."""
        group = self.acting_by_key.get(key)
        if group is None:
            group = self.acting_by_key[key] = Group(self.queue, key, acts=True)
            self._begin()
        return group

    def _begin(self) -> None:
        """There are more than the own group."""
        if self._seen is None and not self._gathering:
            self._order()

    def gather(self) -> None:
        """Many will come at once, and nobody looks: there is no order until `gathered`."""
        self._gathering = self._seen is None

    def gathered(self) -> None:
        if self._gathering and self.by_key:
            self._order()
        self._gathering = False

    def _order(self) -> None:
        shown = [group for group in self.all() if not group.hidden]
        self._seen = Orders(self.queue, self._wanted, shown)
        self._everybody = Heads(_place_of(self.queue, AGE), "all_entry", self.all())

    @property
    def _wanted(self) -> tuple[int, ...]:
        return ORDERS if self.queue.fair else (PLAIN, AGE)

    def all(self) -> Iterator[Group]:
        yield self.own
        yield from self.by_key.values()
        yield from self.acting_by_key.values()

    def forget(self, key: Key) -> None:
        """No lane passes this gate any more."""
        for group in (self.by_key.pop(key, None), self.acting_by_key.pop(key, None)):
            if group is not None:
                if group.hidden:
                    self._unhide(group)
                elif self._seen is not None:
                    self._seen.drop(group)
                if self._everybody is not None:
                    self._everybody.drop(group)

    # where lanes stand

    def home_of(self, lane: Lane) -> Group:
        """Where a lane stands best: behind a gate that is closed, else behind the one with most lanes.

        One that does not want to wait at one of its keys stands apart; while that key is closed, nothing else matters.
        """
        if len(lane.gates) == 1:
            # Mostly, and for as many lanes as there may be jobs.
            ((only, on_limit),) = lane.gates
            return self.of(only) if on_limit == "wait" else self.acting_at(only)
        apart: Key | None = None
        behind: Key | None = None
        for key, on_limit in lane.gates:
            if on_limit != "wait":
                if key.shut is not None:
                    return self.acting_at(key)
                apart = apart or key
            elif key.shut is not None:
                behind = behind or key
        if behind is not None:
            return self.of(behind)
        if apart is not None:
            return self.acting_at(apart)
        if not lane.gates:
            return self.own
        return self.of(max((key for key, _ in lane.gates), key=lambda key: key.lanes))

    def settle_in(self, lane: Lane) -> None:
        """Let a lane that stands nowhere stand where it does best.

        A group behind a closed gate is hidden now, or the next fetch would have to do it for all that came since.
        """
        group = self.home_of(lane)
        self._enter(group, lane)
        self.keep_hidden(group)

    def _enter(self, group: Group, lane: Lane) -> None:
        before = group.mixed
        group.enter(lane)
        if not group.acts:
            for key in lane.acts_at:
                key.remember_away(lane)
        if group.hidden and bool(before) != bool(group.mixed):
            self._rehang(group)

    def leave(self, lane: Lane) -> None:
        group = lane.group
        before = group.mixed
        group.leave(lane)
        self.emptied(group)
        if group.hidden and bool(before) != bool(group.mixed):
            self._rehang(group)

    @staticmethod
    def _rehang(group: Group) -> None:
        """Whether all its lanes only wait for this gate is not as it was."""
        assert group.key is not None
        group.key.unhide(group)
        group.key.hide(group)

    def emptied(self, group: Group) -> None:
        """Jobs have left it: without any, there is nothing to be shown."""
        if group.hidden and group.first(PLAIN) is None:
            self._unhide(group)

    def move(self, lane: Lane) -> None:
        """Let a lane stand where it does best now."""
        group = self.home_of(lane)
        if group is not lane.group:
            self.leave(lane)
            self._enter(group, lane)
            self.notice(lane)

    def notice(self, lane: Lane) -> None:
        """The lane may come earlier than before."""
        group = lane.group
        group.notice(lane)
        if self._seen is not None:
            assert self._everybody is not None
            self._everybody.put(group)
            if not group.hidden:
                self._seen.put(group)
            elif group.acts:
                assert self._acting is not None
                self._acting.put(group)

    # hiding and showing

    def hide(self, group: Group) -> None:
        """A group whose gate is closed is not to be met any more, or only by those who act."""
        group.hidden = True
        assert group.key is not None
        group.key.hide(group)
        if self._seen is not None:
            self._seen.drop(group)
        if not group.acts:
            self.expect(group)
            return
        if self._acting is None:
            self._acting = Orders(self.queue, self._wanted, ())
        self._acting.put(group)

    def show(self, group: Group) -> None:
        self._unhide(group)
        assert self._seen is not None
        self._seen.put(group)

    def _unhide(self, group: Group) -> None:
        group.hidden = False
        assert group.key is not None
        group.key.unhide(group)
        if group.acts:
            assert self._acting is not None
            self._acting.drop(group)

    def keep_hidden(self, group: Group) -> None:
        key = group.key
        if key is not None and key.shut is not None and not group.hidden:
            self.hide(group)

    def catch_up(self) -> None:
        """Hear of the gates that changed without telling each queue."""
        news = self._news
        missed, self._heard = news.count - self._heard, news.count
        if missed > len(news.latest) or missed > len(self.by_key) + len(self.acting_by_key):
            keys: Iterable[Key] = [*self.by_key, *self.acting_by_key]
        else:
            keys = islice(reversed(news.latest), missed)
        for key in keys:
            for group in (self.by_key.get(key), self.acting_by_key.get(key)):
                if group is not None and group.hidden:
                    if key.shut is None:
                        self.show(group)
                    elif not group.acts:
                        self.expect(group)

    def expect(self, group: Group) -> None:
        """Remember when this hidden group will be shown, if that is known."""
        shut = None if group.key is None else group.key.shut
        if shut is not None and shut.opens_at_us is not None:
            openings = self._openings
            heappush(openings, (shut.opens_at_us, id(group), group))
            if len(openings) > 2 * len(self.by_key) + 64:
                # Most are over, but nobody has asked since.
                self._openings = [
                    (each.key.shut.opens_at_us, id(each), each)
                    for each in self.by_key.values()
                    if each.hidden
                    and each.key is not None
                    and each.key.shut is not None
                    and each.key.shut.opens_at_us is not None
                ]
                heapify(self._openings)

    # who comes first

    def first(self, order: int, *, actors: bool = True) -> Lane | None:
        """The lane whose head may start, or has to be acted upon, before all others of the queue.

        On the way it hides what is closed.
        Without `actors`, those who have to be acted upon are left out.
        """
        if self._heard != self._news.count:
            self.catch_up()
        lane = self._startable(order)
        if not actors or self._acting is None:
            return lane
        heads = self._acting[order]
        if heads is None:
            hidden = (group for group in self.acting_by_key.values() if group.hidden)
            heads = self._acting.make(order, hidden)
        group = heads.first()
        actor = None if group is None else group.first(order)
        if actor is None or lane is None:
            return actor or lane
        place = self.queue.place_of(order)
        return actor if place(actor) < place(lane) else lane

    def _startable(self, order: int) -> Lane | None:
        while True:
            group = self._first(order)
            if group is None:
                return None
            if group.key is not None and group.key.shut is not None:
                self.hide(group)
                continue
            lane = group.first(order)
            assert lane is not None
            if blocker_of(lane) is None:
                return lane
            self.move(lane)

    def _first(self, order: int) -> Group | None:
        if self._seen is None:
            own = self.own
            return own if own.first(order) is not None else None
        heads = self._seen[order]
        if heads is None:
            heads = self._seen.make(order, (group for group in self.all() if not group.hidden))
        return heads.first()

    def next_us(self) -> int:
        """The earliest instant at which a hidden group is known to be shown; NEVER when none is."""
        if self._heard != self._news.count:
            self.catch_up()
        openings = self._openings
        while openings:
            at, _, group = openings[0]
            shut = group.key.shut if group.hidden and group.key is not None else None
            known = None if shut is None else shut.opens_at_us
            if known == at:
                return at
            heappop(openings)
            if known is not None:
                heappush(openings, (known, id(group), group))
        return NEVER

    def oldest(self) -> Lane | None:
        """The lane with the job that waits longest, whether it could run or not."""
        if self._everybody is None:
            return self.own.first(AGE)
        group = self._everybody.first()
        return None if group is None else group.first(AGE)


def _place_of(queue: Queue, order: int) -> Callable[[Group], Place | None]:
    place = queue.place_of(order)

    def of_group(group: Group) -> Place | None:
        lane = group.first(order)
        return None if lane is None else place(lane)

    return of_group


def blocker_of(lane: Lane) -> Key | None:
    """The first gate that is closed; None when its head may start as far as these go."""
    for key, _ in lane.gates:
        if key.shut is not None:
            return key
    return None


def actionable(lane: Lane) -> bool:
    """Whether a key is closed at which its jobs do not want to wait."""
    return any(key.shut is not None and on_limit != "wait" for key, on_limit in lane.gates)


def turn_of(shares: Shares) -> Callable[[Lane], Place | None]:
    """The place of a lane among others when tenants take turns."""

    def fair(lane: Lane) -> Place | None:
        head = lane.head()
        if head is None:
            return None
        start, last = shares.place(head.priority, lane.tenant or DEFAULT_TENANT)
        return -head.priority, start, last, head.seq

    return fair
