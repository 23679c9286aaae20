from __future__ import annotations

from headgate.core.job import Job
from headgate.core.states import CANCELLED, SCHEDULED
from headgate.engines.local.dues import FEW, Dues
from tests.contract.home import draft


def job(number: int, due_at: int) -> Job:
    return draft(number, state=SCHEDULED, due_at=due_at).job


def test_who_left_is_not_waited_for() -> None:
    dues, jobs = Dues(), dict[str, Job]()
    for number, due_at in enumerate((30, 10, 20)):
        one = jobs[f"j{number}"] = job(number, due_at)
        dues.add(one, jobs, number)
    assert dues.first("q", jobs) == 10
    jobs["j1"].state = CANCELLED
    assert dues.first("q", jobs) == 20
    jobs["j2"].due_at = 40
    dues.add(jobs["j2"], jobs, 2)
    assert dues.first("q", jobs) == 30
    jobs["j0"].queue = "other"
    assert dues.first("q", jobs) == 40
    del jobs["j2"]
    assert dues.first("q", jobs) == 0


def test_those_who_left_are_let_go_of_though_nobody_asks() -> None:
    dues, jobs = Dues(), dict[str, Job]()
    for number in range(50 * FEW):
        one = job(number, 1_000_000 + number)
        jobs[one.id] = one
        dues.add(one, jobs, 1)
        del jobs[one.id]
    assert len(dues._heap) <= FEW + 3
