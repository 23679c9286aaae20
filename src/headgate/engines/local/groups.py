"""What a queue shows to fetches: its lanes in groups, each behind the gate that most likely closes it.

A lane stands in the group of its home gate; lanes without gates stand in the queue's own group, which nothing closes.
A fetch that meets a group whose gate is closed hides it as a whole, whatever number of lanes stand there; the opening of the gate shows the groups that were hidden.
Only when the lane that comes first is stopped by another of its gates does that one lane move, to that gate's group.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from headgate.core.tenants import DEFAULT_TENANT, Shares
from headgate.engines.local.heads import Heads, Place
from headgate.engines.local.lanes import Lane
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
        "age_entry",
        "all_entry",
        "fair_entry",
        "hidden",
        "key",
        "passing",
        "plain_entry",
        "queue",
        "told",
        "waiting",
    )

    def __init__(self, queue: Queue, key: Key | None) -> None:
        self.queue = queue
        self.key = key
        self._lanes: Lane | dict[Lane, None] | None = None
        """Mostly one, and there may be as many groups as jobs."""
        self.plain_entry = self.fair_entry = self.age_entry = self.all_entry = None
        """What stands for it in the orders of its queue."""
        self.passing = 0
        """Lanes of the queue that pass this gate, wherever they stand."""
        self.waiting = 0
        """Jobs in them."""
        self.hidden = False
        self.told = False
        """Whether it was told that jobs wait here because of the gate."""
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
        if self._lanes is None:
            return ()
        return self._lanes if isinstance(self._lanes, dict) else (self._lanes,)

    def enter(self, lane: Lane) -> None:
        lane.group = self
        if self._lanes is None:
            self._lanes = lane
        elif isinstance(self._lanes, dict):
            self._lanes[lane] = None
        else:
            self._lanes = {self._lanes: None, lane: None}
        if self._heads is not None:
            self.notice(lane)
        elif isinstance(self._lanes, dict):
            wanted = ORDERS if self.queue.fair else (PLAIN, AGE)
            self._heads = [self._ordered(order) if order in wanted else None for order in ORDERS]

    def leave(self, lane: Lane) -> None:
        if isinstance(self._lanes, dict):
            self._lanes.pop(lane, None)
        else:
            self._lanes = None
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

    def pass_over(self, lane: Lane, order: int) -> None:
        """Let the lane that comes first in this order be none of those in it, until it is brought back."""
        heads = None if self._heads is None else self._heads[order]
        assert heads is not None
        heads.drop(lane)

    def bring_back(self, lane: Lane, order: int) -> None:
        heads = None if self._heads is None else self._heads[order]
        assert heads is not None
        heads.put(lane)


class Groups:
    """All groups of one queue."""

    __slots__ = ("_aside", "_everybody", "_openings", "_seen", "by_key", "own", "queue")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self._aside: list[tuple[int, Lane]] = []
        """Lanes that have to be acted upon and were passed over, each with the order that it is missing from."""
        self.own = Group(queue, None)
        self.by_key: dict[Key, Group] = {}
        self._seen: list[Heads[Group] | None] | None = None
        """The groups that are not hidden, in each order; None while there is only the own one."""
        self._everybody: Heads[Group] | None = None
        """All groups, by age."""
        self._openings: list[tuple[int, int, Group]] = []
        """When hidden groups will be shown, as far as that is known."""

    def of(self, key: Key) -> Group:
        """The group behind this gate."""
        group = self.by_key.get(key)
        if group is None:
            group = self.by_key[key] = Group(self.queue, key)
            key.posts.append(group)
            if self._seen is None:
                wanted = ORDERS if self.queue.fair else (PLAIN, AGE)
                self._seen = [
                    self._ordered(order, (self.own,)) if order in wanted else None
                    for order in ORDERS
                ]
                self._everybody = Heads(self._place_of(AGE), "all_entry", (self.own,))
        return group

    def forget(self, key: Key) -> None:
        """No lane passes this gate any more."""
        group = self.by_key.pop(key, None)
        if group is not None:
            key.posts.remove(group)
            self._drop(group)
            if self._everybody is not None:
                self._everybody.drop(group)

    def notice(self, lane: Lane) -> None:
        """The lane may come earlier than before."""
        group = lane.group
        group.notice(lane)
        if self._seen is not None:
            assert self._everybody is not None
            self._everybody.put(group)
            if not group.hidden:
                self._put(group)

    def move(self, lane: Lane, group: Group) -> None:
        """Let a lane stand in another group."""
        lane.group.leave(lane)
        group.enter(lane)
        self.notice(lane)

    def show(self, group: Group) -> None:
        group.hidden = False
        self._put(group)

    def hide(self, group: Group) -> None:
        group.hidden = True
        self._drop(group)
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

    def keep_hidden(self, group: Group) -> None:
        """Hide a group behind a closed gate now, or the next fetch would have to do it for all that came since."""
        key = group.key
        if key is not None and key.shut is not None and not group.hidden:
            self.hide(group)
            key.hide(group)

    def first(self, order: int, *, actors: bool = True) -> Lane | None:
        """The lane whose head may start, or has to be acted upon, before all others of the queue.

        On the way it hides what is closed.
        Without `actors`, what has to be acted upon is passed over, once for all looks until `bring_back`.
        """
        if actors and self._aside:
            return self._aside[0][1]
        while True:
            group = self._first(order)
            if group is None:
                return None
            key = group.key
            if key is not None and key.shut is not None:
                self.hide(group)
                key.hide(group)
                continue
            lane = group.first(order)
            assert lane is not None
            blocker = blocker_of(lane)
            if blocker is None:
                return lane
            if not actionable(lane):
                self.move(lane, self.of(blocker))
            elif actors:
                return lane
            else:
                # It stands in the own group, and only there.
                group.pass_over(lane, order)
                self._aside.append((order, lane))

    def bring_back(self) -> None:
        """A look without those who have to be acted upon is over."""
        if self._aside:
            for order, lane in self._aside:
                if lane.group is self.own:
                    self.own.bring_back(lane, order)
            self._aside.clear()
            self._put(self.own)

    def next_us(self) -> int:
        """The earliest instant at which a hidden group is known to be shown; NEVER when none is."""
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

    def _first(self, order: int) -> Group | None:
        if self._seen is None:
            own = self.own
            return own if own.first(order) is not None else None
        seen = self._seen[order]
        if seen is None:
            shown = [self.own, *(group for group in self.by_key.values() if not group.hidden)]
            seen = self._seen[order] = self._ordered(order, shown)
        return seen.first()

    def _ordered(self, order: int, groups: Iterable[Group]) -> Heads[Group]:
        return Heads(self._place_of(order), ENTRIES[order], groups)

    def _place_of(self, order: int) -> Callable[[Group], Place | None]:
        place = self.queue.place_of(order)

        def of_group(group: Group) -> Place | None:
            lane = group.first(order)
            return None if lane is None else place(lane)

        return of_group

    def _put(self, group: Group) -> None:
        if self._seen is not None:
            for seen in self._seen:
                if seen is not None:
                    seen.put(group)

    def _drop(self, group: Group) -> None:
        if self._seen is not None:
            for seen in self._seen:
                if seen is not None:
                    seen.drop(group)


def blocker_of(lane: Lane) -> Key | None:
    """The first gate that is closed; None when its head may start as far as these go."""
    for key, _ in lane.gates:
        if key.shut is not None:
            return key
    return None


def actionable(lane: Lane) -> bool:
    """Whether a key is closed at which its jobs do not want to wait."""
    return any(key.shut is not None and on_limit != "wait" for key, on_limit in lane.gates)


def home_of(lane: Lane) -> Key | None:
    """The gate behind which a lane stands best: one that is closed, else the one with most lanes.

    A lane that does not want to wait at one of its keys stands in front of them all while that key is closed.
    """
    if actionable(lane):
        return None
    waits = [key for key, on_limit in lane.gates if on_limit == "wait"]
    if not waits:
        return None
    for key in waits:
        if key.shut is not None:
            return key
    if len(waits) < len(lane.gates):
        return None
    return max(waits, key=lambda key: key.lanes)


def turn_of(shares: Shares) -> Callable[[Lane], Place | None]:
    """The place of a lane among others when tenants take turns."""

    def fair(lane: Lane) -> Place | None:
        head = lane.head()
        if head is None:
            return None
        start, last = shares.place(head.priority, lane.tenant or DEFAULT_TENANT)
        return -head.priority, start, last, head.seq

    return fair
