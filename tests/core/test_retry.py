from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.errors import PolicyInvalid
from headgate.core.retry import (
    DEFAULT,
    Discard,
    Failure,
    Requeue,
    RetryAt,
    RetryPolicy,
    Strategy,
    decide,
    delay_ms,
    error_type,
    policy_from,
    policy_json,
)

NOW = 1_000_000
STRATEGIES: list[Strategy] = ["exponential", "linear", "constant", "polynomial"]

uniforms = st.floats(0, 1, exclude_max=True)


@st.composite
def policies(draw: st.DrawFn) -> RetryPolicy:
    initial_ms = draw(st.integers(1, 10**9))
    return RetryPolicy(
        max_attempts=draw(st.integers(0, 50)),
        initial_ms=initial_ms,
        coefficient=draw(st.floats(1, 1e300)),
        max_ms=draw(st.integers(initial_ms, 10**12)),
        jitter=draw(st.booleans()),
        strategy=draw(st.sampled_from(STRATEGIES)),
        non_retryable=tuple(draw(st.lists(st.text(min_size=1, max_size=5), max_size=3))),
        on_exhaustion=draw(st.sampled_from(["discard", "dead_letter"])),
    )


def fail(**members: Any) -> Failure:
    return Failure(**{"code": "handler_error", "message": "boom", **members})


def decided(
    failure: Failure, attempt: int = 1, policy: RetryPolicy = DEFAULT, **more: Any
) -> RetryAt | Discard | Requeue:
    more = {"give_up_at": None, "timeout_ms": 0, **more}
    return decide(policy, failure, attempt, NOW, 0.5, **more)


def test_the_defaults() -> None:
    assert policy_json(policy_from({})) == {
        "max_attempts": 3,
        "initial_interval": "PT1S",
        "backoff_coefficient": 2.0,
        "max_interval": "PT5M",
        "jitter": True,
        "backoff_strategy": "exponential",
        "non_retryable_errors": [],
        "on_exhaustion": "discard",
    }


def test_members_are_layered_one_by_one() -> None:
    queue = policy_from({"max_attempts": 5, "jitter": False, "non_retryable_errors": ["A"]})
    job = policy_from({"max_attempts": 7, "jitter": None, "surprise": [1]}, queue)
    assert job == RetryPolicy(max_attempts=7, jitter=False, non_retryable=("A",))
    assert policy_from({"non_retryable_errors": []}, queue).non_retryable == ()


@pytest.mark.parametrize(
    ("members", "field", "value"),
    [
        ({"initial_interval_ms": 250}, "initial_ms", 250),
        ({"initial_delay_ms": 250}, "initial_ms", 250),
        ({"initial_interval": "PT2S", "initial_delay_ms": 250}, "initial_ms", 2_000),
        ({"max_interval_ms": 60_000}, "max_ms", 60_000),
        ({"backoff_strategy": "linear"}, "strategy", "linear"),
        ({"backoff_type": "polynomial"}, "strategy", "polynomial"),
        ({"strategy": "none"}, "strategy", "constant"),
        ({"backoff_strategy": "linear", "strategy": "constant"}, "strategy", "linear"),
        ({"backoff_coefficient": 1}, "coefficient", 1.0),
        ({"backoff_coefficient": 9.5}, "strategy", "exponential"),
        ({"max_attempts": 0}, "max_attempts", 0),
        ({"on_exhaustion": "dead_letter"}, "on_exhaustion", "dead_letter"),
    ],
)
def test_spellings(members: dict[str, Any], field: str, value: object) -> None:
    assert getattr(policy_from(members), field) == value


