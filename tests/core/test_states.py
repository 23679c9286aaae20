from __future__ import annotations

import itertools

import pytest

from headgate.core import states
from headgate.core.states import (
    ACTIVE,
    AVAILABLE,
    CANCELLED,
    COMPLETED,
    DISCARDED,
    NEW,
    PENDING,
    RETRYABLE,
    SCHEDULED,
    STATES,
    TERMINAL,
    TRANSITIONS,
    allowed,
    mermaid,
)

TRIGGERS = {step.trigger for step in TRANSITIONS}


def test_there_are_eight_states() -> None:
    assert len(set(STATES)) == 8
    assert {COMPLETED, CANCELLED, DISCARDED} == TERMINAL
    assert set(STATES) > TERMINAL


def test_every_state_is_reachable() -> None:
    reached = {NEW}
    while True:
        further = {step.target for step in TRANSITIONS if step.source in reached} - reached
        if not further:
            break
        reached |= further
    assert reached - {NEW} == set(STATES)


def test_every_state_can_end() -> None:
    for state in set(STATES) - TERMINAL:
        assert any(step.target in TERMINAL for step in TRANSITIONS if step.source == state)


def test_terminal_states_are_left_only_by_a_manual_retry() -> None:
    left = [step for step in TRANSITIONS if step.source in TERMINAL]
    assert [(step.source, step.trigger, step.target) for step in left] == [
        (DISCARDED, states.RETRY, AVAILABLE)
    ]


def test_only_a_fetch_makes_a_job_active() -> None:
    into = {(step.source, step.trigger) for step in TRANSITIONS if step.target == ACTIVE}
    assert into == {(AVAILABLE, states.FETCH)}


def test_only_an_ack_completes() -> None:
    into = {(step.source, step.trigger) for step in TRANSITIONS if step.target == COMPLETED}
    assert into == {(ACTIVE, states.ACK)}


def test_every_step_is_listed_once_and_says_what_it_does() -> None:
    steps = [(step.source, step.trigger, step.target) for step in TRANSITIONS]
    assert len(set(steps)) == len(steps)
    assert all(step.effects for step in TRANSITIONS)
    assert {step.source for step in TRANSITIONS} <= {NEW, *STATES}
    assert {step.target for step in TRANSITIONS} <= set(STATES)


@pytest.mark.parametrize(
    ("state", "trigger", "targets"),
    [
        (NEW, states.PUSH, {AVAILABLE, SCHEDULED, PENDING}),
        (SCHEDULED, states.DUE, {AVAILABLE}),
        (PENDING, states.DUE, set()),
        (PENDING, states.ACTIVATE, {AVAILABLE}),
        (AVAILABLE, states.ACTIVATE, set()),
        (AVAILABLE, states.FETCH, {ACTIVE}),
        (AVAILABLE, states.ACK, set()),
        (ACTIVE, states.FAIL, {RETRYABLE, DISCARDED}),
        (ACTIVE, states.REQUEUE, {AVAILABLE, RETRYABLE}),
        (ACTIVE, states.VISIBILITY_EXPIRY, {AVAILABLE, DISCARDED}),
        (ACTIVE, states.TIMEOUT, {RETRYABLE, DISCARDED}),
        (ACTIVE, states.WORKER_DEATH, {AVAILABLE, DISCARDED}),
        (ACTIVE, states.EXPIRE, set()),
        (ACTIVE, states.QUEUE_DELETED, set()),
        (ACTIVE, states.DEAD_LETTER, {AVAILABLE}),
        (RETRYABLE, states.EXPIRE, set()),
        (RETRYABLE, states.TOTAL_TIMEOUT, {DISCARDED}),
        (AVAILABLE, states.OVERFLOW, {DISCARDED}),
        (SCHEDULED, states.OVERFLOW, set()),
        (AVAILABLE, states.DROP, {DISCARDED}),
        (AVAILABLE, states.RESCHEDULE, {SCHEDULED}),
        (CANCELLED, states.RETRY, set()),
        ("no such state", states.FETCH, set()),
    ],
)
def test_examples(state: str, trigger: str, targets: set[str]) -> None:
    assert set(allowed(state, trigger)) == targets


def test_allowed_is_exactly_the_table() -> None:
    listed = {
        (state, trigger, target)
        for state, trigger in itertools.product((NEW, *STATES), TRIGGERS)
        for target in allowed(state, trigger)
    }
    assert listed == {(step.source, step.trigger, step.target) for step in TRANSITIONS}


def test_the_diagram_draws_every_step() -> None:
    head, *lines = mermaid().splitlines()
    assert head == "stateDiagram-v2"
    drawn = set()
    for line in lines:
        source, _, rest = line.strip().partition(" --> ")
        target, _, triggers = rest.partition(": ")
        if target == "[*]":
            assert source in TERMINAL
            continue
        drawn |= {(source, trigger, target) for trigger in triggers.split(", ")}
    assert drawn == {(step.source or "[*]", step.trigger, step.target) for step in TRANSITIONS}
    assert len(lines) == len(set(lines))
