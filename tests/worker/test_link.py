"""What a worker says to servers of every kind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate import OjsConnectionError, OjsError, Waits
from headgate.client.core import Core
from headgate.worker.link import ChosenLink, Identity, Traded, Turn
from headgate.worker.outcome import Ack, Nack
from tests.client.fakes import Asked, FakeClock, FakeServer, answer, cut, refused

IDENTITY = Identity("w", ["a", "b"], 5, "host", 7, {}, "1", "general", "2027-01-01T00:00:00.000Z")
ACKS = [Ack("1", 4, b'{"x":1}'), Ack("2", 0)]
NACKS = [Nack("3", 2, {"code": "c", "message": "m"}, requeue=True, after_ms=500)]
TURN = Turn(acks=ACKS, nacks=NACKS, extend=[("4", 9), ("5", 0)], beat=True, fetch=3)


def exchanged(**more: Any) -> Any:
    body = {
        "acks": [],
        "nacks": [],
        "extend": [],
        "state": "running",
        "cancelled_jobs": [],
        "jobs": [],
    }
    return answer(200, body | more)


def trade(server: FakeServer, *turns: Turn, exchange: bool | None = None) -> list[Traded]:
    core = Core(server, clock=FakeClock(), waits=Waits(), timeout_s=5)
    link = ChosenLink(core, IDENTITY, exchange)

    async def story() -> list[Traded]:
        return [await link.trade(turn) for turn in turns]

    return asyncio.run(story())


def headgate(then: Any) -> Any:
    def reply(asked: Asked) -> Any:
        if asked.path == "/ojs/manifest":
            return answer(200, {"implementation": {"name": "Headgate"}})
        return then(asked) if callable(then) else then

    return reply


def test_an_exchange_says_everything_at_once() -> None:
    server = FakeServer(
        headgate(
            exchanged(
                acks=[{"job_id": "1", "state": "completed"}, {"job_id": "2", "error": {"code": "conflict"}}],
                nacks=[{"job_id": "3", "state": "available"}],
                extend=[{"job_id": "4", "error": {"code": "conflict"}}, {"job_id": "5", "state": "active"}],
                cancelled_jobs=["6"], state="quiet", jobs=[{"id": "7"}],
            )
        )
    )  # fmt: skip
    (traded,) = trade(server, TURN)
    assert server.asked[1].body == {
        "worker_id": "w", "state": "running",
        "acks": [{"job_id": "1", "claim": 4, "result": {"x": 1}}, {"job_id": "2"}],
        "nacks": [{"job_id": "3", "claim": 2, "error": {"code": "c", "message": "m"}, "requeue": True,
                   "retry_after_ms": 500}],
        "extend": [{"job_id": "4", "claim": 9}, "5"],
        "fetch": {"queues": ["a", "b"], "count": 3, "wait_ms": 0, "pool": "general"},
    }  # fmt: skip
    assert [error and error.status for error in traded.acks] == [None, 409]
    assert traded.nacks == [None]
    assert (traded.lost, traded.cancelled, traded.state) == (["4"], ["6"], "quiet")
    assert traded.jobs == [{"id": "7"}]
    assert traded.delayed == [False]


def test_the_manifest_is_asked_once() -> None:
    server = FakeServer(headgate(exchanged()))
    trade(server, Turn(fetch=1), Turn(fetch=1))
    assert [one.path for one in server.asked] == ["/ojs/manifest", *["/workers/exchange"] * 2]


@pytest.mark.parametrize(
    "manifest",
    [answer(200, {"implementation": {"name": "other"}}), answer(200, []), answer(200, None),
     refused(404, "not_found")],
)  # fmt: skip
def test_another_server_gets_standard_requests_only(manifest: Any) -> None:
    def reply(asked: Asked) -> Any:
        match asked.path:
            case "/workers/ack":
                return answer(200, {"state": "completed"})
            case "/workers/nack":
                return refused(409, "conflict")
            case "/workers/heartbeat":
                return answer(
                    200, {"state": "running", "jobs_extended": ["5"], "cancelled_jobs": []}
                )
            case _:
                return answer(200, {"jobs": [{"id": "7"}]})

    server = FakeServer(manifest, reply)
    (traded,) = trade(server, TURN)
    said = {one.path: one.body for one in server.asked[1:]}
    assert [one.path for one in server.asked[1:3]] == ["/workers/ack"] * 2
    assert said["/workers/nack"]["worker_id"] == "w"
    assert said["/workers/heartbeat"]["active_jobs"] == ["4", "5"]
    assert said["/workers/heartbeat"]["queues"] == ["a", "b"]
    assert said["/workers/fetch"] == {
        "worker_id": "w",
        "queues": ["a", "b"],
        "count": 3,
        "pool": "general",
    }
    assert traded.acks == [None, None]
    assert [error and error.status for error in traded.nacks] == [409]
    assert traded.lost == ["4"]
    assert traded.jobs == [{"id": "7"}]


def test_without_jobs_extended_nothing_counts_as_lost() -> None:
    server = FakeServer(answer(200, {"state": "running"}))
    (traded,) = trade(server, Turn(extend=[("4", 0)], beat=True), exchange=False)
    assert traded.lost == []


@pytest.mark.parametrize("body", [{"jobs": []}, {"job": None}, {"jobs": None}, {}])
def test_no_jobs_in_every_shape(body: dict[str, Any]) -> None:
    (traded,) = trade(FakeServer(answer(200, body)), Turn(fetch=1), exchange=False)
    assert traded.jobs == []


@pytest.mark.parametrize("missing", [refused(404, "not_found"), refused(405, "method_not_allowed")])
def test_a_server_that_lost_the_exchange_is_not_asked_for_it_again(missing: Any) -> None:
    server = FakeServer(missing, answer(200, {"jobs": []}))
    trade(server, Turn(fetch=1), Turn(fetch=1), exchange=True)
    assert [one.path for one in server.asked] == ["/workers/exchange", *["/workers/fetch"] * 2]


@pytest.mark.parametrize("status", [400, 413, 422])
def test_an_exchange_that_is_refused_as_a_whole_goes_item_by_item(status: int) -> None:
    server = FakeServer(refused(status, "x"), answer(200, {}))
    (traded,) = trade(server, Turn(acks=ACKS), exchange=True)
    assert [one.path for one in server.asked] == ["/workers/exchange", *["/workers/ack"] * 2]
    assert traded.acks == [None, None]


def test_an_exchange_that_nobody_answered_is_an_error() -> None:
    with pytest.raises(OjsConnectionError):
        trade(FakeServer(cut()), TURN, exchange=True)


def test_a_single_answer_that_nobody_confirmed_is_an_error_of_its_own() -> None:
    server = FakeServer(cut(), answer(200, {}))
    (traded,) = trade(server, Turn(acks=ACKS, fetch=1), exchange=False)
    assert [type(error) for error in traded.acks] == [OjsConnectionError, type(None)]


def test_a_heartbeat_that_nobody_heard_is_an_error() -> None:
    with pytest.raises(OjsError):
        trade(FakeServer(cut()), Turn(beat=True), exchange=False)
