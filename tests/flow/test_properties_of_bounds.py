"""What holds of bounded queues whatever is pushed into them: duplicates, replacements and batches across queues, under every strategy."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any, NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.core.gates import LimitsChange
from headgate.core.job import Job
from headgate.core.limits import Use
from headgate.core.states import TERMINAL
from headgate.core.unique import LIVE, Conflict, UniquePolicy
from headgate.engines.contract import Draft, Duplicate, Full, Pushed, QueueView
from headgate.engines.local.engine import LocalEngine
from tests.contract.home import NOW, Home, fetch

WAITING = ("available", "scheduled", "retryable", "pending")
QUEUES = ("a", "b")


class Asked(NamedTuple):
    queue: str
    fingerprint: str
    conflict: Conflict
    ended_too: bool
    later: bool
    size: int
    keyed: bool


asked = st.builds(
    Asked,
    queue=st.sampled_from(["a", "a", "a", "b"]),
    fingerprint=st.sampled_from(["", "u1", "", "u1", "u2"]),
    conflict=st.sampled_from(["ignore", "replace", "ignore", "replace_except_schedule", "reject"]),
    ended_too=st.sampled_from([False, False, True]),
    later=st.sampled_from([False, False, False, True]),
    size=st.sampled_from([10, 10, 10, 400]),
    keyed=st.booleans(),
)
pushes = st.lists(asked, min_size=1, max_size=4)
steps = st.lists(st.one_of(pushes, pushes, st.sampled_from(["take", "end"])), max_size=14)
bound = st.one_of(
    st.builds(lambda depth: {"backpressure": {"max_depth": depth}}, st.integers(1, 3)),
    st.builds(lambda size: {"max_size": size}, st.integers(1, 4)),
    st.builds(lambda size: {"max_size_bytes": size}, st.integers(600, 2_000)),
)
bounds: st.SearchStrategy[dict[str, Any]] = st.builds(
    lambda one, other, strategy: {**one, **other, "overflow_policy": strategy},
    bound,
    st.one_of(st.just({}), st.just({}), bound),
    st.sampled_from(["drop_oldest", "drop_oldest", "reject", "block"]),
)


def draft(number: int, wanted: Asked) -> Draft:
    fixed = b'"args":["%b"]' % (b"x" * wanted.size)
    job = Job(f"j{number}", "t", wanted.queue, 0, fixed, NOW)
    if wanted.later:
        job.state, job.due_at = "scheduled", NOW + 1_000_000
    uses = (Use("k"),) if wanted.keyed else ()
    job.keys = tuple((use.key, use.on_limit) for use in uses)
    policy = None
    if wanted.fingerprint:
        job.unique = wanted.fingerprint
        states = LIVE | {"discarded", "cancelled"} if wanted.ended_too else LIVE
        policy = UniquePolicy(states=states, on_conflict=wanted.conflict)
    return Draft(job, policy, uses=uses)


def within(view: QueueView) -> bool:
    limits = view.resolved.bounds
    waiting = sum(view.counts[state] for state in WAITING)
    sizes = [
        (waiting, limits.max_depth),
        (waiting + view.counts["active"], limits.max_size),
        (view.bytes, limits.max_size_bytes),
    ]
    return all(not bound or size <= bound for size, bound in sizes)


async def seen(engine: LocalEngine) -> dict[str, QueueView]:
    return {view.name: view for view in await engine.queues(NOW)}


PLAIN = Asked("a", "", "ignore", ended_too=False, later=False, size=10, keyed=False)
IGNORED = PLAIN._replace(fingerprint="u1")


@given(of_a=bounds, of_b=bounds, deeds=steps)
@example(
    {"backpressure": {"max_depth": 1}, "overflow_policy": "drop_oldest"},
    {},
    [[IGNORED], [IGNORED, PLAIN]],
)
@settings(max_examples=150)
def test_no_push_leaves_a_queue_above_its_bound_and_none_that_is_refused_changes_anything(
    of_a: dict[str, Any], of_b: dict[str, Any], deeds: list[Any]
) -> None:
    async def run() -> None:
        numbers = count()
        async with Home(":memory:").engine() as engine:
            for name, config in zip(QUEUES, (of_a, of_b), strict=True):
                await engine.configure(name, config, NOW)
            for deed in deeds:
                before = await seen(engine)
                if deed == "take":
                    await fetch(engine, 2, worker="a")
                elif deed == "end":
                    for job in list(engine.life.tables.jobs.values())[:1]:
                        await engine.cancel(job.id, "test", "", NOW)
                else:
                    drafts = [draft(next(numbers), wanted) for wanted in deed]
                    outcomes = await engine.push(drafts, NOW)
                    engine.check()
                    after = await seen(engine)
                    if any(
                        not o.ignore if isinstance(o, Duplicate) else not isinstance(o, Pushed)
                        for o in outcomes
                    ):
                        assert not any(isinstance(o, Pushed) for o in outcomes)
                        assert counted(after) == counted(before)
                    for outcome in outcomes:
                        if isinstance(outcome, Pushed):
                            view = after[outcome.job.queue]
                            assert within(view), (view.counts, view.bytes, view.resolved.bounds)
                        if isinstance(outcome, Full):
                            assert before[outcome.queue].resolved.bounds.bounded

    asyncio.run(run())


def counted(views: dict[str, QueueView]) -> dict[str, Any]:
    return {name: (view.counts, view.bytes) for name, view in views.items()}


@given(of_a=bounds, deeds=st.lists(pushes, min_size=1, max_size=8))
@settings(max_examples=100)
def test_a_key_keeps_its_limits_as_long_as_some_job_names_it(
    of_a: dict[str, Any], deeds: list[list[Asked]]
) -> None:
    """Whatever comes and goes within one step."""

    async def run() -> None:
        numbers = count()
        async with Home(":memory:").engine() as engine:
            await engine.configure("a", of_a, NOW)
            first = draft(next(numbers), Asked("a", "u1", "reject", False, False, 10, True))
            change = LimitsChange(concurrency=3)
            first = Draft(first.job, first.unique, uses=(Use("k", change=change),))
            if not isinstance((await engine.push([first], NOW))[0], Pushed):
                return
            for wanted in deeds:
                await engine.push([draft(next(numbers), one) for one in wanted], NOW)
                engine.check()
                jobs = engine.life.tables.jobs.values()
                if not any(job.keys and job.state not in TERMINAL for job in jobs):
                    return
                known = await engine.key("k", NOW)
                assert known is not None
                assert known.state.limits.concurrency == 3

    asyncio.run(run())
