"""The model itself, by example: rules of flow control that are easier to check by eye than by a story."""

from __future__ import annotations

from headgate.core.pools import Pool
from headgate.core.retry import Failure
from headgate.engines.contract import Ack, Fail, Fetch, Replay
from tests.agreement.wishes import FAILURES, Key, Wish
from tests.model import Model

NOW = 1_000_000


def push(model: Model, *wishes: Wish, now: int = NOW) -> list[str]:
    return [said.kind for said in model.push([wish.draft(now) for wish in wishes], now)]


def fetch(model: Model, count: int = 9, now: int = NOW, **asked: str) -> list[str]:
    return [job.id for job in model.fetch(Fetch(["a", "b"], count, "w", **asked), now)]  # type: ignore[arg-type]


def ack(model: Model, job: str, now: int = NOW) -> None:
    (said,) = model.ack([Ack(job, "w")], now)
    assert said.kind == "Done"


def key_jobs(model: Model, key: str = "k") -> tuple[list[str], list[str]]:
    allowed, limited = model.key_jobs(key)
    return [job.id for job in allowed], [job.id for job in limited]


def told(model: Model, kind: str) -> int:
    return sum(event.kind == kind for event in model.state.events)


def test_three_jobs_share_a_key_that_allows_two() -> None:
    """The example in the description of another limiter, event by event."""
    model = Model()
    two = Key("k", "two")
    push(model, Wish("job_a", keys=(two,)))
    assert key_jobs(model) == (["job_a"], [])
    push(model, Wish("job_b", keys=(two,)))
    assert key_jobs(model) == (["job_a", "job_b"], [])
    push(model, Wish("job_c", keys=(two,)))
    assert key_jobs(model) == (["job_a", "job_b"], ["job_c"])
    assert fetch(model) == ["job_a", "job_b"]
    assert told(model, "rate_limit.exceeded") == 1
    ack(model, "job_a")
    assert key_jobs(model) == (["job_b", "job_c"], [])
    assert told(model, "rate_limit.released") == 1


def test_the_latest_registration_governs_all_jobs_of_the_key() -> None:
    model = Model()
    push(model, *(Wish(f"j{n}", keys=(Key("k", "two"),)) for n in range(3)))
    push(model, Wish("j3", keys=(Key("k", "one"),)))
    assert fetch(model) == ["j0"]


def test_the_limits_of_a_key_outlive_its_last_job_when_another_takes_its_place() -> None:
    model = Model()
    push(model, Wish("j0", keys=(Key("k", "one"),), unique="u", conflict="replace"))
    for n in range(1, 4):
        assert push(model, Wish(f"j{n}", keys=(Key("k"),), unique="u", conflict="replace")) == [
            "Pushed"
        ]
        assert model.state.gates["k"].limits.concurrency == 1
    push(model, Wish("j4", unique="u", conflict="replace"))
    assert not model.state.gates


def test_a_refused_job_registers_nothing() -> None:
    model = Model()
    push(model, Wish("j0", keys=(Key("k", "two"),)))
    assert push(model, Wish("j0", keys=(Key("k", "nobody"),))) == ["IdTaken"]
    assert fetch(model) == ["j0"]


def test_a_key_is_forgotten_with_its_last_job_and_its_window() -> None:
    model = Model()
    push(model, Wish("j0", keys=(Key("k", "1/s"),)))
    fetch(model)
    ack(model, "j0")
    model.catch_up(NOW + 999)
    assert "k" in model.state.gates
    model.catch_up(NOW + 1_000)
    assert "k" not in model.state.gates


def test_what_happens_at_a_closed_key_is_each_jobs_own() -> None:
    model = Model()
    push(
        model,
        Wish("runs", keys=(Key("k", "1/s"),)),
        Wish("drops", keys=(Key("k", on_limit="drop"),)),
        Wish("later", keys=(Key("k", on_limit="reschedule"),)),
        Wish("last", keys=(Key("k", on_limit="reschedule"),)),
        Wish("waits", keys=(Key("k"),)),
    )
    assert fetch(model) == ["runs"]
    states = {job.id: (job.state, job.due_at) for job in model.state.jobs}
    assert states["drops"][0] == "discarded"
    # One permit more for each job that was put off before.
    assert states["later"] == ("scheduled", NOW + 1_000)
    assert states["last"] == ("scheduled", NOW + 2_000)
    assert states["waits"][0] == "available"
    # Whoever was put off kept its place.
    assert fetch(model, now=NOW + 1_000) == ["later"]


def test_a_place_in_line_keeps_what_becomes_free() -> None:
    model = Model()
    model.configure("a", {"backpressure": {"max_depth": 2, "strategy": "block"}}, NOW)
    assert push(model, Wish("j0"), Wish("j1")) == ["Pushed", "Pushed"]
    large = [Wish("j2").draft(NOW), Wish("j3").draft(NOW)]
    assert [said.kind for said in model.push(large, NOW)] == ["Full", "Held"]
    place = model.park(large)
    assert place is not None
    fetch(model, 1)
    assert not model.may_enter(place)
    assert push(model, Wish("small")) == ["Full"]
    fetch(model, 1)
    assert model.may_enter(place)
    assert push(model, Wish("small")) == ["Full"]
    assert [said.kind for said in model.push(large, NOW, place=place)] == ["Pushed", "Pushed"]


def test_a_dead_letter_waits_at_its_keys_and_returns_to_its_queue() -> None:
    model = Model()
    model.configure("a", {"dead_letter_queue": "b"}, NOW)
    push(model, Wish("j0", keys=(Key("k", "1/s", on_limit="drop"),), retry="once"))
    fetch(model)
    model.fail([Fail("j0", FAILURES["plain"], "w")], NOW)
    assert fetch(model) == []
    (job,) = model.state.jobs
    assert (job.state, job.queue, job.dead, job.attempt) == ("available", "b", True, 0)
    model.retry("j0", Replay(), NOW)
    assert (job.queue, job.dead) == ("a", False)
    assert fetch(model) == []
    assert job.state == "discarded"


def test_an_isolated_pool_keeps_its_queues_for_itself() -> None:
    model = Model()
    push(model, Wish("j0"), Wish("j1", queue="b"))
    model.set_pool(Pool("mine", ("a",), (1,), isolated=True), NOW)
    assert fetch(model) == ["j1"]
    assert fetch(model, pool="mine") == ["j0"]


def test_a_queue_that_is_deleted_takes_along_what_comes_back() -> None:
    model = Model()
    push(model, Wish("j0"), Wish("j1"), Wish("elsewhere", queue="b"))
    fetch(model, 1)
    said = model.remove_queue("a", "move", "b", NOW)
    assert said is not None
    assert said.rest == ("draining", 1)
    model.fail([Fail("j0", Failure("later", "", requeue=True), "w")], NOW)
    assert "a" not in model.state.queues
    # Both kept their sequence, so they are older than the one that was there.
    assert fetch(model) == ["j0", "j1", "elsewhere"]