def test_an_inherited_interval_gives_way_to_a_given_one() -> None:
    assert policy_from({"initial_interval": "PT1H"}).max_ms == 3_600_000
    assert policy_from({"max_interval": "PT0.5S"}).initial_ms == 500


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"max_attempts": -1}, "max_attempts"),
        ({"max_attempts": 2**31}, "max_attempts"),
        ({"max_attempts": 2.0}, "max_attempts"),
        ({"max_attempts": "3"}, "max_attempts"),
        ({"max_attempts": True}, "max_attempts"),
        ({"backoff_coefficient": 0.99}, "backoff_coefficient"),
        ({"backoff_coefficient": "2"}, "backoff_coefficient"),
        ({"backoff_coefficient": True}, "backoff_coefficient"),
        ({"backoff_coefficient": float("nan")}, "backoff_coefficient"),
        ({"backoff_coefficient": float("inf")}, "backoff_coefficient"),
        ({"backoff_coefficient": 10**400}, "backoff_coefficient"),
        ({"initial_interval": "1s"}, "initial_interval"),
        ({"initial_interval": "PT0S"}, "initial_interval"),
        ({"initial_interval": 1000}, "initial_interval"),
        ({"initial_interval_ms": 0}, "initial_interval_ms"),
        ({"initial_interval": "PT1S", "initial_delay_ms": -5}, "initial_delay_ms"),
        ({"max_interval": "-PT1S"}, "max_interval"),
        ({"max_interval_ms": "PT1S"}, "max_interval_ms"),
        ({"initial_interval": "PT10S", "max_interval": "PT5S"}, "max_interval"),
        ({"jitter": "yes"}, "jitter"),
        ({"jitter": 1}, "jitter"),
        ({"non_retryable_errors": "Fatal"}, "non_retryable_errors"),
        ({"non_retryable_errors": ["Fatal", 1]}, "non_retryable_errors"),
        ({"non_retryable_errors": [""]}, "non_retryable_errors"),
        ({"on_exhaustion": "bury"}, "on_exhaustion"),
        ({"on_exhaustion": ["discard"]}, "on_exhaustion"),
        ({"backoff_strategy": "fibonacci"}, "backoff_strategy"),
        ({"strategy": ["linear"]}, "strategy"),
    ],
)
def test_refusals_name_the_member(members: dict[str, Any], field: str) -> None:
    with pytest.raises(PolicyInvalid) as caught:
        policy_from(members)
    assert caught.value.status == 422
    assert caught.value.details["field"] == f"retry.{field}"
    assert f"retry.{field}" in caught.value.message
    assert caught.value.details["expected"]
    with pytest.raises(PolicyInvalid, match=rf"default_retry\.{field}"):
        policy_from(members, path="default_retry")


def test_a_policy_is_an_object() -> None:
    with pytest.raises(PolicyInvalid, match="retry must be an object"):
        policy_from([])  # type: ignore[arg-type]


@given(policies())
def test_the_wire_form_reads_back(policy: RetryPolicy) -> None:
    assert policy_from(policy_json(policy)) == policy


@pytest.mark.parametrize(
    ("strategy", "coefficient", "delays"),
    [
        ("exponential", 2.0, [1_000, 2_000, 4_000, 8_000, 10_000, 10_000]),
        ("exponential", 1.0, [1_000, 1_000, 1_000]),
        ("linear", 2.0, [1_000, 2_000, 3_000]),
        ("constant", 2.0, [1_000, 1_000, 1_000]),
        ("polynomial", 2.0, [1_000, 4_000, 9_000, 10_000]),
        ("polynomial", 1.5, [1_000, 2_828, 5_196]),
    ],
)
def test_delays(strategy: Strategy, coefficient: float, delays: list[int]) -> None:
    policy = RetryPolicy(strategy=strategy, coefficient=coefficient, max_ms=10_000, jitter=False)
    assert [delay_ms(policy, n, 0.9) for n in range(1, len(delays) + 1)] == delays


@pytest.mark.parametrize(("uniform", "delay"), [(0.0, 500), (0.5, 1_000), (0.999, 1_499)])
def test_jitter_spreads_around_the_delay(uniform: float, delay: int) -> None:
    assert delay_ms(DEFAULT, 1, uniform) == delay


def test_jitter_does_not_pass_the_cap() -> None:
    assert delay_ms(RetryPolicy(initial_ms=1_000, max_ms=1_200), 1, 0.9) == 1_200


@given(policies(), st.integers(1, 10**9), uniforms)
def test_a_delay_is_never_above_the_cap_nor_below_half(
    policy: RetryPolicy, n: int, uniform: float
) -> None:
    delay = delay_ms(policy, n, uniform)
    assert policy.initial_ms // 2 <= delay <= policy.max_ms


@given(policies(), st.integers(1, 100), uniforms)
def test_delays_do_not_shrink_from_attempt_to_attempt(
    policy: RetryPolicy, n: int, uniform: float
) -> None:
    assert delay_ms(policy, n, uniform) <= delay_ms(policy, n + 1, uniform)


def test_a_first_failure_is_retried() -> None:
    assert decided(fail()) == RetryAt(NOW + 1_000, 1_000)
    assert decided(fail(), attempt=2) == RetryAt(NOW + 2_000, 2_000)


@pytest.mark.parametrize("max_attempts", [0, 1])
def test_no_and_one_attempt_mean_no_retry(max_attempts: int) -> None:
    policy = RetryPolicy(max_attempts=max_attempts)
    assert decided(fail(), policy=policy) == Discard("attempts_exhausted", dead_letter=False)


def test_the_last_attempt_exhausts() -> None:
    assert decided(fail(), attempt=3) == Discard("attempts_exhausted", dead_letter=False)
    keep = RetryPolicy(on_exhaustion="dead_letter")
    assert decided(fail(), attempt=3, policy=keep) == Discard(
        "attempts_exhausted", dead_letter=True
    )


@pytest.mark.parametrize("extra", [{}, {"retryable": False}, {"code": "DISCARD"}])
def test_a_requeue_comes_first(extra: dict[str, Any]) -> None:
    assert decided(fail(requeue=True, **extra), attempt=9) == Requeue()


