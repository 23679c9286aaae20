from __future__ import annotations

import pytest

from headgate.cli.explain import remedy, sentences
from tests.cli.asked import Asked


def test_why_a_job_waits_is_told_in_sentences_with_commands(cli: Asked) -> None:
    limit = {"key": "stripe", "concurrency": 1}
    first = cli.server.enqueue(queue="billing", rate_limit=limit)["id"]
    second = cli.server.enqueue(queue="billing", rate_limit=limit)["id"]
    cli.server.ask("POST", "/ojs/v1/workers/fetch", {"queues": ["billing"], "worker_id": "w"})
    told = cli.run("explain", second).splitlines()
    assert told[0].startswith("The job is available in the queue billing since ")
    assert f"The key stripe lets 1 run at a time and 1 is held by {first}." in told
    stuck = f"if a holder is stuck, headgate job cancel {first} frees its place."
    assert told[-2:] == [
        f"headgate limit set stripe --concurrency … overrides the limit; {stuck}",
        "headgate worker APP --queues billing serves it.",
    ]
    assert "/ojs/v1" not in "\n".join(told), "no requests where commands do it"
    assert cli.run("job", "explain", second).splitlines()[1:] == told[1:]
    found = cli.json("explain", second)
    assert [barrier["kind"] for barrier in found["barriers"]] == ["concurrency", "no_consumers"]


def test_a_paused_queue_is_told(cli: Asked) -> None:
    job = cli.server.enqueue(queue="halted")["id"]
    cli.run("queue", "pause", "halted")
    told = cli.run("explain", job).splitlines()
    assert "The queue halted is paused: it gives out no jobs." in told
    assert "headgate queue resume halted lets it give out jobs again." in told


JOB = {"job_id": "j", "queue": "q", "summary": [], "barriers": []}


@pytest.mark.parametrize(
    ("barrier", "command"),
    [
        ({"kind": "hold", "scope": "key", "name": "k"}, "headgate limit clear k "),
        ({"kind": "hold", "scope": "key", "name": "k", "tenant": "t"}, "headgate limit clear k --tenant t "),
        ({"kind": "rate", "scope": "key", "name": "k", "limit": 5}, "headgate limit set k --rate "),
        ({"kind": "concurrency", "scope": "key", "name": "k", "limit": 0}, "headgate limit clear k "),
        ({"kind": "throttle", "scope": "queue", "name": "q"}, "headgate queue set q --throttle "),
        ({"kind": "pool", "scope": "pool", "name": "p"}, "headgate pool set p --concurrency "),
        ({"kind": "isolated", "scope": "pool", "name": "p"}, "headgate worker APP --pool p --queues q "),
        ({"kind": "retry", "scope": "job"}, "headgate job retry j "),
        ({"kind": "rate", "scope": "tenant", "name": "t", "remedy": "PUT it"}, "PUT it"),
        ({"kind": "scheduled", "scope": "job"}, ""),
        ({"kind": "something new", "scope": "job", "remedy": "Wait."}, "Wait."),
    ],
)  # fmt: skip
def test_every_barrier_has_the_command_that_would_end_it(
    barrier: dict[str, object], command: str
) -> None:
    found = remedy(barrier, JOB)
    assert found.startswith(command)
    assert bool(found) == bool(command)


def test_a_remedy_is_said_once() -> None:
    barriers = [{"kind": "paused", "scope": "queue", "name": "q", "remedy": "POST it"}] * 2
    told = list(sentences(JOB | {"summary": ["It waits.", "POST it"], "barriers": barriers}))
    assert told == ["It waits.", "headgate queue resume q lets it give out jobs again."]
