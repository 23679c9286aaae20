from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.order import (
    Guarantee,
    LeastLoaded,
    RoundRobin,
    Strict,
    Turn,
    Weighted,
    each_of,
    turn_of,
)

DISPATCHES = 4_000 if os.environ.get("HEADGATE_TEST_PROFILE") == "thorough" else 400


def run(turn: Turn, count: int) -> list[int]:
    """Dispatches while every queue in line has enough."""
    found = []
    for _ in range(count):
        i = turn.choose()
        assert i is not None
        turn.served(i)
        found.append(i)
    return found


def filled(turn: Turn, size: int) -> Turn:
    for i in range(size):
        turn.add(1 << i)
    return turn


def turns(size: int) -> list[Callable[[], Turn]]:
    return [
        Strict,
        lambda: RoundRobin(size),
        lambda: Weighted(range(1, size + 1)),
        lambda: LeastLoaded(lambda i: i + 1),
    ]


@pytest.mark.parametrize("make", turns(3))
def test_only_queues_that_may_have_something_get_a_turn(make: Callable[[], Turn]) -> None:
    turn = make()
    assert turn.choose() is None
    turn.add(2)
    turn.add(2)
    assert run(turn, 3) == [1, 1, 1]
    turn.drop(2)
    turn.drop(2)
    assert turn.choose() is None
    turn.add(4)
    assert turn.choose() == turn.choose() == 2


@pytest.mark.parametrize("make", turns(4))
def test_who_is_skipped_keeps_its_place(make: Callable[[], Turn]) -> None:
    turn, plain = filled(make(), 4), filled(make(), 4)
    first = plain.choose()
    assert first is not None
    other = turn.choose(1 << first)
    assert other is not None
    assert other != first
    assert turn.choose(0b1111) is None
    assert run(turn, 20) == run(plain, 20)


def test_strict_keeps_the_order_given() -> None:
    turn = filled(Strict(), 3)
    assert run(turn, 2) == [0, 0]
    turn.drop(1)
    assert run(turn, 2) == [1, 1]
    turn.add(1)
    assert run(turn, 1) == [0]


def test_round_robin_goes_round_and_skips_who_has_nothing() -> None:
    turn = filled(RoundRobin(3), 3)
    assert run(turn, 7) == [0, 1, 2, 0, 1, 2, 0]
    turn.drop(4)
    assert run(turn, 3) == [1, 0, 1]
    # The one that comes back has its turn in this cycle, once.
    turn.add(4)
    assert run(turn, 4) == [2, 0, 1, 2]


def test_round_robin_gives_nobody_two_turns_of_a_cycle() -> None:
    turn = filled(RoundRobin(3), 3)
    assert run(turn, 1) == [0]
    turn.drop(1)
    turn.add(1)
    assert run(turn, 3) == [1, 2, 0]


def test_weighted_spreads_the_turns_of_a_cycle() -> None:
    turn = filled(Weighted([3, 2, 1]), 3)
    assert run(turn, 6) == [0, 1, 2, 0, 1, 0]


weights = st.lists(st.integers(1, 12) | st.integers(1, 1_000), min_size=1, max_size=6)


@given(weights, st.integers(1, 3))
def test_weighted_is_exact_in_every_cycle(given_weights: list[int], cycles: int) -> None:
    turn = filled(Weighted(given_weights), len(given_weights))
    for _ in range(cycles):
        counts = Counter(run(turn, sum(given_weights)))
        assert [counts[i] for i in range(len(given_weights))] == given_weights