@pytest.mark.parametrize(
    ("verdict", "outcome"),
    [
        ("DISCARD", Discard("discarded_by_handler", dead_letter=False)),
        ("FAIL", Discard("discarded_by_handler", dead_letter=False)),
        ("DEAD_LETTER", Discard("dead_lettered_by_handler", dead_letter=True)),
        ("RETRY", RetryAt(NOW + 1_000, 1_000)),
        ("discard", RetryAt(NOW + 1_000, 1_000)),
    ],
)
def test_handler_verdicts_as_code_or_directive(verdict: str, outcome: RetryAt | Discard) -> None:
    assert decided(fail(code=verdict)) == outcome
    assert decided(fail(details={"directive": verdict})) == outcome


def test_verdicts_beat_the_policy_and_a_directive_beats_a_code() -> None:
    keep = RetryPolicy(on_exhaustion="dead_letter", non_retryable=("DISCARD",))
    assert decided(fail(code="DISCARD"), policy=keep) == Discard(
        "discarded_by_handler", dead_letter=False
    )
    assert decided(fail(code="DISCARD", details={"directive": "DEAD_LETTER"})) == Discard(
        "dead_lettered_by_handler", dead_letter=True
    )


def test_a_retry_verdict_still_has_to_pass_the_policy() -> None:
    assert decided(fail(code="RETRY"), attempt=3) == Discard(
        "attempts_exhausted", dead_letter=False
    )
    assert decided(fail(code="RETRY", retryable=False)) == Discard(
        "non_retryable", dead_letter=False
    )


@pytest.mark.parametrize(
    "failure",
    [
        fail(retryable=False),
        fail(type="Fatal"),
        fail(code="Fatal"),
        fail(details={"error_class": "Fatal"}),
        fail(type="payment.declined"),
        fail(type="payment.card.declined"),
        fail(type="Fatal", retryable=True),
        fail(type="Other", details={"error_class": "Fatal"}),
    ],
)
def test_pointless_retries_are_not_made(failure: Failure) -> None:
    policy = RetryPolicy(non_retryable=("Fatal", "payment.*"), on_exhaustion="dead_letter")
    assert decided(failure, policy=policy) == Discard("non_retryable", dead_letter=True)


@pytest.mark.parametrize(
    "failure",
    [
        fail(type="Fatality"),
        fail(type="fatal"),
        fail(type="payment"),
        fail(type="payments.declined"),
        fail(message="Fatal"),
        fail(details={"error_class": ["Fatal"]}),
        fail(retryable=True),
    ],
)
def test_other_errors_are_retried(failure: Failure) -> None:
    policy = RetryPolicy(non_retryable=("Fatal", "payment.*"))
    assert isinstance(decided(failure, policy=policy), RetryAt)


def test_the_total_timeout_must_leave_room_for_a_whole_attempt() -> None:
    end = NOW + 1_000 + 5_000
    assert decided(fail(), give_up_at=end, timeout_ms=5_000) == RetryAt(NOW + 1_000, 1_000)
    assert decided(fail(), give_up_at=end - 1, timeout_ms=5_000) == Discard(
        "total_timeout", dead_letter=False
    )


@pytest.mark.parametrize(
    ("failure", "attempt", "give_up_at", "exhausted"),
    [
        (fail(), 3, None, True),
        (fail(retryable=False), 1, None, True),
        (fail(code="DEAD_LETTER"), 1, None, True),
        (fail(code="DISCARD"), 1, None, False),
        (fail(), 1, NOW, False),
    ],
)
def test_what_a_dead_letter_queue_takes(
    failure: Failure, attempt: int, give_up_at: int | None, exhausted: bool
) -> None:
    outcome = decided(failure, attempt, give_up_at=give_up_at)
    assert isinstance(outcome, Discard)
    assert outcome.exhausted is exhausted


@pytest.mark.parametrize(
    ("failure", "stored"),
    [
        (fail(type="T", details={"error_class": "C"}), "T"),
        (fail(details={"error_class": "C"}), "C"),
        (fail(details={"error_class": 7}), "handler_error"),
        (fail(), "handler_error"),
    ],
)
def test_the_stored_type(failure: Failure, stored: str) -> None:
    assert error_type(failure) == stored


def test_a_requeue_may_wait() -> None:
    assert decided(fail(requeue=True, retry_after_ms=500), attempt=9) == Requeue(
        RetryAt(NOW + 500, 500)
    )
    assert decided(fail(requeue=True, retry_after_ms=0), attempt=9) == Requeue()


def test_a_worker_may_choose_the_delay() -> None:
    assert decided(fail(retry_after_ms=7), attempt=1) == RetryAt(NOW + 7, 7)
    assert decided(fail(retry_after_ms=0), attempt=1) == RetryAt(NOW, 0)
    assert isinstance(decided(fail(retry_after_ms=7), attempt=99), Discard)
