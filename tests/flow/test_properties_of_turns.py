"""What holds of turns among queues and tenants, in thousands of dispatches under a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.order import Strategy, exact_ratio
from headgate.core.pools import Pool, Starvation
from headgate.core.tenants import Fairness
from tests.contract.home import story
from tests.flow.floor import Floor, floor

POOL = "p"


def pool(
    queues: Sequence[str],
    weights: Sequence[int] = (),
    *,
    strategy: Strategy = "weighted",
    starvation: Starvation | None = None,
) -> Pool:
    return Pool(
        POOL,
        tuple(queues),
        tuple(weights or [1] * len(queues)),
        strategy,
        starvation=starvation or Starvation(),
        fairness=Fairness(enabled=True),
    )


async def work(there: Floor, count: int, step_us: int = 0) -> list[str]:
    """The queues of so many dispatches, one by one and so far apart."""
    before = len(there.starts)
    for _ in range(count):
        there.now_us += step_us
        assert len(await there.take(pool=POOL)) == 1
    return [start.queue for start in there.starts[before:]]


@given(weights=st.lists(st.integers(1, 12), min_size=2, max_size=5))
@settings(max_examples=20)
def test_shares_are_exact_in_each_cycle_of_the_weights(weights: list[int]) -> None:
    async def run() -> None:
        queues = [f"q{i}" for i in range(len(weights))]
        cycles, size = 6, sum(weights)
        async with floor() as there:
            for queue in queues:
                await there.push(cycles * size, queue)
            await there.engine.set_pool(pool(queues, weights), there.now)
            for _ in range(cycles):
                served = Counter(await work(there, size))
                assert [served[queue] for queue in queues] == weights

    asyncio.run(run())


def starved_wrongly(
    dispatches: Sequence[tuple[int, str]], queues: Sequence[str], ratio: float, interval_ms: int
) -> str:
    """What is wrong with dispatches (in ms) during which every queue always had something; "" when nothing is."""
    last = dict.fromkeys(queues, dispatches[0][0])
    for at, queue in dispatches:
        # Whoever had nothing for an interval takes the next one, the longest waiting first.
        longest = max(at - since for since in last.values())
        if longest >= interval_ms and at - last[queue] < longest:
            return f"{queue} was served at {at}, though others waited for {longest} ms"
        last[queue] = at
    share = exact_ratio(ratio)
    for queue in queues:
        # Runs between two dispatches of the queue, which are left out, are as bad as any run can be.
        # With n dispatches in between, k of them its own, floor(share n) <= k says the same as
        # share n < k + 1; so no place in `behind` may be a whole `share` above an earlier one.
        own = [place for place, (_, served) in enumerate(dispatches) if served == queue]
        behind = [share * place - k for k, place in enumerate([-1, *own, len(dispatches)])]
        least = behind[0]
        for value in behind[1:]:
            if value - least >= share > 0:
                return f"{queue} got too few of a run"
            least = min(least, value)
    return ""


@pytest.mark.parametrize("strategy", ["strict", "weighted", "round-robin", "least-loaded"])
@pytest.mark.parametrize(
    ("interval_ms", "step_us", "count"),
    [(1_000, 333_400, 300), (1_000, 250, 9_000), (30_000, 9_000_000, 200)],
    ids=["3 in a window", "4000 in a window", "3 in the usual window"],
)
@pytest.mark.parametrize("ratio", [0.05, 0.25, 0.0])
@story
async def test_no_queue_starves_in_any_sliding_window(
    strategy: Strategy, interval_ms: int, step_us: int, count: int, ratio: float
) -> None:
    queues = ["q0", "q1", "q2", "q3"]
    async with floor() as there:
        for place, queue in enumerate(queues):
            await there.push(count - 10 * place, queue)
        starvation = Starvation(enabled=True, interval_ms=interval_ms, ratio=ratio)
        await there.engine.set_pool(
            pool(queues, [1_000, 1, 7, 1], strategy=strategy, starvation=starvation), there.now
        )
        # The least loaded would empty its queues before their time.
        dispatches: list[tuple[int, str]] = []
        for queue in await work(there, min(count, 4_500), step_us):
            dispatches.append((there.starts[len(dispatches)].at_us // 1000, queue))
        assert not starved_wrongly(dispatches, queues, ratio, interval_ms)
        assert set(queues) == {queue for _, queue in dispatches}


@st.composite
def comings(draw: st.DrawFn) -> list[tuple[int, str]]:
    """Dispatches and arrivals of a few jobs of one tenant or another."""
    return draw(
        st.lists(
            st.tuples(st.integers(0, 4), st.sampled_from(["", "t1", "t2", "t3"])),
            min_size=20,
            max_size=80,
        )
    )


@given(steps=comings(), in_pool=st.booleans())
@settings(max_examples=40)
def test_equal_tenants_differ_by_one_dispatch_at_most(
    steps: list[tuple[int, str]], in_pool: bool
) -> None:
    """In any run of dispatches during which two tenants always had something to fetch."""

    async def run() -> None:
        async with floor() as there:
            if in_pool:
                await there.engine.set_pool(pool(["q"]), there.now)
            else:
                await there.engine.configure("q", {"tenant_fairness": {"enabled": True}}, there.now)
            waiting: Counter[str] = Counter()
            # For each pair of tenants, how far one got ahead of the other in the present run.
            ahead: dict[tuple[str, str], tuple[int, int, int]] = {}
            for jobs, tenant in steps:
                if jobs:
                    await there.push(jobs, tenant=tenant)
                    waiting[tenant] += jobs
                    continue
                for job in await there.take(pool=POOL):
                    present = [who for who, left in waiting.items() if left]
                    pairs = {(a, b) for a in present for b in present if a < b}
                    ahead = {pair: ahead.get(pair, (0, 0, 0)) for pair in pairs}
                    waiting[job.tenant] -= 1
                    for pair, (before, least, most) in ahead.items():
                        if job.tenant in pair:
                            now = before + (1 if job.tenant == pair[0] else -1)
                            ahead[pair] = now, min(now, least), max(now, most)
                            # Between any two points of the run they differ by one at most.
                            assert max(now, most) - min(now, least) <= 1, (pair, there.starts)

    asyncio.run(run())


@pytest.mark.parametrize("heavy", [2, 3, 10])
@story
async def test_tenants_share_by_weight_in_each_cycle(heavy: int) -> None:
    async with floor() as there:
        config = {"tenant_fairness": {"enabled": True, "weights": {"t1": heavy}}}
        await there.engine.configure("q", config, there.now)
        cycles = 20
        for tenant in ("t1", "t2", "t3"):
            await there.push(cycles * (heavy + 2), tenant=tenant)
        for _ in range(cycles):
            before = len(there.starts)
            for _ in range(heavy + 2):
                await there.take()
            served = Counter(start.tenant for start in there.starts[before:])
            assert served == {"t1": heavy, "t2": 1, "t3": 1}