@given(weights)
def test_weighted_serves_everybody_within_bounds(given_weights: list[int]) -> None:
    turn = filled(Weighted(given_weights), len(given_weights))
    found = run(turn, 2 * sum(given_weights))
    for i, weight in enumerate(given_weights):
        places = [n for n, who in enumerate(found) if who == i]
        # One step of it is one of 1 / weight, in which each other moves by its weight in theirs.
        bound = sum(-(-other // weight) for other in given_weights)
        gaps = [b - a for a, b in pairwise(places)]
        assert max(gaps, default=0) <= bound


@given(weights.filter(lambda w: len(w) > 1), st.integers(1, 500))
def test_nothing_is_saved_while_a_queue_has_nothing(given_weights: list[int], pause: int) -> None:
    size = len(given_weights)
    turn = filled(Weighted(given_weights), size)
    turn.drop(1)
    run(turn, pause)
    turn.add(1)
    cycles = 2
    counts = Counter(run(turn, cycles * sum(given_weights)))
    # It joins somewhere in a step, so it may be one ahead of its share; without a memory no more.
    assert abs(counts[0] - cycles * given_weights[0]) <= 1 + size


@pytest.mark.parametrize("make", turns(4))
def test_who_was_served_out_of_turn_does_not_take_it_from_others(
    make: Callable[[], Turn],
) -> None:
    plain, forced = filled(make(), 4), filled(make(), 4)
    others = [i for i in run(plain, 40) if i != 2]
    forced.served(2)
    found = [i for i in run(forced, 40) if i != 2]
    assert found[: len(others)] == others[: len(found)]


def test_out_of_turn_is_paid_for() -> None:
    turn = filled(Weighted([1, 1]), 2)
    turn.served(1)
    turn.served(1)
    assert run(turn, 6) == [0, 0, 0, 1, 0, 1]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 9)), max_size=60))
def test_least_loaded_finds_the_largest_backlog(steps: list[tuple[int, int]]) -> None:
    backlog = [0, 0, 0, 0]
    turn = LeastLoaded(lambda i: backlog[i])
    for i, change in steps:
        backlog[i] = max(0, backlog[i] + change)
        if change > 0:
            turn.add(1 << i)
        while (chosen := turn.choose()) is not None and not backlog[chosen]:
            turn.drop(1 << chosen)
        if chosen is None:
            assert not any(backlog)
        else:
            assert chosen == backlog.index(max(backlog))
            backlog[chosen] -= 1
            turn.served(chosen)


@given(st.lists(st.sampled_from(["add", "drop", "serve"]), max_size=40), st.integers(0, 2**32))
def test_packed_turns_go_on_as_before(steps: list[str], seed: int) -> None:
    random = Random(seed)
    size = 4
    given_weights = [random.randrange(1, 9) for _ in range(size)]
    robin, weighted = RoundRobin(size), Weighted(given_weights)
    inside: set[int] = set()
    for what in steps:
        i = random.randrange(size)
        if what == "add":
            inside.add(i)
        elif what == "drop":
            inside.discard(i)
        turn: Turn
        for turn in (robin, weighted):
            if what == "add":
                turn.add(1 << i)
            elif what == "drop":
                turn.drop(1 << i)
            elif (chosen := turn.choose()) is not None:
                turn.served(chosen if random.random() < 0.8 or i not in inside else i)
    twin = filled(RoundRobin.unpack(size, robin.pack()), size)
    assert run(filled(robin, size), 60) == run(twin, 60)
    twin = filled(Weighted.unpack(given_weights, weighted.pack()), size)
    assert run(filled(weighted, size), 60) == run(twin, 60)


def test_awkward_weights_survive_packing() -> None:
    given_weights = [9_973, 9_967, 9_949, 9_941, 9_931, 9_929, 9_923]
    turn = Weighted(given_weights)
    filled(turn, 7)
    run(turn, 100)
    twin = filled(Weighted.unpack(given_weights, turn.pack()), 7)
    assert run(turn, 100) == run(twin, 100)


def test_coming_and_going_leaves_nothing_behind() -> None:
    backlog = [1, 1]
    loaded = LeastLoaded(backlog.__getitem__)
    robin, weighted = RoundRobin(3), Weighted([1, 2, 3])
    filled(robin, 3)
    filled(weighted, 3)
    for n in range(1_000):
        backlog[1] = n
        loaded.drop(2)
        loaded.add(3)
        # The first is passed over again and again, so all others pay ahead.
        robin.served(1 + n % 2)
        weighted.served(1 + n % 2)
    assert len(loaded._heap) < 100
    assert len(robin._payments) < 100
    assert len(weighted._later) < 100


class Slow:
    """Turns by looking at every queue, for who has a number for each and takes the smallest."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.there: set[int] = set()

    def number(self, i: int) -> int:
        raise NotImplementedError

    def pay(self, i: int, number: int, *, in_turn: bool) -> None:
        raise NotImplementedError

    def choose(self, skip: set[int]) -> int | None:
        return min(self.there - skip, key=lambda i: (self.number(i), i), default=None)

    def served(self, i: int) -> None:
        self.pay(i, self.number(i), in_turn=self.choose(set()) == i)


class SlowRobin(Slow):
    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.last = -1
        self.paid = list(range(size))

    def number(self, i: int) -> int:
        return next(
            n for n in range(self.last + 1, 10**6) if n % self.size == i and n >= self.paid[i]
        )

    def pay(self, i: int, number: int, *, in_turn: bool) -> None:
        if in_turn:
            self.last = number
        self.paid[i] = number + self.size


class SlowWeights(Slow):
    def __init__(self, given_weights: list[int]) -> None:
        super().__init__(len(given_weights))
        self.weights = given_weights
        self.now = Fraction(0)
        self.times = [Fraction(0)] * self.size

    def number(self, i: int) -> Fraction:  # type: ignore[override]
        return max(self.times[i], self.now)

    def pay(self, i: int, number: int, *, in_turn: bool) -> None:
        if in_turn:
            self.now = Fraction(number)
        self.times[i] = number + Fraction(1, self.weights[i])


queue_sets = st.integers(0, 2**6 - 1)
deeds = st.lists(
    st.tuples(st.sampled_from(["add", "drop", "serve", "serve", "skip", "force"]), queue_sets),
    max_size=60,
)


@given(deeds, st.lists(st.integers(1, 7), min_size=6, max_size=6))
def test_many_at_once_are_as_one_by_one(
    given_deeds: list[tuple[str, int]], given_weights: list[int]
) -> None:
    """Whoever comes, leaves, is skipped or served out of turn, the turn is that of the slow one."""
    pairs: list[tuple[Turn, Slow]] = [
        (RoundRobin(6), SlowRobin(6)),
        (Weighted(given_weights), SlowWeights(given_weights)),
    ]
    for what, queues in given_deeds:
        members = set(each_of(queues))
        for turn, slow in pairs:
            if what == "add":
                turn.add(queues)
                slow.there |= members
            elif what == "drop":
                turn.drop(queues)
                slow.there -= members
            else:
                skip = queues if what == "skip" else 0
                i = turn.choose(skip)
                assert i == slow.choose(set(each_of(skip)))
                if what == "force" and slow.there & members:
                    i = min(slow.there & members)
                if i is not None:
                    turn.served(i)
                    slow.served(i)


@given(deeds, st.sampled_from([0.0, 0.05, 1 / 6]), st.integers(1, 400))
def test_a_guarantee_keeps_its_word_when_many_come_and_go_at_once(
    given_deeds: list[tuple[str, int]], ratio: float, interval_ms: int
) -> None:
    together = Guarantee(RoundRobin(6), ratio, interval_ms, 6)
    alone = Guarantee(RoundRobin(6), ratio, interval_ms, 6)
    for now_ms, (what, queues) in enumerate(given_deeds):
        at = now_ms * 50
        if what == "add":
            together.add(queues, at)
            for i in each_of(queues):
                alone.add(1 << i, at)
        elif what == "drop":
            together.drop(queues)
            for i in each_of(queues):
                alone.drop(1 << i)
        else:
            skip = queues if what == "skip" else 0
            chosen = together.choose(at, skip)
            assert chosen == alone.choose(at, skip)
            assert together.starved(at) == alone.starved(at)
            if chosen is not None:
                assert together.waited_ms(chosen, at) == alone.waited_ms(chosen, at)
                together.served(chosen, at)
                alone.served(chosen, at)


def test_every_strategy_has_its_turn() -> None:
    found = [
        type(turn_of(strategy, 2, [1, 1], lambda i: i))
        for strategy in ("strict", "round-robin", "weighted", "least-loaded")
    ]
    assert found == [Strict, RoundRobin, Weighted, LeastLoaded]


# The guarantee against starvation


class At:
    """A guarantee at a time that stands still."""

    def __init__(self, turn: Guarantee) -> None:
        self.turn = turn

    def add(self, queues: int) -> None:
        self.turn.add(queues, 0)

    def drop(self, queues: int) -> None:
        self.turn.drop(queues)

    def choose(self, skip: int = 0) -> int | None:
        return self.turn.choose(0, skip)

    def served(self, i: int) -> None:
        self.turn.served(i, 0)


class World:
    """Queues that come and go under a guarantee, and a slow record of what it promised."""

    def __init__(self, turn: Turn, ratio: float, interval_ms: int, size: int) -> None:
        self.turn = Guarantee(turn, ratio, interval_ms, size)
        self.ratio = ratio
        self.span = int(1 / ratio + 1e-9)
        self.interval_ms = interval_ms
        self.now_ms = 0
        self.since: dict[int, int] = {}
        """Number of dispatches when the queue came in."""
        self.deadlines: dict[int, int] = {}
        self.waits: dict[int, int] = {}
        """When the queue came in or was served."""
        self.done: list[tuple[int, int]] = []
        """Who was served, and when."""

    def add(self, i: int) -> None:
        self.turn.add(1 << i, self.now_ms)
        self.deadlines.setdefault(i, len(self.done) + self.span)
        self.since.setdefault(i, len(self.done))
        self.waits.setdefault(i, self.now_ms)

    def drop(self, i: int) -> None:
        self.turn.drop(1 << i)
        self.deadlines.pop(i, None)
        self.since.pop(i, None)
        self.waits.pop(i, None)

    def dispatch(self) -> int | None:
        i = self.turn.choose(self.now_ms)
        starved = [q for q, at in self.waits.items() if self.now_ms - at >= self.interval_ms]
        assert set(self.turn.starved(self.now_ms)) == set(starved)
        if i is None:
            assert not self.since
            return None
        ahead = sorted(deadline - len(self.done) for deadline in self.deadlines.values())
        if starved or any(deadline <= k for k, deadline in enumerate(ahead, 1)):
            assert self.waits[i] == min(self.waits.values())
            assert self.deadlines[i] == min(self.deadlines.values())
        else:
            assert i == self.turn._turn.choose()
        self.turn.served(i, self.now_ms)
        self.done.append((i, self.now_ms))
        self.waits[i] = self.now_ms
        self.deadlines[i] = len(self.done) + self.span
        return i

    def check(self) -> None:
        """Every run of dispatches, and so every sliding window, has the share of who was there."""
        share = self.ratio
        for i, since in self.since.items():
            counts = [0]
            for who, _ in self.done[since:]:
                counts.append(counts[-1] + (who == i))
            for length in {1, 2, 3, 5, 10, 20, 50, 99, 100, 101, len(counts) - 1}:
                promised = int(share * length + 1e-9)
                for begin in range(len(counts) - length):
                    assert counts[begin + length] - counts[begin] >= promised


cases = st.sampled_from(
    [(1, 1.0), (2, 0.5), (3, 1 / 3), (3, 0.05), (4, 0.25), (4, 0.2), (5, 0.07), (20, 0.05)]
)


@given(cases, st.integers(0, 3), st.integers(0, 2**32))
def test_nobody_gets_less_than_the_ratio(case: tuple[int, float], which: int, seed: int) -> None:
    size, ratio = case
    random = Random(seed)
    world = World(turns(size)[which](), ratio, 10**9, size)
    for _ in range(DISPATCHES // 40):
        # For a while it is these that have something.
        there = {i for i in range(size) if random.random() < 0.4}
        for i in set(world.since) - there:
            world.drop(i)
        for i in random.sample(sorted(there), len(there)):
            world.add(i)
        for _ in range(random.randrange(40)):
            world.dispatch()
        world.check()
    for i in range(size):
        world.add(i)
    for _ in range(200):
        world.dispatch()
    world.check()


@given(cases, st.integers(0, 3), st.integers(1, 40), st.integers(0, 2**32))
def test_nobody_waits_longer_than_an_interval_and_one_turn(
    case: tuple[int, float], which: int, slowness: int, seed: int
) -> None:
    size, ratio = case
    random = Random(seed)
    # From thousands of dispatches in an interval to fewer than one.
    world = World(turns(size)[which](), ratio, 300, size)
    for _ in range(200):
        world.now_ms += random.randrange(slowness * 10)
        i = random.randrange(size)
        if random.random() < 0.3:
            world.drop(i)
        else:
            world.add(i)
        world.dispatch()
    world.check()


def test_three_dispatches_in_a_window_are_shared_too() -> None:
    world = World(Strict(), 0.05, 30_000, 3)
    for i in range(3):
        world.add(i)
    found = []
    for _ in range(9):
        found.append(world.dispatch())
        world.now_ms += 10_000
    # Nobody waits longer than it takes those who have waited as long to go first.
    assert found == [0, 0, 0, 1, 2, 0, 1, 2, 0]


def test_strict_order_is_kept_but_for_the_ratio() -> None:
    turn = Guarantee(Strict(), 0.1, 10**9, 3)
    for i in range(3):
        turn.add(1 << i, 0)
    found = run(At(turn), 100)
    assert Counter(found) == {0: 80, 1: 10, 2: 10}
    assert found[:8] == [0] * 8


def test_two_deadlines_that_fall_together_are_both_met() -> None:
    turn = Guarantee(Strict(), 0.25, 10**9, 4)
    for i in (0, 1, 2, 3):
        turn.add(1 << i, 0)
    found = run(At(turn), 12)
    for begin in range(9):
        assert set(found[begin : begin + 4]) == {0, 1, 2, 3}


def test_without_a_ratio_only_the_interval_counts() -> None:
    turn = Guarantee(Strict(), 0.0, 1_000, 2)
    turn.add(1, 0)
    turn.add(2, 0)
    for _ in range(1_000):
        assert turn.choose(999) == 0
        turn.served(0, 999)
    assert turn.starved(1_000) == [1]
    assert turn.choose(1_000) == 1


@given(st.permutations(range(5)), st.integers(0, 5))
def test_queues_that_come_in_together_stand_in_their_own_order(
    order: list[int], later: int
) -> None:
    """A gate that opens shows its queues in the order in which it hid them, which nobody knows."""
    turn = Guarantee(Strict(), 0.1, 1_000, 5)
    for place, i in enumerate(order):
        turn.add(1 << i, 0 if place < later else 1)
    expected = sorted(order[:later]) + sorted(order[later:])
    assert turn.starved(5_000) == expected
    found = []
    while (first := turn.choose(5_000)) is not None:
        turn.drop(1 << first)
        found.append(first)
    assert found == expected


def test_ratios_that_sum_up_to_more_than_all_are_refused() -> None:
    Guarantee(Strict(), 0.02, 1, 50)
    Guarantee(Strict(), 1 / 3, 1, 3)
    with pytest.raises(ValueError, match="51 queues"):
        Guarantee(Strict(), 0.02, 1, 51)
